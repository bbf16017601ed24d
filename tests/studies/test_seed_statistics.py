"""Intervals over seeds, against tables and closed forms."""

from __future__ import annotations

import math

import pytest

from fairlead.results.estimates import Estimate, estimate, paired_difference, student_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (10, 2.22814), (30, 2.04227)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, abs=6e-5 if freedom == 1 else 6e-6)


def test_quantiles_with_a_closed_form() -> None:
    """P(|T| ≤ t) is (2/π) arctan t for one degree of freedom and t/√(2 + t²) for two."""
    for confidence in (0.5, 0.9, 0.99):
        assert student_quantile(1, confidence) == pytest.approx(math.tan(math.pi * confidence / 2), rel=1e-9)
        exact = math.sqrt(2 * confidence**2 / (1 - confidence**2))
        assert student_quantile(2, confidence) == pytest.approx(exact, rel=1e-9)


def test_an_estimate_by_hand() -> None:
    """1, 2, 3, 4: mean 2.5, s = √(5/3), t₃ = 3.18245, and so 2.5 ± 2.05426."""
    found = estimate([1.0, 2.0, 3.0, 4.0])
    assert found is not None
    assert (found.mean, found.count) == (2.5, 4)
    assert found.std == pytest.approx(math.sqrt(5 / 3))
    assert found.half_width == pytest.approx(3.18245 * math.sqrt(5 / 3) / 2, abs=1e-5)
    assert (found.low, found.high) == pytest.approx((2.5 - 2.05426, 2.5 + 2.05426), abs=1e-5)
    assert found.excludes_zero


def test_what_has_no_interval() -> None:
    assert estimate([]) is None
    assert estimate([0.5]) == Estimate(0.5, None, None, 1)
    assert estimate([0.5]).excludes_zero is None  # type: ignore[union-attr]
    assert estimate([math.inf, 1.0]) == Estimate(math.inf, None, None, 2)
    assert estimate([2.0, 2.0]) == Estimate(2.0, 0.0, 0.0, 2)


def test_pairs_take_away_the_luck_of_the_seed() -> None:
    """Seeds move both methods by ±10, the method itself moves them by 1, 2 and 3: only pairs see that."""
    first = {0: 10.0, 1: -10.0, 2: 0.0}
    second = {2: 3.0, 0: 11.0, 1: -8.0, 7: 100.0}
    found = paired_difference(second, first)
    assert found is not None
    assert (found.mean, found.count) == (2.0, 3)
    assert found.half_width == pytest.approx(4.30265 / math.sqrt(3), abs=1e-5)
    assert not found.excludes_zero
    assert paired_difference({5: 1.0}, first) is None


def test_two_differences_that_agree_say_nothing_of_the_noise() -> None:
    """0.7 − 0.6 and 0.4 − 0.3 differ by a rounding error alone; three that agree are taken for evidence."""
    first, second = {0: 0.7, 1: 0.4, 2: 0.2}, {0: 0.6, 1: 0.3, 2: 0.1}
    pair = paired_difference({seed: first[seed] for seed in (0, 1)}, second)
    triple = paired_difference(first, second)
    assert pair is not None
    assert (pair.half_width, pair.excludes_zero, pair.too_few) == (
        None,
        None,
        "only two seeds with equal differences",
    )
    assert triple is not None
    assert triple.excludes_zero
