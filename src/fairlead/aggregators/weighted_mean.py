"""The weighted mean of FedAvg and of Weng 2025's anonymous aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fairlead.aggregators.base import LinearAggregator, normalised
from fairlead.errors import require_choice
from fairlead.records import ClientUpdates, Conditions


@dataclass(frozen=True)
class WeightedMean(LinearAggregator):
    """Averages updates by their importance.

        Σ_R p̂_i Δ_i,  p̂_i = importance_i/Σ_R importance_j     (over = "received")
        Σ_R importance_i Δ_i                                    (over = "asked")

    Symbols: R the clients that arrived. "received" is FedAvg as McMahan et al. corrected it and as all
    released code has it; "asked" is Weng 2025's anonymous aggregation, in which a lost update counts as zero
    and the server never needs to know who sent what.

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
