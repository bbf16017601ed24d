"""Equal step lengths for fair comparisons (Weng 2025 I.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead import presets
from fairlead.algorithm import Algorithm
from fairlead.corrections.drift import Proximal
from fairlead.errors import ClashError, FieldError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.theory.convergence import calibrated_lr, step_length
from fairlead.theory.prediction import calibration

FACTS = {"weights": [0.2, 0.3, 0.5], "arrival": [1.0, 0.5, 0.8], "effective_steps": [2.0, 10.0, 5.0]}


def built(method: str) -> Algorithm:
    """A preset with two clients a round, where that is allowed."""
    arguments = {} if method == "full_participation" else {"cohort_size": 2}
    return presets.METHODS[method].build(lr=0.1, steps=1, **arguments)


@pytest.mark.parametrize(
    ("method", "factor"),
    [
        # Σω(1−q)‖a‖ = 0.4 + 1.5 + 2 = 3.9; Σω‖a‖ = 0.4 + 3 + 2.5 = 5.9;
        # Σω/((1−q)‖a‖) = 0.1 + 0.06 + 0.125 = 0.285.
        ("importance_sampling", 1.0),
        ("uniform_sampling", 1.0),
        ("optimal_sampling", 1.0),
        ("full_participation", 1.0),
        ("anonymous_fednova", 1.0),
        ("communication_aware_fedavg", 3.9 / 5.9),
        ("communication_aware_fednova", 3.9 / 5.9),
        ("fedvarp", 3.9 / 5.9),
        ("fedvarp_stale", 3.9 / 5.9),
        ("mifa", 3.9 / 5.9),
        # Close to Σω‖a‖, since 50 rounds without an update of a client are all but impossible.
        ("fedau", 3.9 / 5.9),
        ("fedacs", 3.9 * 0.285),
        ("fedacs_estimated", 3.9 * 0.285),
    ],
)
def test_learning_rates_of_appendix_i2(method: str, factor: float) -> None:
    rel = 1e-6 if method == "fedau" else 1e-12
    assert calibrated_lr(built(method), 0.02, **FACTS) == pytest.approx(0.02 * factor, rel=rel)


def test_fedacs_is_never_shortened_and_link_correction_never_lengthened() -> None:
    """Jensen: Σω u·Σω/u ≥ 1, and (1 − q) ≤ 1; equal when u = (1 − q)‖a‖ and q = 0 respectively."""
    generator = np.random.default_rng(0)
    for _ in range(50):
        facts = {
            "weights": generator.random(6) + 0.01,
            "arrival": generator.uniform(0.1, 1.0, 6),
            "effective_steps": generator.uniform(1, 30, 6),
        }
        assert calibrated_lr(built("fedacs"), 0.1, **facts) >= 0.1 * (1 - 1e-12)
        assert calibrated_lr(built("communication_aware_fedavg"), 0.1, **facts) <= 0.1
    same = {"weights": [0.5, 0.5], "arrival": [1.0, 0.5], "effective_steps": [2.0, 4.0]}
    assert calibrated_lr(built("fedacs"), 0.1, **same) == pytest.approx(0.1)


def proximal_work(lr: float) -> torch.Tensor:
    solver = LocalSolver(SGD(lr), steps=1, corrections=(Proximal(2.0),))
    norms = solver.accumulation(torch.tensor([2, 10, 5]), 0)
    assert norms is not None
    return norms.l1


@pytest.mark.parametrize("method", ["fedacs", "communication_aware_fedavg"])
def test_proximal_work_is_solved_for(method: str) -> None:
    """‖a‖₁ = (1 − (1 − ημ)^τ)/(ημ) shrinks with η, so η must satisfy the equation with its own ‖a‖₁."""
    facts = {"weights": FACTS["weights"], "arrival": FACTS["arrival"]}
    lr = calibrated_lr(built(method), 0.05, effective_steps=proximal_work, **facts)
    own = (1 - (1 - 2 * lr) ** np.array([2, 10, 5])) / (2 * lr)
    base = (1 - (1 - 2 * 0.05) ** np.array([2, 10, 5])) / (2 * 0.05)
    target = 0.05 * step_length(built("importance_sampling"), effective_steps=base, **facts)
    assert lr * step_length(built(method), effective_steps=own, **facts) == pytest.approx(target, rel=1e-10)
    naive = calibrated_lr(built(method), 0.05, effective_steps=base, **facts)
    assert abs(naive / lr - 1) > 1e-3


def test_clients_of_weight_zero_do_not_count() -> None:
    padded = {
        "weights": [0.2, 0.3, 0.5, 0.0],
        "arrival": [1.0, 0.5, 0.8, 0.0],
        "effective_steps": [2.0, 10.0, 5.0, 0.0],
    }
    assert step_length(built("fedacs"), **padded) == step_length(built("fedacs"), **FACTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrival": [1.0, 0.0, 0.8]}, "arrival and effective_steps above 0"),
        ({"arrival": [1.0, 0.5]}, "one number per client each, got 3, 2, 3"),
    ],
)
def test_wrong_facts_are_refused(change: dict[str, list[float]], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        step_length(built("fedacs"), **{**FACTS, **change})


def test_a_method_without_mean_coefficients_is_refused() -> None:
    with pytest.raises(FieldError, match="FedMGDA has no theory of its mean coefficients"):
        calibrated_lr(built("fedmgda_plus"), 0.1, **FACTS)


def test_saturated_solver_is_reported() -> None:
    """Work 1/(1 + η) keeps every step of FedACS below 0.182, and importance sampling with η = 1 takes 0.275.

    Rates 1 and 0.1 give it 0.55·η/(1 + η), and FedACS 1/(0.5 + 5)·η/(1 + η).
    """

    def saturating(lr: float) -> list[float]:
        return [1 / (1 + lr), 1 / (1 + lr)]

    facts = {"weights": [0.5, 0.5], "arrival": [1.0, 0.1]}
    with pytest.raises(FieldError, match="saturates"):
        calibrated_lr(built("fedacs"), 1.0, effective_steps=saturating, **facts)
    assert calibrated_lr(built("fedacs"), 0.1, effective_steps=saturating, **facts) > 0.1


DYNAMIC = fl.settings.fedacs_quadratics_dynamic()
"""T ~ U(1, 10) and q ~ U(0.4, 0.5) for ten clients, U(20, 30) and U(0, 0.1) for the others: Weng 2025 I.3.1."""


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_calibrated_in_every_round_fedacs_steps_as_far_as_fedavg(seed: int) -> None:
    """Mean over 200 rounds of factor/mean(1/((1 − q)T)) is that of mean((1 − q)T); with one factor it is not."""
    assert DYNAMIC.clients is not None
    experiment = fl.Experiment(
        DYNAMIC.clients, built("fedacs"), 1, work=DYNAMIC.work, link=DYNAMIC.link, seed=seed
    )
    run = experiment.build()
    rounds = [run.world.conditions(round, run.algorithm.solver, run.key) for round in range(200)]
    arrival, work = (
        np.array([getattr(each, name).numpy() for each in rounds]) for name in ("arrival", "effective_steps")
    )
    fedavg, fedacs = (arrival * work).mean(1), 1 / (1 / (arrival * work)).mean(1)
    factors = np.array([calibration(built("fedacs"), each) for each in rounds])
    assert np.mean(factors * fedacs) == pytest.approx(np.mean(fedavg), rel=0.01)
    np.testing.assert_allclose(factors * fedacs, fedavg, rtol=1e-12)
    once = calibrated_lr(
        built("fedacs"), 1.0, weights=[0.05] * 20, arrival=arrival.mean(0), effective_steps=work.mean(0)
    )
    assert 0.65 < np.mean(once * fedacs) / np.mean(fedavg) < 0.75


def steady(algorithm: Algorithm, rounds: int = 400) -> fl.Federation:
    """A run whose clients have the same constant gradient, so that x counts the local steps, in units of η."""
    clients = fl.Quadratics(linear=((1.0,),) * 20, hessians=(((0.0,),),) * 20, start=0.0)
    experiment = fl.Experiment(
        clients, algorithm, rounds, work=DYNAMIC.work, link=DYNAMIC.link, evaluate_every=0, dtype="float64"
    )
    run = experiment.build()
    list(run.train())
    return run


@pytest.mark.parametrize("method", ["fedacs", "communication_aware_fedavg", "fedvarp_stale"])
def test_a_calibrated_run_moves_as_far_as_importance_sampling(method: str) -> None:
    """Within 2 %, the noise of links; FedACS alone moves less than a third as far. Clients or server do the same."""
    algorithm = presets.method_named(method).build(lr=0.01, steps=1, batch_size=None, cohort_size=300)
    fedavg = steady(presets.importance_sampling(lr=0.01, steps=1, batch_size=None, cohort_size=300))
    clients, server = (steady(replace(algorithm, calibrate=where)) for where in ("clients", "server"))
    assert float(clients.params) == pytest.approx(float(fedavg.params), rel=0.02)
    if method == "fedacs":
        assert float(steady(algorithm).params) < 0.33 * float(fedavg.params)
        assert float(server.params) == pytest.approx(float(clients.params), rel=1e-12)
    for one, other in zip(clients.records, server.records, strict=True):
        assert one.facts["calibration"] == other.facts["calibration"]
        assert one.client_lr == pytest.approx(0.01 * one.facts["calibration"])
        assert other.client_lr == 0.01


def test_calibrating_the_server_leaves_local_training_alone() -> None:
    """With curved clients the longer local learning rate changes the updates, and the longer server step does not."""
    lossless = {"work": fl.FixedSteps((1, 9)), "evaluate_every": 0, "dtype": "float64"}
    clients = fl.Quadratics(linear=((1.0,), (1.0,)), start=0.0)
    plain = presets.fedacs(lr=0.1, steps=1, batch_size=None, cohort_size=1)

    def first(calibrate: Literal["clients", "server"] | None) -> fl.RoundRecord:
        experiment = fl.Experiment(clients, replace(plain, calibrate=calibrate), 1, **lossless)  # type: ignore[arg-type]
        return next(experiment.build().train())

    usual, server, local = first(None), first("server"), first("clients")
    # ω(1 + 9)/2 · (1 + 1/9)/2 = 25/9.
    assert server.facts["calibration"] == pytest.approx(25 / 9)
    assert server.direction_norm == usual.direction_norm
    assert server.step_norm == pytest.approx(25 / 9 * usual.direction_norm)
    steps, lr = usual.num_steps[0], 0.1 * 25 / 9
    assert local.step_norm == pytest.approx(1 - (1 - lr) ** steps)
    assert local.direction_norm == local.step_norm


def test_a_spec_says_calibrate_beside_its_preset() -> None:
    text = 'preset = "fedacs"\nlr = 0.1\nsteps = 1\ncohort_size = 2\ncalibrate = "server"\nwork = "epochs"'
    algorithm = fl.from_toml(Algorithm, text)
    assert algorithm == replace(
        presets.fedacs(lr=0.1, steps=1, cohort_size=2, work="epochs"), calibrate="server"
    )
    assert fl.from_toml(Algorithm, fl.to_toml(algorithm)) == algorithm


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(built("fedacs"), calibrate="both"), "'clients', 'server', got 'both'"),  # type: ignore[arg-type]
        (lambda: replace(presets.fedprox(lr=0.1, mu=1.0), calibrate="clients"), 'write calibrate="server"'),
        (lambda: replace(presets.fedawe(lr=0.1), calibrate="server"), "no transforms and no calibrate"),
        (lambda: steady(replace(built("fedmgda_plus"), calibrate="server"), 1), "FedMGDA has no theory"),
    ],
)
def test_calibrations_without_a_meaning_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises((ClashError, FieldError), match=message):
        make()


def work_of(sizes: list[int], epochs: tuple[int, ...], batch_size: int = 10) -> fl.Conditions:
    """Conditions of clients that hold `sizes` examples."""
    data = fl.ClientData(
        torch.zeros(sum(sizes), 2), torch.zeros(sum(sizes)), torch.tensor([0, *np.cumsum(sizes)])
    )
    link = fl.BernoulliLink((0.5, 0.0, 0.2))
    task = fl.Task(fl.LogisticRegression(), loss="squared_error", metrics=())
    world = fl.SimulatedWorld(task, data, work=fl.FixedEpochs(epochs), link=link)
    return world.conditions(0, LocalSolver(SGD(0.1), batch_size=batch_size), fl.Key.from_seed(0))


def test_work_may_be_counted_in_epochs() -> None:
    """Batches of ten: 1, 3 and 5 an epoch, so 2, 3 and 20 steps in 2, 1 and 4 epochs."""
    conditions = work_of([4, 30, 41], (2, 1, 4))
    work, arrival, weights = np.array([2.0, 1.0, 4.0]), np.array([0.5, 1.0, 0.8]), np.array([4, 30, 41]) / 75
    assert conditions.effective_steps is not None
    assert conditions.effective_steps.tolist() == [2, 3, 20]
    assert conditions.in_epochs().effective_steps is not None
    np.testing.assert_allclose(conditions.in_epochs().effective_steps.numpy(), work)  # type: ignore[union-attr]
    asked = fl.FedACS(3, "epochs").participation(conditions)
    assert not isinstance(asked, fl.NotKnown)
    expected = weights / (arrival * work)
    np.testing.assert_allclose(asked.importance.numpy(), expected / expected.sum())
    # FedNova (116) with epochs: importance · T_eff/T, T_eff = Σω(1−q)T/Σω(1−q).
    cohort = fl.Cohort(torch.arange(3), torch.ones(3).long(), torch.full((3,), 1 / 3, dtype=torch.float64))
    steps = torch.tensor([2, 3, 20])
    updates = fl.ClientUpdates.of(cohort, torch.arange(3), torch.zeros(3, 1), steps, steps.double(), lr=0.1)
    t_eff = (weights * arrival) @ work / (weights @ arrival)
    found = fl.FedNova("expected", "asked", "epochs").coefficients(updates, conditions)
    np.testing.assert_allclose(found.numpy(), t_eff / work / 3)
    with pytest.raises(ClashError, match="knows the epochs"):
        fl.FedNova(work="epochs").coefficients(updates, fl.Conditions(0, conditions.weights))


def test_renormalized_fednova_stretches_nobody() -> None:
    """ω_m/‖a_m‖ scaled to sum 1: equal importance and work 1, 2, 4 give 4/7, 2/7 and 1/7."""
    cohort = fl.Cohort(torch.arange(3), torch.ones(3).long(), torch.full((3,), 0.2, dtype=torch.float64))
    steps = torch.tensor([1, 2, 4])
    updates = fl.ClientUpdates.of(cohort, torch.arange(3), torch.zeros(3, 1), steps, steps.double(), lr=0.1)
    aggregator = presets.anonymous_fednova(lr=0.1, cohort_size=3, renormalized=True).aggregator
    assert isinstance(aggregator, fl.FedNova)
    found = aggregator.coefficients(updates, fl.Conditions(0, torch.full((3,), 1 / 3, dtype=torch.float64)))
    np.testing.assert_allclose(found.numpy(), np.array([4, 2, 1]) / 7)
