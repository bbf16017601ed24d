"""Where commands write: results to standard output, progress to standard error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

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


_PIPED_WIDTH = 140
"""Columns of tables that go to a file or another program, where there is no window to ask."""

INTERRUPTED = 130
"""Exit status of a command stopped by Ctrl-C, as shells have it."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def console(*, stderr: bool = False) -> Console:
    """A console that writes plain text without control characters unless it is a terminal."""
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _PIPED_WIDTH
    return made


def say(text: str = "") -> None:
    """Print text as it is; long lines are left to the terminal."""
    console().print(text, soft_wrap=True)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print a table; the columns in `numbers` are aligned to the right.

    Of those in `spare` the first ones are left out where a terminal is too narrow for all, and a line says so.
    """
    target = console()
    left_out = _without_room(columns, rows, spare, target.width)
    kept = [place for place, column in enumerate(columns) if column not in left_out]
    columns, rows = [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, column in enumerate(columns):
        table.add_column(
            column, justify="right" if column in numbers else "left", no_wrap=position == 0, overflow="fold"
        )
    for row in rows:
        table.add_row(*map(Text, row))
    if target.is_terminal:
        target.print(table)
        if left_out:
            names = ", ".join(column.replace("\n", " ") for column in left_out)
            say(f"No room for {names}: widen the terminal, or see --json.")
        return
    with target.capture() as captured:
        target.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def _without_room(
    columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str], width: int
) -> list[str]:
    """Of the columns that can be spared, the first ones without which the others fit."""
    widths = [
        max(len(line) for text in texts for line in text.split("\n")) + 2
        for texts in zip(columns, *rows, strict=True)
    ]
    left_out: list[str] = []
    for column in spare:
        if sum(wide for name, wide in zip(columns, widths, strict=True) if name not in left_out) <= width:
            break
        if column in columns:
            left_out.append(column)
    return left_out


def print_json(data: Any) -> None:
    """Print data as strict JSON: infinities and NaN as strings."""
    from fairlead.experiments.record_io import strict

    typer.echo(json.dumps(strict(data), indent=2, allow_nan=False, ensure_ascii=False))
