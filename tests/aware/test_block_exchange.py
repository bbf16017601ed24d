"""Supports solved by the factor of another one, against systems solved by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from fairlead.numerics import minimum_norm as block_exchange
from fairlead.numerics.minimum_norm import Border, Corral, exchanged_in_blocks, shortest_in_hull

Array = NDArray[np.float64]


def gram_of(num_vectors: int, dim: int, seed: int) -> Tensor:
    """Products of normal vectors with a common part, of lengths that differ by a factor of ten."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(num_vectors, dim)) + 0.3 * rng.normal(size=dim)
    vectors *= 10.0 ** rng.uniform(-0.5, 0.5, size=(num_vectors, 1))
    return torch.from_numpy(vectors @ vectors.T)


def affine_weights(gram: Tensor, support: Tensor) -> Array:
    """λ of the shortest point of an affine hull: Gλ = ν1 with Σ λ = 1, bordered by the multiplier ν."""
    inside = support.nonzero()[:, 0].numpy()
    size = len(inside)
    system = np.ones((size + 1, size + 1))
    system[:size, :size], system[size, size] = gram.numpy()[np.ix_(inside, inside)], 0.0
    weights = np.zeros(len(gram))
    weights[inside] = np.linalg.solve(system, np.append(np.zeros(size), 1.0))[:size]
    return weights


def border_around(gram: Tensor, support: Tensor) -> Border:
    corral = Corral(gram)
    assert corral.assign(support.nonzero()[:, 0])
    return Border(corral, support)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(0, 1000), st.lists(st.floats(0.05, 0.6), min_size=1, max_size=5))
def test_any_support_is_solved_by_one_factor(num_vectors: int, seed: int, shares: list[float]) -> None:
    """Vectors join, leave and come back; what is not of the support has no weight at all."""
    gram = gram_of(num_vectors, 2 * num_vectors + 3, seed)
    generator = torch.Generator().manual_seed(seed)
    base = torch.rand(num_vectors, generator=generator) < 0.6
    base[0] = True
    border = border_around(gram, base)
    for share in (*shares, 0.0):
        support = base ^ (torch.rand(num_vectors, generator=generator) < share)
        support[seed % num_vectors] = True
        weights = border.weights(support)
        np.testing.assert_allclose(weights, affine_weights(gram, support), rtol=1e-9, atol=1e-11)
        assert not weights[~support].any()
    np.testing.assert_allclose(border.weights(base), affine_weights(gram, base), rtol=1e-9, atol=1e-11)


def test_a_column_is_found_once() -> None:
    """1 leaves and 8 joins; then 1 is back and 2 leaves: three columns in all."""
    gram, base = gram_of(10, 30, 0), torch.arange(10) < 6
    border = border_around(gram, base)
    for changed, known in (([1, 8], 2), ([8, 2], 3), ([1, 2, 8], 3), ([], 3)):
        support = base.clone()
        support[changed] ^= True
        np.testing.assert_allclose(border.weights(support), affine_weights(gram, support), atol=1e-12)
        assert len(border.columns) == known


@contextmanager
def bordered(near: float) -> Iterator[list[int]]:
    """Factorise again only when more than this share of a support has changed; yields the sizes factorized."""
    sizes: list[int] = []
    assign = Corral.assign

    def counted(corral: Corral, members: Tensor) -> bool:
        sizes.append(len(members))
        return assign(corral, members)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_exchange, "_NEAR", near)
        patch.setattr(block_exchange, "_SMALL", 0)
        patch.setattr(Corral, "assign", counted)
        yield sizes


@pytest.mark.parametrize("seed", range(4))
def test_exchanges_follow_the_same_path_with_one_factor_as_with_many(seed: int) -> None:
    gram = gram_of(150, 1500, seed)
    guess = torch.rand(150, generator=torch.Generator().manual_seed(seed)) < 0.8
    with bordered(near=0.0) as many:
        expected = exchanged_in_blocks(gram, guess)
    with bordered(near=2.0) as one:
        found = exchanged_in_blocks(gram, guess)
    assert expected is not None
    assert found is not None
    assert len(one) == 1 < len(many)
    assert torch.equal(found > 0, expected > 0)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)


def test_large_supports_are_not_factorized_again_for_a_few_exchanges() -> None:
    """Ten of 400 vectors move half way to new ones: the last solution's support is factorized, and no other."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(400, 4000)) + 0.1 * rng.normal(size=4000)
    last = shortest_in_hull(torch.from_numpy(vectors @ vectors.T)).weights
    vectors[:10] = 0.5 * vectors[:10] + 0.5 * rng.normal(size=(10, 4000))
    gram = torch.from_numpy(vectors @ vectors.T)
    with bordered(block_exchange._NEAR) as sizes:
        point = shortest_in_hull(gram, last)
    assert sizes == [int((last > 0).sum())]
    assert point.support != sizes[0]
    assert point.gap < 1e-14


def test_a_solution_that_does_not_hold_is_found_by_a_new_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every solution for a support other than the factorized one is made wrong by up to a thousandth."""
    gram, guess = gram_of(60, 600, 1), torch.arange(60) < 45
    expected = exchanged_in_blocks(gram, guess)
    solve = Border.weights

    def wrong(border: Border, support: Tensor) -> Tensor:
        exact = solve(border, support)
        return exact if torch.equal(support, border.base) else exact * torch.linspace(1, 1.001, 60)

    monkeypatch.setattr(Border, "weights", wrong)
    with bordered(near=2.0) as sizes:
        found = exchanged_in_blocks(gram, guess)
    assert expected is not None
    assert found is not None
    assert len(sizes) > 1
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(2, 7).flatmap(
        lambda n: st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=n, max_size=n)
    ),
    st.integers(0, 127),
)
def test_dependent_vectors_end_at_the_same_point(rows: list[list[int]], guess: int) -> None:
    """Duplicates, zeros and collinear rows make the bordered system singular; d is unique all the same."""
    vectors = np.array(rows, dtype=float)
    gram = torch.from_numpy(vectors @ vectors.T)
    start = torch.tensor([float(guess >> i & 1) for i in range(len(rows))], dtype=torch.float64)
    with bordered(near=0.0):
        expected = shortest_in_hull(gram, start)
    with bordered(near=2.0):
        found = shortest_in_hull(gram, start)
    assert found.gap <= 1e-11
    np.testing.assert_allclose(
        found.weights.numpy() @ vectors,
        expected.weights.numpy() @ vectors,
        atol=1e-6 * max(found.length, 1e-9),
    )
