"""Krum and the geometric median against definitions in NumPy and SciPy, with hostile rows of any size."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import fairlead as fl
from fairlead.numerics.rows import squared_distances
from fairlead.testing.rounds import make_updates

Array = NDArray[np.float64]


def aggregate(part: fl.Aggregator, rows: Array, weights: Array | None = None) -> fl.Aggregate:
    importance = torch.from_numpy(np.full(len(rows), 1 / len(rows)) if weights is None else weights)
    everyone = list(range(len(rows)))
    updates = make_updates(everyone, everyone, importance, torch.from_numpy(rows))
    return part.aggregate(updates, {}, fl.Conditions(0, importance))


def rows_of(seed: int, clients: int, dim: int) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    weights = generator.uniform(0.2, 1.0, clients)
    return generator.normal(size=(clients, dim)), weights / weights.sum()


def test_distances_are_those_of_numpy() -> None:
    rows, _ = rows_of(0, 9, 40)
    expected = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    np.testing.assert_allclose(squared_distances(torch.from_numpy(rows)).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("hostile", [0.0, 0.1, 0.2, 0.3])
def test_krum_is_the_row_whose_nearest_group_is_closest(seed: int, hostile: float) -> None:
    """The least sum over all groups of m − f − 2 others, by trying every group."""
    rows, weights = rows_of(seed, 10, 4)
    size = 10 - round(10 * hostile) - 2
    squares = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    scores = [
        min(sum(squares[i, list(group)]) for group in combinations([j for j in range(10) if j != i], size))
        for i in range(10)
    ]
    found = aggregate(fl.Krum(hostile), rows, weights)
    np.testing.assert_allclose(found.direction.numpy(), rows[int(np.argmin(scores))], atol=1e-12)
    three = np.argsort(scores)[:3]
    several = aggregate(fl.Krum(hostile, keep=3), rows, weights).direction
    np.testing.assert_allclose(several.numpy(), np.average(rows[three], 0, weights[three]), atol=1e-12)


def test_krum_without_hostile_clients_is_the_mean() -> None:
    """`Krum`: "Reduces to `WeightedMean` for `hostile` = 0 and `keep` = None.\""""
    rows, weights = rows_of(1, 6, 5)
    many, mean = (
        aggregate(part, rows, weights).direction for part in (fl.Krum(0.0, None), fl.WeightedMean())
    )
    assert torch.allclose(many, mean, atol=1e-14)


@pytest.mark.parametrize("seed", range(6))
def test_the_geometric_median_is_scipys(seed: int) -> None:
    """The sum of weighted distances cannot be lowered by SciPy's minimizer, from the mean or from our point."""
    optimize = pytest.importorskip("scipy.optimize")
    rows, weights = rows_of(seed, 7, 3)

    def cost(z: Array) -> float:
        return float(weights @ np.linalg.norm(rows - z, axis=1))

    found = aggregate(fl.GeometricMedian(), rows, weights).direction.numpy()
    best = optimize.minimize(cost, weights @ rows, method="BFGS", options={"gtol": 1e-10}).x
    assert cost(found) <= cost(best) + 1e-12
    np.testing.assert_allclose(found, best, atol=1e-5)


def test_a_heavy_row_is_the_geometric_median() -> None:
    """More than half of the weight: no other row pulls away from it."""
    rows, _ = rows_of(3, 5, 4)
    weights = np.array([0.1, 0.6, 0.1, 0.1, 0.1])
    found = aggregate(fl.GeometricMedian(), rows, weights).direction.numpy()
    np.testing.assert_allclose(found, rows[1], atol=1e-5)


def test_smoothing_above_all_distances_is_the_mean() -> None:
    """`GeometricMedian`: "to `WeightedMean` for ν above all distances.\""""
    rows, weights = rows_of(4, 6, 4)
    wide, mean = (aggregate(p, rows, weights).direction for p in (fl.GeometricMedian(1e3), fl.WeightedMean()))
    assert torch.allclose(wide, mean, atol=1e-14)


@pytest.mark.parametrize("lie", [1e30, -1e12, 1e6, 0.0])
@pytest.mark.parametrize("part", [fl.Krum(0.3), fl.Krum(0.3, None), fl.GeometricMedian()], ids=repr)
def test_three_of_ten_liars_stay_without_effect(part: fl.Aggregator, lie: float) -> None:
    """The honest rows are near (5, ..., 5) with a spread of 1: so is the direction, whatever is sent."""
    honest = 5 + np.random.default_rng(0).normal(size=(7, 20))
    rows = np.concatenate([np.full((3, 20), lie), honest])
    found = aggregate(part, rows).direction.numpy()
    middle = honest.mean(0)
    assert np.linalg.norm(found - middle) < 2 * np.linalg.norm(honest - middle, axis=1).max()


def test_the_direction_does_not_depend_on_the_order_of_two() -> None:
    """Two equal clients: every point between them is a median, and we take the middle."""
    rows = np.array([[0.0, 0.0], [2.0, 4.0]])
    assert aggregate(fl.GeometricMedian(), rows).direction.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: fl.Krum(0.5), r"Krum\.hostile must be"),
        (lambda: fl.Krum(0.2, 0), r"Krum\.keep must be"),
        (lambda: fl.GeometricMedian(0.0), r"GeometricMedian\.smoothing must be"),
        (lambda: fl.Extrapolation(0.0), r"Extrapolation\.eps must be"),
    ],
)
def test_refused(build: object, told: str) -> None:
    assert callable(build)
    with pytest.raises(fl.errors.FieldError, match=told):
        build()
