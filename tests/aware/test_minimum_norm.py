"""The shortest point of a hull, against closed forms, enumeration and the conditions that define it."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from fairlead.numerics import minimum_norm as block_exchange
from fairlead.numerics.minimum_norm import ShortestPoint, shortest_in_box, shortest_in_hull

Array = NDArray[np.float64]
GAP = 1e-11


def gram_of(vectors: Array) -> Tensor:
    return torch.from_numpy(vectors @ vectors.T)


def solve(vectors: Array, start: Tensor | None = None) -> tuple[ShortestPoint, Array]:
    """The solution and its vector d, computed from the vectors themselves."""
    point = shortest_in_hull(gram_of(vectors), start)
    return point, point.weights.numpy() @ vectors


def enumerated(vectors: Array) -> float:
    """‖d*‖² by trying every support: the nearest point of its affine hull, where weights are not negative.

    The nearest point of the affine hull of a_0, ..., a_k is a_0 + By with B = (a_j − a_0), y = −B⁺a_0.
    """
    best = np.inf
    for size in range(1, len(vectors) + 1):
        for support in combinations(range(len(vectors)), size):
            chosen = vectors[list(support)]
            edges = (chosen[1:] - chosen[0]).T
            y = -np.linalg.pinv(edges, rcond=1e-11) @ chosen[0]
            weights = np.append(1 - y.sum(), y)
            if np.all(weights >= -1e-9):
                best = min(best, float(np.sum((weights @ chosen) ** 2)))
    return best


def assert_optimal(vectors: Array, point: ShortestPoint) -> None:
    """λ on the simplex and ⟨v_i, d⟩ ≥ ‖d‖² for all i, up to the gap allowed, from the vectors alone."""
    weights = point.weights.numpy()
    d = weights @ vectors
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.all(weights >= 0)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert point.gap <= GAP
    assert point.squared_norm == pytest.approx(d @ d, rel=1e-9, abs=1e-12 * point.length**2)
    assert np.all(d @ d - vectors @ d <= 1e-10 * lengths * (weights @ lengths) + 1e-300)


# Entries below 1e-6 next to others of order 1 are outside what the enumeration's rank decisions resolve.
entries = st.one_of(
    st.integers(-3, 3).map(float), st.floats(-2.0, 2.0).map(lambda x: x if abs(x) >= 1e-6 else 0.0)
)
vector_sets = st.tuples(st.integers(1, 6), st.integers(1, 5)).flatmap(
    lambda size: st.lists(
        st.lists(entries, min_size=size[1], max_size=size[1]), min_size=size[0], max_size=size[0]
    )
)


@settings(max_examples=300, deadline=None)
@given(vector_sets)
def test_any_small_set_matches_enumeration(rows: list[list[float]]) -> None:
    """Integers give duplicates, zero rows, collinear sets and zero in the hull."""
    vectors = np.array(rows)
    point, _ = solve(vectors)
    assert_optimal(vectors, point)
    assert point.squared_norm == pytest.approx(enumerated(vectors), abs=1e-9 * max(point.length**2, 1e-9))


@settings(max_examples=100, deadline=None)
@given(vector_sets, st.integers(0, 100))
def test_start_does_not_change_the_point(rows: list[list[float]], seed: int) -> None:
    """d is unique, so any guess of the support must lead to it."""
    vectors = np.array(rows)
    guess = torch.from_numpy(np.random.default_rng(seed).random(len(rows)))
    cold, d_cold = solve(vectors)
    for start in (guess, guess * (guess > 0.5), torch.zeros_like(guess), cold.weights):
        warm, d_warm = solve(vectors, start)
        assert_optimal(vectors, warm)
        np.testing.assert_allclose(d_warm, d_cold, atol=1e-6 * max(cold.length, 1e-9))


@settings(max_examples=100, deadline=None)
@given(st.lists(entries, min_size=4, max_size=4))
def test_two_vectors_have_a_closed_form(numbers: list[float]) -> None:
    """λ_1 = clip(⟨v_2, v_2 − v_1⟩/‖v_1 − v_2‖², 0, 1): the foot of the perpendicular on the segment."""
    first, second = np.array(numbers[:2]), np.array(numbers[2:])
    square = float((first - second) @ (first - second))
    if square < 1e-6:
        return
    share = float(np.clip(second @ (second - first) / square, 0, 1))
    expected = share * first + (1 - share) * second
    _, d = solve(np.array([first, second]))
    np.testing.assert_allclose(d, expected, atol=1e-7)


def test_segment_triangle_and_vertex() -> None:
    """Three cases by hand.

    (2, 0), (0, 1): the line x/2 + y = 1 is nearest to the origin at (2/5, 4/5), weights 1/5 and 4/5.
    e_1, 2e_2, 3e_3: orthogonal rows have λ_i ∝ 1/‖v_i‖², here 36 : 9 : 4 of 49, and ‖d‖² = 36/49.
    (1, 1), (3, 1), (1, 4): ⟨v_i, (1, 1)⟩ = 2, 4, 5 ≥ 2, so the first vertex is the point.
    """
    point, d = solve(np.array([[2.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_allclose(point.weights, [0.2, 0.8], atol=1e-15)
    np.testing.assert_allclose(d, [0.4, 0.8], atol=1e-15)
    point, _ = solve(np.diag([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(point.weights * 49, [36, 9, 4], atol=1e-13)
    assert point.squared_norm == pytest.approx(36 / 49, abs=1e-15)
    point, d = solve(np.array([[1.0, 1.0], [3.0, 1.0], [1.0, 4.0]]))
    np.testing.assert_array_equal(point.weights, [1.0, 0.0, 0.0])
    assert (point.support, point.gap) == (1, 0.0)


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape)


CASES: dict[str, Array] = {
    "one": normal(1, 4),
    "opposite": np.array([[1.0, 0.0], [-1.0, 0.0]]),
    "all equal": np.ones((30, 4)),
    "duplicates": np.tile(normal(10, 6) + 1, (5, 1)),
    "near duplicates": np.tile(normal(10, 6) + 1, (5, 1)) + 1e-8 * normal(50, 6),
    "nearer duplicates": np.tile(normal(10, 6) + 1, (5, 1)) + 1e-12 * normal(50, 6),
    "rank 3 of 200": normal(200, 3) @ normal(3, 40) + 3 * normal(1, 40),
    "zero inside, rank 3": normal(100, 3) @ normal(3, 20),
    "more vectors than dimensions": normal(150, 60),
    "more vectors, one side": normal(150, 60) + normal(1, 60),
    "large support": normal(120, 2000),
    "small support": normal(300, 400) + normal(1, 400),
    "scales over 12 decades": (normal(80, 30) + 1) * 10.0 ** np.linspace(-6, 6, 80)[:, None],
    "scales, independent": normal(40, 500) * 10.0 ** np.linspace(-3, 3, 40)[:, None],
    "tiny": 1e-140 * (normal(20, 10) + 1),
    "huge": 1e140 * (normal(20, 10) + 1),
}


@pytest.mark.parametrize("near", [0.0, 0.125, 2.0])
@pytest.mark.parametrize("vectors", CASES.values(), ids=CASES.keys())
def test_hard_sets(vectors: Array, near: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What servers meet: repeated, dependent, many, canceling and wildly scaled updates.

    Supports are factorized always, where an eighth of one has changed, and only where a solution does not hold.
    """
    monkeypatch.setattr(block_exchange, "_NEAR", near)
    monkeypatch.setattr(block_exchange, "_SMALL", 0)
    point, _ = solve(vectors)
    assert_optimal(vectors, point)
    moved = vectors.copy()
    moved[:3] = 0.5 * moved[:3] + 0.5 * moved[::-1][:3]
    warm, _ = solve(moved, point.weights)
    assert_optimal(moved, warm)


