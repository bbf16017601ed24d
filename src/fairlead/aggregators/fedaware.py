"""Adaptive weights from remembered updates: FedAWARE, and the same memory with static weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fairlead.aggregators.base import Aggregator, normalised, weighted_sum
from fairlead.aggregators.last_updates import remembered_mean
from fairlead.client_table import PartState, table_in
from fairlead.errors import FieldError
from fairlead.memory.aware_memory import Rows, Start, aware_memory_of, settle_aware
from fairlead.memory.update_memory import (
    FirstVisit,
    MovingAverages,
    UpdateMemory,
    averages_of,
    remembers_everything,
    settle_alpha,
    with_remembered_part,
)
from fairlead.records import (
    Aggregate,
    ClientUpdates,
    Conditions,
    ExpectedRound,
    Limit,
    MeanCoefficients,
    Population,
)


@dataclass(frozen=True)
class FedAWARE(Aggregator):
    """Follows the shortest vector in the hull of all clients' moving-averaged updates (Zeng 2025, Algorithm 1).

        m_i ← (1 − α) m_i + α Δ_i  for i ∈ R,    λ = argmin ‖Σ λ_j m_j‖² over the simplex,    d = Σ λ_j m_j

    Symbols: R the clients that arrived, Δ_i = −g_i their updates (the papers subtract Σ λ_j m_j of g_i, here
    it is added), α `alpha`, m_j the server's memory of client j, d the direction. Zeng 2023 writes α for 1 − α:
    that number is `retention`, to be given instead of `alpha`. The record holds the coefficient of every m_j
    in d, the size of the support, ‖d‖² and the duality gap of the solution.

    - `start`, before an update of every client of positive weight has arrived: the hull of those that have ("seen");
      FedAvg's step, while memory builds up ("all_seen", as released code does); or clients without an update
      count as zero vectors ("zero", the literal reading of m⁰ = 0), so that d = 0 and nothing moves. For a full
      first round, the remark of Zeng 2023, use the sampler `FullFirstRound`.
    - `first_visit`: m_i ← Δ_i ("update") or αΔ_i ("scaled"), see `MovingAverages`.
    - `rows`: "raw" as in the papers, or "unit": released code scales every m_j to length 1 and adds up the
      scaled ones. Then ‖d‖ ≤ 1 whatever the updates, and the server's learning rate sets the step. With raw
      rows d is no longer than the shortest of them: clients with few examples, whose updates are short, limit
      all steps, and a client that has fitted its data, so that its updates vanish, stops the run.
    - `rho`: the regularized hull, λ = argmin ‖Σ λ_j u_j‖² + ρ s‖λ‖² over the rows u_j, with s the mean of ‖u_j‖² (1
      for unit rows). With ρ = 0, as in the papers, few clients share the weight, and others do in the next
      round. With ρ > 0 λ is unique and changes little when rows do (`shortest_in_ridged_hull`).
    - `memory`: the parameters to remember and where to keep them. Parameters outside `memory.layers` follow
      FedAvg's mean of the arrivals; Zeng 2025 names the option for λ only and leaves them open.

    Reduces to the mean of the rows for ρ → ∞ (with raw rows and equal ω: `RememberedMean`);
    to the client's own memory for one client; to `FedMGDA(epsilon=1)` for α = 1 and unit rows when
    everyone arrives.

    Differs from the papers: an exact solver instead of Frank–Wolfe steps; an empty round changes nothing. It
    stops wherever the hull of the updates contains zero (a Pareto-stationary point that depends on the
    start), not at the minimum of Σ ω_i F_i; Zeng 2025's claim that d is never zero does not hold.

    >>> FedAWARE(retention=0.75) == FedAWARE(alpha=0.25)
    True
    """

    alpha: float | None = None
    retention: float | None = None
    start: Start = "seen"
    first_visit: FirstVisit = "update"
    rows: Rows = "raw"
    memory: UpdateMemory = UpdateMemory()
    rho: float = 0.0

    references = ("zeng2025fedaware", "zeng2023gradient", "wolfe1976", "judice1994")
    exemptions: ClassVar[Mapping[str, str]] = {
        "identical rows": 'rows="unit" and first_visit="scaled" change the length of the remembered updates'
    }

    def __post_init__(self) -> None:
        settle_aware(self)
        if self.rows == "unit" and self.memory.layers:
            raise FieldError(
                "FedAWARE.rows must be 'raw' where UpdateMemory.layers restricts the memory, since the other "
                f"parameters keep their own length, got {self.rows!r}."
            )

    def init(self, population: Population) -> PartState:
        return aware_memory_of(self).init(population)

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, None)
        aware = aware_memory_of(self)
        recalled = aware.recall(state, updates, conditions)
        if not recalled.ready:
            share = normalised(updates.importance)
            return Aggregate(weighted_sum(share, updates.delta), recalled.state, share, facts=recalled.facts)
        after, coefficients = recalled.state, recalled.coefficients
        remembered = aware.averages.by_client(after, coefficients, conditions.weights)
        direction = _step(aware.averages, after, coefficients, updates)
        shares = aware.shares(recalled, conditions.weights)
        return Aggregate(direction, after, None, remembered, recalled.facts, shares)

    def limit(self, weights: Tensor) -> Limit:
        return Limit(
            None,
            "FedAWARE minimizes no weighted sum of the clients' objectives: it stops at a Pareto-stationary "
            "point, where no direction helps every client; which point depends on the start.",
        )


@dataclass(frozen=True)
class RememberedMean(Aggregator):
    """Follows the mean of all clients' moving-averaged updates: Zeng 2025's ablation FedAWARE-NA.

        m_i ← (1 − α) m_i + α Δ_i  for i ∈ R,    then Σ_j ω_j m_j over all N clients

    Symbols and fields as in `FedAWARE`; clients without an update have m_j = 0, so that early steps are short.
    Parameters outside `memory.layers` follow FedAvg's mean of the arrivals.

    Reduces to `MIFA` for α = 1. Limit weights ∝ ω‖a‖₁: links cannot move it, unequal work can.
    """

    alpha: float | None = None
    retention: float | None = None
    first_visit: FirstVisit = "update"
    memory: UpdateMemory = UpdateMemory()

    references = ("zeng2025fedaware",)
    exemptions: ClassVar[Mapping[str, str]] = {
        "identical rows": 'first_visit="scaled" shortens the remembered updates'
    }

    def __post_init__(self) -> None:
        settle_alpha(self)

    def init(self, population: Population) -> PartState:
        return averages_of(self).init(population)

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, None)
        averages, weights = averages_of(self), conditions.weights
        state, _ = averages.renew(state, updates, conditions)
        coefficients = _row_weights(averages, state, weights)
        direction = _step(averages, state, coefficients, updates)
        remembered = averages.by_client(state, coefficients, weights)
        return Aggregate(direction, state, None, remembered, shares=remembered)

    def mean_coefficients(self, expected: ExpectedRound) -> MeanCoefficients:
        return remembered_mean(expected)


def _step(averages: MovingAverages, state: PartState, coefficients: Tensor, updates: ClientUpdates) -> Tensor:
    """Σ coefficient_i m_i, and the mean of the arrivals for parameters that are not remembered."""
    remembered = averages.combined(state, coefficients, updates.delta)
    if remembers_everything(state, updates.delta.shape[1]):
        return remembered
    mean = weighted_sum(normalised(updates.importance), updates.delta)
    return with_remembered_part(state, mean, remembered)


def _row_weights(averages: MovingAverages, state: PartState, weights: Tensor) -> Tensor:
    """ω of the rows seen, in their order: a client's own, or the sum over its cluster."""
    table = table_in(state, "averages")
    totals = weights.new_zeros(table.num_clients)
    return totals.index_add_(0, averages.memory.row_of(len(weights)), weights)[table.clients]
