"""Control variates: the variance reduction of SCAFFOLD and of FedNova-VR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fairlead.corrections.base import Correction, Extent, LocalOutcome, LocalResult
from fairlead.errors import require_choice
from fairlead.records import ClientUpdates, Vectors


@dataclass(frozen=True)
class ControlVariates(Correction):
    """Replaces the client's own drift by the average one (SCAFFOLD, Karimireddy et al. 2020).

        g ← g − c_i + c
        c_i⁺ = ∇F_i(x)                                    (estimate = "anchor": option I)
        c_i⁺ = c_i − c + (x − y_i)/(η‖a_i‖₁)              (estimate = "path": option II)
        c ← c + Σ_R ω_i (c_i⁺ − c_i)

    Symbols: c_i `memory["control"]`, c `shared["control_mean"]`, R the clients that arrived. Option II
    is the mean of the raw local gradients, weighted by a_i.

    Reduces to SCAFFOLD's printed option II for plain SGD, where ‖a_i‖₁ = τ_i, and to its
    (1/N)Σ(c_i⁺ − c_i) for uniform weights. With the aggregator `FedNova` it is FedNova-VR (Wang 2021), read
    with raw gradients: d_i of the paper is c_i.

    Differs from the paper: own τ_i and, for option II, any linear solver; unbiased for unequal work and
    links.
    """

    estimate: Literal["path", "anchor"] = "path"

    references = ("karimireddy2020scaffold", "wang2021fednova")
    memory_extent: ClassVar[dict[str, Extent]] = {"control": "vector"}
    shared_names: ClassVar[tuple[str, ...]] = ("control_mean",)
    restores_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_choice(self, "estimate", ("path", "anchor"))

    @property
    def needs_effective_steps(self) -> bool:
        return self.estimate == "path"

    @property
    def needs_anchor_gradient(self) -> bool:
        return self.estimate == "anchor"

    def initial_shared(self, params: Tensor) -> Vectors:
        return {"control_mean": torch.zeros_like(params)}

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        return gradient - memory["control"] + shared["control_mean"]

    def after_steps(self, outcome: LocalOutcome, memory: Vectors, shared: Vectors) -> LocalResult:
        old = memory["control"]
        if self.estimate == "anchor":
            assert outcome.anchor_gradient is not None
            new = outcome.anchor_gradient
        elif outcome.lr == 0:
            # A schedule may end at 0: such a client has gone nowhere and learnt nothing.
            new = old
        else:
            assert outcome.effective_steps is not None
            travelled = outcome.delta / (outcome.lr * outcome.effective_steps)
            new = old - shared["control_mean"] - travelled
        return LocalResult(outcome.delta, {"control": new}, {"control_change": new - old})

    def update_shared(self, shared: Vectors, updates: ClientUpdates, weights: Tensor) -> Vectors:
        change = updates.messages["control_change"]
        return {"control_mean": shared["control_mean"] + weights.to(change) @ change}
