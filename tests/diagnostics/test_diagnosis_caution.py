"""A diagnosis claims no more than the rounds and the data that it saw bear."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from constructed import (
    CASES,
    NUM_CLIENTS,
    RATES,
    experiment,
    finding,
    logged,
    minimal_lines,
    number,
    write_lines,
)

import fairlead as fl
from fairlead.experiments import diagnose as probe


def test_a_tiny_gain_is_said_not_to_matter() -> None:
    """Client 0, with 1/15 of the weight, loses a quarter: 1/15 − (1/15)(3/4)/(1 − 1/60) = 1.6 % is misplaced."""
    found = fl.diagnose(experiment(link=fl.BernoulliLink((0.25, *(0.0,) * 11))))
    now = 1 / 15 - 1 / 15 * 0.75 / (1 - 1 / 60)
    assert finding(found, "links").statement.startswith("Links: unequal")
    assert found.advice.expected["misplaced_now"] == pytest.approx(now, abs=0.001)
    assert (found.advice.preset, found.advice.decision) == ("scaffold", "keep")
    assert "a difference of 2.0% or less hardly matters" in found.advice.reason
    assert found.advice.python is None


def test_fedavg_is_said_to_be_enough_for_a_correcting_method_too() -> None:
    """Clients that are alike: FedNova corrects nothing that matters, and no other method is proposed."""
    alike = fl.Experiment(
        fl.Digits(20, fl.IidPartitioner()),
        fl.presets.fednova(lr=0.1, cohort_size=10),
        rounds=50,
        work=fl.RandomEpochs(1, 5),
        link=fl.UniformBernoulliLink(0.0, 0.5),
    )
    advice = fl.diagnose(alike, rounds=6, quick=True).advice
    assert (advice.preset, advice.decision) == ("fedavg", "keep")
    assert advice.reason.endswith("plain averaging is enough.")
    assert advice.remarks[0].startswith("Evidence: ")
    assert advice.alternatives == ()


def test_theory_for_large_cohorts_is_trusted_less_where_they_are_small() -> None:
    crowd = fl.Experiment(
        fl.Quadratics(num_clients=400),
        fl.presets.fedavg(lr=0.01, steps=1, cohort_size=8),
        rounds=20,
        work=fl.FixedSteps((1, 9) * 200),
        link=fl.BernoulliLink(0.3),
    )
    found = fl.diagnose(crowd, quick=True)
    assert finding(found, "work").confidence == "high"
    assert "for large cohorts" in finding(found, "foreseen").statement
    assert finding(found, "foreseen").confidence == "moderate"
    assert found.advice.confidence == "moderate"


@pytest.mark.parametrize("case", CASES)
def test_one_round_is_too_little(case: str, tmp_path: Path) -> None:
    subject = experiment(*CASES[case])
    for found in (fl.diagnose(subject, rounds=1), fl.diagnose(logged(tmp_path / "one.jsonl", subject, 1))):
        assert (found.advice.preset, found.advice.decision) == (None, "undecided")
        assert "fewer than 5 rounds" in found.advice.reason
        assert finding(found, "measured").confidence == "none"
        assert finding(found, "measured").statement.startswith("Measured: 1 round cannot show")


def test_two_clients_do_not_tell_whether_drift_matters(tmp_path: Path) -> None:
    two = fl.Experiment(fl.Quadratics(num_clients=2), fl.presets.fedavg(lr=0.01, steps=3), rounds=20)
    logged_two = write_lines(
        tmp_path / "two.jsonl", minimal_lines(list(two.build().train(20)), weights=False)
    )
    for found in (fl.diagnose(two), fl.diagnose(logged_two)):
        assert found.advice.preset is None
        assert finding(found, "consensus").confidence == "none"


def test_few_questions_do_not_tell_the_links(tmp_path: Path) -> None:
    """Six rounds of three clients out of twelve: some are never asked, and nobody more than thrice or so."""
    subject = experiment(algorithm=fl.presets.fedavg(lr=0.01, steps=3, cohort_size=3))
    found = fl.diagnose(logged(tmp_path / "few.jsonl", subject, 6))
    assert finding(found, "links").confidence == "none"
    assert found.advice.preset is None
    assert "not enough data on" in found.advice.reason


def test_a_client_that_never_arrives_is_beyond_any_method(tmp_path: Path) -> None:
    drop = (*(1 - RATES).tolist()[:-1], 1.0)
    subject = experiment(link=fl.BernoulliLink(drop))
    for found in (fl.diagnose(subject), fl.diagnose(logged(tmp_path / "dead.jsonl", subject, 40))):
        assert found.advice.preset is None
        assert "no update ever arrives" in found.advice.reason
        assert number(found, "unheard", "clients") == 1
        assert number(found, "unheard", "weight") == pytest.approx(3 / 30)


def test_random_work_is_not_taken_for_unequal_work() -> None:
    """Steps from 1 to 5 drawn anew in every round differ between clients by chance alone."""
    found = fl.diagnose(experiment(work=fl.RandomSteps(1, 5)))
    assert "equal" in finding(found, "work").statement
    assert found.advice.preset == "fedavg"
    assert found.finding("clients") is None


def test_one_local_step_cannot_drift() -> None:
    algorithm = fl.presets.fedavg(lr=0.01, steps=1)
    found = fl.diagnose(experiment(work=fl.EqualWork(), algorithm=algorithm))
    assert finding(found, "consensus").confidence == "high"
    assert (found.advice.preset, found.advice.confidence) == ("fedavg", "high")


def test_clients_without_a_measure_of_work_get_advice_that_needs_none() -> None:
    adam = fl.Algorithm(fl.LocalSolver(fl.Adam(0.01), steps=3))
    unequal = fl.diagnose(experiment(*CASES["work"], algorithm=adam))
    work = unequal.finding("work")
    assert work is not None
    assert "1 to 9 local steps per round" in work.statement
    assert "misplace" not in work.statement
    assert work.evidence["misplaced_alone"] is None
    assert unequal.advice.preset == "feddyn"
    clipped = fl.presets.fedavg(lr=0.01, steps=3, clip=1.0)
    refused = fl.diagnose(experiment(*CASES["work"], algorithm=clipped)).advice
    assert refused.preset is None
    assert "use SGD without clipping" in refused.reason.replace("\n", " ")


def test_records_of_single_steps_do_not_hide_that_there_were_no_data(tmp_path: Path) -> None:
    """With the data at hand nothing is missing, and nothing is said."""
    federation = experiment(fl.FixedSteps((1,) * NUM_CLIENTS)).build()
    list(federation.train(6))
    without = fl.diagnose(write_lines(tmp_path / "records.jsonl", minimal_lines(federation.records)))
    said = "Consensus: every update is a single local step, and a single step cannot drift."
    beside = " The data were not examined, because records do not hold the clients' data and model."
    assert finding(fl.diagnose(federation), "consensus").statement == said
    assert finding(without, "consensus").statement == said + beside


def test_methods_without_weights_are_said_to_have_none() -> None:
    found = fl.diagnose(experiment(*CASES["work"], algorithm=fl.presets.fedaware(lr=0.01, steps=3)))
    assert finding(found, "foreseen").confidence == "high"
    assert "Pareto-stationary point" in finding(found, "foreseen").statement
    assert found.advice.preset == "scaffold"
    assert found.advice.expected["misplaced_now"] is None


def test_rounds_that_asked_few_of_the_clients_do_not_measure_the_weights() -> None:
    crowd = fl.Experiment(fl.Quadratics(num_clients=100), fl.presets.fedavg(lr=0.01, cohort_size=3), rounds=9)
    found = fl.diagnose(crowd, quick=True)
    assert finding(found, "measured").confidence == "none"
    assert number(found, "measured", "weight_asked") < 0.31
    assert number(found, "unheard", "never_asked") >= 70


def test_a_search_that_would_take_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_SEARCHABLE", 10)
    found = fl.diagnose(experiment())
    assert found.evidence.consensus is None
    assert "it would take too long with 12 examples" in finding(found, "consensus").statement


def test_links_that_tell_no_rates_are_counted() -> None:
    """Of twelve clients the eight fastest are taken: the four slowest never arrive."""
    subject = replace(
        experiment(link=fl.FirstArrivals(8)),
        devices=fl.FixedDevices(step_seconds=tuple(0.1 * (i + 1) for i in range(12))),
    )
    found = fl.diagnose(subject)
    assert not found.evidence.rates_told
    assert found.evidence.unreachable == (8, 9, 10, 11)
    assert found.advice.preset is None
