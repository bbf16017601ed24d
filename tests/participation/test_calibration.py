"""Equal step lengths for fair comparisons (Weng 2025 I.2)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fairlead import presets
from fairlead.algorithm import Algorithm
from fairlead.corrections.drift import Proximal
from fairlead.errors import FieldError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.theory.convergence import calibrated_lr, step_length

FACTS = {"weights": [0.2, 0.3, 0.5], "arrival": [1.0, 0.5, 0.8], "effective_steps": [2.0, 10.0, 5.0]}


def built(method: str) -> Algorithm:
    """A preset with two clients a round, where that is allowed."""
    arguments = {} if method == "full_participation" else {"cohort_size": 2}
    return presets.METHODS[method].build(lr=0.1, steps=1, **arguments)


@pytest.mark.parametrize(
    ("method", "factor"),
    [
        # Σω(1−q)‖a‖ = 0.4 + 1.5 + 2 = 3.9; Σω‖a‖ = 0.4 + 3 + 2.5 = 5.9;
        # Σω/((1−q)‖a‖) = 0.1 + 0.06 + 0.125 = 0.285.
        ("importance_sampling", 1.0),
        ("uniform_sampling", 1.0),
        ("optimal_sampling", 1.0),
        ("full_participation", 1.0),
        ("anonymous_fednova", 1.0),
        ("communication_aware_fedavg", 3.9 / 5.9),
        ("communication_aware_fednova", 3.9 / 5.9),
        ("fedvarp", 3.9 / 5.9),
        ("fedvarp_stale", 3.9 / 5.9),
        ("mifa", 3.9 / 5.9),
        # Close to Σω‖a‖, since 50 rounds without an update of a client are all but impossible.
        ("fedau", 3.9 / 5.9),
        ("fedacs", 3.9 * 0.285),
        ("fedacs_estimated", 3.9 * 0.285),
    ],
)
def test_learning_rates_of_appendix_i2(method: str, factor: float) -> None:
    rel = 1e-6 if method == "fedau" else 1e-12
    assert calibrated_lr(built(method), 0.02, **FACTS) == pytest.approx(0.02 * factor, rel=rel)


def test_fedacs_is_never_shortened_and_link_correction_never_lengthened() -> None:
    """Jensen: Σω u·Σω/u ≥ 1, and (1 − q) ≤ 1; equal when u = (1 − q)‖a‖ and q = 0 respectively."""
    generator = np.random.default_rng(0)
    for _ in range(50):
        facts = {
            "weights": generator.random(6) + 0.01,
            "arrival": generator.uniform(0.1, 1.0, 6),
            "effective_steps": generator.uniform(1, 30, 6),
        }
        assert calibrated_lr(built("fedacs"), 0.1, **facts) >= 0.1 * (1 - 1e-12)
        assert calibrated_lr(built("communication_aware_fedavg"), 0.1, **facts) <= 0.1
    same = {"weights": [0.5, 0.5], "arrival": [1.0, 0.5], "effective_steps": [2.0, 4.0]}
    assert calibrated_lr(built("fedacs"), 0.1, **same) == pytest.approx(0.1)


def proximal_work(lr: float) -> torch.Tensor:
    solver = LocalSolver(SGD(lr), steps=1, corrections=(Proximal(2.0),))
    norms = solver.accumulation(torch.tensor([2, 10, 5]), 0)
    assert norms is not None
    return norms.l1


@pytest.mark.parametrize("method", ["fedacs", "communication_aware_fedavg"])
def test_proximal_work_is_solved_for(method: str) -> None:
    """‖a‖₁ = (1 − (1 − ημ)^τ)/(ημ) shrinks with η, so η must satisfy the equation with its own ‖a‖₁."""
    facts = {"weights": FACTS["weights"], "arrival": FACTS["arrival"]}
    lr = calibrated_lr(built(method), 0.05, effective_steps=proximal_work, **facts)
    own = (1 - (1 - 2 * lr) ** np.array([2, 10, 5])) / (2 * lr)
    base = (1 - (1 - 2 * 0.05) ** np.array([2, 10, 5])) / (2 * 0.05)
    target = 0.05 * step_length(built("importance_sampling"), effective_steps=base, **facts)
    assert lr * step_length(built(method), effective_steps=own, **facts) == pytest.approx(target, rel=1e-10)
    naive = calibrated_lr(built(method), 0.05, effective_steps=base, **facts)
    assert abs(naive / lr - 1) > 1e-3


def test_clients_of_weight_zero_do_not_count() -> None:
    padded = {
        "weights": [0.2, 0.3, 0.5, 0.0],
        "arrival": [1.0, 0.5, 0.8, 0.0],
        "effective_steps": [2.0, 10.0, 5.0, 0.0],
    }
    assert step_length(built("fedacs"), **padded) == step_length(built("fedacs"), **FACTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrival": [1.0, 0.0, 0.8]}, "arrival and effective_steps above 0"),
        ({"arrival": [1.0, 0.5]}, "one number per client each, got 3, 2, 3"),
    ],
)
def test_wrong_facts_are_refused(change: dict[str, list[float]], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        step_length(built("fedacs"), **{**FACTS, **change})


def test_a_method_without_mean_coefficients_is_refused() -> None:
    with pytest.raises(FieldError, match="FedMGDA has no theory of its mean coefficients"):
        calibrated_lr(built("fedmgda_plus"), 0.1, **FACTS)


def test_saturated_solver_is_reported() -> None:
    """Work 1/(1 + η) keeps every step of FedACS below 0.182, and importance sampling with η = 1 takes 0.275.

    Rates 1 and 0.1 give it 0.55·η/(1 + η), and FedACS 1/(0.5 + 5)·η/(1 + η).
    """

    def saturating(lr: float) -> list[float]:
        return [1 / (1 + lr), 1 / (1 + lr)]

    facts = {"weights": [0.5, 0.5], "arrival": [1.0, 0.1]}
    with pytest.raises(FieldError, match="saturates"):
        calibrated_lr(built("fedacs"), 1.0, effective_steps=saturating, **facts)
    assert calibrated_lr(built("fedacs"), 0.1, effective_steps=saturating, **facts) > 0.1
