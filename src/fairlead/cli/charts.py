"""Small charts of characters, the same on a terminal and in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

Points = Sequence[tuple[float, float]]

_BLANK = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille character for the dots of its two columns, from the top."""
_LEVELS = "▁▂▃▄▅▆▇█"


def line_chart(points: Points, *, width: int = 60, height: int = 8) -> str:
    """A curve through points with ascending x, in dots of a quarter of a line; empty without two points."""
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if len(points) < 2:
        return ""
    left, right = points[0][0], points[-1][0]
    low, high = min(y for _, y in points), max(y for _, y in points)
    across, down = 2 * width - 1, 4 * height - 1
    cells = [[_BLANK] * width for _ in range(height)]
    former: int | None = None
    for column in range(across + 1):
        x = left + (right - left) * column / across
        row = round((high - _interpolated(points, x)) / ((high - low) or 1) * down)
        # From beside the dot before, so that steep curves have no gaps.
        start = row if former is None or former == row else former + (1 if row > former else -1)
        for dot in range(min(start, row), max(start, row) + 1):
            cells[dot // 4][column // 2] |= _DOTS[column % 2][dot % 4]
        former = row
    labels = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
    margin = max(map(len, labels))
    lines = [
        f"{label:>{margin}} ┤{''.join(map(chr, row))}".rstrip(chr(_BLANK))
        for label, row in zip(labels, cells, strict=True)
    ]
    first, last = f"{left:g}", f"{right:g}"
    return "\n".join([*lines, f"{'':>{margin}}  {first}{last:>{width - len(first)}}"])


def sparklines(curves: Mapping[str, Points], *, width: int = 40) -> str:
    """A row of bars for each curve, all on one scale, with its first and last value."""
    curves = {name: [(x, y) for x, y in points if math.isfinite(y)] for name, points in curves.items()}
    curves = {name: points for name, points in curves.items() if points}
    values = [y for points in curves.values() for _, y in points]
    if not values:
        return ""
    low, high = min(values), max(values)
    margin = max(map(len, curves))
    rows = []
    for name, points in curves.items():
        left, right = points[0][0], points[-1][0]
        wide = min(width, len(points))
        heights = [_interpolated(points, left + (right - left) * (n / max(wide - 1, 1))) for n in range(wide)]
        bars = "".join(_LEVELS[round((y - low) / ((high - low) or 1) * (len(_LEVELS) - 1))] for y in heights)
        rows.append(f"{name:<{margin}}  {bars}  {points[0][1]:.4g} to {points[-1][1]:.4g}")
    return "\n".join(rows)


def interval_chart(intervals: Mapping[str, tuple[float, float]], *, width: int = 48) -> str:
    """Differences with their margins, one in a row, on one axis with its zero marked.

    Empty where there is nothing finite to show.
    """
    shown = {
        name: (mean, margin)
        for name, (mean, margin) in intervals.items()
        if math.isfinite(mean) and math.isfinite(margin)
    }
    if not shown:
        return ""
    low = min(0.0, *(mean - margin for mean, margin in shown.values()))
    high = max(0.0, *(mean + margin for mean, margin in shown.values()))
    names = max(map(len, shown))

    def place(value: float) -> int:
        return round((value - low) / ((high - low) or 1) * (width - 1))

    rows = []
    for name, (mean, margin) in shown.items():
        first, middle, last = (place(value) for value in (mean - margin, mean, mean + margin))
        row = [" "] * width
        row[first : last + 1] = "─" * (last + 1 - first)
        row[place(0.0)] = "┼" if first < place(0.0) < last else "┊"
        row[first], row[last], row[middle] = "├", "┤", "●"
        rows.append(f"{name:<{names}}  {''.join(row)}".rstrip())
    axis = [" "] * width
    for value in (0.0, low, high):
        label = f"{value:+.3g}" if value else "0"
        start = min(max(place(value) - len(label) // 2, 0), width - len(label))
        # An end is left out where it would run into zero.
        if not "".join(axis[max(start - 1, 0) : start + len(label) + 1]).strip():
            axis[start : start + len(label)] = label
    return "\n".join([*rows, f"{'':<{names}}  {''.join(axis)}".rstrip()])


def _interpolated(points: Points, x: float) -> float:
    """The value at x on the lines between points."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / ((x1 - x0) or 1)
    return points[-1][1]
