"""Curves with bands, intervals and clients as SVG that needs no script to be read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead.reports.style import Look, Markup, join, tag
from fairlead.results.curves import Axis, Band, Quantity
from fairlead.results.formats import Kind, show, show_estimate, show_tick

_DECADES = 1.0
"""Orders of magnitude from which on an axis is logarithmic, where it may be."""


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] onto [start, end], evenly or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """The position of a value; values outside keep to the line beyond the ends."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, 1e-300))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """About `count` round values within the scale."""
        return self._decades(count) if self.logarithmic else self._steps(count)

    def _steps(self, count: int) -> list[float]:
        step = round_step((self.high - self.low) / max(count, 1))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        # Multiples of the step, not sums of it: 0.30000000000000004 is no tick.
        return [float(f"{number * step:.12g}") for number in range(first, last + 1)]

    def _decades(self, count: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        if last - first < 2:
            mantissas = (1, 2, 5)
            every = [m * 10.0**power for power in range(first - 1, last + 1) for m in mantissas]
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


def fitted(
    values: Iterable[float],
    start: float,
    end: float,
    *,
    logarithmic: bool = False,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    margin: float = 0.04,
) -> Scale:
    """A scale for finite values with a little room, within `bounds`.

    Logarithmic only if all values are positive and span an order of magnitude.
    """
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return Scale(0.0, 1.0, start, end)
    low, high = min(known), max(known)
    if logarithmic and low > 0 and math.log10(high / low) >= _DECADES:
        room = (high / low) ** margin
        return Scale(low / room, high * room, start, end, logarithmic=True)
    if high == low:
        # From zero to twice the value, where it is the middle of an axis with round ticks.
        room = abs(high) or 1.0
    else:
        room = (high - low) * margin
    fitted_low, fitted_high = max(low - room, bounds[0]), min(high + room, bounds[1])
    if fitted_high <= fitted_low:
        return Scale(low - room, high + room, start, end)
    return Scale(fitted_low, fitted_high, start, end)


BANDS_AT_ONCE = 6
"""Methods in view up to which the intervals of all are shaded."""
MARKERS_SHOWN = 6
"""On a curve, about."""

_WIDTH, _HEIGHT = 460.0, 290.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 54.0, 12.0, 10.0, 42.0
_ASIDE = 9.0
"""Between points of the same place."""
_LABEL = 7
"""Characters of a label beside the axis; a longer one would be cut off, and its line says enough."""


def line_chart(
    quantity: Quantity, axis: Axis, curves: Sequence[tuple[int, str, Band]], *, name: str
) -> Markup:
    """Curves of methods, each given by its place in the report and its label; `name` is unique in the page."""
    across = fitted(
        (position for _, _, band in curves for position in band.positions),
        _LEFT,
        _WIDTH - _RIGHT,
        margin=0.02,
        bounds=(0.0, math.inf),
    )
    up = _vertical(quantity, [band for _, _, band in curves])
    words = f"{quantity.title} against {axis.title.lower()} for {', '.join(label for _, label, _ in curves)}"
    drawn = []
    for order, (place, label, band) in enumerate(curves):
        # Side by side, since points of one round would cover each other's intervals.
        aside = _ASIDE * (order - (len(curves) - 1) / 2) if band.is_point else 0.0
        drawn.append(_series(Look(place), label, band, across, up, quantity, axis, aside))
    window = tag(
        "clipPath",
        tag("rect", x=_LEFT, y=_TOP - 4, width=_WIDTH - _LEFT - _RIGHT, height=_HEIGHT - _TOP - _BOTTOM + 8),
        id=f"{name}-window",
    )
    return tag(
        "svg",
        tag("title", words),
        tag("defs", window),
        _frame(across, up, quantity.kind, axis),
        tag("g", drawn, clip_path=f"url(#{name}-window)"),
        class_="chart",
        viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
        role="img",
        aria_label=words,
        data_left=_LEFT,
        data_right=_WIDTH - _RIGHT,
        data_top=_TOP,
        data_bottom=_HEIGHT - _BOTTOM,
    )


def _vertical(quantity: Quantity, bands: Sequence[Band]) -> Scale:
    """The scale of the means, with room for intervals; along curves not for those of two or three wild seeds."""
    means = [mean for band in bands for mean in band.means]
    low, high = min(means), max(means)
    reach = math.inf if all(band.is_point for band in bands) else high - low
    edges = [
        min(max(edge, low - reach / 2), high + reach / 2)
        for band in bands
        for edge in (*(band.lows or ()), *(band.highs or ()))
        if edge > 0 or not quantity.logarithmic
    ]
    positive = quantity.logarithmic and low > 0
    shown = [edge for edge in edges if not positive or edge >= low / 2]
    bounds = (0.0, 1.0) if quantity.kind == "share" else (0.0 if low >= 0 else -math.inf, math.inf)
    return fitted([*means, *shown], _HEIGHT - _BOTTOM, _TOP, logarithmic=quantity.logarithmic, bounds=bounds)


def _frame(across: Scale, up: Scale, kind: Kind, axis: Axis) -> Markup:
    bottom = _HEIGHT - _BOTTOM
    lines, labels = [], []
    for value in up.ticks():
        y = up.at(value)
        lines.append(tag("path", d=f"M{_LEFT:g} {y:.1f}H{_WIDTH - _RIGHT:g}"))
        if len(text := show_tick(value, kind)) <= _LABEL:
            labels.append(tag("text", text, x=_LEFT - 7, y=round(y + 4, 1), text_anchor="end"))
    for value in across.ticks(5):
        x = across.at(value)
        lines.append(tag("path", class_="stub", d=f"M{x:.1f} {bottom:g}v4"))
        labels.append(
            tag("text", show_tick(value, axis.kind), x=round(x, 1), y=bottom + 17, text_anchor="middle")
        )
    title = tag(
        "text",
        axis.title,
        class_="axis",
        x=(_LEFT + _WIDTH - _RIGHT) / 2,
        y=_HEIGHT - 5,
        text_anchor="middle",
    )
    floor = tag("path", class_="floor", d=f"M{_LEFT:g} {bottom:g}H{_WIDTH - _RIGHT:g}")
    return tag("g", lines, floor, labels, title, class_="frame", aria_hidden="true")


def _series(
    look: Look,
    label: str,
    band: Band,
    across: Scale,
    up: Scale,
    quantity: Quantity,
    axis: Axis,
    aside: float,
) -> Markup:
    """A curve or a point with its interval, drawn so far `aside` of where it belongs."""
    places = [across.at(x) + aside for x in band.positions]
    points = [(x, up.at(y)) for x, y in zip(places, band.means, strict=True)]
    texts = []
    for place, mean in enumerate(band.means):
        half = None if band.highs is None else band.highs[place] - mean
        texts.append(" ".join(show_estimate(mean, half, quantity.kind)).strip())
    parts = []
    if band.lows is not None and band.highs is not None:
        edge = [(x, _limited(up, y)) for x, y in zip(places, band.highs, strict=True)]
        back = [(x, _limited(up, y)) for x, y in zip(places, band.lows, strict=True)]
        # The area of a single point has no width, and needs a stroke to be seen.
        classes = "band whisker" if band.is_point else "band"
        parts.append(tag("path", class_=classes, d=_path([*edge, *reversed(back)]) + "z"))
    parts.append(tag("path", class_="line", d=_path(points), stroke_dasharray=look.dash or None))
    parts.append(tag("path", class_="marker", d=_marks(points, look)))
    return tag(
        "g",
        parts,
        class_=look.classes,
        data_method=look.index,
        data_label=label,
        data_x="|".join(show(x, axis.kind) for x in band.positions),
        data_y="|".join(texts),
    )


def _limited(up: Scale, value: float) -> float:
    """Where an interval ends, at most a chart's height outside: SVG readers dislike huge numbers."""
    if up.logarithmic and value <= 0:
        return _HEIGHT * 2
    return min(max(up.at(value), -_HEIGHT), 2 * _HEIGHT)


