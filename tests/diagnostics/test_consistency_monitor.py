"""The monitor of a run: speaks once, only when it should, and names the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fairlead as fl
from fairlead.conditions.links import BernoulliLink, PerfectLink
from fairlead.conditions.work import FixedSteps
from fairlead.diagnostics import ConsistencyMonitor
from fairlead.errors import FieldError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.runner import run_experiment
from fairlead.presets import METHODS

WORLD_SOURCE = fl.Quadratics(num_clients=6, dim=1, weights=(1, 1, 1, 2, 2, 3)).problem(fl.Key.from_seed(0))
SKEWED, EQUAL = FixedSteps((1, 1, 2, 6, 6, 12)), FixedSteps((2, 2, 2, 2, 2, 2))
LOSSY = BernoulliLink((0.8, 0.8, 0.8, 0.1, 0.1, 0.0))


def trained(
    algorithm: fl.Algorithm, rounds: int = 40, work: fl.WorkModel = EQUAL, link: fl.LinkModel | None = None
) -> fl.Federation:
    world = fl.SimulatedWorld(
        WORLD_SOURCE.task(),
        WORLD_SOURCE.data(),
        weights=WORLD_SOURCE.weights,
        work=work,
        link=link or PerfectLink(),
    )
    run = fl.Federation(algorithm, world)
    list(run.train(rounds))
    return run


def built(name: str, **arguments: Any) -> fl.Algorithm:
    return METHODS[name].build(lr=0.01, steps=1, **arguments)


@pytest.mark.parametrize(
    ("algorithm", "work", "link", "cause"),
    [
        (built("fedavg"), SKEWED, PerfectLink(), "unequal work"),
        (built("fedavg"), EQUAL, LOSSY, "unequal links"),
        (built("fednova"), SKEWED, LOSSY, "unequal links"),
        (built("mifa"), SKEWED, LOSSY, "unequal work"),
        (built("fedau"), SKEWED, LOSSY, "unequal work"),
        (
            fl.Algorithm(built("fedavg").solver, fl.ScriptedSampler(((0, 1, 2), (0, 1, 2), (3, 4, 5)))),
            EQUAL,
            PerfectLink(),
            "unequal sampling",
        ),
    ],
)
def test_the_notice_names_the_main_cause(
    algorithm: fl.Algorithm, work: fl.WorkModel, link: fl.LinkModel, cause: str
) -> None:
    notice = trained(algorithm, 80, work, link).notice
    assert notice is not None
    assert f"the main cause is {cause}" in notice


@pytest.mark.parametrize(
    "algorithm",
    [
        built("fednova"),
        built("scaffold"),
        built("fedaware"),
        built("fedmgda_plus"),
        built("fedavg", cohort_size=3),
        built("fedacs", cohort_size=3),
        built("importance_sampling", cohort_size=3),
        built("communication_aware_fednova", cohort_size=3),
    ],
    ids=lambda algorithm: f"{type(algorithm.sampler).__name__}-{type(algorithm.aggregator).__name__}",
)
def test_nothing_is_said_without_a_bias(algorithm: fl.Algorithm) -> None:
    """Neither chance in sampling, nor work that is corrected, nor a method without weights is a bias."""
    corrected = type(algorithm.aggregator).__name__ != "WeightedMean" or algorithm.solver.corrections
    assert trained(algorithm, 120, SKEWED if corrected else EQUAL).notice is None


def test_losses_alike_for_all_are_no_bias_where_a_lost_update_counts_as_zero() -> None:
    assert trained(built("full_participation"), 120, EQUAL, BernoulliLink(0.5)).notice is None


def test_it_waits_for_ten_rounds_and_speaks_once() -> None:
    run = trained(built("fedavg"), 9, SKEWED)
    assert run.notice is None
    list(run.train(1))
    first = run.notice
    assert first is not None
    assert first.startswith("After 10 rounds")
    list(run.train(30))
    assert run.notice == first


def test_a_small_bias_is_below_the_threshold() -> None:
    run = trained(built("fedavg"), 40, FixedSteps((4, 4, 4, 4, 4, 5)))
    assert run.notice is None
    strict = ConsistencyMonitor(run.algorithm, WORLD_SOURCE.weights, threshold=1e-3)
    strict.watch(run.records)
    assert strict.notice is not None


def test_a_client_that_never_arrives_is_noticed() -> None:
    notice = trained(built("fedavg"), 12, EQUAL, BernoulliLink((0, 0, 0, 0, 0, 1.0))).notice
    assert notice is not None
    assert "chi-square inf" in notice


@pytest.mark.parametrize(
    ("algorithm", "drop"),
    [
        (fl.Algorithm(built("fedavg").solver, aggregator=fl.CommunicationAware()), 0.99),
        (fl.Algorithm(built("fedavg").solver, aggregator=fl.CommunicationAware()), 1.0),
        (fl.Algorithm(built("fedavg").solver, aggregator=fl.CommunicationAware(fl.FedNova())), 0.99),
        (built("fedacs", cohort_size=1000), 0.99),
    ],
)
def test_methods_that_divide_by_rates_continue_where_somebody_has_not_arrived_yet(
    algorithm: fl.Algorithm, drop: float
) -> None:
    """Updates of client 5 are lost, at a rate that the server knows: nobody divides by the 0 that was seen."""
    run = trained(algorithm, 12, EQUAL, BernoulliLink((0, 0, 0, 0, 0, drop)))
    assert all(5 in record.asked and 5 not in record.arrived for record in run.records[:10])
    assert run.notice is not None
    assert run.consistency().surrogate is not None


def test_records_that_were_taken_back_are_counted_anew() -> None:
    """After resuming from an earlier checkpoint the list is shorter than what was counted."""
    run = trained(built("fedavg"), 9, SKEWED)
    monitor = ConsistencyMonitor(run.algorithm, WORLD_SOURCE.weights)
    monitor.watch(run.records)
    monitor.watch(run.records[:4])
    list(run.train(3))
    monitor.watch(run.records)
    assert monitor.notice is not None
    assert monitor.notice.startswith("After 10 rounds")


def test_clients_asked_too_seldom_are_not_judged() -> None:
    """With 6 clients and one asked a round, a dozen rounds tell nothing of anybody."""
    assert trained(built("fedavg", cohort_size=1), 14, SKEWED).notice is None


def test_the_threshold_must_be_positive() -> None:
    with pytest.raises(FieldError, match=r"ConsistencyMonitor.threshold must be .* above 0, got 0"):
        ConsistencyMonitor(built("fedavg"), torch.ones(1), threshold=0)


def test_a_run_in_a_folder_hears_of_it_once(tmp_path: Path) -> None:
    source = fl.Quadratics(num_clients=2, dim=1)
    experiment = Experiment(source, built("fedavg"), rounds=25, work=FixedSteps((1, 9)))
    noted: list[str] = []
    ended = run_experiment(experiment, tmp_path / "run", on_notice=noted.append)
    assert noted == [ended.federation.notice]
    assert "unequal work" in noted[0]


def test_a_resumed_run_counts_the_rounds_before_it(tmp_path: Path) -> None:
    source = fl.Quadratics(num_clients=2, dim=1)
    short, long = (
        Experiment(source, built("fedavg"), rounds=rounds, work=FixedSteps((1, 9))) for rounds in (9, 11)
    )
    assert run_experiment(short, tmp_path / "run").federation.notice is None
    notice = run_experiment(long, tmp_path / "run", resume=True).federation.notice
    assert notice is not None
    assert notice.startswith("After 10 rounds")


def test_a_run_resumed_late_gives_the_notice_of_an_uninterrupted_one(tmp_path: Path) -> None:
    """Records of 14 rounds at once: the sentence is that of the tenth, when the monitor would have looked."""
    source = fl.Quadratics(num_clients=2, dim=1)
    experiment = Experiment(source, built("fedavg"), rounds=14, work=FixedSteps((1, 9)))
    ended = run_experiment(experiment, tmp_path / "run").federation
    monitor = ConsistencyMonitor(built("fedavg"), ended.world.population.weights)
    monitor.watch(ended.records)
    assert monitor.notice == ended.notice
    assert monitor.notice is not None
    assert monitor.notice.startswith("After 10 rounds")
