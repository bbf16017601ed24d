"""FedNova's A, B, C, effective steps and condition (13), by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import fairlead as fl
from fairlead.conditions.links import BernoulliLink
from fairlead.conditions.work import FixedSteps
from fairlead.diagnostics import ConvergenceFactors, consistency_condition, predicted_consistency
from fairlead.presets import METHODS
from fairlead.theory.convergence import convergence_factors


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def factors(
    solver: fl.LocalSolver, num_steps: Tensor, *figures: Tensor, longest: int | None = None
) -> ConvergenceFactors:
    found = convergence_factors(solver, num_steps, *figures, longest=longest)
    assert found is not None
    return found


def plain(**arguments: object) -> fl.LocalSolver:
    return fl.LocalSolver(fl.SGD(0.1), steps=1, **arguments)  # type: ignore[arg-type]


def test_plain_averaging_by_hand() -> None:
    """τ = (1, 4), ω = ½ each, C = ω, Ω = (1/5, 4/5), ‖a‖₁ = τ, ‖a‖₂² = τ, Λ = 1.

    τ_eff = 5/2; τ̄ = 5/2. A = 2·(5/2)·(1/25·1 + 16/25·1/4) = 5·(5/25) = 1; A' = (5/2)·2·(5/25) = 1, as for
    every FedAvg with equal weights; B = 4/5·3·1 = 12/5; C = 4·3 = 12.
    """
    half = vector(0.5, 0.5)
    found = factors(plain(), torch.tensor([1, 4]), half, vector(0.2, 0.8), half)
    assert (found.tau_eff, found.slowdown, found.effective_steps) == pytest.approx((2.5, 1.0, 2.5))
    assert (found.a, found.a_sampled, found.b, found.c) == pytest.approx((1.0, 1.0, 2.4, 12.0))
    assert found.effective_lr == pytest.approx(0.1)


def test_fednova_pays_for_consistency_with_variance() -> None:
    """C = τ_eff ω/τ and Ω = ω: A = 2·(5/2)·¼(1 + ¼) = 25/16 above FedAvg's 1."""
    half = vector(0.5, 0.5)
    found = factors(plain(), torch.tensor([1, 4]), 2.5 * half / vector(1, 4), half, half)
    assert (found.tau_eff, found.a, found.slowdown) == pytest.approx((2.5, 25 / 16, 1.0))


def test_the_largest_entry_of_momentum_is_not_one() -> None:
    """a_j = (1 − ρ^(τ−j))/(1 − ρ): Λ = 1.75 for ρ = ½, τ = 3, and C = Λ²·3·2 (Wang 2021 §V says 1)."""
    solver, one = fl.LocalSolver(fl.SGD(0.1, momentum=0.5), steps=1), vector(1.0)
    found = factors(solver, torch.tensor([3]), one, one, one)
    assert found.c == pytest.approx(1.75**2 * 6)
    assert found.tau_eff == pytest.approx(1.0 + 1.5 + 1.75)
    norm2 = 1.0 + 1.5**2 + 1.75**2
    assert found.b == pytest.approx(1.75 * 2 * norm2 / 4.25)
    assert found.a == pytest.approx(4.25 * norm2 / 4.25**2)


def test_decayed_steps_have_a_largest_entry_of_one() -> None:
    found = factors(plain(step_schedule=fl.Exponential(0.5)), torch.tensor([3]), *[vector(1.0)] * 3)
    assert (found.c, found.tau_eff) == pytest.approx((6.0, 1.75))


def test_mean_steps_between_whole_numbers_count_in_between() -> None:
    one = vector(1.0)
    found = factors(plain(), vector(2.5), one, one, one, longest=4)
    assert (found.tau_eff, found.a, found.c) == pytest.approx((2.5, 1.0, 12.0))


def test_clients_without_weight_or_steps_are_left_out() -> None:
    found = factors(plain(), torch.tensor([2, 9, 0]), vector(1, 0, 0), vector(1, 0, 0), vector(0.5, 0, 0.5))
    assert (found.tau_eff, found.slowdown, found.c) == pytest.approx((2.0, 1.0, 2.0))


def test_adaptive_clients_and_idle_ones_have_no_factors() -> None:
    ones = [vector(1.0)] * 3
    adaptive = fl.LocalSolver(fl.Adam(0.1), steps=1)
    assert convergence_factors(adaptive, torch.tensor([3]), *ones) is None
    assert convergence_factors(plain(), torch.tensor([0]), *ones) is None


STEPS, DROP = (1, 4, 2), (0.0, 0.5, 0.2)
OMEGA, WORK, RATE = vector(0.2, 0.3, 0.5), vector(*STEPS), 1 - vector(*DROP)
PROBLEM = fl.Quadratics(num_clients=3, dim=2, weights=(0.2, 0.3, 0.5)).problem(fl.Key.from_seed(0))
WORLD = fl.SimulatedWorld(
    PROBLEM.task(), PROBLEM.data(), weights=PROBLEM.weights, work=FixedSteps(STEPS), link=BernoulliLink(DROP)
)


def test_effective_steps_are_those_of_the_paper() -> None:
    """Weng 2025: η_eff = ηΣω(1−q), T_eff = Σγ‖a‖; for FedACS ηΣ(ω/‖a‖)/Σ(ω/((1−q)‖a‖)) and 1/Σ(ω/‖a‖)."""
    regular, fedacs = (
        predicted_consistency(METHODS[name].build(lr=0.1, steps=1, cohort_size=2), WORLD).factors
        for name in ("importance_sampling", "fedacs")
    )
    assert regular is not None
    assert fedacs is not None
    assert regular.effective_lr == pytest.approx(0.1 * float(OMEGA @ RATE))
    assert regular.effective_steps == pytest.approx(float(OMEGA * RATE @ WORK / (OMEGA @ RATE)))
    share = OMEGA / WORK
    assert fedacs.effective_lr == pytest.approx(0.1 * float(share.sum() / (share / RATE).sum()))
    assert fedacs.effective_steps == pytest.approx(1 / float(share.sum()))
    assert fedacs.slowdown == pytest.approx(7 / 3 * float((share / RATE).sum()))


def test_the_condition_names_those_who_get_through_most_and_least() -> None:
    """(1 − q)‖a‖₁ = (1, 2, 1.6), mean by weight 1.6: client 0 is below, client 1 above, client 2 on it."""
    found = consistency_condition(RATE, WORK, OMEGA)
    assert (found.holds, found.ratio, found.most, found.least) == (False, 2.0, (1,), (0,))
    assert "factor of 2 between clients (most: 1; least: 0)" in str(found)


def test_the_condition_holds_where_losses_undo_work() -> None:
    found = consistency_condition(vector(1.0, 0.5, 0.0), vector(2.0, 4.0, 9.0), vector(0.5, 0.5, 0.0))
    assert (found.holds, found.ratio) == (True, 1.0)
    assert "consistent here" in str(found)


def test_a_client_that_never_gets_through_makes_the_ratio_infinite() -> None:
    found = consistency_condition(vector(1.0, 0.0), vector(1.0, 1.0), vector(0.5, 0.5))
    assert (found.holds, found.ratio, found.least) == (False, math.inf, (1,))
