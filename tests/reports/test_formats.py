"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from fairlead.results.estimates import NumberKind, show, show_difference, show_estimate, show_tick


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0.8125, "share", "81.2 %"),
        (-0.01, "points", "−1.0"),
        (1.5, "factor", "1.50×"),
        (999.0, "bytes", "999 B"),
        (1_250_000.0, "bytes", "1.25 MB"),
        (90.0, "seconds", "90 s"),
        (150.0, "seconds", "2.5 min"),
        (200_000.0, "seconds", "2.31 d"),
        (1234.0, "count", "1,234"),
        (15.2, "count", "15.2"),
        (0.0, "number", "0"),
        (0.00001, "number", "10⁻⁵"),
        (2_500_000.0, "number", "2.5·10⁶"),
        (5e-31, "divergence", "0"),
        (0.673, "divergence", "0.673"),
        (math.inf, "divergence", "∞"),
        (math.inf, "number", "∞"),
        (math.nan, "number", "–"),
        (None, "share", "–"),
    ],
)
def test_values(value: float | None, kind: NumberKind, text: str) -> None:
    assert show(value, kind) == text


@pytest.mark.parametrize(
    ("mean", "half", "kind", "texts"),
    [
        (0.8125, 0.0123, "share", ("81.2 %", "± 1.2")),
        (1.8372, 0.0464, "number", ("1.837", "± 0.046")),
        (6.63, 37.2, "number", ("6.6", "± 37.2")),
        (-0.000002, 0.0282, "number", ("0.0000", "± 0.0282")),
        (-0.004, 0.0282, "number", ("−0.0040", "± 0.0282")),
        (1.8372, None, "number", ("1.84", "")),
        (math.inf, None, "number", ("∞", "")),
        (3.0, 0.0, "number", ("3", "± 0")),
        (1003.3, 236.8, "count", ("1,003", "± 237")),
        (13.33, 7.17, "count", ("13.3", "± 7.2")),
        (150.0, 15.0, "seconds", ("2.50 min", "± 0.25")),
    ],
)
def test_estimates(mean: float, half: float | None, kind: NumberKind, texts: tuple[str, str]) -> None:
    assert show_estimate(mean, half, kind) == texts


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0.041, "share", "+4.1"),
        (-0.041, "share", "−4.1"),
        (0.0004, "share", "0.0"),
        (-1.25, "number", "−1.25"),
    ],
)
def test_differences_have_a_sign_unless_they_vanish(value: float, kind: NumberKind, text: str) -> None:
    assert show_difference(value, kind) == text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0.25, "share", "25 %"),
        (-0.1, "points", "−10"),
        (20_000.0, "count", "20 k"),
        (0.0001, "number", "10⁻⁴"),
        (0.0, "bytes", "0"),
        (2e6, "bytes", "2 MB"),
        (250_000.0, "count", "250 k"),
        (1.5e8, "bytes", "150 MB"),
        (25_000.0, "count", "25 k"),
        (86_400.0 * 120, "seconds", "120 d"),
    ],
)
def test_ticks_are_short(value: float, kind: NumberKind, text: str) -> None:
    assert show_tick(value, kind) == text
