"""Weighted sums of the updates: the means of FedAvg, FedNova and their link-corrected forms."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fairlead.aggregators.base import LinearAggregator, normalised
from fairlead.errors import ClashError, field_error, require_choice, require_number
from fairlead.records import ClientUpdates, Conditions


@dataclass(frozen=True)
class WeightedMean(LinearAggregator):
    """Averages updates by their importance.

        Σ_R p̂_i Δ_i,  p̂_i = importance_i/Σ_R importance_j     (over = "received")
        Σ_R importance_i Δ_i                                    (over = "asked")

    Symbols: R the clients that arrived. "received" is FedAvg as McMahan et al. corrected it and as all
    released code has it; "asked" is Weng 2025's anonymous aggregation, in which a lost update counts as zero
    and the server need not know the sender of an update.

    Reduces to the plain mean for equal importance.
    """

    over: Literal["received", "asked"] = "received"

    references = ("mcmahan2017fedavg",)

    def __post_init__(self) -> None:
        require_choice(self, "over", ("received", "asked"))

    @property
    def averages_arrivals(self) -> bool:
        return self.over == "received"

    def coefficients(self, updates: ClientUpdates, conditions: Conditions) -> Tensor:
        return normalised(updates.importance) if self.over == "received" else updates.importance


@dataclass(frozen=True)
class FedNova(LinearAggregator):
    """Divides every update by the work behind it, then scales by a common amount of work.

        τ_eff Σ_R p̂_i Δ_i/‖a_i‖₁                  (over = "received": Wang 2021 (20))
        τ_eff Σ_R importance_i Δ_i/‖a_i‖₁           (over = "asked": Weng 2025 (116))

    Symbols: p̂_i the importance normalized over arrivals, ‖a_i‖₁ `effective_steps`, τ_eff the effective
    steps of the round (`tau_eff`):

    - "work", the default: Σ_R p̂_i‖a_i‖₁;
    - "steps", the paper's choice for proximal solvers: Σ_R p̂_i τ_i;
    - "expected", Weng 2025's choice: Σ ω_i(1−q_i)‖a_i‖₁/Σ ω_i(1−q_i) over all clients, from `Conditions`;
    - a number.

    The last two do not depend on the arrivals. The first two do, and the product with the sum is then
    biased by O(1/cohort) where work and gradients are correlated.

    Reduces to `WeightedMean` when all clients do the same work.

    Differs from released code in which τ_eff cancels because the weights p̂_i/‖a_i‖₁ are normalized once
    more: that gives the harmonic instead of the arithmetic mean of the work. Consistent as η → 0.
    """

    tau_eff: Literal["work", "steps", "expected"] | float = "work"
    over: Literal["received", "asked"] = "received"

    references = ("wang2021fednova",)
    needs_effective_steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_choice(self, "over", ("received", "asked"))
        if isinstance(self.tau_eff, str):
            require_choice(self, "tau_eff", ("work", "steps", "expected"))
        else:
            require_number(self, "tau_eff", above=0)

    @property
    def needs_arrival(self) -> bool:
        return self.tau_eff == "expected"

    def coefficients(self, updates: ClientUpdates, conditions: Conditions) -> Tensor:
        share, work = normalised(updates.importance), updates.effective_steps
        if work is None:
            raise field_error("ClientUpdates", "effective_steps", "known for FedNova", None)
        if self.tau_eff == "work":
            scale = share @ work
        elif self.tau_eff == "steps":
            scale = share @ updates.num_steps.to(share)
        elif self.tau_eff == "expected":
            scale = _expected_work(conditions)
        else:
            scale = share.new_tensor(self.tau_eff)
        return scale * (share if self.over == "received" else updates.importance) / work


def _expected_work(conditions: Conditions) -> Tensor:
    """T_eff of Weng 2025 (116b): the mean work behind an update that arrives under sampling by ω."""
    arrival, work = conditions.arrival, conditions.effective_steps
    if arrival is None or work is None:
        raise ClashError(
            'FedNova(tau_eff="expected") needs the arrival rate and the work of every client, but this world '
            'does not know them: use tau_eff="work", or a number.'
        )
    arriving = conditions.weights * arrival
    return arriving @ work / arriving.sum()


@dataclass(frozen=True)
class CommunicationAware(LinearAggregator):
    """Divides every importance by the chance of arriving, then applies another rule.

        importance_i ← importance_i/(1 − q_i),  then `inner` as if no update were lost

    Symbols: 1 − q_i `Conditions.arrival`, `inner` any rule of the linear family. With the default, the
    anonymous weighted mean, it is c-a-FedAvg (Weng 2025 (113)): Σ_R importance_i Δ_i/(1 − q_i), whose mean is
    that of perfect links. With `FedNova("expected", over="asked")` it is c-a-FedNova, which corrects
    unequal links and unequal work; τ_eff is then Σ ω_i‖a_i‖₁.

    Reduces to `inner` on perfect links.

    Differs from the paper: (113d) is read with η_eff = η and T_eff = Σ ω_i‖a_i‖₁ (its braces are shifted).
    An `inner` that normalizes over arrivals is allowed: that is a ratio of two unbiased sums, of smaller
    variance, consistent for large cohorts.
    """

    inner: LinearAggregator = WeightedMean(over="asked")

    references = ("perazzone2022", "weng2025fedacs")

    def __post_init__(self) -> None:
        if isinstance(self.inner, CommunicationAware):
            raise ClashError(
                "CommunicationAware.inner would divide by the arrival rates a second time: remove one of the two."
            )

    @property
    def needs_effective_steps(self) -> bool:
        return self.inner.needs_effective_steps

    @property
    def needs_arrival(self) -> bool:
        return True

    def coefficients(self, updates: ClientUpdates, conditions: Conditions) -> Tensor:
        arrival = conditions.arrival
        if arrival is None:
            raise ClashError(
                "CommunicationAware divides by the arrival rates, but this world does not know them: use "
                "FedAU, which estimates them from the updates that arrive."
            )
        chance = arrival[updates.clients]
        if bool((chance <= 0).any()):
            raise ClashError(
                f"CommunicationAware divides by arrival rates, but the world gives 0 for clients "
                f"{updates.clients[chance <= 0].tolist()[:10]}, whose updates arrived: correct the rates."
            )
        corrected = replace(updates, importance=updates.importance / chance)
        lossless = replace(
            conditions,
            forecast_work=lambda: conditions.effective_steps,
            forecast_arrival=lambda: torch.ones_like(arrival),
        )
        return self.inner.coefficients(corrected, lossless)
