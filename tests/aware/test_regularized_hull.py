"""The regularized hull, λ-feedback and exchanged credit: FedAWARE as published, and what replaces it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import fairlead as fl
from fairlead.client_table import tensor_in
from fairlead.numerics.minimum_norm import shortest_in_hull, shortest_in_ridged_hull
from fairlead.presets import fedaware_published, fedaware_ridge
from fairlead.records import ClientWeights

QUADRATICS = fl.Quadratics(num_clients=12, dim=6, spread=2.0)


def rows(count: int, dim: int, seed: int, *, unit: bool = False) -> torch.Tensor:
    vectors = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, dim)) + 0.3)
    return vectors / vectors.norm(dim=1, keepdim=True) if unit else vectors


def by_projected_gradient(gram: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    """An independent solution: projected gradient descent on the simplex, to convergence."""
    weights: NDArray[np.float64] = np.full(len(gram), 1 / len(gram))
    step = 1 / (2 * (np.linalg.eigvalsh(gram)[-1] + ridge))
    for _ in range(200_000):
        moved = weights - step * 2 * (gram @ weights + ridge * weights)
        order = np.sort(moved)[::-1]
        excess = (np.cumsum(order) - 1) / np.arange(1, len(order) + 1)
        after: NDArray[np.float64] = np.maximum(moved - excess[np.flatnonzero(order > excess)[-1]], 0)
        if np.abs(after - weights).max() < 1e-15:
            return after
        weights = after
    return weights


@pytest.mark.parametrize("rho", [0.03, 1.0, 30.0])
@pytest.mark.parametrize("unit", [False, True])
def test_the_solution_is_that_of_projected_gradients(rho: float, unit: bool) -> None:
    vectors = rows(20, 8, seed=1, unit=unit)
    gram = vectors @ vectors.T
    point = shortest_in_ridged_hull(gram, rho)
    expected = by_projected_gradient(gram.numpy(), rho * float(gram.diagonal().mean()))
    assert point.weights.numpy() == pytest.approx(expected, abs=1e-9)
    assert point.squared_norm == pytest.approx(float(expected @ gram.numpy() @ expected), abs=1e-9)


def test_without_rho_it_is_the_hull_and_with_much_of_it_the_mean() -> None:
    gram = rows(30, 5, seed=2) @ rows(30, 5, seed=2).T
    assert torch.equal(shortest_in_ridged_hull(gram, 0.0).weights, shortest_in_hull(gram).weights)
    assert shortest_in_ridged_hull(gram, 1e9).weights.tolist() == pytest.approx([1 / 30] * 30, rel=1e-6)


def test_weights_change_no_more_than_the_stated_bound() -> None:
    vectors = rows(40, 10, seed=3, unit=True)
    moved = vectors + 0.05 * rows(40, 10, seed=4)
    moved = moved / moved.norm(dim=1, keepdim=True)
    before, after = vectors @ vectors.T, moved @ moved.T
    for rho in (0.1, 1.0):
        first, second = (shortest_in_ridged_hull(gram, rho).weights for gram in (before, after))
        assert (first - second).norm() <= ((before - after) @ first).norm() / rho + 1e-12


def test_feedback_draws_by_the_last_weights_without_replacement() -> None:
    sampler = fl.WeightFeedback(cohort_size=2)
    shares = torch.tensor([0.6, 0.3, 0.1, 0.0], dtype=torch.float64)
    state = sampler.follow({"lambda": torch.zeros_like(shares)}, ClientWeights(torch.arange(4), shares))
    conditions, draws = fl.Conditions(3, torch.full_like(shares, 0.25)), 4000
    pairs = Counter(
        tuple(sampler.draw(state, conditions, fl.Key.from_seed(seed)).clients.tolist())
        for seed in range(draws)
    )
    # P(i, j) = λ_i λ_j/(1 − λ_i) + λ_j λ_i/(1 − λ_j)
    expected = {
        (0, 1): 0.6 * 0.3 / 0.4 + 0.3 * 0.6 / 0.7,
        (0, 2): 0.6 * 0.1 / 0.4 + 0.1 * 0.6 / 0.9,
        (1, 2): 0.3 * 0.1 / 0.7 + 0.1 * 0.3 / 0.9,
    }
    assert set(pairs) == set(expected)
    for pair, chance in expected.items():
        assert abs(pairs[pair] / draws - chance) < 4 * (chance * (1 - chance) / draws) ** 0.5


def test_feedback_selects_everyone_with_weight_and_the_rest_uniformly() -> None:
    sampler = fl.WeightFeedback(cohort_size=3)
    weights = torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0], dtype=torch.float64)
    state = {"lambda": torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)}
    drawn = (
        sampler.draw(state, fl.Conditions(1, weights), fl.Key.from_seed(seed)).clients.tolist()
        for seed in range(600)
    )
    counts = Counter(client for cohort in drawn for client in cohort)
    assert (counts[1], counts[4]) == (600, 0)
    assert all(abs(counts[client] - 400) < 60 for client in (0, 2, 3))


def federation(algorithm: fl.Algorithm) -> fl.Federation:
    return fl.Experiment(QUADRATICS, algorithm, rounds=6, seed=0).build()


def test_a_round_tells_the_sampler_the_weights_of_its_step() -> None:
    run = federation(fedaware_published(lr=0.05, steps=3, cohort_size=4))
    for record in run.train(3):
        weights = tensor_in(run.state.sampler, "lambda")
        assert float(weights.sum()) == pytest.approx(1)
        assert set(weights.nonzero().flatten().tolist()) == set(record.remembered)


@pytest.mark.parametrize("preset", [fedaware_published, fedaware_ridge])
def test_a_resumed_run_draws_by_the_same_weights(preset: Callable[..., fl.Algorithm], tmp_path: Path) -> None:
    whole = fl.Experiment(QUADRATICS, preset(lr=0.05, steps=3, cohort_size=4), rounds=8, evaluate_every=1)
    fl.run_experiment(whole, tmp_path / "whole")
    fl.run_experiment(replace(whole, rounds=3), tmp_path / "parts")
    fl.run_experiment(whole, tmp_path / "parts", resume=True)
    assert fl.load_records(tmp_path / "parts") == fl.load_records(tmp_path / "whole")


def test_feedback_follows_weights_over_all_clients_alone() -> None:
    """RememberedMean weights all clients by ω; MIFA tells no such weights, so its cohorts stay uniform."""
    sampler = fl.FullFirstRound(fl.WeightFeedback(cohort_size=4))
    for preset, told in ((fl.presets.fedaware_na, True), (fl.presets.mifa, False)):
        run = federation(replace(preset(lr=0.05, steps=2), sampler=sampler))
        for _ in run.train(2):
            pass
        expected = run.world.population.weights if told else torch.zeros(12)
        assert tensor_in(run.state.sampler, "lambda").tolist() == pytest.approx(expected.tolist())


def test_exchanged_credit_files_updates_under_clients_of_the_same_round() -> None:
    memory, clients = fl.UpdateMemory(credit="exchanged"), torch.tensor([2, 5, 7, 11])
    orders = [memory.credited(clients, round).tolist() for round in range(40)]
    assert len({tuple(order) for order in orders}) > 10
    assert all(sorted(order) == clients.tolist() for order in orders)
    assert orders[3] == memory.credited(clients, 3).tolist()
    assert torch.equal(fl.UpdateMemory().credited(clients, 3), clients)


def test_ridge_moves_by_at_most_the_learning_rate_of_the_server() -> None:
    run = federation(fedaware_ridge(lr=0.05, steps=2, cohort_size=4, server_lr=0.5))
    for record in run.train(4):
        assert record.step_norm <= 0.5 + 1e-9
        # Six dimensions: without ρ at most seven clients have weight (Carathéodory).
        assert len(record.remembered) > 7


def ending(
    rows: Literal["raw", "unit", "equal"], server_lr: float, rounds: int
) -> tuple[fl.Federation, torch.Tensor]:
    """A run on clients with H = I, unequal weights and unequal work, and the clients' optima."""
    optima = ((0.0, 0.0), (4.0, 1.0), (1.0, 5.0), (-3.0, 2.0), (2.0, -4.0))
    clients = fl.Quadratics(linear=optima, weights=(0.6, 0.1, 0.1, 0.1, 0.1))
    algorithm = fl.presets.fedaware(
        rho=1.0, alpha=1.0, rows=rows, lr=0.001, steps=1, batch_size=None, server_lr=server_lr
    )
    work = fl.FixedSteps((1, 2, 3, 4, 5))
    run = fl.Experiment(clients, algorithm, rounds, dtype="float64", work=work).build()
    list(run.train())
    return run, torch.tensor(optima, dtype=torch.float64)


