"""The proximal term of FedProx."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairlead.corrections.base import Correction
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
