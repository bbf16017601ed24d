"""Ends of curves, intervals and spreads, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fairlead.results.curves import Curve, gini, spread, tenth, worst_tenth
from fairlead.results.estimates import estimate, mean_of

VALUES = [0.61, 0.58, 0.67, 0.72]


def test_an_interval_is_students() -> None:
    """Three degrees of freedom leave 2.5 % on either side beyond 3.182446 standard errors."""
    found = estimate(VALUES)
    assert found is not None
    reach = 3.182446305 * np.std(VALUES, ddof=1) / 2
    assert (found.low, found.high) == pytest.approx((np.mean(VALUES) - reach, np.mean(VALUES) + reach))


def test_the_deviation_behind_an_interval() -> None:
    found = estimate(VALUES)
    assert found is not None
    assert found.std == pytest.approx(np.std(VALUES, ddof=1))


def test_one_value_has_no_interval() -> None:
    found = estimate([0.5])
    assert found is not None
    assert (found.low, found.high) == (None, None)
    assert found.std is None


def test_the_mean_of_the_last_rounds_takes_what_was_measured_in_them() -> None:
    """Of 20 rounds the last five are 16 to 20, in which there were evaluations after rounds 18 and 20."""
    curve = Curve((3, 6, 9, 12, 15, 18, 20), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0))
    assert curve.tail_mean(20, 5) == pytest.approx((6.0 + 8.0) / 2)
    assert curve.tail_mean(20, 2) == 8.0
    assert Curve((3,), (1.0,)).tail_mean(20, 5) is None


@pytest.mark.parametrize(("rounds", "last"), [(1, 1), (9, 1), (10, 1), (11, 2), (500, 50)])
def test_a_tenth_of_the_rounds_is_rounded_up(rounds: int, last: int) -> None:
    assert tenth(rounds) == last


def test_best_and_first_at_target() -> None:
    curve = Curve((2, 4, 6, 8), (0.3, 0.7, 0.6, 0.8))
    assert (curve.best(higher=True), curve.best(higher=False)) == (0.8, 0.3)
    assert curve.rounds_to(0.65, higher=True) == 4
    assert curve.rounds_to(0.7, higher=True) == 4
    assert curve.rounds_to(0.9, higher=True) is None
    assert curve.rounds_to(0.3, higher=False) == 2
    assert Curve((), ()).best(higher=True) is None


def test_how_many_rounds_measurements_are_apart() -> None:
    assert [Curve(rounds, (0.0,) * len(rounds)).spacing for rounds in [(), (1, 2), (5,), (2, 4, 7, 8)]] == [
        0,
        1,
        5,
        3,
    ]


def test_the_worst_tenth_of_clients() -> None:
    """Of 25 clients the worst three count; a client without data (NaN) is none of them."""
    values = [place / 25 for place in range(25)]
    assert worst_tenth([*values, float("nan")], higher=True) == pytest.approx((0 + 1 + 2) / 25 / 3)
    assert worst_tenth(values, higher=False) == pytest.approx((24 + 23 + 22) / 25 / 3)
    assert worst_tenth([float("nan")], higher=True) is None


def test_the_spread_over_clients_is_that_of_the_population() -> None:
    assert spread([*VALUES, float("nan")]) == pytest.approx(np.std(VALUES))
    assert spread([]) is None


@pytest.mark.parametrize(
    "values", [(1e308, 1e308), (1e308, -1e308), (np.inf, -np.inf), (1.0, np.inf), (1e200, 0.0)]
)
def test_numbers_of_runs_that_diverged_have_no_interval_and_raise_nothing(
    values: tuple[float, float],
) -> None:
    found = estimate(values)
    assert found is not None
    assert (found.std, found.half_width) == (None, None)
    assert np.isnan(mean_of(values)) or mean_of(values) == sum(values) / 2
    Curve((1, 2), values).tail_mean(2, 2)


def test_gini_is_half_the_relative_mean_difference() -> None:
    values = np.array(VALUES) - min(VALUES)
    differences = np.abs(values[:, None] - values).mean()
    assert gini([*values, float("nan")]) == pytest.approx(differences / (2 * values.mean()))
    assert gini([3.0, 3.0, 3.0]) == pytest.approx(0)
    assert gini([0.0, 0.0, 0.0, 5.0]) == pytest.approx(3 / 4)
    assert gini([0.0, 0.0]) == 0
    assert gini([]) is None
    assert gini([1.0, -0.1]) is None
