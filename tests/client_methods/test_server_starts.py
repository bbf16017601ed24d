"""How adaptive servers begin: v at zero as in released code, or at ε² and above as their paper asks."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scripted_quadratics import federation, run, vectors

from fairlead.algorithm import Algorithm
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.conditions.work import FixedSteps
from fairlead.errors import FieldError
from fairlead.presets import fedadagrad, fedadam, fedams, fedyogi

ONE = QuadraticProblem(
    torch.ones((1, 1, 1), dtype=torch.float64), vectors([[4.0]]), torch.ones(1, dtype=torch.float64)
)
"""One client with gradient x − 4: from 0 with lr ½ and one step its update is Δ = 2."""


def first_step(algorithm: Algorithm) -> float:
    return run(federation(algorithm, problem=ONE, work=FixedSteps((1,))), 1).item()


@pytest.mark.parametrize("initial_v", [0.0, 0.01, 9.0])
def test_first_step_of_each_server(initial_v: float) -> None:
    """x = η m/(√v + ε) with m = (1 − β₁)Δ = 0.2, Δ² = 4, η = 0.1, β₁ = 0.9, β₂ = 0.99, ε = 0.1.

    Adam: v = 0.99v₀ + 0.04. Yogi: v = v₀ + 0.04 for v₀ < 4, v₀ − 0.04 above. Adagrad (m = Δ): v = v₀ + 4.
    """
    eps = 0.1

    def moved(m: float, v: float) -> float:
        return 0.1 * m / (math.sqrt(v) + eps)

    adam = fedadam(lr=0.5, server_lr=0.1, eps=eps, initial_v=initial_v)
    assert first_step(adam) == pytest.approx(moved(0.2, 0.99 * initial_v + 0.04), abs=1e-14)
    yogi = fedyogi(lr=0.5, server_lr=0.1, eps=eps, initial_v=initial_v)
    change = 0.04 if initial_v < 4 else -0.04
    assert first_step(yogi) == pytest.approx(moved(0.2, initial_v + change), abs=1e-14)
    adagrad = fedadagrad(lr=0.5, server_lr=0.1, eps=eps, initial_v=initial_v)
    assert first_step(adagrad) == pytest.approx(moved(2.0, initial_v + 4.0), abs=1e-14)


def test_adam_and_yogi_agree_in_the_first_round_from_zero() -> None:
    """From v = 0 both have v = (1 − β₂)Δ²."""
    assert first_step(fedadam(lr=0.5)) == first_step(fedyogi(lr=0.5))


def test_fedams_options_meet_epsilon_differently() -> None:
    """v = 0.04. Option 1 compares ε with the square: max(0.04, 0.25) = 0.25, root 0.5. Option 2 adds it
    to the root: 0.2 + 0.25 = 0.45. Both have m = 0.2 and η = 0.1.
    """
    assert first_step(fedams(lr=0.5, server_lr=0.1, option=1, eps=0.25)) == pytest.approx(0.02 / 0.5)
    assert first_step(fedams(lr=0.5, server_lr=0.1, option=2, eps=0.25)) == pytest.approx(0.02 / 0.45)


def test_fedams_option_must_exist() -> None:
    build: Callable[..., Algorithm] = fedams
    with pytest.raises(FieldError, match=r"fedams.option must be 1 or 2, got 3"):
        build(lr=0.5, option=3)
