"""Figures of Wang 2021 and Wang 2024 that are computed, against loops and formulas of their own."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.reproductions import REPRODUCTIONS, wang2024
from fairlead.reproductions.reproduction import Request


def figures(name: str, tmp_path: Path, seed: int = 0) -> dict[tuple[str, str], float]:
    outcome = REPRODUCTIONS[name].reproduce(Request(tmp_path, scale="smoke", seeds=(seed,)))
    return {(figure.row, figure.column): figure.ours for figure in outcome.figures}


def test_the_floor_of_lemma_5(tmp_path: Path) -> None:
    """x = a(k₁ − k₂)/(k₁ + k₂) with k = 1 − (1 − η)^τ, F' = x and χ²κ² = a²((τ₂ − τ₁)/(τ₁ + τ₂))²."""
    found = figures("wang2021_lemma_5", tmp_path)
    for name, work in (("FedAvg", (1, 1)), ("FedNova", (1, 4))):
        pull = [(1 - 0.9999**steps) / share for steps, share in zip((1, 4), work, strict=True)]
        gradient = 2 * (pull[0] - pull[1]) / (pull[0] + pull[1])
        assert found[name, "‖∇F‖² over χ²κ²"] == pytest.approx(gradient**2 / (4 * 0.36), rel=1e-6)


def simulated(name: str, noise: float) -> float:
    """Error over (83) after ten rounds of local SGD by loops, 40,000 times, from where (79) is an equality.

    A = mτ_eff Σ w²/τ, B = Σ w(τ − 1) and C = max τ(τ − 1) for plain SGD; L = c = 1.
    """
    steps = np.array([1, 2, 3, 5, 7])
    centers = fl.Key.from_seed(0).generator().normal(size=5)
    weights = np.full(5, 0.2) if "Nova" in name else steps / steps.sum()
    tau_eff = 2 * steps.mean() if "Nova" in name else steps.mean()
    target = weights @ centers
    spread = weights @ (centers - target) ** 2
    gamma = 12 * np.sqrt(3) * 7 / tau_eff

    def bound(rounds: int) -> float:
        first = 36 * noise * (weights**2 / steps).sum() / (rounds + gamma)
        second = 1.5 * noise * (weights @ (steps - 1)) + 3 * spread * 42
        return float(first + 216 * second / (tau_eff * (rounds + gamma)) ** 2)

    generator = np.random.default_rng(0)
    x = np.full(40_000, target + np.sqrt(2 * bound(0)))
    for round in range(10):
        lr, change = 6 / (tau_eff * (round + gamma)), np.zeros_like(x)
        for client, count in enumerate(steps):
            local = x.copy()
            for _ in range(count):
                local -= lr * (local - centers[client] + np.sqrt(noise) * generator.normal(size=len(x)))
            change += tau_eff * weights[client] / count * (local - x)
        x = x + change
    return float(((x - target) ** 2 / 2).mean()) / bound(10)


def test_errors_of_theorem_4_by_simulation(tmp_path: Path) -> None:
    found = figures("wang2021_theorem_4", tmp_path)
    for name, noise in (("FedAvg", 10.0), ("FedNova, s = 2", 10.0), ("no noise", 0.0)):
        assert found[name, "error over (83), T = 0"] == pytest.approx(1.0)
        expected = pytest.approx(simulated(name, noise), rel=0.03 if noise else 1e-9)
        assert found[name, "error over (83), T = 10"] == expected


def test_relative_variance_of_figure_4(tmp_path: Path) -> None:
    """A = Σ‖a‖₂²/Σ‖a‖₁ for equal weights, and τ̄·mean(1/τ) for FedNova, which is 1 + χ² of FedAvg."""
    found = figures("wang2021_figure_4", tmp_path)
    work = fl.settings.fednova_quadratics_fixed().work
    assert isinstance(work, fl.FixedSteps)
    steps = work.steps
    for alpha in (0.0, 0.1, 0.5, 1.0):
        vectors = [(1 - alpha) ** np.arange(count, dtype=float) for count in steps]
        expected = sum((a**2).sum() for a in vectors) / sum(a.sum() for a in vectors)
        assert found[f"α = {alpha:g}", "relative variance"] == pytest.approx(expected)
    assert found["FedNova", "relative variance"] == pytest.approx(
        np.mean(steps) * np.mean(1 / np.array(steps))
    )
    assert found["FedNova", "relative variance"] == pytest.approx(1 + found["α = 0", "weight bias"])


def test_the_bias_of_shuffled_steps_by_loops() -> None:
    """δ_c = (w_GD − E w)/(ηH) over the 24 orders of four examples; with replacement there is none."""
    problem = fl.SyntheticRegression(num_clients=3, num_examples=4, dim=2).problem(fl.Key.from_seed(1))
    lr, w = 0.7, torch.tensor([0.3, -0.2], dtype=torch.float64)
    squares, spreads = [], []
    for inputs, targets in zip(problem.inputs.numpy(), problem.targets.numpy(), strict=True):
        ends = []
        for order in permutations(range(4)):
            local = w.numpy().copy()
            for row in order:
                local -= lr * (inputs[row] @ local - targets[row]) * inputs[row]
            ends.append(local)
        descended = w.numpy().copy()
        for _ in range(4):
            descended -= lr * inputs.T @ (inputs @ descended - targets) / 4
        squares.append(((descended - np.mean(ends, 0)) ** 2).sum() / (4 * lr) ** 2)
        spreads.append(np.var(ends, 0).sum() / (4 * lr) ** 2)
    orders = torch.tensor(list(permutations(range(4))))
    bias, variance, noise = wang2024._moments(problem, orders, lr, w)
    assert (bias, variance) == pytest.approx((np.mean(squares), np.mean(spreads)))
    gradients = (problem.inputs @ w - problem.targets)[..., None] * problem.inputs
    assert noise >= float(gradients.var(1, correction=0).sum(-1).max())


def test_figure_3_measures_every_figure_of_its_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On digits over a few clients, with a small network: one epoch of SGD, then the test of both splits."""
    natural, artificial = (replace(setting, num_clients=6) for _, setting in wang2024._SPLITS.values())
    natural = replace(natural, partition=fl.IidPartitioner())
    monkeypatch.setattr(wang2024, "source_of", lambda name, folder: fl.Digits())
    monkeypatch.setattr(wang2024, "_EXAMPLES", {"smoke": 120})
    monkeypatch.setattr(wang2024, "_NARROW", fl.ResNet18(groups=2, width=4))
    monkeypatch.setattr(wang2024, "_SPLITS", {"natural": ("a", natural), "artificial": ("b", artificial)})
    found = wang2024._at_optimum(Request(tmp_path, scale="smoke"), 0)
    assert {cell for claim in wang2024.FIGURE_3.claims for cell in claim.cells} <= set(found)
    assert all(value > 0 for value in found.values())
    assert all(value <= 1 for cell, value in found.items() if cell.column.startswith("drift over its bound"))
