"""The server's memory of updates, and the methods that follow it: MIFA, FedVARP, RememberedMean and FedAWARE."""

from abc import ABC
from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator, normalized, weighted_sum
from fairlead.client_table import ClientTable, PartState, table_in, tensor_in
from fairlead.component import BelowOne, PositiveShare
from fairlead.errors import FieldError
from fairlead.memory.update_memory import (
    AwareMemory,
    FirstVisit,
    MovingAverages,
    UpdateMemory,
    averages_of,
    remembers_everything,
    resolve_alpha,
    with_remembered_part,
)
from fairlead.records import (
    Aggregate,
    ClientUpdates,
    ClientWeights,
    Conditions,
    ExpectedRound,
    Limit,
    MeanCoefficients,
    NotKnown,
    Population,
)


def empty_table(population: Population) -> ClientTable:
    """No update remembered: every row reads as zero."""
    return ClientTable.create(
        population.num_clients,
        population.num_parameters,
        dtype=population.dtype,
        device=population.device,
        folder=population.tables_in,
    )


def renewed(state: PartState, updates: ClientUpdates, old: Tensor, weights: Tensor) -> PartState:
    """The memory with y_i ← Δ_i for the clients that arrived; `old` are their rows so far, `weights` all ω.

    The mean changes by m rows instead of N. It is kept in float64 and subtracts exactly the numbers that
    were added, so that rounding does not accumulate.
    """
    mean = tensor_in(state, "mean").clone()
    own = weights[updates.clients].tolist()
    for weight, new_row, old_row in zip(own, updates.delta, old, strict=True):
        mean.add_(new_row, alpha=weight).sub_(old_row, alpha=weight)
    return {"last": table_in(state, "last").write(updates.clients, updates.delta), "mean": mean}


def remembered_mean(expected: ExpectedRound) -> MeanCoefficients:
    """C_i = ω_i for every client that can arrive, once all of them are remembered."""
    return MeanCoefficients(expected.conditions.weights * expected.reachable, "long run", remembers=True)


class LastUpdates(Aggregator, ABC):
    """Family of methods that remember all clients' last updates y_i, zero at first, and their mean Σ ω_i y_i."""

    def init(self, population: Population) -> PartState:
        mean = torch.zeros(population.num_parameters, dtype=torch.float64, device=population.device)
        return {"last": empty_table(population), "mean": mean}

    def mean_coefficients(self, expected: ExpectedRound) -> MeanCoefficients:
        return remembered_mean(expected)


@dataclass(frozen=True)
class MIFA(LastUpdates):
    """Follows the mean of all clients' last updates, fresh or remembered (Gu et al. 2021).

        y_i ← Δ_i for i ∈ R,   then Σ_j ω_j y_j

    Symbols: R the clients that arrived, y_j the last update received from client j, zero at first. The sum
    is kept up to date, so that a round costs the rows that arrived and not all N.

    Reduces to `WeightedMean` when everyone arrives in every round.

    Differs from the paper: ω_j instead of 1/N, to which uniform weights reduce; memories start at zero
    instead of after a round in which everyone took part, so that early steps are short; an empty round
    changes nothing. Limit weights ∝ ω‖a‖₁: links cannot move it, unequal work can.
    """

    references = ("gu2021mifa",)

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, updates.importance)
        table, weights = table_in(state, "last"), conditions.weights
        absent = table.clients[~torch.isin(table.clients, updates.clients)]
        after = renewed(state, updates, table.read(updates.clients), weights)
        direction = tensor_in(after, "mean").to(updates.delta)
        remembered = ClientWeights(absent, weights[absent])
        return Aggregate(direction, after, weights[updates.clients], remembered)


@dataclass(frozen=True)
class FedVARP(LastUpdates):
    """Averages the changes of the updates, and adds the mean of all remembered ones.

        Σ_R p̂_i(Δ_i − y_i) + Σ_j ω_j y_j,   then y_i ← Δ_i for i ∈ R

    Symbols: R the clients that arrived, p̂_i their importance normalized to sum 1, y_j the last update
    received from client j, zero at first. The second sum is kept up to date, so that a round costs the
    rows that arrived and not all N.

    Reduces to `WeightedMean` in the first round, and whenever everyone arrives.

    Differs from the paper (Jhunjhunwala et al. 2022): p̂_i and ω_j instead of 1/|R| and 1/N, to which
    uniform weights reduce; updates are remembered as displacements, without the factor 1/(ητ). An empty
    round changes nothing. Limit weights ∝ ω‖a‖₁: links cannot move it, unequal work can.
    """

    references = ("jhunjhunwala2022fedvarp",)

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, updates.importance)
        table, weights = table_in(state, "last"), conditions.weights
        seen, old = table.clients, table.read(updates.clients)
        share = normalized(updates.importance)
        mean = tensor_in(state, "mean").to(updates.delta)
        direction = weighted_sum(share, updates.delta - old) + mean
        recalled = weights.index_add(0, updates.clients, -share)[seen]
        after = renewed(state, updates, old, weights)
        return Aggregate(direction, after, share, ClientWeights(seen, recalled))


