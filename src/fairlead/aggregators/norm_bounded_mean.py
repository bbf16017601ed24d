"""The mean of updates that are shortened to a common length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from fairlead.aggregators.base import Aggregator, normalised, weighted_sum
from fairlead.client_table import PartState
from fairlead.errors import require_choice, require_number
from fairlead.order_statistics import weighted_median
from fairlead.records import Aggregate, ClientUpdates, Conditions, Population


@dataclass(frozen=True)
class NormBoundedMean(Aggregator):
    """Averages updates none of which is longer than a bound (Sun et al. 2019).

        Σ_R p̂_i Δ_i·min(1, b/‖Δ_i‖)

    Symbols: R the clients that arrived, p̂_i their importance normalised, b `bound`: a number, or the weighted
    median of the arrivals' lengths ("median"), which needs no tuning and follows the training. Clients with
    a share s of p̂ move the direction by s·b at most. The record holds p̂_i·min(1, b/‖Δ_i‖).

    Reduces to `WeightedMean` while no update is longer than b.

    Differs from the paper: the choice of the median. Limit: where the shortened pulls cancel, between the
    weighted mean and the geometric median of the clients' pulls; for clients that differ, the minimiser of
    no weighted sum of their objectives that is known beforehand.
    """

    bound: Literal["median"] | float = "median"

    references = ("sun2019backdoor",)
    robust: ClassVar[bool] = True
    needs_effective_steps: ClassVar[bool] = False
    needs_arrival: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.bound, str):
            require_choice(self, "bound", ("median",))
        else:
            require_number(self, "bound", above=0)

    def init(self, population: Population) -> PartState:
        return {}

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, updates.importance)
        shares = normalised(updates.importance)
        lengths = torch.linalg.vector_norm(updates.delta, dim=1, dtype=torch.float64).cpu()
        bound = weighted_median(lengths[:, None], shares) if self.bound == "median" else self.bound
        coefficients = torch.where(lengths > bound, shares * bound / lengths, shares)
        return Aggregate(weighted_sum(coefficients, updates.delta), state, coefficients)
