"""The role `Aggregator`: one direction from the updates that arrived."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from fairlead.client_table import PartState
from fairlead.component import MethodPart
from fairlead.errors import ClashError
from fairlead.numerics.rows import wide_sum
from fairlead.records import (
    Aggregate,
    ClientUpdates,
    Conditions,
    ExpectedRound,
    Limit,
    MeanCoefficients,
    NotKnown,
    Population,
)


class Aggregator(MethodPart, ABC):
    """Computes the direction that the server adds from the updates that arrived.

    It is also called in rounds without arrivals: participation counters may then advance and nothing else
    may change. The server follows the direction of such a round only if it names `remembered` updates.
    """

    needs_correction: ClassVar[str | None] = None
    """Class name of the correction that it makes sense with, for halves of a method."""

    proposes_descent: ClassVar[bool] = True
    """Whether its direction descends from the current model: x − η_g d̃ in Zeng 2025."""

    divides_by: ClassVar[str | None] = None
    """The figure of clients that coefficients divide by beside the sampler's importance, in words."""

    needs_single_updates: ClassVar[bool] = True

    needs_whole_rounds: ClassVar[bool] = False
    """Whether it takes every client that was asked in a round and has not arrived in it for lost."""

    robust: ClassVar[bool] = False
    """Whether it tolerates a few hostile rows: rows that are not finite are then dropped and do not stop a run."""

    def init(self, population: Population) -> PartState:
        """State before the first round."""
        return {}

    @abstractmethod
    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        """Direction, new state and the coefficients really used."""

    def sum_weights(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Tensor:
        """Weights (k, m) of the sums Σ w_i Δ_i that suffice for `aggregate`; `updates` come with empty rows."""
        coefficients = self.aggregate(updates, state, conditions).coefficients
        if coefficients is None or not bool(coefficients.isfinite().all()):
            raise ClashError(
                f"{type(self).__name__} uses more than one sum, or losses of single clients, which secure aggregation "
                "hides: define its `sum_weights`, or set Algorithm.secure_aggregation to false."
            )
        return coefficients[None]

    @property
    def averages_arrivals(self) -> bool:
        """Whether the direction is the mean of the received updates, weighted by importance."""
        return False

    def limit(self, weights: Tensor) -> Limit | None:
        """Where methods with this aggregator stop, if that does not depend on the clients' contributions."""
        return None

    def mean_coefficients(self, expected: ExpectedRound) -> MeanCoefficients | NotKnown:
        """C, the mean coefficient of each client's updates in a round, for predicted weights Ω_i ∝ C_i‖a_i‖₁."""
        return NotKnown(f"{type(self).__name__} has no theory of its mean coefficients.")


def refuse_claimed_weights(aggregator: Aggregator) -> None:
    """Raise for a robust aggregator if clients report their own weights: one could then dominate."""
    if aggregator.robust:
        raise ClashError(
            f"{type(aggregator).__name__} tolerates hostile clients with a minority of the weight, but here each "
            "client reports its own size, so that one could claim most of the weight: write weights = 'uniform'."
        )


class LinearAggregator(Aggregator, ABC):
    """Family of weighted sums Σ_R coefficient_i Δ_i: a subclass implements `coefficients`.

    Coefficients may depend on the cohort, the arrivals, their work and their examples, and must not depend on the
    updates. Mean coefficients follow from them, unless they depend on losses or on facts that a world does not know
    before a round.
    """

    needs_single_updates = False

    @abstractmethod
    def coefficients(self, updates: ClientUpdates, conditions: Conditions) -> Tensor:
        """One float64 number per row that arrived, (m,); never called without rows."""

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        coefficients = updates.importance
        if len(updates):
            coefficients = self.coefficients(updates, conditions)
        return Aggregate(weighted_sum(coefficients, updates.delta), state, coefficients)

    def mean_coefficients(self, expected: ExpectedRound) -> MeanCoefficients | NotKnown:
        mean = expected.mean_of(self.coefficients)
        return NotKnown(f"{type(self).__name__} {mean.reason}") if isinstance(mean, NotKnown) else mean


def weighted_sum(coefficients: Tensor, rows: Tensor) -> Tensor:
    """Σ coefficient_i row_i in float64, in client order, so that the result does not depend on arrival order."""
    return wide_sum(coefficients, rows)


def normalized(importance: Tensor) -> Tensor:
    """p̂: the importance of the rows that arrived, scaled to sum 1; equal if all are zero."""
    total = importance.sum()
    return importance / total if total > 0 else importance.new_full((len(importance),), 1 / len(importance))
