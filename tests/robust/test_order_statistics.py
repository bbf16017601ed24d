"""Weighted medians and trimmed means against their definitions, and how far hostile rows can move them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fairlead.numerics.rows
from fairlead.numerics.rows import weighted_median, weighted_trimmed_mean

Rows = st.lists(
    st.tuples(st.integers(-5, 5), st.integers(1, 6)).map(lambda pair: (float(pair[0]), float(pair[1]))),
    min_size=1,
    max_size=9,
)
"""Values, of which some are equal, with whole weights, of which some add up to exactly half."""


def tensors(rows: list[tuple[float, float]]) -> tuple[torch.Tensor, torch.Tensor]:
    values, weights = torch.tensor(rows, dtype=torch.float64).unbind(1)
    return values[:, None], weights / weights.sum()


@given(Rows)
def test_the_median_is_that_of_repeated_values(rows: list[tuple[float, float]]) -> None:
    """A weight of k is the same as k rows of weight 1, whose median NumPy has."""
    repeated = np.repeat([value for value, _ in rows], [int(weight) for _, weight in rows])
    assert float(weighted_median(*tensors(rows))) == pytest.approx(float(np.median(repeated)), abs=1e-12)


@given(Rows, st.sampled_from([0.1, 0.25, 1 / 3, 0.45]))
def test_the_trimmed_mean_is_that_of_the_middle(rows: list[tuple[float, float]], trim: float) -> None:
    """∫ of the quantile function over (β, 1 − β), here as the mean of 6,000 quantiles at their midpoints."""
    values, shares = tensors(rows)
    order = values[:, 0].argsort()
    edges = shares[order].cumsum(0).numpy()
    points = trim + (1 - 2 * trim) * (np.arange(6000) + 0.5) / 6000
    places = np.searchsorted(edges, points).clip(max=len(rows) - 1)
    expected = float(values[order][places].mean())
    assert float(weighted_trimmed_mean(values, shares, trim)) == pytest.approx(expected, abs=2e-2)


def test_a_quarter_of_eight_equal_rows_is_two_rows() -> None:
    """βm = 2: the paper's trimmed mean of 1, 2, ..., 8 without two at either end is (3 + 4 + 5 + 6)/4."""
    rows = torch.tensor([[8.0], [3.0], [1.0], [5.0], [2.0], [7.0], [4.0], [6.0]], dtype=torch.float64)
    shares = torch.full((8,), 1 / 8, dtype=torch.float64)
    assert float(weighted_trimmed_mean(rows, shares, 0.25)) == pytest.approx(4.5, abs=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lie", [1e30, -1e30, 1e6, 0.0])
def test_a_minority_cannot_leave_the_range_of_the_others(lie: float, dtype: torch.dtype) -> None:
    """Three of ten rows lie: every coordinate stays between the least and the largest of the other seven."""
    generator = np.random.default_rng(0)
    honest = torch.from_numpy(generator.normal(size=(7, 50))).to(dtype)
    rows = torch.cat([torch.full((3, 50), lie, dtype=dtype), honest])
    shares = torch.full((10,), 0.1, dtype=torch.float64)
    for found in (weighted_median(rows, shares), weighted_trimmed_mean(rows, shares, 0.3)):
        assert found.dtype == dtype
        slack = 1e-5
        assert bool(((found >= honest.min(0).values - slack) & (found <= honest.max(0).values + slack)).all())


def test_blocks_of_columns_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 37)))
    shares = torch.tensor([0.1, 0.3, 0.2, 0.15, 0.25], dtype=torch.float64)
    whole = weighted_median(rows, shares), weighted_trimmed_mean(rows, shares, 0.2)
    monkeypatch.setattr(fairlead.numerics.rows, "_BLOCK", 20)
    parts = weighted_median(rows, shares), weighted_trimmed_mean(rows, shares, 0.2)
    for one, other in zip(whole, parts, strict=True):
        assert torch.allclose(one, other, rtol=1e-14, atol=1e-14)
