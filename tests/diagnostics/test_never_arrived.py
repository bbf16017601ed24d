"""Reports that must not be surer than what arrived: clients without an update, and records that begin late."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import fairlead as fl
from fairlead.diagnostics import measured_consistency, predicted_consistency

PROBLEM = fl.Quadratics(num_clients=4, dim=2, weights=(1.0, 2.0, 3.0, 4.0)).problem(fl.Key.from_seed(0))
STEPS = (4, 1, 2, 3)
RESTORING = ("scaffold", "fednova_vr", "feddyn")


def federation(preset: str, link: fl.LinkModel | None = None) -> fl.Federation:
    world = fl.SimulatedWorld(
        PROBLEM.task(), PROBLEM.data(), weights=PROBLEM.weights, work=fl.FixedSteps(STEPS), link=link
    )
    own = {"alpha": 1.0} if preset == "feddyn" else {}
    return fl.Federation(fl.presets.METHODS[preset].build(lr=0.01, **own), world)


@pytest.mark.parametrize("preset", RESTORING)
def test_corrections_restore_the_weights_of_those_alone_who_arrived(preset: str) -> None:
    """Without client 3 and its weight of 0.4, the others' (1, 2, 3) share the objective."""
    run = federation(preset, fl.ScriptedLink(((0, 1, 2), (0, 2))))
    list(run.train(4))
    found = run.consistency()
    assert found.surrogate is not None
    assert found.surrogate.tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6, 0.0])
    assert (found.restored, found.unheard, found.chi_square) == (False, (3,), math.inf)
    assert found.total_variation == pytest.approx(0.4)
    assert "No update ever arrived from client 3, which holds 40.0% of the objective's weight." in str(found)


@pytest.mark.parametrize("preset", RESTORING)
def test_corrections_are_trusted_once_everybody_arrived(preset: str) -> None:
    run = federation(preset, fl.ScriptedLink(((0, 1), (2, 3))))
    list(run.train(2))
    found = run.consistency()
    assert (found.restored, found.unheard, found.total_variation) == (True, (), 0.0)


def test_theory_does_not_restore_a_client_that_can_never_arrive() -> None:
    run = federation("scaffold", fl.BernoulliLink((0.0, 0.0, 0.5, 1.0)))
    found = predicted_consistency(run.algorithm, run.world)
    assert found.predicted_weights is not None
    assert found.predicted_weights.tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6, 0.0])
    assert not found.restored


def test_no_arrival_at_all_restores_nothing() -> None:
    run = federation("scaffold", fl.ScriptedLink(((),)))
    list(run.train(2))
    assert (run.consistency().surrogate, run.consistency().unheard) == (None, (0, 1, 2, 3))


def resumed(preset: str, folder: Path, link: fl.LinkModel | None = None) -> fl.Federation:
    """A federation whose first ten rounds were run, and recorded, by another process."""
    before = federation(preset, link)
    list(before.train(10))
    before.save(folder)
    after = federation(preset, link)
    after.resume(folder)
    return after


@pytest.mark.parametrize("preset", ["fedavg", "scaffold", "mifa", "fedawe"])
def test_a_resumed_federation_without_records_speaks_of_theory_alone(preset: str, tmp_path: Path) -> None:
    found = resumed(preset, tmp_path).consistency()
    assert (found.rounds, found.unheard, found.surrogate, found.total_variation) == (0, (), None, None)
    assert found.predicted_weights is not None
    assert str(found).startswith(
        "The corrections of this method" if preset == "scaffold" else "Theory predicts"
    )


def test_records_that_begin_late_are_measured_from_there_on(tmp_path: Path) -> None:
    """FedAWE echoes the rounds since a client last arrived: of client 3, absent in round 10, two in round 11.

    Absences before the records do not count: masses ω‖a‖₁·echo are (4, 2, 6, 12)·2 for all.
    """
    run = resumed("fedawe", tmp_path, fl.ScriptedLink((*([(0, 1, 2, 3)] * 10), (0, 1, 2), (0, 1, 2, 3))))
    list(run.train(2))
    found = run.consistency()
    assert (found.first_round, found.rounds) == (10, 2)
    assert found.surrogate is not None
    assert found.surrogate.tolist() == pytest.approx([4 / 24, 2 / 24, 6 / 24, 12 / 24])
    assert "Over 2 rounds from round 11 on" in str(found)


def test_theory_looks_at_the_rounds_on_record(tmp_path: Path) -> None:
    """Links that are perfect from round 10 on: Ω ∝ ω‖a‖₁, whatever was lost before."""
    run = resumed("full_participation", tmp_path, fl.DriftingLink((0.0, 0.5, 0.5, 0.5), 0.0, rounds=10))
    list(run.train(3))
    weights = run.consistency().predicted_weights
    assert weights is not None
    assert weights.tolist() == pytest.approx([4 / 24, 2 / 24, 6 / 24, 12 / 24])


def test_a_client_missing_since_a_resume_may_have_arrived_before(tmp_path: Path) -> None:
    run = resumed("scaffold", tmp_path, fl.ScriptedLink((*([(0, 1, 2, 3)] * 10), (0, 1, 2))))
    list(run.train(1))
    found = run.consistency()
    assert (found.surrogate, found.restored, found.unheard) == (None, False, (3,))


def test_arrivals_count_even_where_coefficients_cannot_be_read() -> None:
    """Clients that use Adam have no measure of work, but they arrive."""
    world = fl.SimulatedWorld(PROBLEM.task(), PROBLEM.data())
    run = fl.Federation(fl.Algorithm(fl.LocalSolver(fl.Adam(0.1))), world)
    list(run.train(2))
    assert measured_consistency(run.records, PROBLEM.weights).unheard == ()
