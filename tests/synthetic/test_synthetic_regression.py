"""Linear regression with one p(y | x): every closed form against a plain simulation of what it claims."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import fairlead as fl
from fairlead.clients.synthetic import LinearRegressionProblem
from fairlead.errors import FieldError


def problem_of(num_clients: int = 12, seed: int = 0, **fields: float) -> LinearRegressionProblem:
    source = fl.SyntheticRegression(num_clients=num_clients, num_examples=4, dim=3, **fields)  # type: ignore[arg-type]
    return source.problem(fl.Key.from_seed(seed))


def local_descent(problem: LinearRegressionProblem, client: int, w: Tensor, lr: float, steps: int) -> Tensor:
    """A client's own loop on its own examples, by automatic differentiation of the loss itself."""
    w = w.clone()
    for _ in range(steps):
        leaf = w.requires_grad_()
        errors = problem.targets[client] - problem.inputs[client] @ leaf
        (gradient,) = torch.autograd.grad(0.5 * errors.square().mean(), leaf)
        w = (w - lr * gradient).detach()
    return w


def limit(problem: LinearRegressionProblem, lr: float, steps: int) -> Tensor:
    """Where Local GD converges to: w* − (I − P)⁻¹ ηH E_c G_c(w*)."""
    bias = lr * steps * (problem.weights @ problem.pseudo_gradients(problem.truth, lr, steps))
    contraction = problem.contraction(lr, steps)
    end: Tensor = problem.truth - torch.linalg.solve(torch.eye(len(bias)).double() - contraction, bias)
    return end


def dissimilarity(problem: LinearRegressionProblem) -> float:
    """E_c‖∇F_c − ∇F‖² at w*, as in (17)."""
    gradients = problem.gradients(problem.truth)
    return float(problem.weights @ (gradients - problem.weights @ gradients).square().sum(1))


def test_the_optimum_is_the_least_squares_solution() -> None:
    """Uniform weights and equal sizes make the objective ordinary least squares over all examples."""
    problem = problem_of()
    x, y = problem.inputs.reshape(-1, 3).numpy(), problem.targets.reshape(-1).numpy()
    expected = np.linalg.lstsq(x, y, rcond=None)[0]
    assert np.allclose(problem.optimum.numpy(), expected, atol=1e-10)
    assert torch.allclose(problem.weights @ problem.gradients(problem.optimum), torch.zeros(3).double())


def test_the_truth_is_the_optimum_without_noise() -> None:
    problem = problem_of(noise=0.0)
    assert torch.allclose(problem.optimum, problem.truth, atol=1e-10)


@pytest.mark.parametrize(("lr", "steps"), [(0.1, 1), (0.3, 7), (3.4, 5)])
def test_pseudo_gradients_are_what_clients_do(lr: float, steps: int) -> None:
    problem, w = problem_of(), torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)
    walked = [(w - local_descent(problem, c, w, lr, steps)) / (lr * steps) for c in range(12)]
    assert torch.allclose(problem.pseudo_gradients(w, lr, steps), torch.stack(walked), atol=1e-10)


def test_one_step_is_the_gradient() -> None:
    problem, w = problem_of(), torch.ones(3, dtype=torch.float64)
    assert torch.allclose(problem.pseudo_gradients(w, 0.2, 1), problem.gradients(w))
    assert torch.allclose(limit(problem, 0.2, 1), problem.optimum)


def test_clients_with_fewer_examples_than_dimensions_have_closed_forms_too() -> None:
    """A_c is singular, so that directions without data must neither move nor divide by zero."""
    problem = fl.SyntheticRegression(num_clients=5, num_examples=2, dim=6).problem(fl.Key.from_seed(0))
    w = torch.ones(6, dtype=torch.float64)
    walked = [(w - local_descent(problem, c, w, 0.5, 9)) / (0.5 * 9) for c in range(5)]
    assert torch.allclose(problem.pseudo_gradients(w, 0.5, 9), torch.stack(walked), atol=1e-10)


def test_inputs_are_short_enough_for_every_step_up_to_one() -> None:
    """‖x‖ ≤ 1 bounds every eigenvalue of A_c by 1; clients with a large shift look into one direction."""
    for shift in (0.0, 1.0, 50.0):
        problem = problem_of(300, shift=shift)
        largest = torch.linalg.eigvalsh(problem.curvatures)[:, -1]
        assert float(largest.max()) <= 1 + 1e-12
        share = largest / torch.einsum("cii->c", problem.curvatures)
        assert (float(share.min()) > 0.99) == (shift == 50.0)


def test_a_round_contracts_as_theorem_3_says() -> None:
    """w⁺ − w* = P(w − w*) − ηH E_c G_c(w*) for finite N; without noise the second term is 0."""
    w = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
    for noise in (0.0, 1.0):
        problem = problem_of(noise=noise)
        after = problem.local_gd(w, 0.4, 6)
        contracted = problem.contraction(0.4, 6) @ (w - problem.truth)
        drift = 0.4 * 6 * (problem.weights @ problem.pseudo_gradients(problem.truth, 0.4, 6))
        assert torch.allclose(after - problem.truth, contracted - drift, atol=1e-12)
        if noise == 0:
            assert float(drift.norm()) < 1e-12


