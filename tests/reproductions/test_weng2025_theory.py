"""Weng 2025: the two sides of Corollary 2.1, and quadratics that exceed the bound of Theorem 3."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import fairlead as fl
from fairlead.reproductions import OMITTED, reproduction_named
from fairlead.reproductions.claims import TableCell
from fairlead.reproductions.closed_form import ClosedFormWorld, reach_of
from fairlead.reproductions.reproduction import Computation, Request
from fairlead.theory.quadratics import LocalWork

Array = NDArray[np.float64]
STEPS, ARRIVAL = np.arange(1, 40, 2), np.linspace(0.60, 0.98, 20)
"""Of the static setting, twenty clients."""


def test_corollary_2_1_by_hand(tmp_path: Path) -> None:
    """Two clients at ∓1 with T = 1, 3 and 1 − q = 0.6, 0.62: Ω ∝ 0.6, 1.86, and all four sides are Ω₂ − Ω₁.

    For twenty clients a NumPy solution of Σ Ω_m(H_m x − e_m) = 0.
    """
    entry = reproduction_named("weng2025_corollary_2_1")
    assert isinstance(entry, Computation)
    figures = entry.compute(Request(tmp_path), 5)
    gap = (1.86 - 0.6) / (1.86 + 0.6)
    assert [value for cell, value in figures.items() if cell.row == "two clients"] == pytest.approx([gap] * 4)
    problem = fl.Quadratics(num_clients=20, dim=10, conditioning=10.0).problem(
        fl.Key.from_seed(5).fold("data")
    )
    hessians, linear = problem.hessians.numpy(), problem.linear.numpy()
    surrogate = STEPS * ARRIVAL / (STEPS * ARRIVAL).sum()
    point, optimum = (
        np.linalg.solve(np.tensordot(weights, hessians, 1), weights @ linear)
        for weights in (surrogate, np.full(20, 0.05))
    )
    gradients = hessians @ point - linear
    expected = {
        "‖x̃ − x*‖": np.linalg.norm(point - optimum),
        "‖∇F(x̃)‖": np.linalg.norm(gradients.mean(0)),
        "√χ²·κ": np.sqrt(((0.05 - surrogate) ** 2 / surrogate).sum() * surrogate @ (gradients**2).sum(1)),
    }
    found = {name: figures[TableCell("FedAvg", name)] for name in expected}
    assert found == pytest.approx(expected)


def mean_square(centers: Array, lr: float, cohort_size: int, rounds: int) -> float:
    """(1/R) Σ E‖x_r − x*‖² of FedACS from x* = 0 on, by the first two moments of w_m = c_m Z_m κ_m/K.

    x⁺ = x + Σ w_m(e_m − x),   c ~ multinomial(K, p),   Z_m ~ Bernoulli(1 − q_m),   κ_m = 1 − (1 − η)^T_m
    """
    chance = 1 / (ARRIVAL * STEPS)
    chance, reach = chance / chance.sum(), 1 - (1 - lr) ** STEPS
    first = chance * ARRIVAL * reach
    second = (cohort_size - 1) / cohort_size * np.outer(first, first)
    repeated = (cohort_size - 1) / cohort_size * chance**2 + chance / cohort_size
    np.fill_diagonal(second, ARRIVAL * reach**2 * repeated)
    square, mean, total = 0.0, np.zeros(centers.shape[1]), 0.0
    for _ in range(rounds):
        total += square
        along = centers @ mean
        noise = (second * (centers @ centers.T - along[:, None] - along)).sum() + second.sum() * square
        square += 2 * (first @ along - first.sum() * square) + noise
        mean = mean + first @ centers - first.sum() * mean
    return total / rounds


def test_fedacs_exceeds_the_bound_of_theorem_3() -> None:
    """‖∇F‖² = ‖x − x*‖² with L = β = 1, σ = 0 and κ² = mean ‖e_m‖², from F(x₀) = F*: (17) is then η C̄ κ².

    C̄ = Σ p(1 − q) as printed in (109b), and 1/Σ ω/((1 − q)T) with the missing τ_eff.
    """
    centers = np.random.default_rng(0).normal(size=(20, 10))
    centers -= centers.mean(0)
    spread, lr = (centers**2).sum(1).mean(), 0.002
    corrected = 1 / np.mean(1 / (ARRIVAL * STEPS))
    printed = corrected * np.mean(1 / STEPS)
    six, one = (mean_square(centers, lr, cohort_size, 20_000) for cohort_size in (6, 1))
    assert 2.4 < six / (lr * printed * spread) < 2.6
    assert six < lr * corrected * spread < 0.6 * one
    theorem = [each for each in OMITTED if each.where == "Theorem 3"]
    assert "exceeds it 2.5 times" in theorem[0].reason


def test_the_moments_are_those_of_the_library() -> None:
    """FedACS in the closed-form world, 4,000 rounds of six draws: 10 % is more than three of its standard errors."""
    setting = fl.settings.fedacs_quadratics_static()
    centers = np.random.default_rng(0).normal(size=(20, 10))
    centers -= centers.mean(0)
    reach = reach_of(LocalWork(0.02, 1))
    world = ClosedFormWorld(torch.from_numpy(centers), setting.work, setting.link, reach)
    run = fl.Federation(fl.presets.fedacs(lr=0.02, steps=1, batch_size=None, cohort_size=6), world, seed=0)
    squares = [float(run.params.square().sum()) for _ in run.train(4000)]
    assert np.mean(squares) == pytest.approx(mean_square(centers, 0.02, 6, 4000), rel=0.1)
