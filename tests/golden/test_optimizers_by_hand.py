"""Two steps of every optimizer in one dimension, computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

import fairlead as fl


def walk(optimizer: fl.Optimizer, gradients: list[float], start: float = 1.0) -> list[float]:
    """Parameters after each step, with the optimizer's own lr."""
    params, path = torch.tensor([start], dtype=torch.float64), []
    state = optimizer.init(params)
    for round, gradient in enumerate(gradients):
        lr = torch.tensor([optimizer.lr_at(round)], dtype=torch.float64)
        params, state = optimizer.step(params, torch.tensor([gradient], dtype=torch.float64), state, lr)
        path.append(float(params))
    return path


def test_plain_descent() -> None:
    """1 − .1·2 = .8; .8 − .1·(−4) = 1.2."""
    assert walk(fl.SGD(0.1), [2.0, -4.0]) == pytest.approx([0.8, 1.2])


def test_momentum() -> None:
    """v = 2, then ½·2 − 4 = −3: .8, then .8 + .3 = 1.1."""
    assert walk(fl.SGD(0.1, momentum=0.5), [2.0, -4.0]) == pytest.approx([0.8, 1.1])


def test_nesterov() -> None:
    """g + ρv: 2 + ½·2 = 3 → .7; then v = −3 and −4 − 1.5 = −5.5 → 1.25."""
    assert walk(fl.SGD(0.1, momentum=0.5, nesterov=True), [2.0, -4.0]) == pytest.approx([0.7, 1.25])


def test_dampening_damps_the_first_gradient_too() -> None:
    """v = ¾·2 = 1.5 → .85; v = ½·1.5 + ¾·(−4) = −2.25 → 1.075."""
    optimizer = fl.SGD(0.1, momentum=0.5, dampening=0.25)
    assert walk(optimizer, [2.0, -4.0]) == pytest.approx([0.85, 1.075])


def test_weight_decay_is_the_gradient_of_a_penalty() -> None:
    """g + λx = 2 + ½·1 = 2.5 → .75; −4 + ½·.75 = −3.625 → 1.1125."""
    assert walk(fl.SGD(0.1, weight_decay=0.5), [2.0, -4.0]) == pytest.approx([0.75, 1.1125])


def test_adagrad() -> None:
    """v = 4: step .1·2/(2 + ε); v = 20: step .1·4/(√20 + ε), with ε = 1."""
    found = walk(fl.Adagrad(0.1, eps=1.0), [2.0, -4.0])
    first = 1 - 0.2 / 3
    assert found == pytest.approx([first, first + 0.4 / (math.sqrt(20) + 1)])


def test_adam_without_bias_correction() -> None:
    """m = .1·2 = .2, v = .01·4 = .04 → √v = .2; then m = .18 − .4 = −.22, v = .0396 + .16 = .1996."""
    optimizer = fl.Adam(0.1, beta1=0.9, beta2=0.99, eps=1.0, bias_correction=False)
    first = 1 - 0.1 * 0.2 / 1.2
    second = first + 0.1 * 0.22 / (math.sqrt(0.1996) + 1)
    assert walk(optimizer, [2.0, -4.0]) == pytest.approx([first, second])


def test_adam_with_bias_correction() -> None:
    """m̂ = .2/.1 = 2, v̂ = .04/.01 = 4 in the first step: .1·2/(2 + 1)."""
    assert walk(fl.Adam(0.1, eps=1.0), [2.0])[0] == pytest.approx(1 - 0.2 / 3)


def test_yogi_moves_its_second_moment_by_bounded_amounts() -> None:
    """From v = 0: v = .01·4 = .04, as Adam; with g² = .01 < v: v = .04 − .01·.01 = .0399."""
    optimizer = fl.Yogi(0.1, eps=1.0)
    first = 1 - 0.1 * 0.2 / 1.2
    m = 0.9 * 0.2 + 0.1 * 0.1
    second = first - 0.1 * m / (math.sqrt(0.0399) + 1)
    assert walk(optimizer, [2.0, 0.1]) == pytest.approx([first, second])


def test_yogi_stays_when_both_are_equal() -> None:
    """sign(0) = 0: v = 4 stays 4 for g = 2."""
    assert walk(fl.Yogi(1.0, beta1=0.0, eps=1.0, initial_v=4.0), [2.0])[0] == pytest.approx(1 - 2 / 3)


def test_amsgrad_remembers_the_largest_second_moment() -> None:
    """v = .04 then .0396: v̂ stays .04. Option 2: m/(√v̂ + ε), ε = 1."""
    first = 1 - 0.1 * 0.2 / 1.2
    second = first - 0.1 * 0.18 / 1.2
    assert walk(fl.AMSGrad(0.1, eps=1.0), [2.0, 0.0]) == pytest.approx([first, second])


