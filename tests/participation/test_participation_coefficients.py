"""How much of each client's update every participation rule follows on average (Weng 2025 §2 and appendix B)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
import torch
from lossy_quadratics import Array, ClosedFormWorld, updates_of

from fairlead.aggregators.base import Aggregator
from fairlead.aggregators.remembered import MIFA, FedVARP, StaleFedVARP
from fairlead.aggregators.weighted import CommunicationAware, FedAU, FedNova, WeightedMean
from fairlead.algorithm import Algorithm
from fairlead.client_table import PartState, tensor_in
from fairlead.conditions.links import BernoulliLink
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.randomness import Key
from fairlead.records import Aggregate, ClientUpdates, Cohort, Conditions, MeanCoefficients
from fairlead.samplers.adaptive import FedACS, OptimalSampling
from fairlead.samplers.base import Sampler
from fairlead.samplers.fixed import FullParticipation, UniformWithoutReplacement, WeightedWithReplacement
from fairlead.theory.prediction import mean_coefficients

OMEGA = np.array([0.1, 0.2, 0.3, 0.4])
RATE = np.array([1.0, 0.8, 0.5, 0.3])
STEPS = np.array([1.0, 3.0, 2.0, 6.0])
K = 3

WORLD = ClosedFormWorld(
    torch.eye(4, dtype=torch.float64),
    torch.from_numpy(OMEGA),
    torch.tensor([1, 3, 2, 6]),
    BernoulliLink(tuple(1 - RATE)),
)
SOLVER = LocalSolver(SGD(lr=0.1), steps=1)
CONDITIONS = WORLD.conditions(0, SOLVER, Key.from_seed(0))
MEAN_WORK_ARRIVING = float(OMEGA * RATE @ STEPS / (OMEGA @ RATE))
ANONYMOUS = WeightedMean(over="asked")
ANONYMOUS_NOVA = FedNova("expected", over="asked")


@dataclass(frozen=True)
class Rule:
    sampler: Sampler
    aggregator: Aggregator
    mean_coefficient: Callable[[], Array]


RULES = {
    "IS": Rule(WeightedWithReplacement(K), ANONYMOUS, lambda: OMEGA * RATE),
    "US": Rule(UniformWithoutReplacement(K), ANONYMOUS, lambda: OMEGA * RATE),
    "OS": Rule(OptimalSampling(K), ANONYMOUS, lambda: OMEGA * RATE),
    "full": Rule(FullParticipation(), ANONYMOUS, lambda: OMEGA * RATE),
    "c-a-FedAvg": Rule(WeightedWithReplacement(K), CommunicationAware(), lambda: OMEGA),
    "FedNova-004": Rule(
        WeightedWithReplacement(K), ANONYMOUS_NOVA, lambda: OMEGA * RATE * MEAN_WORK_ARRIVING / STEPS
    ),
    "c-a-FedNova": Rule(
        WeightedWithReplacement(K),
        CommunicationAware(ANONYMOUS_NOVA),
        lambda: OMEGA * float(OMEGA @ STEPS) / STEPS,
    ),
    "FedACS": Rule(FedACS(K), ANONYMOUS, lambda: OMEGA / STEPS / np.sum(OMEGA / (RATE * STEPS))),
}


def sampler_state(sampler: Sampler) -> PartState:
    """The state before the first round; for OS one with norms 3, 0, unseen and 1."""
    if isinstance(sampler, OptimalSampling):
        return {"norm": torch.tensor([3.0, 0.0, -1.0, 1.0], dtype=torch.float64)}
    return sampler.init(WORLD.population)


def aggregate(aggregator: Aggregator, state: PartState, cohort: Cohort, arrived: torch.Tensor) -> Aggregate:
    """Aggregate Δ_i = the i-th unit vector, so that the direction lists the coefficients."""
    steps = torch.from_numpy(STEPS).to(torch.int64)[arrived]
    delta = torch.eye(4, dtype=torch.float64)[arrived]
    return aggregator.aggregate(updates_of(cohort, arrived, delta, steps), state, CONDITIONS)


@pytest.mark.parametrize("name", RULES)
def test_mean_coefficient_is_that_of_the_table(name: str) -> None:
    """Over 2500 rounds the mean coefficient is the one that Weng 2025 derives, within 4.5 standard errors.

    The errors are below 10 % of the largest coefficient (below 5 % but for OS, which has a client of norm 0).
    """
    rule, key = RULES[name], Key.from_seed(7)
    state = sampler_state(rule.sampler)
    rows = np.zeros((2500, 4))
    for round in range(len(rows)):
        cohort = rule.sampler.draw(state, CONDITIONS, key.fold("sampler", round))
        arrived = cohort.clients[WORLD.link.arrives(cohort.clients, round, key.fold("link"))]
        if len(arrived):
            rows[round] = aggregate(rule.aggregator, {}, cohort, arrived).direction.numpy()
    expected = rule.mean_coefficient()
    error = rows.std(0, ddof=1) / np.sqrt(len(rows))
    assert np.all(error < 0.1 * expected.max())
    # Under full participation client 0 always arrives, and its coefficient has no spread.
    assert np.all(np.abs(rows.mean(0) - expected) <= 4.5 * error + 1e-12)


def exact_mean(probabilities: Array, scale: Array, aggregator: Aggregator) -> Array:
    """Σ P(draws) P(links) coefficient over all N^K draws and 2^N links, importance c_i·scale_i/K."""
    mean = np.zeros(4)
    for draws in product(range(4), repeat=K):
        clients, counts = np.unique(draws, return_counts=True)
        cohort = Cohort(
            torch.from_numpy(clients),
            torch.from_numpy(counts),
            torch.from_numpy(counts * scale[clients] / K),
        )
        for links in product((False, True), repeat=4):
            works = np.array(links)
            chance = np.prod(probabilities[list(draws)]) * np.prod(np.where(works, RATE, 1 - RATE))
            arrived = torch.from_numpy(clients[works[clients]])
            if chance > 0 and len(arrived):
                mean += chance * aggregate(aggregator, {}, cohort, arrived).direction.numpy()
    return mean


@pytest.mark.parametrize("name", ["IS", "c-a-FedAvg", "FedNova-004", "c-a-FedNova"])
def test_mean_coefficient_by_enumeration(name: str) -> None:
    """Over every draw and every pattern of links the mean is exact, repeats included."""
    rule = RULES[name]
    mean = exact_mean(OMEGA, np.ones(4), rule.aggregator)
    np.testing.assert_allclose(mean, rule.mean_coefficient(), rtol=1e-12)


def test_fedacs_by_enumeration() -> None:
    """With p from (15) the mean coefficient times the work is ∝ ω exactly, which is consistency."""
    p = OMEGA / (RATE * STEPS)
    mean = exact_mean(p / p.sum(), np.ones(4), ANONYMOUS)
    np.testing.assert_allclose(mean * STEPS / (mean @ STEPS), OMEGA, rtol=1e-12)


def test_optimal_sampling_by_enumeration() -> None:
    """Norms 3, 0, unseen (so 3) and 1 with floor 0.1; importance ω/p keeps the mean at ω(1 − q)."""
    sampler = OptimalSampling(K, floor=0.1)
    state = sampler_state(sampler)
    score = OMEGA * np.array([3.0, 0.0, 3.0, 1.0])
    p = 0.9 * score / score.sum() + 0.1 * OMEGA
    np.testing.assert_allclose(sampler.probabilities(state, torch.from_numpy(OMEGA)).numpy(), p, rtol=1e-14)
    np.testing.assert_allclose(exact_mean(p, OMEGA / p, ANONYMOUS), OMEGA * RATE, rtol=1e-12)


def test_optimal_sampling_without_any_norm_samples_by_weight() -> None:
    sampler = OptimalSampling(K)
    for norm in (-1.0, 0.0):
        state: PartState = {"norm": torch.full((4,), norm, dtype=torch.float64)}
        np.testing.assert_allclose(sampler.probabilities(state, CONDITIONS.weights).numpy(), OMEGA)


def test_optimal_sampling_never_starves_a_client() -> None:
    """A client whose last update was zero is still asked, with importance of at most c_i/(K·floor)."""
    sampler = OptimalSampling(1, floor=0.2)
    state: PartState = {"norm": torch.tensor([5.0, 0.0, 5.0, 5.0], dtype=torch.float64)}
    draws = [sampler.draw(state, CONDITIONS, Key.from_seed(s)) for s in range(400)]
    asked = [float(cohort.importance[0]) for cohort in draws if int(cohort.clients[0]) == 1]
    # p_1 = 0.2·0.2 = 0.04: 16 expected, standard deviation 3.9.
    assert 3 <= len(asked) <= 34
    assert asked == pytest.approx([1 / 0.2] * len(asked))


def test_fedacs_follows_conditions_of_the_round() -> None:
    """When links and work trade places between rounds, so do the frequencies of the draws.

    Rates (1, 1/2) and work (1, 4) give p ∝ (1, 1/2); after the change p ∝ (1/2, 1).
    """
    weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
    sampler, key = FedACS(1), Key.from_seed(3)
    for rates, work, first in ([(1.0, 0.5), (1.0, 4.0), 2 / 3], [(0.5, 1.0), (4.0, 1.0), 1 / 3]):
        conditions = replace(
            CONDITIONS,
            weights=weights,
            forecast_work=lambda work=work: torch.tensor(work, dtype=torch.float64),
            forecast_arrival=lambda rates=rates: torch.tensor(rates, dtype=torch.float64),
        )
        picks = [int(sampler.draw({}, conditions, key.fold(r)).clients[0]) for r in range(2000)]
        assert abs(np.mean(np.array(picks) == 0) - first) < 4.5 * np.sqrt(2 / 9 / 2000)


def test_fedacs_is_weighted_sampling_where_nothing_differs() -> None:
    """(13): (1 − q)‖a‖₁ the same for all makes FedACS the same sampler as IS, draw for draw."""
    conditions = replace(
        CONDITIONS,
        forecast_work=lambda: torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64),
        forecast_arrival=lambda: torch.tensor([1.0, 0.5, 0.25, 0.125], dtype=torch.float64),
    )
    for seed in range(20):
        own = FedACS(K).draw({}, conditions, Key.from_seed(seed))
        other = WeightedWithReplacement(K).draw({}, conditions, Key.from_seed(seed))
        assert torch.equal(own.clients, other.clients)
        assert torch.equal(own.importance, other.importance)


@pytest.mark.parametrize(("cutoff", "limit"), [(None, 1 / RATE), (3, (1 - (1 - RATE) ** 3) / RATE)])
def test_fedau_learns_the_inverse_participation_rate(cutoff: int | None, limit: Array) -> None:
    """After 2500 rounds of full participation u_i is the mean of geometric intervals, cut at K.

    An uncut interval has variance q/(1 − q)² and a cut one less; there is about one per 1/(1 − q) rounds.
    """
    aggregator, key = FedAU(cutoff), Key.from_seed(11)
    state = aggregator.init(WORLD.population)
    cohort = FullParticipation().draw({}, CONDITIONS, key)
    for round in range(2500):
        arrived = cohort.clients[WORLD.link.arrives(cohort.clients, round, key)]
        state = aggregate(aggregator, state, cohort, arrived).state
    learned, count = tensor_in(state, "mean_interval").numpy(), tensor_in(state, "intervals").numpy()
    error = np.sqrt(1 - RATE) / RATE / np.sqrt(count)
    assert np.all(np.abs(learned - limit) <= 4.5 * error + 1e-12)


@pytest.mark.parametrize("aggregator", [FedVARP(), StaleFedVARP(), MIFA()], ids=lambda a: type(a).__name__)
def test_reported_weights_make_up_the_direction(aggregator: Aggregator) -> None:
    """direction = Σ coefficient_i Δ_i + Σ remembered_j y_j, in every round and with every y in its own axis.

    Client i uploads round·(unit vector i), so that fresh and remembered parts cannot be confused.
    """
    key, state = Key.from_seed(5), aggregator.init(WORLD.population)
    last = np.zeros(4)
    for round in range(1, 13):
        cohort = WeightedWithReplacement(K).draw({}, CONDITIONS, key.fold(round))
        arrived = cohort.clients[WORLD.link.arrives(cohort.clients, round, key)]
        if not len(arrived):
            continue
        delta = round * torch.eye(4, dtype=torch.float64)[arrived]
        updates = updates_of(cohort, arrived, delta, torch.ones_like(arrived))
        result = aggregator.aggregate(updates, state, CONDITIONS)
        state, remembered = result.state, result.remembered
        assert remembered is not None
        assert result.coefficients is not None
        fresh, old = arrived.numpy(), remembered.clients.numpy()
        total = np.zeros(4)
        total[old] = remembered.weights.numpy() * last[old]
        total[fresh] += round * result.coefficients.numpy()
        np.testing.assert_allclose(result.direction.numpy(), total, atol=1e-14)
        last[fresh] = round


def test_normalizing_rule_inside_communication_aware_sees_lossless_links() -> None:
    """FedNova(over="received") inside: p̂ ∝ c_i/(1 − q_i), and the expected τ_eff is Σ ω‖a‖₁ = 3.7."""
    cohort = Cohort(torch.tensor([1, 3]), torch.tensor([1, 1]), torch.tensor([0.5, 0.5], dtype=torch.float64))
    aggregator = CommunicationAware(FedNova("expected"))
    coefficients = aggregate(aggregator, {}, cohort, cohort.clients).coefficients
    share = np.array([0.5 / 0.8, 0.5 / 0.3])
    assert coefficients is not None
    expected = 3.7 * share / share.sum() / np.array([3.0, 6.0])
    np.testing.assert_allclose(coefficients.numpy(), expected, rtol=1e-14)


def test_fednova_over_asked_does_not_depend_on_who_else_arrived() -> None:
    cohort = Cohort(torch.tensor([1, 3]), torch.tensor([1, 2]), torch.tensor([1 / 3, 2 / 3]).double())
    both = aggregate(ANONYMOUS_NOVA, {}, cohort, torch.tensor([1, 3])).direction
    alone = aggregate(ANONYMOUS_NOVA, {}, cohort, torch.tensor([1])).direction
    assert both[1] == alone[1] != 0


def test_algorithm_with_wrapped_fednova_needs_a_linear_solver() -> None:
    assert CommunicationAware(ANONYMOUS_NOVA).needs_effective_steps
    assert not CommunicationAware().needs_effective_steps
    assert Algorithm(SOLVER, aggregator=CommunicationAware(ANONYMOUS_NOVA)).solver.is_linear


def test_methods_that_share_sampler_aggregator_and_conditions_share_one_prediction() -> None:
    asked: list[int] = []

    @dataclass(frozen=True)
    class Counting(WeightedMean):
        def coefficients(self, updates: ClientUpdates, conditions: Conditions) -> torch.Tensor:
            asked.append(1)
            return super().coefficients(updates, conditions)

    def predicted(lr: float, conditions: Conditions) -> torch.Tensor:
        algorithm = Algorithm(LocalSolver(SGD(lr), steps=1), UniformWithoutReplacement(3), Counting())
        found = mean_coefficients(algorithm, conditions)
        assert isinstance(found, MeanCoefficients)
        return found.coefficients

    first = predicted(0.1, CONDITIONS)
    once = len(asked)
    assert torch.equal(predicted(0.2, CONDITIONS), first)
    assert len(asked) == once > 0
    rarer = replace(CONDITIONS, forecast_arrival=lambda: torch.from_numpy(RATE / 2))
    assert not torch.equal(predicted(0.1, rarer), first)
    assert len(asked) > once