def test_one_zero_row_makes_the_point_zero() -> None:
    vectors = np.vstack([normal(5, 3) + 4, np.zeros((2, 3))])
    point, d = solve(vectors)
    np.testing.assert_array_equal(d, np.zeros(3))
    np.testing.assert_array_equal(point.weights, [0, 0, 0, 0, 0, 0.5, 0.5])
    assert point.is_zero
    assert not solve(vectors[:5])[0].is_zero


def test_zero_inside_the_hull_is_recognized() -> None:
    """A simplex around the origin: e_1, ..., e_d and minus their sum cancel with equal weights."""
    vectors = np.vstack([np.eye(6), -np.ones((1, 6))])
    point, _ = solve(vectors)
    assert point.is_zero
    np.testing.assert_allclose(point.weights, 1 / 7, atol=1e-14)


def test_order_of_the_vectors_does_not_matter() -> None:
    vectors = normal(60, 40) + 0.3
    order = np.random.default_rng(0).permutation(60)
    point, _ = solve(vectors)
    shuffled, _ = solve(vectors[order])
    np.testing.assert_allclose(shuffled.weights, point.weights.numpy()[order], atol=1e-12)


def enumerated_in_box(vectors: Array, low: Array, high: Array) -> float:
    """‖d*‖² by trying every set of active bounds; on each, equality-constrained least squares."""
    best, gram = np.inf, vectors @ vectors.T
    for face in product((0, 1, 2), repeat=len(vectors)):
        free = [i for i, place in enumerate(face) if place == 2]
        weights = np.where(np.array(face) == 0, low, high)
        weights[free] = 0.0
        size = len(free)
        system = np.block([[gram[np.ix_(free, free)], np.ones((size, 1))], [np.ones((1, size)), 0.0]])
        right = np.append(-(gram @ weights)[free], 1 - weights.sum())
        weights[free] = (np.linalg.pinv(system, rcond=1e-11) @ right)[:size]
        inside = np.all(weights >= low - 1e-9) and np.all(weights <= high + 1e-9)
        if inside and abs(weights.sum() - 1) < 1e-9:
            best = min(best, float(weights @ gram @ weights))
    return best


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda n: st.tuples(
            st.lists(st.tuples(*[st.integers(-3, 3)] * 3), min_size=n, max_size=n),
            st.lists(st.integers(1, 5), min_size=n, max_size=n),
        )
    ),
    st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0]),
)
def test_box_matches_enumeration(drawn: tuple[list[tuple[int, ...]], list[int]], epsilon: float) -> None:
    vectors, prior = np.array(drawn[0], dtype=float), np.array(drawn[1]) / sum(drawn[1])
    low, high = np.maximum(prior - epsilon, 0), np.minimum(prior + epsilon, 1)
    point = shortest_in_box(gram_of(vectors), torch.from_numpy(low), torch.from_numpy(high))
    weights = point.weights.numpy()
    assert np.all((weights >= low - 1e-15) & (weights <= high + 1e-15))
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert point.gap <= GAP
    scale = max(float((vectors**2).sum(1).max()), 1.0)
    assert point.squared_norm == pytest.approx(enumerated_in_box(vectors, low, high), abs=1e-10 * scale)


def test_box_by_hand() -> None:
    """e_1 and 2e_2 want λ = (4/5, 1/5); within 0.1 of (½, ½) the first goes up to 0.6 and no further.

    ‖d‖² = 0.6² + 4·0.4² = 1.
    """
    half = torch.full((2,), 0.5, dtype=torch.float64)
    point = shortest_in_box(gram_of(np.diag([1.0, 2.0])), half - 0.1, half + 0.1)
    np.testing.assert_allclose(point.weights, [0.6, 0.4], atol=1e-15)
    assert point.squared_norm == pytest.approx(1.0, abs=1e-14)


def test_widest_box_is_the_simplex() -> None:
    vectors = normal(40, 25) + 0.2
    everything = torch.ones(40, dtype=torch.float64)
    boxed = shortest_in_box(gram_of(vectors), 0 * everything, everything)
    assert boxed.squared_norm == pytest.approx(solve(vectors)[0].squared_norm, rel=1e-11)
    assert boxed.gap <= GAP
