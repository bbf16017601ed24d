"""VRLSGD: the sum that keeps its limit in place, and what happens when that sum is lost."""

from __future__ import annotations

import pytest
import torch
from scripted_quadratics import LOSSY, PROBLEM, federation, memory_of, run, vectors

from fairlead.clients.quadratics import QuadraticProblem
from fairlead.conditions.work import FixedSteps, ScriptedWork
from fairlead.federation import Federation
from fairlead.presets import vrlsgd
from fairlead.worlds.simulated import SimulatedWorld


def test_two_rounds_by_hand() -> None:
    """One dimension, F_1 = ½x², F_2 = ½(x − 4)², η = ½, one step each, x⁰ = 0, uniform weights.

    Round 1: y = (0, 2), x̂ = 1; Δ_1 = (1 − 0)/½ = 2, Δ_2 = (1 − 2)/½ = −2.
    Round 2: g − Δ = (1 − 2, −3 + 2) = (−1, −1), y = (3/2, 3/2), x̂ = 3/2, and Δ stays: x̂ = y_i.
    """
    problem = QuadraticProblem(
        torch.ones((2, 1, 1), dtype=torch.float64),
        vectors([[0.0], [4.0]]),
        torch.tensor([0.5, 0.5], dtype=torch.float64),
    )
    training = federation(vrlsgd(lr=0.5), problem=problem, work=FixedSteps((1, 1)))
    assert run(training, 1).tolist() == [1.0]
    assert memory_of(training, "drift").tolist() == [[2.0], [-2.0]]
    assert run(training, 1).tolist() == [1.5]
    assert memory_of(training, "drift").tolist() == [[2.0], [-2.0]]


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_weighted_drifts_sum_to_zero_for_constant_work(momentum: float) -> None:
    """Σ ω_i‖a_i‖₁Δ_i = 0 after every round, losses included: each adds Σ_R p̂_i(x⁺ − y_i) = 0 to it.

    ‖a_i‖₁ = τ_i for SGD and [τ − ρ(1 − ρ^τ)/(1 − ρ)]/(1 − ρ) with momentum.
    """
    steps = torch.tensor([1.0, 3.0, 6.0], dtype=torch.float64)
    work = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    training = federation(vrlsgd(lr=0.1, momentum=momentum), link=LOSSY)
    for _ in training.train(12):
        total = (PROBLEM.weights * work) @ memory_of(training, "drift")
        torch.testing.assert_close(total, torch.zeros_like(total), rtol=0, atol=1e-12)
    assert memory_of(training, "drift").abs().min() > 1e-3


def test_the_sum_stays_zero_in_single_precision() -> None:
    """Models near 10 and 1/(ητ) = 200: differences of models are rounded by 200·10·2⁻²⁴ = 1e-4 in every
    round, which adds up; displacements of 0.05 and less by 6e-7.
    """
    centers = torch.randn((8, 5), generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 10
    curvature = torch.eye(5, dtype=torch.float64).repeat(8, 1, 1)
    problem = QuadraticProblem(curvature, centers, torch.full((8,), 0.125, dtype=torch.float64))
    world = SimulatedWorld(problem.task(0.0), problem.data(), work=FixedSteps((5,) * 8), dtype=torch.float32)
    training = Federation(vrlsgd(lr=1e-3), world)
    run(training, 300)
    assert memory_of(training, "drift").mean(0).abs().max() < 1e-4


@pytest.mark.parametrize("lr", [0.1, 0.4])
def test_limit_is_biased_by_work_exactly_for_any_lr(lr: float) -> None:
    """Στ_iω_i∇F_i = 0 at rest, the point that FedAvg only reaches as η → 0; links do not move it."""
    steps = torch.tensor([1.0, 3.0, 6.0], dtype=torch.float64)
    surrogate = PROBLEM.weights * steps / (PROBLEM.weights @ steps)
    end = run(federation(vrlsgd(lr=lr), link=LOSSY), int(40 / lr))
    torch.testing.assert_close(end, PROBLEM.minimizer(surrogate), rtol=0, atol=1e-8)
    assert torch.linalg.vector_norm(end - PROBLEM.optimum) > 0.5


def test_equal_work_gives_the_optimum() -> None:
    """With τ_i = τ the invariant is Σω_i∇F_i = 0: client drift is gone at a large learning rate."""
    end = run(federation(vrlsgd(lr=0.4), work=FixedSteps((4, 4, 4))), 100)
    torch.testing.assert_close(end, PROBLEM.optimum, rtol=0, atol=1e-10)


def test_gently_changing_work_freezes_the_model_somewhere() -> None:
    """Any x with Δ_i = ∇F_i(x) is at rest; without the invariant nothing says which x that is.

    After work that changed in every round two starts end at different points, and both stay there.
    """
    changing = ScriptedWork(((3, 4, 5), (4, 5, 4), (5, 3, 4)))
    ends = []
    for start in (-3.0, 3.0):
        training = federation(vrlsgd(lr=0.2), work=changing, start=start)
        end = run(training, 150)
        torch.testing.assert_close(run(training, 7), end, rtol=0, atol=1e-9)
        torch.testing.assert_close(memory_of(training, "drift"), PROBLEM.gradients(end), rtol=0, atol=1e-8)
        ends.append(end)
    assert torch.linalg.vector_norm(ends[0] - ends[1]) > 0.05


def test_strongly_changing_work_diverges() -> None:
    """Δ_i holds (x⁺ − x)/(τ_iη) of its last round, which is replayed with the next τ_i: steps grow by
    Σω_iτ_i(t+1)/τ_i(t), here 8/3, 21/10 and 8/5 in turn, faster than this curvature can damp them.
    """
    training = federation(vrlsgd(lr=0.05), work=ScriptedWork(((1, 3, 6), (5, 1, 2), (2, 6, 1))))
    assert torch.linalg.vector_norm(run(training, 60)) > 1e6
