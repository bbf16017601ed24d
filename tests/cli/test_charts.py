"""Charts of characters, dot by dot where they are small."""

from __future__ import annotations

import math

from fairlead.charts.chart import draw_bars, draw_intervals, draw_line


def test_a_rising_line() -> None:
    """From the lowest left to the highest right dot: 4 × 8 dots in two characters by two lines."""
    chart = draw_line([(0.0, 0.0), (1.0, 7.0)], width=2, height=2).splitlines()
    # Columns 0..3 are at heights 0, 7/3, 14/3 and 7: rows 7, 5, 2 and 0 of 8 from the top, joined.
    assert chart[0] == "7 ┤" + "⠀" + chr(0x2800 + 0x04 + 0x40 + 0x08 + 0x10)
    assert chart[1] == "0 ┤" + chr(0x2800 + 0x40 + 0x10 + 0x20) + chr(0x2800 + 0x01)
    assert chart[2] == "   01"


def test_a_flat_line_and_none_at_all() -> None:
    assert draw_line([(0.0, 2.0), (5.0, 2.0)], width=4).splitlines()[0] == "2 ┤⠉⠉⠉⠉"
    assert draw_line([(0.0, 1.0)]) == draw_line([]) == ""
    assert draw_line([(0.0, 1.0), (1.0, math.inf), (2.0, math.nan)]) == ""


def test_bars_share_one_scale() -> None:
    rows = draw_bars({"low": [(1, 0.0), (2, 3.5)], "b": [(1, 7.0), (2, 7.0)]}).splitlines()
    assert rows == ["low  ▁▅  0 to 3.5", "b    ██  7 to 7"]
    assert draw_bars({"x": [(1, math.nan)]}) == draw_bars({}) == ""


def test_intervals_on_an_axis_with_zero() -> None:
    """Axis from 0 to 10 in 11 places: 5 ± 2 from place 3 to 7, 9 ± 1 from 8 to 10."""
    rows = draw_intervals({"a": (5.0, 2.0), "bc": (9.0, 1.0)}, width=11).splitlines()
    assert rows == ["a   ┊  ├─●─┤", "bc  ┊       ├●┤", "    0       +10"]
    assert draw_intervals({"a": (math.inf, 1.0)}) == ""


def test_an_interval_around_zero_shows_it() -> None:
    """Eleven characters from −9 to 1: zero is the tenth, where +1 finds no room beside it."""
    rows = draw_intervals({"a": (-4.0, 5.0)}, width=11).splitlines()
    assert rows == ["a  ├────●───┼┤", "   -9       0"]