def test_amsgrad_with_a_floor_on_the_square() -> None:
    """Option 1: v̂ = max(v, ε) = max(.04, ¼) = ¼, so the step is .1·.2/½; then .1·.18/½."""
    first = 1 - 0.1 * 0.2 / 0.5
    assert walk(fl.AMSGrad(0.1, eps=0.25, floor="square"), [2.0, 0.0]) == pytest.approx(
        [first, first - 0.036]
    )


def test_initial_second_moments() -> None:
    """Reddi et al. ask for v₋₁ ≥ ε²: from v = 1, .99 + .04 = 1.03."""
    optimizer = fl.Adam(0.1, eps=1.0, initial_v=1.0, bias_correction=False)
    assert walk(optimizer, [2.0])[0] == pytest.approx(1 - 0.02 / (math.sqrt(1.03) + 1))
    assert walk(fl.Adagrad(0.1, eps=1.0, initial_v=5.0), [2.0])[0] == pytest.approx(1 - 0.2 / 4)


def scalar_world(linear: tuple[float, ...], steps: tuple[int, ...]) -> fl.SimulatedWorld:
    problem = fl.Quadratics(linear=tuple((e,) for e in linear)).problem(fl.Key.from_seed(0))
    return fl.SimulatedWorld(
        problem.task(0.0), problem.data(), work=fl.FixedSteps(steps), dtype=torch.float64
    )


def params_after(algorithm: fl.Algorithm, world: fl.SimulatedWorld, rounds: int) -> list[float]:
    federation = fl.Federation(algorithm, world)
    return [float(federation.params) for _ in federation.train(rounds)]


def test_two_rounds_of_fedavg_with_server_momentum() -> None:
    """e = (0, 4), one step of ½ from 0: Δ = (0, 2), mean 1. v = 1, x = 1.

    Round 2: Δ = (−½, 1.5), mean ½; v = ½·1 + ½ = 1, x = 2.
    """
    algorithm = fl.presets.fedavgm(lr=0.5, server_momentum=0.5)
    assert params_after(algorithm, scalar_world((0.0, 4.0), (1, 1)), 2) == pytest.approx([1.0, 2.0])


def test_two_rounds_of_scaffold_option_two() -> None:
    """e = (0, 4), H = 1, η = ½, steps (1, 2), from x = 0 with c = 0.

    Round 1: y₁ = 0; y₂ = 2, then 2 − ½(2 − 4) = 3. x = 1.5. c₁ = (0 − 0)/½ = 0, c₂ = (0 − 3)/(2·½) = −3, so
    c = −1.5. Round 2 from 1.5: client 1 follows 1.5 − 0 − 1.5 = 0 and stays: Δ₁ = 0. Client 2 adds
    −c₂ + c = 1.5: g = (1.5 − 4) + 1.5 = −1 → 2; g = (2 − 4) + 1.5 = −½ → 2.25: Δ₂ = .75. x = 1.875.
    """
    algorithm = fl.presets.scaffold(lr=0.5)
    assert params_after(algorithm, scalar_world((0.0, 4.0), (1, 2)), 2) == pytest.approx([1.5, 1.875])


def test_two_rounds_of_scaffold_option_one() -> None:
    """As above, but c_i = ∇F_i(x) = (0, −4) and c = −2.

    Round 2 from 1.5: client 1: 1.5 − 0 − 2 = −.5 → 1.75; client 2 adds 2: −2.5 + 2 = −.5 → 1.75;
    −2.25 + 2 = −.25 → 1.875. Δ = (.25, .375): x = 1.8125.
    """
    algorithm = fl.presets.scaffold(lr=0.5, estimate="anchor")
    assert params_after(algorithm, scalar_world((0.0, 4.0), (1, 2)), 2) == pytest.approx([1.5, 1.8125])


def test_a_client_drawn_twice_works_once_and_counts_twice() -> None:
    """Draws (1, 1, 0): importance ⅔ and ⅓ of Δ = (2, 0) for e = (0, 4) gives 4/3."""
    algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.5), steps=1), fl.ScriptedSampler(((1, 1, 0),)))
    world = scalar_world((0.0, 4.0), (1, 1))
    federation = fl.Federation(algorithm, world)
    (record,) = federation.train(1)
    assert float(federation.params) == pytest.approx(4 / 3)
    assert (record.asked, record.multiplicity) == ((0, 1), (1, 2))
