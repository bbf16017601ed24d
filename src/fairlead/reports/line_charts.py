"""Curves with bands as SVG that needs no script to be read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fairlead.reports.curves import Axis, Band, Quantity
from fairlead.reports.formats import Kind, show, show_estimate, show_tick
from fairlead.reports.looks import Look
from fairlead.reports.markup import Markup, tag
from fairlead.reports.scales import Scale, fitted

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