@pytest.mark.parametrize(("lr", "steps"), [(0.9, 10), (0.6, 3)])
def test_the_limit_is_where_rounds_end(lr: float, steps: int) -> None:
    problem = problem_of()
    end = problem.local_gd(torch.zeros(3, dtype=torch.float64), lr, steps, rounds=400)
    assert torch.allclose(end, limit(problem, lr, steps), atol=1e-9)
    assert float((end - problem.optimum).norm()) > 1e-4


def test_drift_at_the_truth_vanishes_with_the_number_of_clients() -> None:
    """ρ at w* is the norm of a mean of N independent terms: log ρ falls with slope −½ in log N.

    Over 40 seeds the mean of log ρ has a standard error below 0.1, so that the slope over a factor of 64 is
    known within 0.04.
    """
    sizes = [32, 256, 2048]
    means = []
    for num_clients in sizes:
        drifts = [
            problem.drift(0.3, 10, at=problem.truth)
            for problem in (problem_of(num_clients, seed) for seed in range(40))
        ]
        means.append(float(np.mean(np.log(drifts))))
    slope = np.polyfit(np.log(sizes), means, 1)[0]
    assert abs(slope + 0.5) < 0.08


def test_dissimilarity_grows_with_noise_and_drift_stays_small() -> None:
    """(17): gradients at w* differ by E‖b_c‖² = σ²·E tr(A_c)/n, however large; in the mean they agree."""
    problem = problem_of(4000, noise=30.0)
    expected = 900.0 * float(torch.einsum("cii->c", problem.curvatures).mean()) / 4
    assert dissimilarity(problem) == pytest.approx(expected, rel=0.15)
    assert problem.drift(0.3, 10, at=problem.truth) < 0.05 * math.sqrt(dissimilarity(problem))


def test_a_federation_follows_local_gd() -> None:
    """FedAvg with all clients and exact gradients is Local GD."""
    source = fl.SyntheticRegression(num_clients=6, num_examples=4, dim=3)
    problem = source.problem(fl.Key.from_seed(3))
    world = fl.SimulatedWorld(problem.task(), problem.data(), weights="uniform", dtype=torch.float64)
    run = fl.Federation(fl.presets.fedavg(lr=0.3, steps=5, batch_size=None), world)
    for _ in run.train(7):
        pass
    expected = problem.local_gd(torch.zeros(3, dtype=torch.float64), 0.3, 5, rounds=7)
    assert torch.allclose(run.params, expected, atol=1e-10)


def test_the_source_loads_its_problem() -> None:
    source, key = fl.SyntheticRegression(num_clients=6, num_examples=4, dim=3), fl.Key.from_seed(3)
    loaded, again = source.load(key), source.load(key)
    assert torch.equal(loaded.train.inputs, source.problem(key).data().inputs)
    assert torch.equal(loaded.train.targets, again.train.targets)
    assert loaded.weights is not None
    assert loaded.weights.tolist() == pytest.approx([1 / 6] * 6)
    assert loaded.train.sizes.tolist() == [4] * 6


def test_wrong_fields_are_refused() -> None:
    with pytest.raises(
        FieldError,
        match=r"SyntheticRegression.noise must be a finite number of at least 0 and at most 1e\+30, got -1\.",
    ):
        fl.SyntheticRegression(noise=-1)
    with pytest.raises(
        FieldError, match=r"SyntheticRegression.truth must be one or more numbers up to 1e\+30, got \(\)\."
    ):
        fl.SyntheticRegression(truth=())
    for truth in (("a",), 5.0, (float("inf"),), (1e31,)):
        with pytest.raises(
            FieldError, match=r"SyntheticRegression.truth must be one or more numbers up to 1e\+30"
        ):
            fl.SyntheticRegression(truth=truth)  # type: ignore[arg-type]
    for field, value in (("noise", 1e31), ("shift", 1e31), ("start", -1e31)):
        with pytest.raises(
            FieldError, match=rf"SyntheticRegression.{field} must be a finite number .* at most 1e\+30"
        ):
            fl.SyntheticRegression(**{field: value})  # type: ignore[arg-type]
    assert fl.SyntheticRegression(truth=[1.0, 2.0]).dim == 2  # type: ignore[arg-type]


def test_the_largest_shift_still_makes_inputs_of_the_lengths_asked_for() -> None:
    """‖μ_c + z‖ must not overflow, or all inputs were 0."""
    problem = fl.SyntheticRegression(num_clients=20, dim=3, shift=1e30, min_length=0.5).problem(
        fl.Key.from_seed(0)
    )
    lengths = torch.linalg.vector_norm(problem.inputs, dim=-1)
    assert 0.5 <= float(lengths.min()) <= float(lengths.max()) <= 1
