"""The consistency report: Ω as measured, against what theory says of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.diagnostics import ConsistencyReport, measured_consistency, predicted_consistency
from fairlead.text import names_from

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


def test_without_misplaced_weight_nobody_is_said_to_gain_or_lose() -> None:
    found = report(fl.presets.fednova(lr=0.1))
    assert str(found) == (
        "Over 3 rounds, 0.0% of the objective's weight was misplaced (chi-square 0). "
        "Theory predicts 0.0% (chi-square 0) under these conditions."
    )
    assert str(replace(found, surrogate=None, rounds=0)) == (
        "Theory predicts that 0.0% of the objective's weight will be misplaced (chi-square 0)."
    )


def test_those_who_violate_the_condition_are_called_by_name() -> None:
    found = replace(
        report(fl.presets.fedavg(lr=0.1)), names=names_from(np.array(["Ulm", "Kiel", "Bonn", "Jena"]))
    )
    assert "(most: 'Ulm', 'Jena'; least: 'Kiel', 'Bonn')" in str(found)
    assert "client 'Ulm' counted 1.67× its weight, client 'Kiel' 0.42×" in str(found)


def test_control_variates_restore_the_weights() -> None:
    found = report(fl.presets.scaffold(lr=0.1))
    assert found.total_variation == 0.0


def test_unequal_links_show_in_the_long_run() -> None:
    """A lost update counts as zero: Ω ∝ ω(1 − q)‖a‖₁, of which 600 rounds come within 0.03."""
    drop = (0.0, 0.5, 0.2, 0.8)
    found = report(fl.presets.full_participation(lr=1e-3), 600, fl.BernoulliLink(drop))
    mass = [w * (1 - q) * a for w, q, a in zip((1, 2, 3, 4), drop, STEPS, strict=True)]
    assert found.surrogate is not None
    assert found.surrogate.tolist() == pytest.approx([m / sum(mass) for m in mass], abs=0.03)


def test_a_client_that_never_arrives_makes_chi_square_infinite() -> None:
    found = report(fl.presets.fedavg(lr=0.1), 2, fl.ScriptedLink(((0, 1, 2),)))
    assert found.chi_square == math.inf
    assert "client 3 0.00×" in str(found)


def test_nothing_arrived_or_no_linear_solver_is_no_measurement() -> None:
    nothing = report(fl.presets.fedavg(lr=0.1), 2, fl.ScriptedLink(((),)))
    adam = report(fl.Algorithm(fl.LocalSolver(fl.Adam(0.1))))
    for found in (nothing, adam):
        assert (found.surrogate, found.chi_square, found.total_variation) == (None, None, None)
        assert str(found).startswith("This run has no measurable surrogate weights.")


def test_a_projected_step_is_no_measurement() -> None:
    """FedAvg's coefficients say nothing of a step that goes along FedAWARE's direction instead."""
    assert report(fl.presets.with_aware(fl.presets.fedavg(lr=0.1))).surrogate is None


def test_clients_of_weight_zero_do_not_spoil_the_report() -> None:
    world = fl.SimulatedWorld(PROBLEM.task(), PROBLEM.data(), weights=[1, 1, 0, 0])
    run = fl.Federation(fl.presets.fedavg(lr=0.1), world)
    list(run.train(2))
    found = run.consistency()
    assert found.chi_square == pytest.approx(0.0, abs=1e-15)
    assert "0.0% of the objective's weight was misplaced" in str(found)


def test_no_records_are_no_measurement() -> None:
    assert measured_consistency([], torch.tensor([0.5, 0.5], dtype=torch.float64)).surrogate is None


def unequal_world() -> fl.SimulatedWorld:
    return fl.SimulatedWorld(
        PROBLEM.task(),
        PROBLEM.data(),
        weights=PROBLEM.weights,
        work=fl.FixedSteps(STEPS),
        link=fl.BernoulliLink((0.0, 0.5, 0.2, 0.8)),
    )


def test_theory_stands_beside_the_measurement() -> None:
    """With perfect links both are ω‖a‖₁ = (4, 2, 6, 12)/24, and condition (13) compares the steps alone."""
    found = report(fl.presets.fedavg(lr=0.1))
    assert found.predicted_weights is not None
    assert found.predicted_weights.tolist() == pytest.approx([4 / 24, 2 / 24, 6 / 24, 12 / 24])
    assert found.predicted_chi_square == pytest.approx(found.chi_square)
    assert found.predicted_total_variation == pytest.approx(1 / 6)
    assert found.condition is not None
    assert (found.condition.ratio, found.condition.most, found.condition.least) == (4.0, (0, 3), (1, 2))
    assert "Theory predicts 16.7%" in str(found)
    assert "differs by a factor of 4 between clients" in str(found)


def test_a_run_has_the_factors_of_its_own_coefficients() -> None:
    """FedAvg's mean coefficients are ω: τ_eff = Σ ω τ = 2.4, τ̄ = 2.5, C = 4·3."""
    factors = report(fl.presets.fedavg(lr=0.1)).factors
    assert factors is not None
    assert (factors.tau_eff, factors.slowdown, factors.c) == pytest.approx((2.4, 2.5 / 2.4, 12.0))
    assert factors.effective_lr == pytest.approx(0.1)


