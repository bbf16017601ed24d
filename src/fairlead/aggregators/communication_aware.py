"""Inverse-probability weights against unequal links: c-a-FedAvg and c-a-FedNova."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairlead.aggregators.base import LinearAggregator
from fairlead.aggregators.weighted_mean import WeightedMean
from fairlead.errors import ClashError
from fairlead.records import ClientUpdates, Conditions


@dataclass(frozen=True)
class CommunicationAware(LinearAggregator):
    """Divides every importance by the chance of arriving, then lets another rule aggregate.

        importance_i ← importance_i/(1 − q_i),  then `inner` as if no update were ever lost

    Symbols: 1 − q_i `Conditions.arrival`, `inner` any rule of the linear family. With the default, the
    anonymous weighted mean, it is c-a-FedAvg (Weng 2025 (113)): Σ_R importance_i Δ_i/(1 − q_i), whose mean is
    that of perfect links. With `FedNova("expected", over="asked")` it is c-a-FedNova, which corrects
    unequal links and unequal work; τ_eff is then Σ ω_i‖a_i‖₁.

    Reduces to `inner` on perfect links.

    Differs from the paper: (113d) is read with η_eff = η and T_eff = Σ ω_i‖a_i‖₁ (its braces are shifted).
    An `inner` that normalises over arrivals is allowed: that is a ratio of two unbiased sums, of smaller
    variance, consistent for large cohorts.
    """

    inner: LinearAggregator = WeightedMean(over="asked")

    references = ("perazzone2022", "weng2025fedacs")

    def __post_init__(self) -> None:
        if isinstance(self.inner, CommunicationAware):
            raise ClashError(
                "CommunicationAware.inner would divide by the arrival rates a second time: leave one out."
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
                "CommunicationAware divides by the arrival rates, and this world does not know them: use "
                "FedAU, which learns them from what arrives."
            )
        chance = arrival[updates.clients]
        if bool((chance <= 0).any()):
            raise ClashError(
                f"CommunicationAware divides by arrival rates, and the world gives 0 for clients "
                f"{updates.clients[chance <= 0].tolist()[:10]}, whose updates arrived: correct the rates."
            )
        corrected = replace(updates, importance=updates.importance / chance)
        lossless = replace(
            conditions,
            forecast_work=lambda: conditions.effective_steps,
            forecast_arrival=lambda: torch.ones_like(arrival),
        )
        return self.inner.coefficients(corrected, lossless)
