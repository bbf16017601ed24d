"""The mean of every coordinate without its extremes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fairlead.aggregators.base import Aggregator, normalised
from fairlead.client_table import PartState
from fairlead.errors import require_number
from fairlead.order_statistics import weighted_trimmed_mean
from fairlead.records import Aggregate, ClientUpdates, Conditions, Population


@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """Averages in every coordinate what is left when the extremes are cut off (Yin et al. 2018).

        direction_k = mean of (Δ_i)_k over the weight between the quantiles β and 1 − β

    Symbols: β `trim`, quantiles with the weights p̂_i, the importance of the arrivals normalised. A client at
    the edge counts with what is left of its weight. Whatever clients with at most a share β of p̂ send, every
    coordinate stays within the range of the others'.

    Tends to `WeightedMean` for β → 0 and to `CoordinateMedian` for β → ½.

    Differs from the paper: weights p̂_i, and shares of weight instead of whole clients are cut off; for equal
    importance and a whole number βm of clients it is the paper's. Limit: where the trimmed pulls cancel in
    every coordinate, which for clients that differ is the minimiser of no weighted sum of their objectives.
    """

    trim: float = 0.2

    references = ("yin2018byzantine",)
    robust: ClassVar[bool] = True
    needs_effective_steps: ClassVar[bool] = False
    needs_arrival: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_number(self, "trim", above=0, below=0.5)

    def init(self, population: Population) -> PartState:
        return {}

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, None)
        shares = normalised(updates.importance)
        return Aggregate(weighted_trimmed_mean(updates.delta, shares, self.trim), state, None)
