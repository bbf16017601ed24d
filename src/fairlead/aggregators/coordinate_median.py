"""The median of every coordinate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fairlead.aggregators.base import Aggregator, normalised
from fairlead.client_table import PartState
from fairlead.order_statistics import weighted_median
from fairlead.records import Aggregate, ClientUpdates, Conditions, Population


@dataclass(frozen=True)
class CoordinateMedian(Aggregator):
    """Follows the weighted median of the updates in every coordinate (Yin et al. 2018).

        direction_k = median of (Δ_i)_k over i ∈ R with weights p̂_i

    Symbols: R the clients that arrived, p̂_i their importance normalised. Whatever clients with less than
    half of p̂ send, every coordinate stays within the range of the others'.

    Reduces to the plain median for equal importance, and to the update itself for one arrival.

    Differs from the paper: weights p̂_i. Where clients report their own sizes and count by them, as real ones
    may, a minority of clients can claim most of the weight: give such a federation uniform weights.
    Limit: where as much weight pulls every coordinate up as down, which for clients that differ is the
    minimiser of no weighted sum of their objectives.
    """

    references = ("yin2018byzantine",)
    robust: ClassVar[bool] = True
    needs_effective_steps: ClassVar[bool] = False
    needs_arrival: ClassVar[bool] = False

    def init(self, population: Population) -> PartState:
        return {}

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, None)
        return Aggregate(weighted_median(updates.delta, normalised(updates.importance)), state, None)
