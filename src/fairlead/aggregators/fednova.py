"""Normalised averaging: FedNova."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fairlead.aggregators.base import LinearAggregator, normalised
from fairlead.errors import field_error, require_choice, require_number
from fairlead.records import ClientUpdates, Conditions


@dataclass(frozen=True)
class FedNova(LinearAggregator):
    """Divides every update by the work behind it, then scales by a common amount of work.

        τ_eff Σ_R p̂_i Δ_i/‖a_i‖₁                                     (003 (20))

    Symbols: p̂_i the importance normalised over arrivals, ‖a_i‖₁ `effective_steps`, τ_eff the effective
    steps of the round: Σ p̂_i‖a_i‖₁ (`tau_eff` = "work", the default), Σ p̂_i τ_i ("steps", the paper's
    choice for proximal solvers), or a number given by the user.

    Reduces to `WeightedMean` when all clients do the same work.

    Differs from released code in which τ_eff cancels because the weights p̂_i/‖a_i‖₁ are normalised once
    more: that gives the harmonic instead of the arithmetic mean of the work. Consistent as η → 0.
    """

    tau_eff: Literal["work", "steps"] | float = "work"

    references = ("wang2021fednova",)
    needs_effective_steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.tau_eff, str):
            require_choice(self, "tau_eff", ("work", "steps"))
        else:
            require_number(self, "tau_eff", above=0)

    def coefficients(self, updates: ClientUpdates, conditions: Conditions) -> Tensor:
        share, work = normalised(updates.importance), updates.effective_steps
        if work is None:
            raise field_error(self, "effective_steps", "known for every update", None)
        if self.tau_eff == "work":
            scale = share @ work
        elif self.tau_eff == "steps":
            scale = share @ updates.num_steps.to(share)
        else:
            scale = share.new_tensor(self.tau_eff)
        return scale * share / work
