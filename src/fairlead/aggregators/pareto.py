"""Multiple-gradient descent, which follows the shortest combination of updates: FedMGDA+ and FedAWARE."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator, normalised, weighted_sum
from fairlead.aggregators.last_updates import remembered_step
from fairlead.client_table import PartState
from fairlead.errors import FieldError, require_number
from fairlead.memory.update_memory import (
    FirstVisit,
    RowLength,
    Start,
    UpdateMemory,
    aware_memory_of,
    settle_aware,
)
from fairlead.numerics.minimum_norm import shortest_in_box
from fairlead.numerics.rows import inner_products
from fairlead.records import Aggregate, ClientUpdates, Conditions, Limit, Population


@dataclass(frozen=True)
class FedMGDA(Aggregator):
    """Follows the shortest combination of normalized updates with weights near the usual ones (FedMGDA+).

        d = Σ_R λ_i Δ_i/‖Δ_i‖,    λ = argmin ‖d‖² over the simplex with |λ_i − p̂_i| ≤ ε

    Symbols: R the clients that arrived, p̂_i their importance normalized, ε `epsilon`. An update of zero stays
    zero, so that with ε = 1 its client alone makes d = 0. The record holds λ_i/‖Δ_i‖, the coefficients
    of the updates as they came.

    Reduces to the mean of normalized updates for ε = 0; for ε = 1 to multiple-gradient descent, whose
    step never hurts a client to first order.

    Differs from released code of others: FedLab's has no box and refuses short updates. ‖d‖ ≤ 1 whatever the
    updates: the server's learning rate, which the paper lets decay, sets the step. Limit: a Pareto
    point for ε = 1, which no objective weights determine.
    """

    epsilon: float = 0.1

    references = ("hu2022fedmgda",)
    exemptions = {"identical rows": "updates are normalized to length 1"}

    def __post_init__(self) -> None:
        require_number(self, "epsilon", at_least=0, at_most=1)

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, updates.importance)
        gram = inner_products(updates.delta, torch.arange(len(updates))).cpu()
        lengths = gram.diagonal().clamp(min=0).sqrt()
        scale = torch.where(lengths > 0, 1 / lengths, 0.0)
        share = normalised(updates.importance)
        lower, upper = (share - self.epsilon).clamp(min=0), (share + self.epsilon).clamp(max=1)
        point = shortest_in_box(gram * scale[:, None] * scale, lower, upper)
        coefficients = point.weights * scale
        facts = {"mgda_gap": point.gap, "mgda_squared_norm": point.squared_norm}
        return Aggregate(weighted_sum(coefficients, updates.delta), state, coefficients, facts=facts)

    def limit(self, weights: Tensor) -> Limit:
        where = (
            "it stops at a Pareto-stationary point, where no direction helps every client; which point depends "
            "on the start"
            if self.epsilon == 1
            else "it stops where weights near the usual ones balance the clients' normalized updates, whatever "
            "the lengths of their gradients"
        )
        return Limit(None, f"FedMGDA+ minimizes no weighted sum of the clients' objectives: {where}.")


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
    rows: RowLength = "raw"
    memory: UpdateMemory = UpdateMemory()
    rho: float = 0.0

    references = ("zeng2025fedaware", "zeng2023gradient", "wolfe1976", "judice1994")
    exemptions = {
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
        direction = remembered_step(aware.averages, after, coefficients, updates)
        shares = aware.shares(recalled, conditions.weights)
        return Aggregate(direction, after, None, remembered, recalled.facts, shares)

    def limit(self, weights: Tensor) -> Limit:
        return Limit(
            None,
            "FedAWARE minimizes no weighted sum of the clients' objectives: it stops at a Pareto-stationary "
            "point, where no direction helps every client; which point depends on the start.",
        )
