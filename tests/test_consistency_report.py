"""The consistency report: Ω as measured, against what theory says of it."""

from __future__ import annotations

import math

import pytest
import torch

import fairlead as fl
from fairlead.diagnostics import ConsistencyReport, measured_consistency

PROBLEM = fl.Quadratics(num_clients=4, dim=2, weights=(1.0, 2.0, 3.0, 4.0)).problem(fl.Key.from_seed(0))
STEPS = (4, 1, 2, 3)


def report(algorithm: fl.Algorithm, rounds: int = 3, link: fl.LinkModel | None = None) -> ConsistencyReport:
    world = fl.SimulatedWorld(
        PROBLEM.task(), PROBLEM.data(), weights=PROBLEM.weights, work=fl.FixedSteps(STEPS), link=link
    )
    run = fl.Federation(algorithm, world)
    list(run.train(rounds))
    return run.consistency()


def test_fedavg_optimises_work_weighted_objectives() -> None:
    """Ω ∝ ω‖a‖₁ = (4, 2, 6, 12)/24 of intended (1, 2, 3, 4)/10; TV = ½(.0667 + .1167 + .05 + .1) = ⅙."""
    found = report(fl.presets.fedavg(lr=0.1))
    assert found.surrogate is not None
    assert found.surrogate.tolist() == pytest.approx([4 / 24, 2 / 24, 6 / 24, 12 / 24])
    assert found.total_variation == pytest.approx(1 / 6)
    expected = sum(
        (w - o) ** 2 / o for w, o in zip((0.1, 0.2, 0.3, 0.4), found.surrogate.tolist(), strict=True)
    )
    assert found.chi_square == pytest.approx(expected)


def test_fednova_optimises_what_it_was_asked_to() -> None:
    found = report(fl.presets.fednova(lr=0.1))
    assert found.surrogate is not None
    assert found.surrogate.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert found.chi_square == pytest.approx(0.0, abs=1e-15)


def test_control_variates_restore_the_weights() -> None:
    found = report(fl.presets.scaffold(lr=0.1))
    assert found.total_variation == 0.0


def test_unequal_links_show_in_the_long_run() -> None:
    """A lost update counts as zero: Ω ∝ ω(1 − q)‖a‖₁, by 2,000 rounds within 4.5 standard errors."""
    drop = (0.0, 0.5, 0.2, 0.8)
    found = report(fl.presets.full_participation(lr=1e-3), 600, fl.BernoulliLink(drop))
    mass = [w * (1 - q) * a for w, q, a in zip((1, 2, 3, 4), drop, STEPS, strict=True)]
    assert found.surrogate is not None
    assert found.surrogate.tolist() == pytest.approx([m / sum(mass) for m in mass], abs=0.03)


def test_a_client_that_is_never_heard_makes_chi_square_infinite() -> None:
    found = report(fl.presets.fedavg(lr=0.1), 2, fl.ScriptedLink(((0, 1, 2),)))
    assert found.chi_square == math.inf
    assert "client 3 0.00 times" in str(found)


def test_nothing_arrived_or_no_linear_solver_is_no_measurement() -> None:
    nothing = report(fl.presets.fedavg(lr=0.1), 2, fl.ScriptedLink(((),)))
    adam = report(fl.Algorithm(fl.LocalSolver(fl.Adam(0.1))))
    for found in (nothing, adam):
        assert (found.surrogate, found.chi_square, found.total_variation) == (None, None, None)
        assert str(found) == "This run has no measurable surrogate weights."


def test_clients_of_weight_zero_do_not_spoil_the_report() -> None:
    world = fl.SimulatedWorld(PROBLEM.task(), PROBLEM.data(), weights=[1, 1, 0, 0])
    run = fl.Federation(fl.presets.fedavg(lr=0.1), world)
    list(run.train(2))
    found = run.consistency()
    assert found.chi_square == pytest.approx(0.0, abs=1e-15)
    assert "0.0% of the objective's weight went to other clients" in str(found)


def test_no_records_are_no_measurement() -> None:
    assert measured_consistency([], torch.tensor([0.5, 0.5], dtype=torch.float64)).surrogate is None
