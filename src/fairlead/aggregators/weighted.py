"""Weighted sums of the updates: means, FedNova, corrections of links and staleness, FedAU, FedDyn and FedMGDA+."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator, LinearAggregator, normalized, weighted_sum
from fairlead.client_table import PartState, tensor_in
from fairlead.component import NotNegative, Positive, PositiveCount, UnitInterval
from fairlead.errors import ClashError, field_error, require_choice
from fairlead.numerics.minimum_norm import shortest_in_box
from fairlead.numerics.rows import inner_products
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


@dataclass(frozen=True)
class WeightedMean(LinearAggregator):
    """Averages updates by their importance.

        Σ_R p̂_i Δ_i,  p̂_i = importance_i/Σ_R importance_j     (over = "received")
        Σ_R importance_i Δ_i                                    (over = "asked")

    Symbols: R the clients that arrived. "received" is FedAvg as McMahan et al. corrected it and as all
    released code has it; "asked" is Weng 2025's anonymous aggregation, in which a lost update counts as zero
    and the server need not know the sender of an update.

    Reduces to the plain mean for equal importance.
    """

    over: Literal["received", "asked"] = "received"

    references = ("mcmahan2017fedavg",)

    @property
    def averages_arrivals(self) -> bool:
        return self.over == "received"

    def coefficients(self, updates: ClientUpdates, conditions: Conditions) -> Tensor:
        return normalized(updates.importance) if self.over == "received" else updates.importance


@dataclass(frozen=True)
class FedNova(LinearAggregator):
    """Divides every update by the work behind it, then scales by a common amount of work.

        τ_eff Σ_R p̂_i Δ_i/‖a_i‖₁                  (over = "received": Wang 2021 (20))
        τ_eff Σ_R importance_i Δ_i/‖a_i‖₁           (over = "asked": Weng 2025 (116))

    Symbols: p̂_i the importance normalized over arrivals, ‖a_i‖₁ `effective_steps`, τ_eff the effective
    steps of the round (`tau_eff`):

    - "work", the default: Σ_R p̂_i‖a_i‖₁;
    - "steps", the paper's choice for proximal solvers: Σ_R p̂_i τ_i;
    - "harmonic": 1/(Σ_R p̂_i/‖a_i‖₁), by which the weights p̂_i/‖a_i‖₁ sum to 1: no update is stretched, and
      steps are shorter;
    - "expected", Weng 2025's choice: Σ ω_i(1−q_i)‖a_i‖₁/Σ ω_i(1−q_i) over all clients, from `Conditions`;
    - a number.

    The last two do not depend on the arrivals. The others do, and the product with the sum is then
    biased by O(1/cohort) where work and gradients are correlated.

    With `work` = "epochs" the client's passes over its data take the place of ‖a_i‖₁, as T_m in the experiments of
    Weng 2025: clients with more batches then count more.

    Reduces to `WeightedMean` when all clients do the same work.

    Differs from released code in which τ_eff cancels because the weights p̂_i/‖a_i‖₁ are normalized once
    more ("harmonic" here). Consistent as η → 0.
    """

    tau_eff: Literal["work", "steps", "harmonic", "expected"] | Positive = "work"
    over: Literal["received", "asked"] = "received"
    work: Literal["steps", "epochs"] = "steps"

    references = ("wang2021fednova",)
    divides_by = "work"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.work == "epochs" and self.tau_eff == "steps":
            require_choice(self, "tau_eff", ("work", "harmonic", "expected"))

    @property
    def needs_effective_steps(self) -> bool:
        return self.work == "steps"

    @property
    def needs_arrival(self) -> bool:
        return self.tau_eff == "expected"

    def coefficients(self, updates: ClientUpdates, conditions: Conditions) -> Tensor:
        share, work = normalized(updates.importance), updates.effective_steps
        if self.work == "epochs":
            conditions = conditions.in_epochs()
            planned = conditions.effective_steps
            if planned is None:
                raise ClashError('FedNova(work="epochs") needs a world that knows the epochs of its clients.')
            work = planned[updates.clients]
        if work is None:
            raise field_error("ClientUpdates", "effective_steps", "known for FedNova", None)
        if self.tau_eff == "work":
            scale = share @ work
        elif self.tau_eff == "harmonic":
            scale = 1 / (share / work).sum()
        elif self.tau_eff == "steps":
            scale = share @ updates.num_steps.to(share)
        elif self.tau_eff == "expected":
            scale = _expected_work(conditions)
        else:
            scale = share.new_tensor(self.tau_eff)
        return scale * (share if self.over == "received" else updates.importance) / work


def _expected_work(conditions: Conditions) -> Tensor:
    """T_eff of Weng 2025 (116b): the mean work behind an update that arrives under sampling by ω."""
    arrival, work = conditions.arrival, conditions.effective_steps
    if arrival is None or work is None:
        raise ClashError(
            'FedNova(tau_eff="expected") needs the arrival rate and the work of every client, but this world '
            'does not know them: use tau_eff="work", or a number.'
        )
    arriving = conditions.weights * arrival
    return arriving @ work / arriving.sum()


@dataclass(frozen=True)
class CommunicationAware(LinearAggregator):
    """Divides every importance by the chance of arriving, then applies another rule.

        importance_i ← importance_i/(1 − q_i),  then `inner` as if no update were lost

    Symbols: 1 − q_i `Conditions.arrival`, `inner` any rule of the linear family. With the default, the
    anonymous weighted mean, it is c-a-FedAvg (Weng 2025 (113)): Σ_R importance_i Δ_i/(1 − q_i), whose mean is
    that of perfect links. With `FedNova("expected", over="asked")` it is c-a-FedNova, which corrects
    unequal links and unequal work; τ_eff is then Σ ω_i‖a_i‖₁.

    Reduces to `inner` on perfect links.

    Differs from the paper: (113d) is read with η_eff = η and T_eff = Σ ω_i‖a_i‖₁ (its braces are shifted).
    An `inner` that normalizes over arrivals is allowed: that is a ratio of two unbiased sums, of smaller
    variance, consistent for large cohorts.
    """

    inner: LinearAggregator = WeightedMean(over="asked")

    references = ("perazzone2022", "weng2025fedacs")
    divides_by = "arrival rates"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.inner, CommunicationAware):
            raise ClashError(
                "CommunicationAware.inner would divide by the arrival rates a second time: remove one of the two."
            )

    @property
    def needs_arrival(self) -> bool:
        return True

    def coefficients(self, updates: ClientUpdates, conditions: Conditions) -> Tensor:
        arrival = conditions.arrival
        if arrival is None:
            raise ClashError(
                "CommunicationAware divides by the arrival rates, but this world does not know them: use "
                "FedAU, which estimates them from the updates that arrive."
            )
        chance = arrival[updates.clients]
        if bool((chance <= 0).any()):
            raise ClashError(
                f"CommunicationAware divides by arrival rates, but the world gives 0 for clients "
                f"{updates.clients[chance <= 0].tolist()[:10]}, whose updates arrived: correct the rates."
            )
        corrected = replace(updates, importance=updates.importance / chance)
        lossless = replace(
            conditions,
            forecast_work=lambda: conditions.effective_steps,
            forecast_arrival=lambda: torch.ones_like(arrival),
        )
        return self.inner.coefficients(corrected, lossless)


@dataclass(frozen=True)
class StalenessWeighted(LinearAggregator):
    """Shortens updates of clients that started from an old model (Nguyen et al. 2022).

        Σ_R s(τ_i) c_i Δ_i,   s(τ) = (1 + τ)^(−α)

    Symbols: τ_i `ClientUpdates.age`, the steps of the server since client i started; α `exponent`; c_i the coefficients
    of `inner`, any rule of the linear family: with the default and equal weights 1/K, as in the paper, and with
    `FedNova()` a correction of unequal work.

    Reduces to `inner` in rounds that wait for their clients, and for α = 0.

    Slow clients have older updates, so that they lose weight. The sum is not divided by Σ s(τ_i): steps become shorter.
    """

    inner: LinearAggregator = WeightedMean()
    exponent: NotNegative = 0.5

    references = ("nguyen2022fedbuff",)

    @property
    def divides_by(self) -> str | None:  # type: ignore[override]
        return self.inner.divides_by

    @property
    def averages_arrivals(self) -> bool:
        return self.inner.averages_arrivals

    def coefficients(self, updates: ClientUpdates, conditions: Conditions) -> Tensor:
        return self._shortening(updates.age) * self.inner.coefficients(updates, conditions)

    def _shortening(self, age: Tensor) -> Tensor:
        return (1 + age.to(torch.float64)) ** -self.exponent

    def mean_coefficients(self, expected: ExpectedRound) -> MeanCoefficients | NotKnown:
        mean, age = self.inner.mean_coefficients(expected), expected.participation.age
        if age is None or isinstance(mean, NotKnown):
            return mean
        # Work that lasts 2.3 rounds meets two or three steps of the server.
        late = age - age.floor()
        shortening = (1 - late) * self._shortening(age.floor()) + late * self._shortening(age.floor() + 1)
        return mean._replace(coefficients=mean.coefficients * shortening)


@dataclass(frozen=True)
class FedAU(Aggregator):
    """Weighs updates by the mean absence of their clients, learned online (Wang & Ji 2024).

        Σ_R ω_i u_i Δ_i
        S_i ← S_i + 1;  if i ∈ R or S_i = K:  u_i ← (M_i u_i + S_i)/(M_i + 1),  M_i ← M_i + 1,  S_i ← 0

    Symbols: R the clients that arrived, u_i the mean interval between participations as known *before*
    the round (1 at first, and no count before the first interval ends), M_i the intervals seen, S_i the
    rounds since the last, K `cutoff` (None: never cut). A client participates if it is sampled and its update
    arrives. Counters advance in empty rounds too. u_i tends to 1/π_i, or with a cut-off to
    (1 − (1 − π_i)^K)/π_i, for a chance π_i of participating in a round; repeated draws and the sampler's
    importance do not count.

    Reduces to `WeightedMean` when everyone arrives in every round.

    Differs from the paper: objective weights ω_i instead of 1/N, to which uniform ones reduce. Corrects
    unequal links and unequal sampling, not unequal work. A client back after a long absence enters with a
    large u_i, so that steps can be long.
    """

    cutoff: PositiveCount | None = 50

    references = ("wang2024fedau",)
    needs_single_updates = False

    def init(self, population: Population) -> PartState:
        zeros = torch.zeros(population.num_clients, dtype=torch.float64)
        return {"mean_interval": zeros + 1, "intervals": zeros, "absence": zeros}

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        known = tensor_in(state, "mean_interval")
        coefficients = (conditions.weights * known)[updates.clients]
        count, absence = tensor_in(state, "intervals"), tensor_in(state, "absence") + 1
        ended = torch.zeros_like(count, dtype=torch.bool)
        ended[updates.clients] = True
        if self.cutoff is not None:
            ended |= absence >= self.cutoff
        after = {
            "mean_interval": torch.where(ended, (count * known + absence) / (count + 1), known),
            "intervals": count + ended,
            "absence": torch.where(ended, 0.0, absence),
        }
        return Aggregate(weighted_sum(coefficients, updates.delta), after, coefficients)

    def mean_coefficients(self, expected: ExpectedRound) -> MeanCoefficients:
        asked, seen = expected.participation.asked, expected.reachable
        if asked is not None and self.cutoff is not None:
            # E[u_i]π_i with the cut-off.
            seen = 1 - (1 - asked * expected.arrival) ** self.cutoff
        return MeanCoefficients(expected.conditions.weights * seen, "long run")


@dataclass(frozen=True)
class FedDyn(Aggregator):
    """The mean update plus all that clients have moved so far (Acar et al. 2021).

        C ← C + Σ_R ω_i Δ_i
        direction = Σ_R p̂_i Δ_i + C

    Symbols: Δ_i = y_i − x the updates that arrived, p̂_i their importance normalized, C
    `state["displacement"]`, zero at first.

    The paper keeps h ← h − αΣ_R ω_iΔ_i (its weights are 1/N) and sets x⁺ = Σ_R p̂_i y_i − h/α. Both start at
    zero and h changes by −α times what C changes by, so h = −αC and x⁺ − x = Σ_R p̂_iΔ_i + C: α cancels, and
    only the clients need it. Since L_i ← L_i − αΔ_i, also h = Σ ω_i L_i over all clients, which is zero
    where the model rests.

    It works only with the correction `DynamicRegularizer`, the client's half: otherwise C grows without bound.

    Differs from the paper: any objective weights ω. With a server learning rate other than 1 or another
    server optimizer the resting points are the same.
    """

    references = ("acar2021feddyn",)
    needs_correction = "DynamicRegularizer"
    exemptions = {"identical rows": "it adds all that clients have moved so far"}
    proposes_descent = False
    needs_single_updates = False

    def init(self, population: Population) -> PartState:
        return {
            "displacement": torch.zeros(
                population.num_parameters, dtype=population.dtype, device=population.device
            )
        }

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        displacement = tensor_in(state, "displacement")
        if not len(updates):
            return Aggregate(displacement, state, None)
        weights = conditions.weights[updates.clients]
        displacement = displacement + weighted_sum(weights, updates.delta)
        direction = weighted_sum(normalized(updates.importance), updates.delta) + displacement
        return Aggregate(direction, {"displacement": displacement}, None)

    def sum_weights(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Tensor:
        return torch.stack([conditions.weights[updates.clients], normalized(updates.importance)])


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

    epsilon: UnitInterval = 0.1

    references = ("hu2022fedmgda",)
    exemptions = {"identical rows": "updates are normalized to length 1"}

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, updates.importance)
        gram = inner_products(updates.delta, torch.arange(len(updates))).cpu()
        lengths = gram.diagonal().clamp(min=0).sqrt()
        scale = torch.where(lengths > 0, 1 / lengths, 0.0)
        share = normalized(updates.importance)
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
