"""Charts as SVG that needs no script to be read: curves with bands, rows of intervals, rows of clients.

Colours are classes, so that the page decides them for light, dark and paper. A method is told by its colour
(seven that colour-blind readers can tell apart), its dashes and its marker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead.reports.curves import Axis, Band, Quantity
from fairlead.reports.formats import Kind, show, show_estimate, show_tick
from fairlead.reports.markup import Markup, join, tag
from fairlead.reports.scales import Scale, fitted

NUM_COLOURS = 7
DASHES = ("", "6 3", "2 2.5")
_MARKERS = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.6 3.4 6h-6.8z",
    "m0-3.8 3.8 3.8-3.8 3.8-3.8-3.8z",
    "m0 3.6 3.4-6h-6.8z",
    "m-1-3.4h2v2.4h2.4v2h-2.4v2.4h-2v-2.4h-2.4v-2h2.4z",
    "m-3.4-1.7h6.8v3.4h-6.8z",
)
"""Shapes around a point, as the rest of a path that has moved there."""

_WIDTH, _HEIGHT = 460.0, 290.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 54.0, 12.0, 10.0, 42.0
_LABEL = 7
"""Characters of a label beside the axis; a longer one would be cut off, and its line says enough."""
_MARKERS_SHOWN = 6
_ROW_WIDTH, _ROW_HEIGHT, _ROW_MARGIN = 400.0, 26.0, 14.0


@dataclass(frozen=True)
class Look:
    """How a method is drawn: a colour, a kind of dashes and a marker, by its place in the report."""

    index: int

    @property
    def colour(self) -> int:
        return self.index % NUM_COLOURS

    @property
    def dash(self) -> str:
        return DASHES[self.index // NUM_COLOURS % len(DASHES)]

    @property
    def marker(self) -> str:
        # Shifted in every turn through the colours, so that no two methods share colour and marker.
        return _MARKERS[(self.index + self.index // NUM_COLOURS) % len(_MARKERS)]

    @property
    def classes(self) -> str:
        return f"method colour-{self.colour}"


def swatch(look: Look) -> Markup:
    """A short piece of a method's line with its marker."""
    return tag(
        "svg",
        tag("path", class_="line", d="M1 6H27", stroke_dasharray=look.dash or None),
        tag("path", class_="marker", d=f"M14 6{look.marker}"),
        class_=f"swatch colour-{look.colour}",
        viewBox="0 0 28 12",
        aria_hidden="true",
    )


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
    drawn = [_series(Look(place), label, band, across, up, quantity, axis) for place, label, band in curves]
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
    """The scale of the means, with room for intervals but not for those of two or three wild seeds."""
    means = [mean for band in bands for mean in band.means]
    low, high = min(means), max(means)
    reach = high - low
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
    look: Look, label: str, band: Band, across: Scale, up: Scale, quantity: Quantity, axis: Axis
) -> Markup:
    points = [(across.at(x), up.at(y)) for x, y in zip(band.positions, band.means, strict=True)]
    texts = []
    for place, mean in enumerate(band.means):
        half = None if band.highs is None else band.highs[place] - mean
        texts.append(" ".join(show_estimate(mean, half, quantity.kind)).strip())
    parts = []
    if band.lows is not None and band.highs is not None:
        edge = [(across.at(x), _limited(up, y)) for x, y in zip(band.positions, band.highs, strict=True)]
        back = [(across.at(x), _limited(up, y)) for x, y in zip(band.positions, band.lows, strict=True)]
        parts.append(tag("path", class_="band", d=_path([*edge, *reversed(back)]) + "z"))
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
    if count <= _MARKERS_SHOWN:
        chosen: Iterable[int] = range(count)
    else:
        stride = count // _MARKERS_SHOWN
        # Methods begin at different points, lest markers of close curves cover each other.
        chosen = range(look.index * 3 % stride, count, stride)
    return "".join(f"M{points[place][0]:.1f} {points[place][1]:.1f}{look.marker}" for place in chosen)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def interval_scale(values: Iterable[float]) -> Scale:
    """A scale for rows that holds 0."""
    return fitted([0.0, *values], _ROW_MARGIN, _ROW_WIDTH - _ROW_MARGIN, margin=0.08)


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
    return Scale(1 / reach, reach, _ROW_MARGIN, _ROW_WIDTH - _ROW_MARGIN, logarithmic=True)


def value_scale(values: Iterable[float], kind: Kind) -> Scale:
    """A scale for rows of plain values."""
    bounds = (0.0, 1.0) if kind == "share" else (-math.inf, math.inf)
    return fitted(values, _ROW_MARGIN, _ROW_WIDTH - _ROW_MARGIN, bounds=bounds)


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
