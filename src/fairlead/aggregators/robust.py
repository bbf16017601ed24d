"""Aggregators that tolerate a few hostile clients: medians, trimmed means, bounded updates, Krum."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator, normalized, weighted_sum
from fairlead.client_table import PartState
from fairlead.component import Positive, PositiveCount, RealRange
from fairlead.numerics.rows import inner_products, squared_distances, weighted_median, weighted_trimmed_mean
from fairlead.records import Aggregate, ClientUpdates, Conditions, Limit


class _Robust(Aggregator, ABC):
    """Family of directions that a few hostile clients hardly move; without arrivals nothing changes."""

    robust = True
    stops: ClassVar[str]
    """Where training stops, to complete the sentence on the limit."""

    @abstractmethod
    def combined(self, rows: Tensor, shares: Tensor) -> tuple[Tensor, Tensor | None]:
        """Direction and coefficients (m,), if it is a sum, of updates (m, d) with their importance normalized (m,)."""

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, updates.importance)
        direction, coefficients = self.combined(updates.delta, normalized(updates.importance))
        return Aggregate(direction, state, coefficients)

    def limit(self, weights: Tensor) -> Limit:
        said = f"{type(self).__name__} minimizes no weighted sum of the clients' objectives{self.stops}"
        return Limit(None, said)


@dataclass(frozen=True)
class CoordinateMedian(_Robust):
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
    stops = ": it stops where as much weight pulls every coordinate up as down, however strongly."

    def combined(self, rows: Tensor, shares: Tensor) -> tuple[Tensor, None]:
        return weighted_median(rows, shares), None


@dataclass(frozen=True)
class TrimmedMean(_Robust):
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

    trim: Annotated[float, RealRange(above=0, below=0.5)] = 0.2

    references = ("yin2018byzantine",)
    stops = ": it stops where, in every coordinate, the pulls cancel once the strongest on both sides are left out."

    def combined(self, rows: Tensor, shares: Tensor) -> tuple[Tensor, None]:
        return weighted_trimmed_mean(rows, shares, self.trim), None


@dataclass(frozen=True)
class NormBoundedMean(_Robust):
    """Averages updates after shortening them to a bound (Sun et al. 2019).

        Σ_R p̂_i Δ_i·min(1, b/‖Δ_i‖)

    Symbols: R the clients that arrived, p̂_i their importance normalized, b `bound`: a number, or the weighted
    median of the arrivals' lengths ("median"), which needs no tuning and follows the training. Clients with
    a share s of p̂ move the direction by s·b at most. The record holds p̂_i·min(1, b/‖Δ_i‖).

    Reduces to `WeightedMean` while no update is longer than b.

    Differs from the paper: the choice of the median. Limit: where the shortened pulls cancel, between the
    weighted mean and the geometric median of the clients' pulls; for clients that differ, the minimizer of
    no weighted sum of their objectives that is known beforehand.
    """

    bound: Literal["median"] | Positive = "median"

    references = ("sun2019backdoor",)
    stops = (
        " that is known beforehand: it stops where updates of bounded length cancel, so clients far from the others "
        "count less than their weight."
    )

    def combined(self, rows: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        lengths = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).cpu()
        bound = weighted_median(lengths[:, None], shares) if self.bound == "median" else self.bound
        coefficients = torch.where(lengths > bound, shares * bound / lengths, shares)
        return weighted_sum(coefficients, rows), coefficients


@dataclass(frozen=True)
class Krum(_Robust):
    """Follows the updates that are closest to most of the others (Blanchard et al. 2017).

        score_i = Σ ‖Δ_i − Δ_j‖² over the m − f − 2 nearest j,   direction = Σ_S p̂_i Δ_i / Σ_S p̂_i

    Symbols: m the updates that arrived, f = ⌈`hostile`·m⌉ of them hostile at most, S the `keep` updates of the lowest
    scores, p̂_i importance normalized. `keep` = 1 is Krum; None keeps m − f updates, Multi-Krum. An update always has
    a neighbor, however few arrive, and among equal scores those of larger importance come first.

    Reduces to the update itself for one arrival, and to `WeightedMean` for `hostile` = 0 and `keep` = None.

    Differs from the paper: weights p̂_i among the selected, a share of hostile clients instead of a number, and ties go
    to larger importance instead of smaller ids. Hostile clients are counted, whatever their weight: the guarantee needs
    2f + 2 < m. Limit: where the selected updates cancel, or jumps between clients; for clients that differ, the
    minimizer of no weighted sum of their objectives.
    """

    hostile: Annotated[float, RealRange(at_least=0, below=0.5)] = 0.2
    keep: PositiveCount | None = 1

    references = ("blanchard2017krum",)
    stops = ": it follows the clients whose updates are closest to the others', and leaves the rest out."

    def combined(self, rows: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        arrived = len(rows)
        # 0.1 of 30 is three, and not a little more.
        hostile = math.ceil(self.hostile * arrived - 1e-9)
        nearest = squared_distances(rows).sort(dim=1).values[:, 1:]
        scores = nearest[:, : max(arrived - hostile - 2, 1)].sum(1)
        by_importance = shares.argsort(descending=True, stable=True)
        order = by_importance[scores[by_importance].argsort(stable=True)]
        kept = order[: max(arrived - hostile, 1) if self.keep is None else self.keep]
        coefficients = torch.zeros_like(shares)
        coefficients[kept] = normalized(shares[kept])
        return weighted_sum(coefficients, rows), coefficients


@dataclass(frozen=True)
class GeometricMedian(_Robust):
    """Follows the point with the least weighted distance from all updates (RFA, Pillutla et al. 2022).

        direction = argmin_z Σ_R p̂_i ‖z − Δ_i‖,   by   z ← Σ β_i Δ_i / Σ β_i,   β_i = p̂_i/max(ν, ‖z − Δ_i‖)

    Symbols: R the clients that arrived, p̂_i their importance normalized, ν `smoothing` (Weiszfeld's algorithm,
    smoothed). Whatever clients with less than half of p̂ send, the direction stays near the others' updates. The record
    holds β_i/Σ β_j.

    Reduces to the weighted median for models with one parameter, and to `WeightedMean` for ν above all distances.

    Differs from the paper: iterates until no weight moves by more than 10⁻¹², 1000 times at most, where the paper stops
    after three, and starts from a mean in which distant updates count less, so that huge ones cost no digits. Limit:
    where pulls of equal length cancel; for clients that differ, the minimizer of no weighted sum of their objectives.
    """

    smoothing: Positive = 1e-6

    references = ("pillutla2022rfa",)
    stops = ": it stops where the clients' pulls cancel if each counts with its weight, however long it is."

    def combined(self, rows: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        usual = weighted_median(squared_distances(rows).sqrt(), shares)
        floor = weighted_median(usual[:, None], shares).clamp(min=self.smoothing)
        coefficients = normalized(shares / torch.maximum(usual, floor))
        # Products of differences from a central row: those of the rows would lose the distances beside huge ones.
        products = inner_products(rows - rows[usual.argmin()], torch.arange(len(rows))).cpu()
        for _ in range(_ITERATIONS):
            along = products @ coefficients
            squares = products.diagonal() - 2 * along + coefficients @ along
            distances = squares.clamp(min=0).sqrt()
            before, coefficients = coefficients, normalized(shares / distances.clamp(min=self.smoothing))
            if float((coefficients - before).abs().max()) < _SETTLED:
                break
        return weighted_sum(coefficients, rows), coefficients


_ITERATIONS, _SETTLED = 1000, 1e-12
