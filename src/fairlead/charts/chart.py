"""The chart value: series, axes and scales for the page and for figures; and charts of characters for a terminal."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fairlead.results.estimates import NumberKind

BANDS_AT_ONCE = 6
"""Most series of a chart that all show their intervals."""
MARKERS_SHOWN = 6
"""Approximate number of markers on a curve."""
NUM_COLORS = 7
NUM_MARKERS = 7
_DASHES = ("", "6 3", "2 2.5")
_DECADES = 1.0
"""Orders of magnitude from which an axis may be logarithmic."""


@dataclass(frozen=True)
class AxisScale:
    """Maps [low, high] onto [0, 1], evenly or by logarithm."""

    low: float
    high: float
    logarithmic: bool = False

    @classmethod
    def fitted(
        cls,
        values: Iterable[float],
        *,
        logarithmic: bool = False,
        bounds: tuple[float, float] = (-math.inf, math.inf),
        margin: float = 0.04,
    ) -> Self:
        """A scale for the finite values with a little room, within `bounds`.

        Logarithmic only if all values are positive and span an order of magnitude.
        """
        known = [value for value in values if math.isfinite(value)]
        if not known:
            return cls(0.0, 1.0)
        low, high = min(known), max(known)
        if logarithmic and low > 0 and math.log10(high / low) >= _DECADES:
            room = (high / low) ** margin
            return cls(low / room, high * room, logarithmic=True)
        # A single value is the middle of a scale from zero to twice the value, which has round ticks.
        room = (high - low) * margin if high > low else abs(high) or 1.0
        ends = max(low - room, bounds[0]), min(high + room, bounds[1])
        return cls(*ends) if ends[0] < ends[1] else cls(low - room, high + room)

    @classmethod
    def of_ratios(cls, ratios: Iterable[float]) -> Self:
        """A logarithmic scale around 1 that shows factors up to 100 either way."""
        known = [min(max(ratio, 0.01), 100.0) for ratio in ratios if ratio >= 0]
        reach = max([1.5, *(max(ratio, 1 / ratio) for ratio in known)]) * 1.05
        return cls(1 / reach, reach, logarithmic=True)

    def at(self, value: float) -> float:
        """The position of a value; values outside [low, high] lie outside [0, 1]."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, 1e-300))
        return (value - low) / ((high - low) or 1.0)

    def kept(self, value: float) -> float:
        """The value, or the end of the scale that it lies beyond."""
        return min(max(value, self.low), self.high)

    def ticks(self, count: int = 5) -> list[float]:
        """About `count` round values within the scale."""
        return self._decades(count) if self.logarithmic else self._steps(count)

    def _steps(self, count: int) -> list[float]:
        step = round_step((self.high - self.low) / max(count, 1))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        # Multiples of the step, not sums: 0.30000000000000004 is no tick.
        return [float(f"{number * step:.12g}") for number in range(first, last + 1)]

    def _decades(self, count: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        if last - first < 2:
            every = [m * 10.0**power for power in range(first - 1, last + 1) for m in (1, 2, 5)]
            within = [value for value in every if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]
            return within if len(within) > 2 else self._steps(count)
        stride = -(-(last - first + 1) // count)
        return [10.0**power for power in range(first, last + 1, stride)]


def round_step(least: float) -> float:
    """The next of … 0.1, 0.2, 0.5, 1, 2, 5, 10 … that is at least `least`."""
    if not least > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= least * (1 - 1e-9))


@dataclass(frozen=True)
class LineStyle:
    """Color, dashes and marker of a series, by its place: no two of the first 49 share color and marker."""

    place: int

    @property
    def color(self) -> int:
        return self.place % NUM_COLORS

    @property
    def dash(self) -> str:
        """Lengths of dashes and gaps, as SVG has them; empty for a solid line."""
        return _DASHES[self.place // NUM_COLORS % len(_DASHES)]

    @property
    def marker(self) -> int:
        return (self.place + self.place // NUM_COLORS) % NUM_MARKERS


@dataclass(frozen=True)
class Series:
    """A curve through (x, y) with its interval, or the values of a row."""

    x: tuple[float, ...]
    y: tuple[float, ...] = ()
    """Empty in a row, where the values are x."""
    low: tuple[float, ...] | None = None
    """Ends of the intervals around y, or in a row around x; None where they are unknown."""
    high: tuple[float, ...] | None = None
    label: str = ""
    place: int = 0
    """Its index among the methods of a report, which determines its style."""
    texts: tuple[str, ...] = ()
    """Tooltips of the values of a row; empty where values are not drawn one by one."""
    joined: bool = True
    """Whether a line joins the points of a curve."""
    seeds: tuple[tuple[float, ...], ...] = ()
    """y of every run, where the curve is the mean of several."""

    @property
    def style(self) -> LineStyle:
        return LineStyle(self.place)

    @property
    def is_point(self) -> bool:
        """Whether there is one position only, and so no line to draw."""
        return len(self.x) == 1


@dataclass(frozen=True)
class ChartAxis:
    """A scale with its title and the kind of its numbers."""

    title: str
    scale: AxisScale
    kind: NumberKind = "number"

    @property
    def ticks(self) -> list[float]:
        """Round values within the scale; of counts, whole ones."""
        return [tick for tick in self.scale.ticks() if self.kind != "count" or tick.is_integer()]


@dataclass(frozen=True)
class Chart:
    """Curves on two axes, or rows that share one."""

    title: str
    x: ChartAxis
    y: ChartAxis | None
    """None: every series is a row, and values beyond the ends of x are drawn there."""
    series: tuple[Series, ...]
    mark: float | None = None
    """A reference value on y, or on x in rows."""

    def row(self, place: int) -> Series:
        """The series of the method at a place of the report."""
        return next(series for series in self.series if series.place == place)

    @property
    def crowded(self) -> bool:
        """Whether there are too many series to show all their intervals."""
        return len(self.series) > BANDS_AT_ONCE


Points = Sequence[tuple[float, float]]
"""(x, y) of a curve, with ascending x."""
_BLANK = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille character for the dots of its two columns, from the top."""
_LEVELS = "▁▂▃▄▅▆▇█"


def draw_line(points: Points, *, width: int = 60, height: int = 8) -> str:
    """A curve in braille dots; empty if fewer than two points are finite."""
    known = _finite(points)
    if len(known) < 2:
        return ""
    low, high = min(y for _, y in known), max(y for _, y in known)
    down = AxisScale(high, low)
    cells = [[_BLANK] * width for _ in range(height)]
    former: int | None = None
    for column, value in enumerate(_sampled(known, 2 * width)):
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
    first, last = f"{known[0][0]:g}", f"{known[-1][0]:g}"
    return "\n".join([*lines, f"{'':>{margin}}  {first}{last:>{width - len(first)}}"])


def draw_bars(curves: Mapping[str, Points], *, width: int = 40) -> str:
    """A row of bars for each curve by its label, all on one scale, with its first and last finite value."""
    known = {label: found for label, points in curves.items() if (found := _finite(points))}
    heights = [y for points in known.values() for _, y in points] or [0.0]
    scale, margin = AxisScale(min(heights), max(heights)), max(map(len, known), default=0)
    rows = []
    for label, points in known.items():
        values = _sampled(points, min(width, len(points)))
        bars = "".join(_LEVELS[round(scale.at(value) * (len(_LEVELS) - 1))] for value in values)
        rows.append(f"{label:<{margin}}  {bars}  {points[0][1]:.4g} to {points[-1][1]:.4g}")
    return "\n".join(rows)


def draw_intervals(intervals: Mapping[str, tuple[float, float]], *, width: int = 48) -> str:
    """Means ± margins by their labels, on one axis with a mark at zero; those that are not finite are left out."""
    known = {label: pair for label, pair in intervals.items() if all(map(math.isfinite, pair))}
    if not known:
        return ""
    ends = [0.0, *(end for mean, margin in known.values() for end in (mean - margin, mean + margin))]
    scale, names = AxisScale(min(ends), max(ends)), max(map(len, known))

    def place(value: float) -> int:
        return round(scale.at(value) * (width - 1))

    rows = []
    for name, (mean, margin) in known.items():
        first, middle, last = (place(value) for value in (mean - margin, mean, mean + margin))
        row = [" "] * width
        row[first : last + 1] = "─" * (last + 1 - first)
        row[place(0.0)] = "┼" if first < place(0.0) < last else "┊"
        row[first], row[last], row[middle] = "├", "┤", "●"
        rows.append(f"{name:<{names}}  {''.join(row)}".rstrip())
    axis = [" "] * width
    for value in (0.0, scale.low, scale.high):
        label = f"{value:+.3g}" if value else "0"
        start = min(max(place(value) - len(label) // 2, 0), width - len(label))
        # An end is left out where it would overlap the zero.
        if not "".join(axis[max(start - 1, 0) : start + len(label) + 1]).strip():
            axis[start : start + len(label)] = label
    return "\n".join([*rows, f"{'':<{names}}  {''.join(axis)}".rstrip()])


def _finite(points: Points) -> Points:
    return [(x, y) for x, y in points if math.isfinite(y)]


def _sampled(points: Points, count: int) -> list[float]:
    """Values at evenly spaced positions, on straight lines between the points."""
    xs, ys = zip(*points, strict=True)
    values: list[float] = np.interp(np.linspace(xs[0], xs[-1], count), xs, ys).tolist()
    return values