def _marks(points: Sequence[tuple[float, float]], look: Look) -> str:
    count = len(points)
    if count <= MARKERS_SHOWN:
        chosen: Iterable[int] = range(count)
    else:
        stride = count // MARKERS_SHOWN
        # Methods begin at different points, lest markers of close curves cover each other.
        chosen = range(look.index * 3 % stride, count, stride)
    return "".join(f"M{points[place][0]:.1f} {points[place][1]:.1f}{look.marker}" for place in chosen)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


_ROW_WIDTH, _ROW_HEIGHT, _MARGIN = 400.0, 26.0, 14.0


def interval_scale(values: Iterable[float]) -> Scale:
    """A scale for rows that holds 0."""
    return fitted([0.0, *values], _MARGIN, _ROW_WIDTH - _MARGIN, margin=0.08)


def interval_row(
    look: Look, scale: Scale, value: float | None, low: float | None, high: float | None
) -> Markup:
    """A dot with its interval on one line, against a mark at 0; an arrow head where the interval leaves the row."""
    middle, parts = _ROW_HEIGHT / 2, []
    parts.append(tag("path", class_="zero", d=f"M{scale.at(0):.1f} 0V{_ROW_HEIGHT:g}"))
    if value is not None:
        if low is not None and high is not None:
            left, right = (min(max(scale.at(edge), 0.0), _ROW_WIDTH) for edge in (low, high))
            parts.append(tag("path", class_="interval", d=f"M{left:.1f} {middle:g}H{right:.1f}"))
            if scale.at(low) < 0:
                parts.append(tag("path", class_="beyond", d=f"M0 {middle:g}l9-6v12z"))
            if scale.at(high) > _ROW_WIDTH:
                parts.append(tag("path", class_="beyond", d=f"M{_ROW_WIDTH:g} {middle:g}l-9-6v12z"))
        parts.append(tag("path", class_="marker", d=f"M{scale.at(value):.1f} {middle:g}{look.marker}"))
    return _row(parts, f"row colour-{look.colour}")


