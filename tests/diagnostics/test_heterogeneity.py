"""Heterogeneity measures on quadratics, where every one of them has a closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fairlead as fl
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.diagnostics import (
    Heterogeneity,
    client_optima,
    fit_general_bound,
    gradient_heterogeneity,
    measure_heterogeneity,
    optimum_difference,
    work_heterogeneity,
)
from fairlead.errors import FieldError

SEEDS = st.integers(0, 2**32 - 1)


def two_clients() -> QuadraticProblem:
    """F_1 = ½·(x − 1)², F_2 = ½·3(x + 1)², equal weights: x* = −½, own optima 1 and −1."""
    hessians = torch.tensor([[[1.0]], [[3.0]]], dtype=torch.float64)
    linear = torch.tensor([[1.0], [-3.0]], dtype=torch.float64)
    return QuadraticProblem(hessians, linear, torch.tensor([0.5, 0.5], dtype=torch.float64))


def world_of(problem: QuadraticProblem) -> fl.SimulatedWorld:
    return fl.SimulatedWorld(problem.task(), problem.data(), weights=problem.weights, dtype=torch.float64)


def point(mean_norm: float, mean_square: float) -> Heterogeneity:
    """Only what the general bound looks at."""
    return Heterogeneity(mean_norm, mean_square, torch.zeros(1), 0.0, 1.0, 0.0)


def test_one_point_by_hand() -> None:
    """At x = 0 the gradients are −1 and 3: mean 1, mean square 5, both 2 away from the mean, γ² = 5."""
    found = gradient_heterogeneity(two_clients().gradients(torch.zeros(1, dtype=torch.float64)))
    assert (found.mean_norm, found.mean_square, found.dissimilarity) == pytest.approx((1.0, 5.0, 4.0))
    assert found.distances.tolist() == pytest.approx([4.0, 4.0])
    assert (found.diversity, found.norm_bound) == pytest.approx((5.0, 9.0))


@given(SEEDS, st.integers(1, 6))
def test_mean_square_is_mean_norm_plus_dissimilarity(seed: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    gradients = torch.from_numpy(generator.normal(size=(count, 3)))
    weights = torch.from_numpy(generator.dirichlet(np.ones(count)))
    found = gradient_heterogeneity(gradients, weights)
    assert found.mean_square == pytest.approx(found.mean_norm + found.dissimilarity)
    assert found.diversity * found.mean_norm == pytest.approx(found.mean_square)
    assert found.diversity >= 1.0
    assert found.dissimilarity == pytest.approx(float(weights @ found.distances))


def test_a_whole_federation_by_hand() -> None:
    """At x* = −½ both gradients are ∓1.5. ‖½(1 − 1) − x*‖² = ¼. At x = 1: 0 and 6, mean 3, γ² = 18/9.

    Points of the general bound: (0, 2.25) at x*, (1, 5) at 0, (9, 18) at 1. The line through the outer two
    leaves 5 above it at z = 1, so the upper hull has two edges; the mean of z is 10/3, over the edge from
    (1, 5) to (9, 18): β² = 13/8, κ² = 27/8.
    """
    problem = two_clients()
    points = [torch.tensor([value], dtype=torch.float64) for value in (0.0, 1.0)]
    report = measure_heterogeneity(world_of(problem), problem.optimum, points, with_client_optima=True)
    assert report.at_optimum.mean_norm == pytest.approx(0.0, abs=1e-12)
    assert report.at_optimum.mean_square == pytest.approx(2.25)
    assert report.optimum_difference == pytest.approx(0.25, abs=1e-6)
    assert report.diversity == pytest.approx(5.0)
    assert report.dissimilarity == pytest.approx(9.0)
    assert report.norm_bound == pytest.approx(36.0)
    assert report.bound.beta_square == pytest.approx(13 / 8)
    assert report.bound.kappa_square == pytest.approx(27 / 8)


def test_client_optima_are_only_searched_for_on_request() -> None:
    problem = two_clients()
    report = measure_heterogeneity(world_of(problem), problem.optimum)
    assert report.optimum_difference is None
    assert math.isnan(report.diversity)


@given(SEEDS, st.integers(1, 8))
def test_the_envelope_holds_at_every_point_and_no_line_has_less_slack(seed: int, count: int) -> None:
    """Against a fine grid of β², each with the least κ² that holds."""
    generator = np.random.default_rng(seed)
    z = generator.exponential(size=count)
    y = z + generator.exponential(size=count)
    bound = fit_general_bound([point(*pair) for pair in zip(z.tolist(), y.tolist(), strict=True)])
    slack = bound.beta_square * z + bound.kappa_square - y
    assert slack.min() >= -1e-9
    assert bound.beta_square >= 1.0
    assert bound.kappa_square >= 0.0
    grid = np.concatenate([np.linspace(1, 5, 400), np.geomspace(5, 1e4, 400)])
    kappas = np.maximum((y[None] - grid[:, None] * z).max(1), 0)
    best = (grid * z.mean() + kappas - y.mean()).min()
    assert slack.mean() <= best + 1e-9


def test_least_squares_recovers_an_exact_line_and_keeps_its_limits() -> None:
    """y = 2z + 3 exactly; y = z/2 + 1 cannot have β² < 1, and then κ² = max(mean(y − z), 0)."""
    exact = fit_general_bound([point(z, 2 * z + 3) for z in (0.0, 1.0, 4.0)], envelope=False)
    assert (exact.beta_square, exact.kappa_square) == pytest.approx((2.0, 3.0))
    flat = fit_general_bound([point(z, z / 2 + 1) for z in (0.0, 1.0)], envelope=False)
    assert (flat.beta_square, flat.kappa_square) == pytest.approx((1.0, 0.75))
    steep = fit_general_bound([point(z, 4 * z - 2) for z in (1.0, 2.0)], envelope=False)
    assert steep.kappa_square == 0.0
    assert steep.beta_square == pytest.approx((2 + 12) / 5)
    with pytest.raises(FieldError, match="at least one point"):
        fit_general_bound([])


def test_optimum_difference_vanishes_for_equal_curvature() -> None:
    """With one Hessian for all, x* is the mean of the clients' optima."""
    problem = fl.Quadratics(num_clients=5, dim=3).problem(fl.Key.from_seed(0))
    own = client_optima(world_of(problem), problem.optimum)
    assert optimum_difference(own, problem.optimum, problem.weights) == pytest.approx(0.0, abs=1e-10)


def test_work_heterogeneity_by_hand() -> None:
    """Φ = 30·0.1·((1 − 1)·5 + (3 − 1)·2) = 12."""
    distances = torch.tensor([5.0, 2.0], dtype=torch.float64)
    assert work_heterogeneity(distances, torch.tensor([1, 3]), 0.1) == pytest.approx(12.0)
    assert work_heterogeneity(distances, torch.tensor([4, 4]), 0.1) == 0.0
