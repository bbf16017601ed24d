"""Charts of characters."""

import numpy as np

from fairlead.charts.chart import Chart, Scale, Series

_BLANK = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille character for the dots of its two columns, from the top."""
_LEVELS = "▁▂▃▄▅▆▇█"


def draw_line(chart: Chart, *, width: int = 60, height: int = 8) -> str:
    """The first curve in braille dots; empty if it has fewer than two points."""
    if not chart.series or chart.series[0].is_point or chart.y is None:
        return ""
    left, right = chart.x.scale.low, chart.x.scale.high
    low, high = chart.y.scale.low, chart.y.scale.high
    down = Scale(high, low)
    cells = [[_BLANK] * width for _ in range(height)]
    former: int | None = None
    for column, value in enumerate(_sampled(chart.series[0], 2 * width)):
        row = round(down.at(value) * (4 * height - 1))
        # Starts beside the previous dot, so that steep curves have no gaps.
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


def draw_bars(chart: Chart, *, width: int = 40) -> str:
    """A row of bars for each curve, all on one scale, with its first and last value."""
    if chart.y is None:
        return ""
    margin = max((len(curve.label) for curve in chart.series), default=0)
    rows = []
    for curve in chart.series:
        values = _sampled(curve, min(width, len(curve.x)))
        bars = "".join(_LEVELS[round(chart.y.scale.at(value) * (len(_LEVELS) - 1))] for value in values)
        rows.append(f"{curve.label:<{margin}}  {bars}  {curve.y[0]:.4g} to {curve.y[-1]:.4g}")
    return "\n".join(rows)


def draw_intervals(chart: Chart, *, width: int = 48) -> str:
    """Rows of intervals on one axis with a mark at zero; empty without rows."""
    if not chart.series:
        return ""
    scale, names = chart.x.scale, max(len(row.label) for row in chart.series)

    def place(value: float) -> int:
        return round(scale.at(value) * (width - 1))

    rows = []
    for series in chart.series:
        assert series.low is not None
        assert series.high is not None
        first, middle, last = (place(value) for value in (series.low[0], series.x[0], series.high[0]))
        row = [" "] * width
        row[first : last + 1] = "─" * (last + 1 - first)
        row[place(0.0)] = "┼" if first < place(0.0) < last else "┊"
        row[first], row[last], row[middle] = "├", "┤", "●"
        rows.append(f"{series.label:<{names}}  {''.join(row)}".rstrip())
    axis = [" "] * width
    for value in (0.0, scale.low, scale.high):
        label = f"{value:+.3g}" if value else "0"
        start = min(max(place(value) - len(label) // 2, 0), width - len(label))
        # An end is left out where it would overlap the zero.
        if not "".join(axis[max(start - 1, 0) : start + len(label) + 1]).strip():
            axis[start : start + len(label)] = label
    return "\n".join([*rows, f"{'':<{names}}  {''.join(axis)}".rstrip()])


def _sampled(curve: Series, count: int) -> list[float]:
    """Values at evenly spaced positions, on straight lines between the points."""
    values: list[float] = np.interp(np.linspace(curve.x[0], curve.x[-1], count), curve.x, curve.y).tolist()
    return values
