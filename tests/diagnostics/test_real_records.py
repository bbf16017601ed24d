"""Theory sees the cohort, steps and sizes of real rounds, or says that it does not know them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fairlead as fl
from fairlead.diagnostics import implied_surrogate, predicted_consistency
from fairlead.errors import FieldError

SIZES, STEPS, RATES = (10, 30, 60), (1, 4, 2), (0.9, 0.5, 0.7)


class BySizes(fl.LinearAggregator):
    def coefficients(self, updates: fl.ClientUpdates, conditions: fl.Conditions) -> Tensor:
        return updates.num_examples / updates.num_examples.sum().double()


class BySteps(fl.LinearAggregator):
    def coefficients(self, updates: fl.ClientUpdates, conditions: fl.Conditions) -> Tensor:
        return updates.num_steps / updates.num_steps.sum()


class ByCohort(fl.LinearAggregator):
    """Each arrival counts as the share of the asked clients that arrived."""

    def coefficients(self, updates: fl.ClientUpdates, conditions: fl.Conditions) -> Tensor:
        return torch.full((len(updates),), len(updates) / len(updates.cohort.clients)).double()


class ByDraws(fl.LinearAggregator):
    def coefficients(self, updates: fl.ClientUpdates, conditions: fl.Conditions) -> Tensor:
        asked = updates.cohort
        return asked.multiplicity[torch.isin(asked.clients, updates.clients)].double()


class Equally(fl.LinearAggregator):
    def coefficients(self, updates: fl.ClientUpdates, conditions: fl.Conditions) -> Tensor:
        return torch.full((len(updates),), 1 / len(updates)).double()


def world(sizes: tuple[int, ...] = SIZES, **conditions: Any) -> fl.SimulatedWorld:
    """Clients with linear regressions of the given sizes."""
    generator = np.random.default_rng(0)
    inputs = [torch.from_numpy(generator.standard_normal((size, 2))) for size in sizes]
    targets = [torch.from_numpy(generator.standard_normal((size, 1))) for size in sizes]
    task = fl.Task(torch.nn.Linear(2, 1), loss=fl.squared_error)
    return fl.SimulatedWorld(
        task,
        fl.ClientData.from_lists(inputs, targets),
        weights="uniform",
        dtype=torch.float64,
        **conditions,
    )


def federation(
    aggregator: fl.Aggregator, sampler: fl.Sampler | None = None, **conditions: Any
) -> fl.Federation:
    solver = fl.LocalSolver(fl.SGD(0.01), steps=1, batch_size=4)
    algorithm = fl.Algorithm(solver, sampler or fl.FullParticipation(), aggregator)
    return fl.Federation(algorithm, world(**conditions))


def shares(values: Any) -> Any:
    return np.asarray(values, dtype=float) / np.sum(values)


@pytest.mark.parametrize(
    ("aggregator", "expected"),
    [(BySizes(), SIZES), (BySteps(), np.square(STEPS)), (ByCohort(), STEPS), (Equally(), STEPS)],
    ids=lambda value: type(value).__name__,
)
def test_facts_of_the_updates_are_the_real_ones(aggregator: fl.Aggregator, expected: Any) -> None:
    """Ω ∝ C‖a‖₁ on perfect links: sizes with equal work, and the rest with ‖a‖₁ = τ = (1, 4, 2)."""
    work = fl.EqualWork() if isinstance(aggregator, BySizes) else fl.FixedSteps(STEPS)
    run = federation(aggregator, work=work)
    list(run.train(2))
    report = run.consistency()
    assert report.predicted_weights is not None
    assert report.surrogate is not None
    assert report.predicted_weights.numpy() == pytest.approx(shares(expected))
    assert report.surrogate.numpy() == pytest.approx(shares(expected))


def by_enumeration(name: str) -> Any:
    """C over the eight sets of arrivals, with every client asked."""
    mean = np.zeros(3)
    for arrived in product((False, True), repeat=3):
        came = np.array(arrived)
        chance = np.where(came, RATES, 1 - np.array(RATES)).prod()
        counts = np.array({"BySizes": SIZES, "BySteps": STEPS}.get(name, (1, 1, 1))) * came
        if came.any():
            mean += chance * counts * (came.sum() / 3 if name == "ByCohort" else 1 / counts.sum())
    return mean


@pytest.mark.parametrize(
    "aggregator", [BySizes(), BySteps(), ByCohort(), Equally()], ids=lambda part: type(part).__name__
)
def test_lossy_links_are_enumerated_with_real_records(aggregator: fl.Aggregator) -> None:
    link = fl.BernoulliLink(tuple(1 - rate for rate in RATES))
    run = federation(aggregator, work=fl.FixedSteps(STEPS), link=link)
    found = implied_surrogate(run.algorithm, [run.world.conditions(0, run.algorithm.solver, run.key)])
    assert found.contributions is not None
    assert found.contributions.coefficient.numpy() == pytest.approx(by_enumeration(type(aggregator).__name__))
    assert found.exactness == "exact"


@pytest.mark.parametrize(
    "aggregator", [BySizes(), ByDraws(), ByCohort()], ids=lambda part: type(part).__name__
)
def test_random_cohorts_are_drawn_with_real_records(aggregator: fl.Aggregator) -> None:
    """30 clients, 8 draws: too many cohorts to enumerate. The oracle is the mean over 400 real rounds."""
    sizes = tuple(range(4, 34))
    link = fl.BernoulliLink(tuple(np.linspace(0.0, 0.5, 30)))
    sampler = fl.WeightedWithReplacement(8)
    run = fl.Federation(
        fl.Algorithm(fl.LocalSolver(fl.SGD(0.0), steps=1, batch_size=1), sampler, aggregator),
        world(sizes, link=link),
    )
    found = implied_surrogate(run.algorithm, [run.world.conditions(0, run.algorithm.solver, run.key)])
    assert found.exactness == "sampled"
    assert found.contributions is not None
    table = np.zeros((400, 30))
    for row, record in zip(table, run.train(400), strict=True):
        row[list(record.arrived)] = record.coefficients
    # Both are means over chance, one of 400 rounds and one of 4,096.
    error = table.std(0) * np.sqrt(1 / 400 + 1 / 4096)
    gap = found.contributions.coefficient.numpy() - table.mean(0)
    assert (np.abs(gap) <= 4.5 * error).all(), gap / error
    assert error.max() < 0.2 * table.mean(0).max()


def test_what_cannot_be_averaged_is_not_known() -> None:
    """An estimating sampler has no cohorts to draw, and a mean that ignores importance has no other theory."""
    run = federation(Equally(), fl.FedACSEstimated(2), link=fl.BernoulliLink(0.5))
    report = run.consistency()
    assert report.predicted_weights is None
    assert "Equally ignores importance in part" in str(report)


def test_sizes_that_nobody_knows_are_not_assumed() -> None:
    weights = torch.full((3,), 1 / 3, dtype=torch.float64)
    conditions = fl.Conditions.known(0, weights, torch.ones(3).double(), torch.ones(3).double())
    for aggregator, field in ((BySizes(), "num_examples"), (BySteps(), "num_steps")):
        algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1), steps=1), aggregator=aggregator)
        found = implied_surrogate(algorithm, [conditions])
        assert found.weights is None
        assert f"weighs clients by ClientUpdates.{field}, which is not known" in found.explanation
        known = replace(
            conditions, forecast_steps=lambda: torch.tensor(STEPS), num_examples=torch.tensor(SIZES)
        )
        assert implied_surrogate(algorithm, [known]).weights is not None
    nova = fl.presets.fednova(lr=0.1, tau_eff="steps")
    with pytest.raises(FieldError, match=r"FedNova weighs clients by ClientUpdates\.num_steps"):
        fl.step_length(nova, weights=[0.5, 0.5], arrival=[1.0, 1.0], effective_steps=[1.0, 4.0])


@pytest.mark.parametrize(("momentum", "mu"), [(0.9, 0.0), (0.0, 2.0), (0.5, 1.0)])
def test_fednova_by_steps_moves_by_mean_steps(momentum: float, mu: float) -> None:
    """τ_eff = Σ p τ = 5 whatever the solver makes of the steps (2, 8): C_i = 5·½/‖a_i‖₁, Ω = ω.

    So τ̄/τ_eff = 1, and A = 2·5·¼ Σ ‖a‖₂²/‖a‖₁², with a from the solver's impulse response in NumPy.
    """
    problem = fl.Quadratics(linear=((0.0,), (1.0,))).problem(fl.Key.from_seed(0))
    place = fl.SimulatedWorld(problem.task(), problem.data(), work=fl.FixedSteps((2, 8)), dtype=torch.float64)
    nova = fl.presets.fednova(lr=0.05, tau_eff="steps", momentum=momentum, mu=mu)
    ratio = sum(np.square(a).sum() / a.sum() ** 2 for a in (impulses(n, 0.05, momentum, mu) for n in (2, 8)))
    run = fl.Federation(nova, place)
    list(run.train(3))
    for factors in (predicted_consistency(nova, place).factors, run.consistency().factors):
        assert factors is not None
        assert (factors.tau_eff, factors.slowdown) == pytest.approx((5.0, 1.0))
        assert factors.a == pytest.approx(10 * 0.25 * ratio)


def impulses(steps: int, lr: float, momentum: float, mu: float) -> Any:
    """a: what a unit gradient at step j adds to the displacement, in units of −lr."""
    a = []
    for impulse in range(steps):
        y = v = 0.0
        for step in range(steps):
            v = momentum * v + (step == impulse) + mu * y
            y -= lr * v
        a.append(-y / lr)
    return np.array(a)


def test_the_advised_learning_rate_of_the_server_follows() -> None:
    """FedNova by steps takes 5 local steps a round and FedAvg 15.8 with momentum: its server needs 3.2 times its lr."""
    problem = fl.Quadratics(num_clients=12, dim=2, spread=2.0).problem(fl.Key.from_seed(0))
    steps = fl.FixedSteps((2, 8) * 6)
    place = fl.SimulatedWorld(problem.task(), problem.data(), work=steps, dtype=torch.float64)
    solver = fl.LocalSolver(fl.SGD(0.01, momentum=0.9), steps=1)
    lengths = [
        implied_surrogate(algorithm, [place.conditions(0, solver, fl.Key.from_seed(0))]).step_length
        for algorithm in (fl.Algorithm(solver), fl.Algorithm(solver, aggregator=fl.FedNova("steps")))
    ]
    work = [impulses(number, 0.01, 0.9, 0.0).sum() for number in (2, 8)]
    assert lengths == pytest.approx([np.mean(work), 5.0])
