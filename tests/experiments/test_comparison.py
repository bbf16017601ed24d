"""Comparisons: common random numbers, the objective really optimized, and the demonstration."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import fairlead as fl
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.diagnostics.measurement import chance_level
from fairlead.errors import FieldError
from fairlead.experiments.demo import DEMO_METHODS, demo_algorithms, demo_experiment
from fairlead.results.sentences import objective_verdict
from fairlead.theory.prediction import Surrogate

TWO_CLIENTS = fl.Experiment(
    fl.Quadratics(linear=((0.0,), (4.0,)), start=0.0),
    fl.presets.fedavg(lr=0.01, steps=1),
    rounds=600,
    work=fl.FixedSteps((1, 9)),
    dtype="float64",
    evaluate_every=0,
)


def test_each_method_ends_where_its_weights_say() -> None:
    """F_i = ½x² − e_i x with e = (0, 4), ω = (½, ½), τ = (1, 9), η = 0.01.

    FedAvg: Ω = (1, 9)/10, and the limit is Σ κ_i e_i/Σ κ_i with κ_i = 1 − (1−η)^τ_i. FedNova:
    Ω = ω; its limit is Σ (κ_i/τ_i) e_i/Σ (κ_i/τ_i). The objective at x is ½x² − 2x.
    """
    algorithms = {"avg": TWO_CLIENTS.algorithm, "nova": fl.presets.fednova(lr=0.01, steps=1)}
    averaged, normalized = fl.compare(TWO_CLIENTS, algorithms)
    kappa = [1 - 0.99**tau for tau in (1, 9)]
    for method, shares, mistake in (
        (averaged, kappa, 0.4),
        (normalized, [kappa[0], kappa[1] / 9], 0.0),
    ):
        limit = 4 * shares[1] / sum(shares)
        assert float(method.federation.params) == pytest.approx(limit, abs=1e-6)
        assert method.objective == pytest.approx(limit**2 / 2 - 2 * limit, abs=1e-6)
        assert method.consistency.total_variation == pytest.approx(mistake, abs=1e-12)
    assert averaged.objective_verdict() == (
        "avg optimized another objective: 1 of 2 clients got 90% of the weight instead of 50%."
    )
    assert normalized.objective_verdict() == "nova optimized the intended objective."


def test_figures_per_client_name_their_clients_and_data() -> None:
    """`SyntheticLogistic` gives each client test data of its own, `Quadratics` none."""
    clients = fl.SyntheticLogistic(num_clients=4, max_examples=60)
    held_out = fl.Experiment(clients, fl.presets.fedavg(lr=0.1), rounds=1, per_client=True)
    trained = replace(TWO_CLIENTS, rounds=1, evaluate_every=1, per_client=True)
    for experiment, said in ((held_out, "its own held-out data"), (trained, "its own training data")):
        (method,) = fl.compare(experiment, {"avg": experiment.algorithm})
        assert method.summary.client_data == said
        assert method.figures.runs[0].run.names is method.federation.world.population.names


def test_the_objective_is_that_of_the_training_data() -> None:
    """Also where clients have test sets of their own, on which the model is evaluated."""
    clients = fl.SyntheticLogistic(num_clients=4, max_examples=60)
    experiment = fl.Experiment(clients, fl.presets.fedavg(lr=0.1), rounds=2, evaluate_every=0)
    (method,) = fl.compare(experiment, {"avg": experiment.algorithm})
    data = clients.load(fl.Key.from_seed(0).fold("data"))
    assert data.test is not None
    world = fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), data.train)
    expected = world.evaluate(method.federation.params, method.federation.state.buffers).loss
    assert method.objective == pytest.approx(expected, rel=1e-12)
    assert method.objective != pytest.approx(method.evaluation.loss, rel=1e-3)


def test_a_small_mistake_is_called_nearly_right() -> None:
    nearly = replace(TWO_CLIENTS, work=fl.FixedSteps((9, 10)), rounds=2)
    (method,) = fl.compare(nearly, {"avg": TWO_CLIENTS.algorithm})
    assert method.objective_verdict() == (
        "avg nearly optimized the intended objective: 3% of the weight went to wrong clients."
    )


def test_a_method_whose_weights_do_not_exist_says_so() -> None:
    solver = fl.LocalSolver(fl.Adam(0.01), steps=1)
    (method,) = fl.compare(replace(TWO_CLIENTS, rounds=2), {"adam": fl.Algorithm(solver)})
    assert (
        method.objective_verdict() == "adam has no weights that can be measured, so its objective is unknown."
    )


def test_what_chance_misplaces_is_told_from_a_wrong_objective() -> None:
    """Two equal clients, each update lost with probability ½: FedAvg is right on average, and what is
    misplaced in 40 rounds is within twice the chance level; with 9 times the work of one it is not.
    """
    lossy = replace(
        TWO_CLIENTS, work=fl.FixedSteps((5, 5)), link=fl.BernoulliLink(0.5), rounds=40, weights=(0.5, 0.5)
    )
    (fair,) = fl.compare(lossy, {"avg": TWO_CLIENTS.algorithm})
    assert 0 < (fair.consistency.total_variation or 0) < 2 * fair.chance
    assert fair.objective_verdict().startswith("avg optimized the intended objective: theory misplaces 0%")
    (unfair,) = fl.compare(replace(lossy, work=fl.FixedSteps((1, 9))), {"avg": TWO_CLIENTS.algorithm})
    assert (unfair.consistency.total_variation or 0) > 2 * unfair.chance
    assert unfair.objective_verdict().startswith("avg optimized another objective: ")


def test_theory_convicts_where_the_measured_share_may_be_chance() -> None:
    report = ConsistencyReport(
        torch.tensor([0.5, 0.5]),
        torch.tensor([0.37, 0.63]),
        30,
        predicted=Surrogate(torch.tensor([0.35, 0.65]), None, "exact", ""),
    )
    assert objective_verdict("FedAvg", report, 0.08) == (
        "FedAvg optimized another objective, by theory: it misplaces 15% of the weight; the 13% measured over 30 "
        "rounds alone may be chance."
    )
    assert objective_verdict("FedAvg", replace(report, predicted=None), 0.08) == (
        "FedAvg cannot be judged after 30 rounds: 13% of the weight went to the wrong clients, which may be chance."
    )


def test_the_chance_level_is_that_of_its_formula() -> None:
    """Four rounds in which one of two clients arrives, alternately: Ω per stretch is (1, 0) and (0, 1) in
    turn, so that s_i = std(1, 0, 1, 0)/√4 = √(1/3)/2, and the level is 2 s/√(2π).
    """
    experiment = replace(TWO_CLIENTS, link=fl.ScriptedLink(((0,), (1,))), rounds=4)
    records = list(experiment.build().train(4))
    weights = torch.full((2,), 0.5, dtype=torch.float64)
    expected = 2 * math.sqrt(1 / 3) / 2 / math.sqrt(2 * math.pi)
    assert chance_level(records, weights) == pytest.approx(expected, rel=1e-12)
    assert chance_level(records[:1], weights) == 0.0


def test_methods_meet_the_same_arrivals_and_are_reported_as_they_run() -> None:
    experiment = fl.Experiment(
        fl.Digits(5), TWO_CLIENTS.algorithm, 4, link=fl.BernoulliLink(0.5), evaluate_every=2
    )
    seen: list[tuple[str, int, bool]] = []
    methods = fl.compare(
        experiment,
        {"a": fl.presets.fedavg(lr=0.1, steps=1), "b": fl.presets.fednova(lr=0.3, steps=2)},
        on_round=lambda name, record: seen.append((name, record.round, record.evaluation is not None)),
    )
    assert seen == [(name, round, round % 2 == 1) for name in "ab" for round in range(4)]
    arrivals = [[record.arrived for record in method.federation.records] for method in methods]
    assert arrivals[0] == arrivals[1]
    for method in methods:
        assert len(method.evaluation.client_loss or ()) == 5


def test_the_demonstration_pulls_fedavg_away_and_not_scaffold() -> None:
    """At a small scale: FedAvg gives most weight to the strong, SCAFFOLD none that was not asked for."""
    experiment = replace(demo_experiment(rounds=12), evaluate_every=0)
    algorithms = demo_algorithms(experiment)
    assert tuple(algorithms) == DEMO_METHODS
    methods = {method.name: method for method in fl.compare(experiment, algorithms)}
    misplaced = {name: method.consistency.total_variation or 0.0 for name, method in methods.items()}
    assert misplaced["fedavg"] > 0.5 > 0.35 > misplaced["fednova"] > misplaced["scaffold"] == 0.0
    assert misplaced["fedacs"] < misplaced["fednova"]
    assert methods["scaffold"].objective < methods["fednova"].objective < methods["fedavg"].objective


def test_rounds_of_the_demonstration_are_worth_the_same_work() -> None:
    """Mean Σ coefficient·‖a‖₁ of a round times the server's step, FedACS against FedNova."""
    experiment = replace(demo_experiment(rounds=60), evaluate_every=0, task=None)
    chosen = {name: demo_algorithms(experiment)[name] for name in ("fednova", "fedacs")}
    lengths = {}
    for method in fl.compare(experiment, chosen):
        worth = [
            float(torch.tensor(record.coefficients) @ torch.tensor(record.effective_steps))
            for record in method.federation.records
            if record.arrived
        ]
        silent = sum(not record.arrived for record in method.federation.records)
        lengths[method.name] = sum(worth) / (len(worth) + silent) * chosen[method.name].server.lr
    assert lengths["fedacs"] == pytest.approx(lengths["fednova"], rel=0.25)


def test_a_comparison_of_nothing_is_refused() -> None:
    experiment = fl.Experiment(fl.Quadratics(2), fl.presets.fedavg(lr=0.1), rounds=1)
    with pytest.raises(FieldError, match="compare needs at least one algorithm"):
        fl.compare(experiment, {})
