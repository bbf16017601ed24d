"""Scales map values to positions and put ticks at round numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.charts.chart import AxisScale, round_step


def test_an_even_scale() -> None:
    scale = AxisScale(0.0, 1.0)
    assert [scale.at(value) for value in (0.0, 0.25, 1.0)] == [0.0, 0.25, 1.0]
    assert scale.ticks(5) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def test_a_logarithmic_scale() -> None:
    scale = AxisScale(0.01, 100.0, logarithmic=True)
    assert scale.at(1.0) == pytest.approx(0.5)
    assert scale.ticks(5) == pytest.approx([0.01, 0.1, 1.0, 10.0, 100.0])


def test_a_short_logarithmic_scale_has_ticks_between_powers() -> None:
    assert AxisScale(0.4, 6.0, logarithmic=True).ticks() == pytest.approx([0.5, 1.0, 2.0, 5.0])


def test_a_logarithmic_scale_of_a_small_factor_has_even_ticks() -> None:
    assert AxisScale(0.63, 1.58, logarithmic=True).ticks() == pytest.approx([0.8, 1.0, 1.2, 1.4])


@pytest.mark.parametrize(("least", "step"), [(0.11, 0.2), (0.2, 0.2), (3.0, 5.0), (7.0, 10.0), (0.0, 1.0)])
def test_round_steps(least: float, step: float) -> None:
    assert round_step(least) == pytest.approx(step)


def test_bounds_hold_the_room_beside_the_values() -> None:
    scale = AxisScale.fitted([0.0, 1.0], bounds=(0.0, 1.0))
    assert (scale.low, scale.high) == (0.0, 1.0)


def test_a_scale_is_logarithmic_only_where_values_span_an_order_of_magnitude() -> None:
    assert AxisScale.fitted([1.0, 20.0], logarithmic=True).logarithmic
    assert not AxisScale.fitted([1.0, 5.0], logarithmic=True).logarithmic
    assert not AxisScale.fitted([0.0, 20.0], logarithmic=True).logarithmic


@given(st.lists(st.floats(-1e9, 1e9), max_size=5), st.booleans())
def test_values_lie_within_their_scale(values: list[float], logarithmic: bool) -> None:
    scale = AxisScale.fitted([*values, math.inf, math.nan], logarithmic=logarithmic)
    assert scale.high > scale.low
    assert all(-1e-8 <= scale.at(value) <= 1 + 1e-8 for value in values)
    assert 1 <= len(scale.ticks()) <= 12