@dataclass(frozen=True)
class StaleFedVARP(Aggregator):
    """Replaces a lost update by the last one received from the same client (Weng 2025 (114)).

        Σ_R importance_i Δ_i + Σ_{asked, lost} importance_i y_i,   then y_i ← Δ_i for i ∈ R

    Symbols: R the clients that arrived, y_i the last update received from client i, zero at first.

    Reduces to `WeightedMean(over="asked")` on perfect links.

    A round in which everything was lost follows the remembered updates too, as (114) demands: without them, links
    would bias the limit of small cohorts.

    Differs from the paper: Weng 2025 §6 says that the method resolves no inconsistency; its own (115) and simulation
    show that links do not move the limit, whose weights are ∝ ω‖a‖₁.
    """

    references = ("weng2025fedacs", "jhunjhunwala2022fedvarp")
    needs_whole_rounds = True

    def init(self, population: Population) -> PartState:
        return {"last": empty_table(population)}

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        table, cohort = table_in(state, "last"), updates.cohort
        replaced = ~torch.isin(cohort.clients, updates.clients) & (table.positions(cohort.clients) >= 0)
        lost, importance = cohort.clients[replaced], cohort.importance[replaced]
        direction = weighted_sum(updates.importance, updates.delta) + weighted_sum(
            importance, table.read(lost)
        )
        after = {"last": table.write(updates.clients, updates.delta)}
        return Aggregate(direction, after, updates.importance, ClientWeights(lost, importance))

    def mean_coefficients(self, expected: ExpectedRound) -> MeanCoefficients:
        # A client that can never arrive leaves nothing to remember.
        importance = expected.participation.importance * expected.reachable
        return MeanCoefficients(importance, "long run", remembers=True)


@dataclass(frozen=True)
class RememberedMean(Aggregator):
    """Follows the mean of all clients' moving-averaged updates: Zeng 2025's ablation FedAWARE-NA.

        m_i ← (1 − α) m_i + α Δ_i  for i ∈ R,    then Σ_j ω_j m_j over all N clients

    Symbols and fields as in `FedAWARE`; clients without an update have m_j = 0, so that early steps are short.
    Parameters outside `memory.layers` follow FedAvg's mean of the received updates.

    Reduces to `MIFA` for α = 1. Limit weights ∝ ω‖a‖₁: links cannot move it, unequal work can.
    """

    alpha: PositiveShare | None = None
    retention: BelowOne | None = None
    first_visit: FirstVisit = "update"
    memory: UpdateMemory = UpdateMemory()

    references = ("zeng2025fedaware",)
    exemptions = {"identical rows": 'first_visit="scaled" shortens the remembered updates'}

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve_alpha(self)

    def init(self, population: Population) -> PartState:
        return averages_of(self).init(population)

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, None)
        averages, weights = averages_of(self), conditions.weights
        state, _ = averages.renew(state, updates, conditions)
        coefficients = _row_weights(averages, state, weights)
        direction = _remembered_step(averages, state, coefficients, updates)
        remembered = averages.by_client(state, coefficients, weights)
        return Aggregate(direction, state, None, remembered, shares=remembered)

    def mean_coefficients(self, expected: ExpectedRound) -> MeanCoefficients:
        return remembered_mean(expected)


