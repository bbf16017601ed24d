"""FedDyn: both halves together reach the optimum, and neither is let run alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scripted_quadratics import LOSSY, PROBLEM, federation, memory_of, run, vectors

from fairlead.aggregators.weighted import FedDyn, WeightedMean
from fairlead.algorithm import Algorithm
from fairlead.client_table import tensor_in
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.conditions.work import FixedSteps
from fairlead.corrections.drift import DynamicRegularizer, Proximal
from fairlead.errors import ClashError, FieldError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.presets import feddyn
from fairlead.samplers.fixed import ScriptedSampler


def test_two_rounds_by_hand() -> None:
    """F_1 = ½x², F_2 = ½(x − 4)², η = ½, α = 1, one step each, x⁰ = 0, uniform weights.

    Round 1: y = (0, 2), mean move 1; L = (0, −2), h = −α·½(0 + 2) = −1; x = mean y − h/α = 1 + 1 = 2.
    Round 2: gradients (2 − 0, −2 + 2) = (2, 0), y = (1, 2), moves (−1, 0); L = (1, −2),
    h = −1 + ½ = −½; x = 3/2 + ½ = 2, the optimum, where h is still to become zero.
    """
    problem = QuadraticProblem(
        torch.ones((2, 1, 1), dtype=torch.float64),
        vectors([[0.0], [4.0]]),
        torch.tensor([0.5, 0.5], dtype=torch.float64),
    )
    training = federation(feddyn(alpha=1.0, lr=0.5), problem=problem, work=FixedSteps((1, 1)))
    assert run(training, 1).tolist() == [2.0]
    assert memory_of(training, "slope").tolist() == [[0.0], [-2.0]]
    assert run(training, 1).tolist() == [2.0]
    assert memory_of(training, "slope").tolist() == [[1.0], [-2.0]]
    assert tensor_in(training.state.aggregator, "displacement").tolist() == [0.5]


def test_server_sum_is_the_clients_mean_slope_under_losses() -> None:
    """h = Σω_iL_i with h = −α·displacement: a lost client rolls back, so both sides miss its update."""
    alpha = 0.7
    training = federation(feddyn(alpha=alpha, lr=0.2), link=LOSSY)
    for _ in training.train(16):
        h = -alpha * tensor_in(training.state.aggregator, "displacement")
        torch.testing.assert_close(h, PROBLEM.weights @ memory_of(training, "slope"), rtol=0, atol=1e-12)
    assert h.abs().min() > 1e-6


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_unbiased_for_unequal_steps_and_losses(alpha: float) -> None:
    """At rest y_i = x, L_i = ∇F_i(x) and Σω_iL_i = 0, whatever α, work, links and repeated draws are."""
    scripted = ScriptedSampler(((0, 1, 2), (2, 2, 0), (1, 1), (0, 1, 2, 2)))
    algorithm = replace(feddyn(alpha=alpha, lr=0.3), sampler=scripted)
    training = federation(algorithm, link=LOSSY)
    end = run(training, 400)
    torch.testing.assert_close(end, PROBLEM.optimum, rtol=0, atol=1e-6)
    torch.testing.assert_close(memory_of(training, "slope"), PROBLEM.gradients(end), rtol=0, atol=1e-5)


def test_consistency_report_counts_the_weights_as_restored() -> None:
    training = federation(feddyn(alpha=1.0, lr=0.2))
    run(training, 3)
    assert training.consistency().chi_square == 0.0


def test_regularizer_without_its_aggregator_is_refused() -> None:
    solver = LocalSolver(SGD(0.1), corrections=(DynamicRegularizer(0.1),))
    with pytest.raises(
        ClashError, match=r"DynamicRegularizer .* FedDyn, got WeightedMean.*aggregator=FedDyn"
    ):
        Algorithm(solver, aggregator=WeightedMean())


def test_aggregator_without_its_regularizer_is_refused() -> None:
    solver = LocalSolver(SGD(0.1), corrections=(Proximal(0.1),))
    with pytest.raises(ClashError, match=r"FedDyn .* DynamicRegularizer, got corrections \['Proximal'\]"):
        Algorithm(solver, aggregator=FedDyn())


def test_alpha_must_be_positive() -> None:
    with pytest.raises(FieldError, match=r"DynamicRegularizer.alpha must be .* above 0, got 0"):
        DynamicRegularizer(0.0)
