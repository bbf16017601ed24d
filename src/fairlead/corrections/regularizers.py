"""Penalties on the distance to the anchor: FedProx and FedDyn."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fairlead.corrections.base import Correction, Extent, LocalOutcome, LocalResult
from fairlead.errors import require_number
from fairlead.records import Vectors


@dataclass(frozen=True)
class Proximal(Correction):
    """Pulls the local model back to the anchor (FedProx, Li et al. 2020).

        F_i(y) + (μ/2)‖y − x‖²,   so   g ← g + μ (y − x)

    Symbols: μ `mu`, x the anchor, y the local parameters.

    Reduces to no correction for μ = 0. The solver stays linear, with a_j = (1 − ημ)^(τ−1−j).
    """

    mu: float
    references = ("li2020fedprox",)

    def __post_init__(self) -> None:
        require_number(self, "mu", at_least=0)

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        return gradient + self.mu * (local - anchor)


@dataclass(frozen=True)
class DynamicRegularizer(Correction):
    """Adds a penalty that makes the global optimum stationary for every client (FedDyn, Acar et al. 2021).

        F_i(y) − ⟨L_i, y⟩ + (α/2)‖y − x‖²,   so   g ← g − L_i + α (y − x)
        L_i ← L_i − α (y_i − x)

    Symbols: L_i `memory["slope"]`, which tends to ∇F_i; α `alpha`; x the anchor, y the local parameters.

    It is the client's half of FedDyn and works only with the aggregator `FedDyn`, whose running sum makes
    x the place where Σ ω_i L_i = 0. There y_i = x and L_i = ∇F_i(x) for all clients, whatever their work
    and their links: the limit is the optimum.

    Differs from the authors' code, which scales α by client size, clips gradients and stores Σ(y_i − x)
    instead of L_i; the last is equivalent.
    """

    alpha: float

    references = ("acar2021feddyn",)
    memory_extent: ClassVar[dict[str, Extent]] = {"slope": "vector"}
    needs_aggregator: ClassVar[str | None] = "FedDyn"
    restores_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_number(self, "alpha", above=0)

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        return gradient - memory["slope"] + self.alpha * (local - anchor)

    def after_steps(self, outcome: LocalOutcome, memory: Vectors, shared: Vectors) -> LocalResult:
        return LocalResult(outcome.delta, {"slope": memory["slope"] - self.alpha * outcome.delta}, {})
