"""`QuadraticProblem.limit` against iterated rounds and against the closed forms for H = I."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import Tensor

import fairlead as fl
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.errors import FieldError

KEY = fl.Key.from_seed(2)


def rounds_of(
    problem: QuadraticProblem, steps: list[int], lr: float, mu: float, arrival: list[float], normalize: bool
) -> Tensor:
    """Averaging written as loops: mean update over what arrives, many rounds."""
    x = torch.zeros(problem.linear.shape[1], dtype=torch.float64)
    for _ in range(1500):
        move = torch.zeros_like(x)
        for client, count in enumerate(steps):
            y, unit = x.clone(), 0.0
            for _ in range(count):
                y = y - lr * (problem.hessians[client] @ y - problem.linear[client] + mu * (y - x))
                unit = unit * (1 - lr * mu) + 1.0
            weight = float(problem.weights[client]) * arrival[client]
            move = move + weight * (y - x) / (unit if normalize else 1.0)
        x = x + move
    return x


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_the_limit_is_where_rounds_end(mu: float, normalize: bool) -> None:
    source = fl.Quadratics(num_clients=3, dim=2, conditioning=4.0, weights=(0.5, 0.3, 0.2))
    problem = source.problem(KEY)
    steps, arrival = [1, 4, 9], [0.9, 0.5, 0.7]
    limit = problem.limit(steps, 0.1, mu=mu, arrival=arrival, normalize=normalize)
    assert torch.allclose(limit, rounds_of(problem, steps, 0.1, mu, arrival, normalize), atol=1e-10)
    assert float((limit - problem.optimum).norm()) > 1e-3


def test_equal_work_has_no_bias() -> None:
    """With H_i = I and equal steps every K_i is the same: the limit is the optimum."""
    problem = fl.Quadratics(num_clients=4, dim=3).problem(KEY)
    assert torch.allclose(problem.limit([7] * 4, 0.2), problem.optimum)


def test_identity_hessians_weight_by_kappa() -> None:
    """κ_i = 1 − (1 − η)^τ_i: x = Σ ω_i κ_i e_i / Σ ω_i κ_i, and Σ τ_i e_i/Σ τ_i as η → 0 (Wang 2021 Lemma 1)."""
    problem = fl.Quadratics(num_clients=4, dim=3).problem(KEY)
    steps = [1, 2, 5, 20]
    kappa = torch.tensor([1 - 0.9**count for count in steps], dtype=torch.float64)
    assert torch.allclose(problem.limit(steps, 0.1), kappa @ problem.linear / kappa.sum())
    taus = torch.tensor(steps, dtype=torch.float64)
    assert torch.allclose(problem.limit(steps, 1e-7), taus @ problem.linear / taus.sum(), atol=1e-5)
    assert torch.allclose(problem.limit(steps, 1e-7, normalize=True), problem.optimum, atol=1e-5)


def test_a_federation_ends_at_the_limit() -> None:
    problem = fl.Quadratics(num_clients=5, dim=3, conditioning=3.0).problem(KEY)
    steps = (1, 3, 5, 7, 9)
    world = fl.SimulatedWorld(
        problem.task(), problem.data(), work=fl.FixedSteps(steps), weights="uniform", dtype=torch.float64
    )
    for preset, normalize in ((fl.presets.fedavg(lr=0.1), False), (fl.presets.fednova(lr=0.1), True)):
        run = fl.Federation(preset, world)
        for _ in run.train(200):
            pass
        assert torch.allclose(run.params, problem.limit(steps, 0.1, normalize=normalize), atol=1e-8)


@pytest.mark.parametrize(
    "hessians",
    [
        (((1.0, 2.0), (0.0, 1.0)),),
        (((1.0, float("nan")), (float("nan"), 1.0)),),
        (((1e31, 0.0), (0.0, 1.0)),),
        (((1.0,),),),
        ((("a", 0.0), (0.0, 1.0)),),
        (1.0,),
    ],
)
def test_hessians_that_make_no_quadratic(hessians: Any) -> None:
    """An asymmetric H has the gradient ½(H + H')x − e, not the Hx − e that everything here relies on."""
    with pytest.raises(
        FieldError, match=r"Quadratics.hessians must be 1 symmetric matrices of 2 x 2 numbers up to 1e"
    ):
        fl.Quadratics(linear=((0.0, 1.0),), hessians=hessians)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"spread": 1e31}, "spread must be a finite number of at least 0 and at most 1e"),
        ({"conditioning": 1e31}, "conditioning must be a finite number of at least 1 and at most 1e"),
        ({"start": -1e31}, "start must be a finite number of at least -1e"),
        (
            {"linear": ((1e31,),)},
            "linear must be rows of the same length, one per client, of numbers up to 1e",
        ),
        ({"num_clients": 2, "weights": (1.7e308, 1.7e308)}, "weights must be 2 numbers .* with a finite sum"),
    ],
)
def test_numbers_that_examples_could_not_hold(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FieldError, match=f"Quadratics.{sentence}"):
        fl.Quadratics(**fields)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_numbers_make_finite_examples(dtype: Literal["float32", "float64"]) -> None:
    source = fl.Quadratics(50, 4, spread=1e30, conditioning=1e30, start=1e30)
    run = fl.Experiment(source, fl.presets.fedavg(lr=0.1), rounds=1, dtype=dtype).build()
    assert run.params.tolist() == pytest.approx([1e30] * 4)
