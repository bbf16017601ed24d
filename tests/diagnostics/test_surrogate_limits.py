"""On quadratics the limit is known for any weights: runs must end where theory's Ω says, up to O(η)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fairlead as fl
from fairlead.diagnostics import predicted_consistency
from fairlead.diagnostics.gradients import stationarity
from fairlead.presets import METHODS

pytestmark = pytest.mark.full

PROBLEM = fl.Quadratics(
    num_clients=4, dim=2, spread=2.0, conditioning=2.0, weights=(1.0, 2.0, 3.0, 4.0)
).problem(fl.Key.from_seed(1))
STEPS, DROP = (4, 1, 2, 6), (0.0, 0.5, 0.2, 0.6)


def world(**conditions: Any) -> fl.SimulatedWorld:
    return fl.SimulatedWorld(
        PROBLEM.task(), PROBLEM.data(), weights=PROBLEM.weights, dtype=torch.float64, **conditions
    )


def rest(name: str, place: fl.SimulatedWorld, lr: float, rounds: int, **arguments: Any) -> Tensor:
    run = fl.Federation(METHODS[name].build(lr=lr, steps=3, **arguments), place)
    list(run.train(rounds))
    return run.params


def distances(
    name: str, place: fl.SimulatedWorld, lr: float, rounds: int, **arguments: Any
) -> tuple[float, float]:
    """From where the run rests to the predicted limit, and to the optimum asked for."""
    predicted = predicted_consistency(METHODS[name].build(lr=lr, steps=3, **arguments), place)
    assert predicted.predicted_weights is not None
    limit = PROBLEM.minimizer(predicted.predicted_weights)
    found = rest(name, place, lr, rounds, **arguments)
    return float((found - limit).norm()), float((found - PROBLEM.optimum).norm())


@pytest.mark.parametrize(
    ("name", "links", "arguments"),
    [
        ("fedavg", False, {}),
        ("fedprox", False, {"mu": 1.0}),
        ("fedcm", False, {"alpha": 0.4}),
        ("fednova", False, {}),
        ("fedavgm", False, {}),
        ("fedau", False, {}),
        ("fedawe", False, {}),
        ("fedaware_na", True, {}),
        ("mifa", True, {}),
        ("fedvarp", True, {}),
    ],
)
def test_runs_rest_where_the_surrogate_is_least_up_to_the_learning_rate(
    name: str, links: bool, arguments: dict[str, Any]
) -> None:
    """A fourfold smaller η must leave about a quarter of the distance, however far the optimum is."""
    place = world(work=fl.FixedSteps(STEPS), **({"link": fl.BernoulliLink(DROP)} if links else {}))
    (coarse, _), (fine, optimum) = (
        distances(name, place, lr, round(5 / lr), **arguments) for lr in (0.08, 0.02)
    )
    assert fine < 0.4 * coarse
    assert fine < 0.06
    assert name == "fednova" or optimum > 5 * fine


def test_vrlsgd_rests_exactly_where_theory_says_for_any_learning_rate() -> None:
    place = world(work=fl.FixedSteps(STEPS))
    found, optimum = distances("vrlsgd", place, 0.1, 120)
    assert found < 1e-8
    assert optimum > 0.1


@pytest.mark.parametrize("name", ["scaffold", "fednova_vr"])
def test_control_variates_rest_at_the_optimum_whatever_work_and_links(name: str) -> None:
    place = world(work=fl.FixedSteps(STEPS), link=fl.BernoulliLink(DROP))
    found, optimum = distances(name, place, 0.1, 150)
    assert found == optimum
    assert optimum < 1e-6


@pytest.mark.parametrize("name", ["fedavg", "fednova", "full_participation"])
def test_lossy_averaging_rests_on_average_where_theory_says(name: str) -> None:
    """Links of rate ½ for two clients have four equally likely patterns: a script of them stands for both.

    Without the noise of random losses, the mean over a period tends to the predicted limit as η does to 0.
    (A method that carries one round's arrivals into the next would see the order of the script.)
    """
    lossy = world(work=fl.FixedSteps(STEPS), link=fl.BernoulliLink((0.0, 0.5, 0.0, 0.5)))
    script = fl.ScriptedLink(((0, 1, 2, 3), (0, 2), (0, 2, 3), (0, 1, 2)))
    gaps = []
    for lr in (0.06, 0.015):
        algorithm = METHODS[name].build(lr=lr, steps=1)
        weights = predicted_consistency(algorithm, lossy).predicted_weights
        assert weights is not None
        limit = PROBLEM.minimizer(weights)
        run = fl.Federation(algorithm, world(work=fl.FixedSteps(STEPS), link=script))
        path = torch.stack([run.params for _ in run.train(round(5 / lr / 4) * 4)])
        gaps.append(float((path[-4:].mean(0) - limit).norm()))
        away = float((limit - PROBLEM.optimum).norm())
    assert gaps[1] < 0.4 * gaps[0]
    assert gaps[1] < 0.3 * away


def test_gradients_tell_which_objective_is_at_rest() -> None:
    """At a model x, ∇F = Σ ω_i(H_i x − e_i) by hand; the run rests for the surrogate, not for F."""
    place = world(work=fl.FixedSteps(STEPS))
    run = fl.Federation(fl.presets.fedavg(lr=0.01), place)
    list(run.train(500))
    weights = run.consistency().predicted_weights
    assert weights is not None
    found = stationarity(place, run.params, run.state.buffers, weights)
    gradients = PROBLEM.gradients(run.params)
    assert found.true_gradient == pytest.approx(float((PROBLEM.weights @ gradients).norm()))
    assert found.surrogate_gradient == pytest.approx(float((weights @ gradients).norm()))
    assert found.surrogate_gradient < 0.2 * found.true_gradient
    gap = float(((PROBLEM.weights - weights) @ gradients).norm())
    assert gap <= found.gap_bound < 10 * gap


def test_weight_decay_belongs_to_every_objective() -> None:
    place, x = world(), torch.tensor([1.0, -2.0], dtype=torch.float64)
    found = stationarity(place, x, x[:0], PROBLEM.weights, weight_decay=0.3)
    expected = float((PROBLEM.weights @ PROBLEM.gradients(x) + 0.3 * x).norm())
    assert found.true_gradient == pytest.approx(expected)
    assert found.surrogate_gradient == pytest.approx(expected)
    assert found.gap_bound == 0.0


def test_the_optimum_is_at_rest_for_the_objective_asked_for() -> None:
    skewed = torch.tensor([0.7, 0.1, 0.1, 0.1], dtype=torch.float64)
    found = stationarity(world(), PROBLEM.optimum, PROBLEM.optimum[:0], skewed)
    assert found.true_gradient < 1e-12 < 0.1 < found.surrogate_gradient
