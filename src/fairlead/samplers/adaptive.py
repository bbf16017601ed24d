"""Samplers that adapt to the clients: to their work and links, their updates, or the server's weights."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.client_table import PartState, tensor_in
from fairlead.component import (
    BelowOne,
    NotNegative,
    Positive,
    PositiveCount,
    PositiveShare,
    UnitInterval,
    WholeRange,
)
from fairlead.errors import ClashError, FieldError, field_error, require_integer
from fairlead.randomness import Key
from fairlead.records import (
    ClientUpdates,
    ClientWeights,
    Cohort,
    Conditions,
    NotKnown,
    Participation,
    Population,
)
from fairlead.samplers.base import MemorylessSampler, Sampler, refuse_too_many
from fairlead.samplers.fixed import MOST_DRAWS, draw_with_replacement, participation_by_draws, possible_draws


@dataclass(frozen=True)
class FedACS(MemorylessSampler):
    """Samples clients more often if less of their work arrives (Weng 2025 (15)).

        p_i ∝ ω_i/[(1 − q_i)‖a_i‖₁],   importance_i = c_i/K

    Symbols: K `cohort_size` independent draws, c_i how often client i was drawn, 1 − q_i
    `Conditions.arrival`, ‖a_i‖₁ `Conditions.effective_steps`, both of the round that is about to start and
    therefore free to vary. Averaged anonymously, by `WeightedMean(over="asked")`, the mean coefficient of
    Δ_i is ∝ ω_i/‖a_i‖₁, so that the run minimizes Σ ω_i F_i up to O(η) for any links and work. `FedNova` and
    `CommunicationAware` would divide a second time and are refused. `FedAU`, `MIFA` and `FedVARP` ignore importance
    and undo the correction of unequal work: a `Federation` warns if theory predicts a bias.

    With `work` = "epochs" the client's passes over its data take the place of ‖a_i‖₁: T_m of Weng 2025 is a number
    of epochs in its experiments. That corrects the work of clients with equally many batches; others then count in
    proportion to their batches an epoch.

    A step is 1/Σ ω_i/[(1 − q_i)‖a_i‖₁] local steps long on average, and Σ ω_i(1 − q_i)‖a_i‖₁ for
    `WeightedWithReplacement`. `Algorithm.calibrate` makes both equally long in every round.

    Reduces to `WeightedWithReplacement` when (1 − q_i)‖a_i‖₁ is the same for all (Weng 2025 (13)).

    Differs from the paper: (14a) is read without the ω inside its sum, as (15) requires. A client of
    positive weight that can never arrive is an error. `WeightedMean(over="received")` divides by a random
    number instead of K and is consistent only for large cohorts.
    """

    cohort_size: Annotated[int, WholeRange(1, MOST_DRAWS)]
    work: Literal["steps", "epochs"] = "steps"

    references = ("weng2025fedacs",)
    exemptions = {"unbiased": "it samples by ω/((1 − q)‖a‖₁), which makes the arriving work unbiased"}
    balances_work = True
    needs_arrival = True

    @property
    def needs_effective_steps(self) -> bool:
        return self.work == "steps"

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        conditions = self._counted(conditions)
        weights, arrival, work = conditions.weights, conditions.arrival, conditions.effective_steps
        if arrival is None or work is None:
            raise ClashError(
                "FedACS samples by the arrival rate and the work of every client, and this world does not "
                "know them: use FedACSEstimated, which estimates them from the updates that arrive."
            )
        hopeless = ((weights > 0) & (arrival * work <= 0)).nonzero().flatten().tolist()
        if hopeless:
            raise FieldError(
                f"FedACS needs an arrival rate above 0 and some work for every client of positive weight, got "
                f"0 for clients {hopeless[:10]} in round {conditions.round + 1}: give them weight 0."
            )
        return draw_with_replacement(_probabilities(weights, arrival * work), self.cohort_size, key)

    def _counted(self, conditions: Conditions) -> Conditions:
        return conditions.in_epochs() if self.work == "epochs" else conditions

    def participation(self, conditions: Conditions) -> Participation | NotKnown:
        chances = _chances(self._counted(conditions), floor=0.0)
        return chances if isinstance(chances, NotKnown) else participation_by_draws(chances, self.cohort_size)

    def possible_cohorts(self, conditions: Conditions, at_most: int) -> list[tuple[float, Cohort]] | None:
        chances = _chances(self._counted(conditions), floor=0.0)
        return None if isinstance(chances, NotKnown) else possible_draws(chances, self.cohort_size, at_most)


@dataclass(frozen=True)
class FedACSEstimated(Sampler):
    """FedACS with arrival rates and work estimated from the rounds so far.

        p_i ∝ ω_i/[max(r̂_i, floor)·ŵ_i],   r̂_i = A_i/(A_i + L_i),   importance_i = c_i/K
        asked:    A_i ← (1 − ρ)A_i + [arrived],   L_i ← (1 − ρ)L_i + [lost]
        arrived:  ŵ_i ← (1 − ν)ŵ_i + ν‖a_i‖₁      (the first report is taken unchanged)

    Symbols: K `cohort_size`; A_i and L_i start at `prior_arrived` and `prior_lost`; ρ `forget`; ν
    `work_rate`; floor `min_arrival`. A client drawn twice in a round counts once. ρ = 0 is the posterior
    mean of a Beta prior, right for constant links; ρ > 0 is an exponential moving average with a memory of 1/ρ
    draws, and follows links that drift. ν = 1 takes the last
    report; ν < 1 averages work that is random. With `planned_work` the world's plan of ‖a_i‖₁ replaces the
    reports, if the world has one.

    Optimism for the unseen: a client that never arrived counts with the least work that any client has
    reported (1 without reports), and one never sampled with the prior's arrival rate, 1/2 by default. Both raise
    its p_i against clients that are known to do more work or to arrive more often, until its first update. Since
    r̂_i ≤ 1 and work is bounded, every p_i stays above 0.

    Reduces to `FedACS` as the estimates converge.

    Differs from the paper, which assumes both known. A client is corrected only once it has been sampled, so
    rounds × K must be large against N. 1/r̂_i and 1/ŵ_i are too large on average by the relative variance
    of the estimate: about (ρ/2)·q_i/(1 − q_i) for ρ > 0, and Var‖a_i‖₁/E²‖a_i‖₁ for random work with ν = 1.
    The floor keeps a dead client from filling the whole cohort; one whose true arrival rate is below it
    is sampled too rarely. The server must know the clients that arrived, but not which update is whose.
    """

    cohort_size: Annotated[int, WholeRange(1, MOST_DRAWS)]
    prior_arrived: Positive = 1.0
    prior_lost: NotNegative = 1.0
    forget: BelowOne = 0.0
    work_rate: PositiveShare = 1.0
    planned_work: bool = False
    min_arrival: PositiveShare = 0.05

    references = ("weng2025fedacs",)
    exemptions = {"unbiased": "it samples by ω/((1 − q)‖a‖₁), which makes the arriving work unbiased"}
    balances_work = True
    needs_effective_steps = True

    def init(self, population: Population) -> PartState:
        nothing = torch.zeros(population.num_clients, dtype=torch.float64)
        return {"arrived": nothing + self.prior_arrived, "lost": nothing + self.prior_lost, "work": nothing}

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        work = conditions.effective_steps if self.planned_work else None
        if work is None:
            work = _filled(tensor_in(state, "work"))
        useful = self.estimated_arrival(state) * work
        return draw_with_replacement(_probabilities(conditions.weights, useful), self.cohort_size, key)

    def estimated_arrival(self, state: PartState) -> Tensor:
        """max(r̂_i, floor) of every client, (N,)."""
        arrived, lost = tensor_in(state, "arrived"), tensor_in(state, "lost")
        return (arrived / (arrived + lost)).clamp(min=self.min_arrival)

    def observe(
        self, state: PartState, conditions: Conditions, cohort: Cohort, updates: ClientUpdates
    ) -> PartState:
        if updates.effective_steps is None:
            raise field_error("ClientUpdates", "effective_steps", "known for FedACSEstimated", None)
        came = torch.isin(cohort.clients, updates.clients).to(torch.float64)
        work, clients = tensor_in(state, "work"), updates.clients
        reported, old = updates.effective_steps, work[clients]
        averaged = (1 - self.work_rate) * old + self.work_rate * reported
        return {
            "arrived": self._counted(tensor_in(state, "arrived"), cohort.clients, came),
            "lost": self._counted(tensor_in(state, "lost"), cohort.clients, 1 - came),
            "work": work.index_put((clients,), torch.where(old > 0, averaged, reported)),
        }

    def _counted(self, counts: Tensor, asked: Tensor, events: Tensor) -> Tensor:
        return counts.index_put((asked,), (1 - self.forget) * counts[asked] + events)

    def participation(self, conditions: Conditions) -> Participation | NotKnown:
        chances = _chances(conditions, floor=self.min_arrival)
        if isinstance(chances, NotKnown):
            return chances
        return participation_by_draws(chances, self.cohort_size)._replace(settled=False)


def _chances(conditions: Conditions, floor: float) -> Tensor | NotKnown:
    """p ∝ ω/[max(1 − q, floor)‖a‖₁] (Weng 2025 (15)), with known conditions."""
    weights, arrival, work = conditions.weights, conditions.arrival, conditions.effective_steps
    if arrival is None or work is None:
        return NotKnown(
            "FedACS draws by arrival rates and work, and this world does not know them beforehand."
        )
    useful = arrival.clamp(min=floor) * work
    if bool(((weights > 0) & (useful <= 0)).any()):
        return NotKnown("FedACS cannot draw clients of positive weight whose updates never arrive.")
    chances = _probabilities(weights, useful)
    return chances / chances.sum()


def _probabilities(weights: Tensor, useful: Tensor) -> Tensor:
    """ω_i/useful_i, not normalized; clients of weight 0 may have nothing useful to divide by."""
    return torch.where(weights > 0, weights / useful, 0.0)


def _filled(work: Tensor) -> Tensor:
    """Reported work, with the least of all reports in place of those still missing (0)."""
    reported = work > 0
    least = work[reported].min() if bool(reported.any()) else work.new_ones(())
    return torch.where(reported, work, least)


@dataclass(frozen=True)
class OptimalSampling(Sampler):
    """Draws clients by the weighted length of their updates, which lowers the variance of the sum.

        p_i = (1 − floor)·ω_i n_i/Σ ω_j n_j + floor·ω_i,   importance_i = c_i ω_i/(K p_i)     (Weng 2025 (20))

    Symbols: K `cohort_size` independent draws, c_i how often client i was drawn, n_i = ‖Δ_i‖ of the last
    update received from client i. A client without any update so far counts with the largest n known (1 if none is
    positive); if all n are zero, p = ω.

    Reduces to `WeightedWithReplacement` for `floor` = 1 or equal n.

    Differs from the paper, which assumes this round's norms known before the draw (they cost a round of
    messages) and leaves out ω; any p > 0 gives the same mean, so only the variance is affected. With
    `floor` = 0, the paper's form, a client whose last update was zero would never be drawn again,
    although the model has moved since. The floor gives every client a chance and bounds the
    importance by c_i/(K·floor). Lost updates bias it like every rule that does not correct links.
    """

    cohort_size: Annotated[int, WholeRange(1, MOST_DRAWS)]
    floor: UnitInterval = 0.1

    references = ("chen2022optimal", "weng2025fedacs")
    needs_single_updates = True

    def init(self, population: Population) -> PartState:
        return {"norm": torch.full((population.num_clients,), -1.0, dtype=torch.float64)}

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        weights = conditions.weights
        probabilities = self.probabilities(state, weights)
        cohort = draw_with_replacement(probabilities, self.cohort_size, key)
        clients = cohort.clients
        return replace(cohort, importance=cohort.importance * weights[clients] / probabilities[clients])

    def probabilities(self, state: PartState, weights: Tensor) -> Tensor:
        """p of the coming round, (N,)."""
        norm = tensor_in(state, "norm")
        largest = norm.max()
        score = weights * torch.where(norm < 0, torch.where(largest > 0, largest, 1.0), norm)
        total = score.sum()
        by_norm = score / total if total > 0 else weights
        return (1 - self.floor) * by_norm + self.floor * weights

    def observe(
        self, state: PartState, conditions: Conditions, cohort: Cohort, updates: ClientUpdates
    ) -> PartState:
        received = torch.linalg.vector_norm(updates.delta, dim=1, dtype=torch.float64).cpu()
        return {"norm": tensor_in(state, "norm").index_put((updates.clients,), received)}

    def participation(self, conditions: Conditions) -> Participation:
        # Whatever the chances are, importance divides by them.
        return Participation(conditions.weights, None)


@dataclass(frozen=True)
class WeightFeedback(Sampler):
    """Draws clients without replacement by the weights that the server gave them in its last step.

        P(i first) = λ_i,   importance_i = (N/K) ω_i

    Symbols: K `cohort_size`, N the clients of positive weight ω, λ the weights over all clients in the last step of an
    aggregator or transform that remembers updates (`FedAWARE`, `AwareProjection`, `RememberedMean`). If
    fewer than K clients have a positive λ, all of these are selected, and the rest uniformly. Before the first
    step, and with aggregators that have no such weights, all clients are equally likely.

    The published runs of Zeng 2023 sample like this; the papers do not print it. The estimate Σ importance·Δ is biased
    towards the clients that λ favors.

    Reduces to `UniformWithoutReplacement` for equal λ.
    """

    cohort_size: PositiveCount

    references = ("zeng2023gradient",)

    def init(self, population: Population) -> PartState:
        refuse_too_many(self, self.cohort_size, population)
        return {"lambda": torch.zeros(population.num_clients, dtype=torch.float64)}

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        eligible = conditions.weights > 0
        shares = torch.where(eligible, tensor_in(state, "lambda"), 0.0).clamp(min=0).numpy()
        # Exponential clocks of rates λ_i ring in the order of draws without replacement by λ. Clients without λ come
        # after all others, in random order.
        clocks = key.generator().exponential(size=len(shares)) / np.where(shares > 0, shares, 1.0)
        order = np.lexsort((clocks, shares <= 0, ~eligible.numpy()))
        clients = torch.from_numpy(np.sort(order[: self.cohort_size]))
        scale = float(eligible.sum()) / self.cohort_size
        return Cohort(clients, torch.ones_like(clients), scale * conditions.weights[clients])

    def participation(self, conditions: Conditions) -> Participation | NotKnown:
        return NotKnown(
            "WeightFeedback samples by the weights that the server gave in its last step, which depend on the updates."
        )

    def follow(self, state: PartState, shares: ClientWeights) -> PartState:
        fresh = torch.zeros_like(tensor_in(state, "lambda"))
        fresh[shares.clients] = shares.weights.clamp(min=0)
        return {"lambda": fresh}


@dataclass(frozen=True)
class PowerOfChoice(Sampler):
    """Asks some clients for their loss, and selects those with the largest (Cho et al. 2022).

        A: d clients without replacement, P(i first) = ω_i
        S: the K of A with the largest F_i(x),   importance_i = 1/K

    Symbols: K `cohort_size`, d `candidates` (None: twice K, or all clients if there are fewer), x the global model, F_i
    the mean loss over all training examples of client i. Candidates receive the model and return one number, which the
    record counts in its bytes and seconds; `polled` among its facts is d. Candidates without an answer come last.

    Reduces to draws by weight without replacement for d = K.

    The estimate Σ importance·Δ is biased towards clients with large losses: training is faster at first, and the limit
    is not that of Σ ω_i F_i. Larger d means more bias.
    """

    cohort_size: PositiveCount
    candidates: int | None = None

    references = ("cho2022power",)
    exemptions = {"unbiased": "it prefers clients with large losses"}
    needs_single_updates = True
    needs_losses = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer(self, "candidates", at_least=self.cohort_size, optional=True)

    def init(self, population: Population) -> PartState:
        refuse_too_many(self, self.cohort_size, population)
        refuse_too_many(self, self.candidates or 0, population, "candidates")
        return {}

    def polled(self, state: PartState, conditions: Conditions, key: Key) -> Tensor:
        return torch.from_numpy(np.sort(self._by_chance(conditions, key)))

    def _by_chance(self, conditions: Conditions, key: Key) -> NDArray[np.int64]:
        """A in the order of its draws, by exponential clocks as in `WeightFeedback`."""
        weights = conditions.weights.numpy()
        with np.errstate(divide="ignore"):
            clocks = key.generator().exponential(size=len(weights)) / weights
        most = min(self.candidates or 2 * self.cohort_size, int((weights > 0).sum()))
        return np.argsort(clocks, kind="stable")[:most]

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        chosen, losses = self._by_chance(conditions, key), np.full(len(conditions.weights), np.nan)
        if conditions.poll is not None:
            losses[conditions.poll.clients.numpy()] = conditions.poll.losses.numpy()
        # NaN sorts last, and equal losses keep the order of the draws.
        order = np.argsort(-losses[chosen], kind="stable")[: self.cohort_size]
        clients = torch.from_numpy(np.sort(chosen[order]))
        return Cohort(
            clients, torch.ones_like(clients), torch.full((len(clients),), 1 / len(clients)).double()
        )

    def participation(self, conditions: Conditions) -> NotKnown:
        return NotKnown("PowerOfChoice selects clients by their losses, which depend on the model.")