def dots_row(
    look: Look, scale: Scale, values: Sequence[float], texts: Sequence[str], *, mark: float | None
) -> Markup:
    """Where clients lie on a scale: the middle half as a box, all of them as a line.

    Each is a dot too if there are `texts` to say what it is. `mark` is a value to compare with. Values
    beyond the ends of the scale are drawn at them.
    """
    places = [_kept(scale, value) for value in values]
    ordered = sorted(places)
    lower, centre, upper = (_quantile(ordered, share) for share in (0.25, 0.5, 0.75))
    middle = _ROW_HEIGHT / 2
    parts = [
        tag("path", class_="reach", d=f"M{ordered[0]:.1f} {middle:g}H{ordered[-1]:.1f}"),
        tag("rect", class_="box", x=round(lower, 1), y=middle - 6, width=round(upper - lower, 1), height=12),
        tag("path", class_="median", d=f"M{centre:.1f} {middle - 8:g}v16"),
    ]
    if mark is not None:
        parts.insert(0, tag("path", class_="zero", d=f"M{scale.at(mark):.1f} 0V{_ROW_HEIGHT:g}"))
    for number, text in enumerate(texts):
        # Neighbours at different heights, lest dots of equal clients cover each other.
        height = middle + (number * 3 % 7 - 3) * 1.8
        parts.append(tag("circle", tag("title", text), cx=round(places[number], 1), cy=height, r=2.2))
    return _row(parts, f"row colour-{look.colour}")


def row_axis(scale: Scale, kind: Kind, title: str) -> Markup:
    """The ticks below a stack of rows."""
    labels = [
        join(
            tag("path", class_="stub", d=f"M{scale.at(value):.1f} 0v4"),
            tag("text", show_tick(value, kind), x=round(scale.at(value), 1), y=16, text_anchor="middle"),
        )
        for value in scale.ticks(5)
    ]
    name = tag("text", title, class_="axis", x=_ROW_WIDTH / 2, y=33, text_anchor="middle")
    line = tag("path", class_="floor", d=f"M0 .5H{_ROW_WIDTH:g}")
    return tag(
        "svg", line, labels, name, class_="row-axis", viewBox=f"0 0 {_ROW_WIDTH:g} 38", aria_hidden="true"
    )


def ratio_scale(ratios: Iterable[float]) -> Scale:
    """A logarithmic scale around 1 that shows factors up to 100 either way."""
    known = [min(max(ratio, 0.01), 100.0) for ratio in ratios if ratio >= 0]
    reach = max([1.5, *(max(ratio, 1 / ratio) for ratio in known)]) * 1.05
    return Scale(1 / reach, reach, _MARGIN, _ROW_WIDTH - _MARGIN, logarithmic=True)


def value_scale(values: Iterable[float], kind: Kind) -> Scale:
    """A scale for rows of plain values."""
    bounds = (0.0, 1.0) if kind == "share" else (-math.inf, math.inf)
    return fitted(values, _MARGIN, _ROW_WIDTH - _MARGIN, bounds=bounds)


def _row(parts: Sequence[Markup], classes: str) -> Markup:
    return tag(
        "svg", parts, class_=classes, viewBox=f"0 0 {_ROW_WIDTH:g} {_ROW_HEIGHT:g}", aria_hidden="true"
    )


def _kept(scale: Scale, value: float) -> float:
    """A position within the row."""
    if scale.logarithmic and value <= 0:
        return scale.start
    return min(max(scale.at(value), scale.start), scale.end)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