def test_with_raw_rows_it_stops_where_all_clients_count_alike() -> None:
    """λ = 1/N, so that clients count by their work and not by ω, as predicted before the run."""
    run, optima = ending("raw", server_lr=50.0, rounds=400)
    work = torch.arange(1.0, 6.0, dtype=torch.float64)
    assert run.params.tolist() == pytest.approx((work @ optima / work.sum()).tolist(), abs=0.02)
    predicted = run.consistency().predicted
    assert predicted is not None
    assert predicted.weights is not None
    assert predicted.weights.tolist() == pytest.approx((work / work.sum()).tolist())


@pytest.mark.parametrize(("rows", "server_lr"), [("unit", 0.1), ("equal", 20.0)])
def test_with_rows_of_one_length_it_stops_at_the_spatial_median(
    rows: Literal["unit", "equal"], server_lr: float
) -> None:
    """Where the unit vectors to the clients' optima cancel, whatever their weights and work."""
    run, optima = ending(rows, server_lr, rounds=1500)
    pulls = optima - run.params
    assert float((pulls / pulls.norm(dim=1, keepdim=True)).mean(0).norm()) < 0.02
    report = run.consistency()
    assert "spatial median" in str(report)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_draws_by_the_weights_are_those_of_all_orders(size: int) -> None:
    """4,000 cohorts against the enumeration of all draws without replacement; clients without weight come last."""
    shares = np.array([0.5, 0.2, 0.15, 0.1, 0.05, 0.0])
    expected = np.zeros(6)
    positive = 5
    for order in permutations(range(positive)):
        chance, left = 1.0, 1.0
        for client in order:
            chance, left = chance * shares[client] / left, left - shares[client]
            if left < 1e-12:
                break
        expected[list(order[:size])] += chance
    if size > positive:
        expected[5] = 1.0
    uniform = torch.full((6,), 1 / 6, dtype=torch.float64)
    sampler, conditions = fl.WeightFeedback(size), fl.Conditions(0, uniform)
    counts = np.zeros(6)
    for seed in range(4000):
        cohort = sampler.draw({"lambda": torch.from_numpy(shares)}, conditions, fl.Key.from_seed(seed))
        counts[cohort.clients.numpy()] += 1
    error = np.sqrt(expected * (1 - expected).clip(min=0) / 4000)
    assert (np.abs(counts / 4000 - expected) <= 4.5 * error + 1e-12).all()