@dataclass(frozen=True)
class FedAWARE(AwareMemory, Aggregator):
    """Follows the shortest vector in the hull of all clients' moving-averaged updates (Zeng 2025, Algorithm 1).

        m_i ← (1 − α) m_i + α Δ_i  for i ∈ R
        λ = argmin ‖Σ λ_j m_j‖² over the simplex,    d = Σ λ_j m_j        (rows = "raw")
        λ = argmin ‖Σ λ_j u_j‖² + ρ‖λ‖² over the simplex,    u_j = m_j/‖m_j‖,    d = Σ λ_j u_j        (rows = "unit")

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
      scaled ones. Then ‖d‖ ≤ 1 whatever the updates, and the server's learning rate sets the step. "equal" scales
      them to their mean length instead: the same λ, and a step that follows the length of the updates. With raw
      rows d is no longer than the shortest of them: clients with few examples, whose updates are short, limit
      all steps, and a client that has fitted its data, so that its updates vanish, stops the run.
    - `rho`: the regularized hull, λ = argmin ‖Σ λ_j u_j‖² + ρ s‖λ‖² over the rows u_j, with s the mean of ‖u_j‖² (1
      for unit rows). With ρ = 0, as in the papers, few clients share the weight, and others do in the next
      round. With ρ > 0 λ is unique and changes little when rows do (`shortest_in_ridged_hull`). If d = 0, then
      λ_j = 1/N for all j: with the gradient 2ρsλ_j of the penalty alone, the conditions of Karush, Kuhn and Tucker
      leave no other λ. So ρ > 0 changes the path and not the points where the method stops. These are where the mean
      of the rows vanishes: with raw rows the minimizer of Σ ‖a_j‖₁ F_j, whatever ω; with unit or equal rows the
      spatial median of the clients' optima for equal, isotropic Hessians.
    - `memory`: the parameters to remember and where to keep them. Parameters outside `memory.layers` follow
      FedAvg's mean of the received updates; Zeng 2025 names the option for λ only and leaves them open.

    Reduces to the mean of the rows for ρ → ∞ (with raw rows and equal ω: `RememberedMean`);
    to the client's own memory for one client; to `FedMGDA(epsilon=1)` for α = 1 and unit rows when
    everyone arrives.

    Differs from the papers: an exact solver instead of Frank–Wolfe steps; an empty round changes nothing. It
    stops wherever the hull of the updates contains zero (a Pareto-stationary point that depends on the
    start), not at the minimum of Σ ω_i F_i; Zeng 2025's claim that d is never zero does not hold.

    >>> FedAWARE(retention=0.75) == FedAWARE(alpha=0.25)
    True
    """

    references = ("zeng2025fedaware", "zeng2023gradient", "wolfe1976", "judice1994")
    exemptions = {
        "identical rows": 'rows of one length and first_visit="scaled" change the length of the remembered updates'
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve_alpha(self)
        if self.rows == "unit" and self.memory.layers:
            raise FieldError(
                "FedAWARE.rows must be 'raw' where UpdateMemory.layers restricts the memory, since the other "
                f"parameters keep their own length, got {self.rows!r}."
            )

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, None)
        recalled = self.recall(state, updates, conditions)
        if not recalled.ready:
            share = normalized(updates.importance)
            return Aggregate(weighted_sum(share, updates.delta), recalled.state, share, facts=recalled.facts)
        after, coefficients = recalled.state, recalled.coefficients
        remembered = self.averages.by_client(after, coefficients, conditions.weights)
        direction = _remembered_step(self.averages, after, coefficients, updates)
        shares = self.shares(recalled, conditions.weights)
        return Aggregate(direction, after, None, remembered, recalled.facts, shares)

    def limit(self, weights: Tensor) -> Limit | None:
        if self._weighs_alike:
            return None
        if self.rho:
            return Limit(
                None,
                "With a regularized hull of unit rows FedAWARE minimizes no weighted sum of the clients' objectives: "
                "it stops where the mean of their unit updates vanishes, at the spatial median of the clients' "
                "optima if their Hessians are equal and isotropic.",
            )
        return Limit(
            None,
            "FedAWARE minimizes no weighted sum of the clients' objectives: it stops at a Pareto-stationary "
            "point, where no direction helps every client; which point depends on the start.",
        )

    def mean_coefficients(self, expected: ExpectedRound) -> MeanCoefficients | NotKnown:
        if not self._weighs_alike:
            return super().mean_coefficients(expected)
        counted = expected.reachable * (expected.conditions.weights > 0)
        return MeanCoefficients(counted / counted.sum(), "long run", remembers=True)

    @property
    def _weighs_alike(self) -> bool:
        """Whether every client has the weight 1/N where the method stops, and rows keep their length."""
        return self.rho > 0 and self.rows == "raw" and not self.memory.clusters


def _remembered_step(
    averages: MovingAverages, state: PartState, coefficients: Tensor, updates: ClientUpdates
) -> Tensor:
    """Σ coefficient_i m_i, and the mean of the received updates for parameters that are not remembered."""
    remembered = averages.combined(state, coefficients, updates.delta)
    if remembers_everything(state, updates.delta.shape[1]):
        return remembered
    mean = weighted_sum(normalized(updates.importance), updates.delta)
    return with_remembered_part(state, mean, remembered)


def _row_weights(averages: MovingAverages, state: PartState, weights: Tensor) -> Tensor:
    """ω of the rows seen, in their order: a client's own, or the sum over its cluster."""
    table = table_in(state, "averages")
    totals = weights.new_zeros(table.num_clients)
    return totals.index_add_(0, averages.memory.row_of(len(weights)), weights)[table.clients]
