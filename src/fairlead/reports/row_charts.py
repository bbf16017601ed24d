"""Rows of intervals and of clients as SVG, one row for each method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fairlead.reports.formats import Kind, show_tick
from fairlead.reports.looks import Look
from fairlead.reports.markup import Markup, join, tag
from fairlead.reports.scales import Scale, fitted

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
    return tag("svg", line, labels, name, class_="row-axis", viewBox=f"0 0 {_ROW_WIDTH:g} 38", aria_hidden="true")


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
    return tag("svg", parts, class_=classes, viewBox=f"0 0 {_ROW_WIDTH:g} {_ROW_HEIGHT:g}", aria_hidden="true")


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
