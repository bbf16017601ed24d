"""Aggregators that tolerate a few hostile clients: medians, trimmed means, bounded updates."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator, normalized, weighted_sum
from fairlead.client_table import PartState
from fairlead.errors import require_choice, require_number
from fairlead.numerics.rows import weighted_median, weighted_trimmed_mean
from fairlead.records import Aggregate, ClientUpdates, Conditions, Limit


@dataclass(frozen=True)
class CoordinateMedian(Aggregator):
    """Follows the weighted median of the updates in every coordinate (Yin et al. 2018).

        direction_k = median of (Δ_i)_k over i ∈ R with weights p̂_i

    Symbols: R the clients that arrived, p̂_i their importance normalized. Whatever clients with less than
    half of p̂ send, every coordinate stays within the range of the others'.

    Reduces to the plain median for equal importance, and to the update itself for one arrival.

    Differs from the paper: weights p̂_i. Real clients may report their own sizes as weights, and a minority can
    then claim most of the weight: use uniform weights in such a federation.
    Limit: where as much weight pulls every coordinate up as down, which for clients that differ is the
    minimizer of no weighted sum of their objectives.
    """

    references = ("yin2018byzantine",)
    robust = True

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, None)
        return Aggregate(weighted_median(updates.delta, normalized(updates.importance)), state, None)

    def limit(self, weights: Tensor) -> Limit:
        return Limit(
            None,
            "CoordinateMedian minimizes no weighted sum of the clients' objectives: it stops where as much weight "
            "pulls every coordinate up as down, however strongly.",
        )


@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """Averages every coordinate without its extremes (Yin et al. 2018).

        direction_k = mean of (Δ_i)_k over the weight between the quantiles β and 1 − β

    Symbols: β `trim`, quantiles with the weights p̂_i, the importance of the arrivals normalized. A client at
    the edge counts with the rest of its weight. Whatever clients with at most a share β of p̂ send, every
    coordinate stays within the range of the others'.

    Tends to `WeightedMean` for β → 0 and to `CoordinateMedian` for β → ½.

    Differs from the paper: weights p̂_i, and shares of weight instead of whole clients are cut off; for equal
    importance and a whole number βm of clients it is the paper's. Limit: where the trimmed pulls cancel in
    every coordinate, which for clients that differ is the minimizer of no weighted sum of their objectives.
    """

    trim: float = 0.2

    references = ("yin2018byzantine",)
    robust = True

    def __post_init__(self) -> None:
        require_number(self, "trim", above=0, below=0.5)

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, None)
        shares = normalized(updates.importance)
        return Aggregate(weighted_trimmed_mean(updates.delta, shares, self.trim), state, None)

    def limit(self, weights: Tensor) -> Limit:
        return Limit(
            None,
            "TrimmedMean minimizes no weighted sum of the clients' objectives: it stops where the clients' pulls "
            f"cancel in every coordinate without the {self.trim:.0%} of weight that pull hardest up and down.",
        )


@dataclass(frozen=True)
class NormBoundedMean(Aggregator):
    """Averages updates none of which is longer than a bound (Sun et al. 2019).

        Σ_R p̂_i Δ_i·min(1, b/‖Δ_i‖)

    Symbols: R the clients that arrived, p̂_i their importance normalized, b `bound`: a number, or the weighted
    median of the arrivals' lengths ("median"), which needs no tuning and follows the training. Clients with
    a share s of p̂ move the direction by s·b at most. The record holds p̂_i·min(1, b/‖Δ_i‖).

    Reduces to `WeightedMean` while no update is longer than b.

    Differs from the paper: the choice of the median. Limit: where the shortened pulls cancel, between the
    weighted mean and the geometric median of the clients' pulls; for clients that differ, the minimizer of
    no weighted sum of their objectives that is known beforehand.
    """

    bound: Literal["median"] | float = "median"

    references = ("sun2019backdoor",)
    robust = True

    def __post_init__(self) -> None:
        if isinstance(self.bound, str):
            require_choice(self, "bound", ("median",))
        else:
            require_number(self, "bound", above=0)

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, updates.importance)
        shares = normalized(updates.importance)
        lengths = torch.linalg.vector_norm(updates.delta, dim=1, dtype=torch.float64).cpu()
        bound = weighted_median(lengths[:, None], shares) if self.bound == "median" else self.bound
        coefficients = torch.where(lengths > bound, shares * bound / lengths, shares)
        return Aggregate(weighted_sum(coefficients, updates.delta), state, coefficients)

    def limit(self, weights: Tensor) -> Limit:
        return Limit(
            None,
            "NormBoundedMean minimizes no weighted sum of the clients' objectives that is known beforehand: it "
            "stops where updates of bounded length cancel, so clients far from the others count less than "
            "their weight.",
        )