def test_before_training_only_theory_speaks() -> None:
    """Ω = (.4, .1, .48, .24)/1.22 against (.1, .2, .3, .4): half of .228 + .118 + .093 + .203 is .321."""
    found = predicted_consistency(fl.presets.full_participation(lr=0.1), unequal_world())
    assert (found.rounds, found.surrogate, found.chi_square) == (0, None, None)
    mass = [0.1 * 4, 0.2 * 0.5, 0.3 * 0.8 * 2, 0.4 * 0.2 * 3]
    assert found.predicted_weights is not None
    assert found.predicted_weights.tolist() == pytest.approx([value / sum(mass) for value in mass])
    assert str(found).startswith("Theory predicts that 32.1% of the objective's weight will be misplaced")


@pytest.mark.parametrize("preset", ["scaffold", "fedavg", "fedaware", "fedcm"])
def test_the_report_is_plain_data(preset: str) -> None:
    run = fl.Federation(fl.presets.METHODS[preset].build(lr=0.1), unequal_world())
    list(run.train(4))
    found = run.consistency()
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["rounds"] == 4
    assert plain["intended"] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert plain["restored"] == (preset == "scaffold")
    assert (plain["predicted"] is None) == (preset == "fedaware")
    assert plain["condition"]["holds"] is False


def test_methods_without_weights_say_where_they_stop() -> None:
    found = report(fl.presets.fedaware(lr=0.1))
    assert (found.surrogate, found.predicted_weights) == (None, None)
    assert "Pareto-stationary point" in str(found)


def test_nothing_done_and_nothing_known_is_said() -> None:
    assert str(ConsistencyReport(PROBLEM.weights, None, 0)) == "The weights are not known yet."


def test_drift_corrections_are_read_as_their_theory_has_it() -> None:
    """VRL-SGD weighs by ω‖a‖₁ whatever the links; FedAWE by that times the rounds echoed so far.

    The echoes of a client that last arrived in round t add up to t + 1, all but its last absence.
    """
    masses = {}
    for preset in ("vrlsgd", "fedawe"):
        run = fl.Federation(fl.presets.METHODS[preset].build(lr=0.01), unequal_world())
        list(run.train(60))
        last = [max(r.round for r in run.records if client in r.arrived) for client in range(4)]
        echoed = [1.0] * 4 if preset == "vrlsgd" else [round + 1 for round in last]
        masses[preset] = [w * a * e for w, a, e in zip((1, 2, 3, 4), STEPS, echoed, strict=True)]
        surrogate = run.consistency().surrogate
        assert surrogate is not None
        assert surrogate.tolist() == pytest.approx([m / sum(masses[preset]) for m in masses[preset]])
    assert masses["vrlsgd"] == [4, 2, 6, 12]


def test_a_run_of_clients_without_weight_is_reported() -> None:
    world = fl.SimulatedWorld(PROBLEM.task(), PROBLEM.data(), weights=[1, 1, 0, 0])
    algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1), steps=1), fl.ScriptedSampler(((2, 3),)))
    run = fl.Federation(algorithm, world)
    list(run.train(12))
    found = run.consistency()
    assert (found.chi_square, found.total_variation, found.factors) == (math.inf, 1.0, None)


def test_a_round_may_consist_of_memories_alone() -> None:
    """Client 0 arrives with 3 steps and is remembered in the next round, in which nothing arrives."""
    run = fl.Federation(fl.presets.mifa(lr=0.1), unequal_world())
    records = list(run.train(1))
    empty = replace(
        records[0],
        round=1,
        arrived=(),
        num_steps=(),
        effective_steps=(),
        coefficients=(),
        remembered={0: 1.0},
    )
    alone = replace(records[0], arrived=(0,), num_steps=(3,), effective_steps=(3.0,), coefficients=(1.0,))
    found = measured_consistency([alone, empty], PROBLEM.weights).surrogate
    assert found is not None
    assert found.tolist() == [1.0, 0.0, 0.0, 0.0]
