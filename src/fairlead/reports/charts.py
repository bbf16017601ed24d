"""The charts of a report: learning curves, differences and clients, and their geometry in SVG for the page."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median_low, quantiles

from fairlead.charts.chart import MARKERS_SHOWN, AxisScale, Chart, ChartAxis, LineStyle, Points, Series
from fairlead.results.comparison import Summary
from fairlead.results.curves import AXES, Axis, Quantity, bands, quantities
from fairlead.results.estimates import NumberKind, show, show_estimate, show_tick
from fairlead.results.figures import MethodFigures, RunFigures
from fairlead.text import label

_DOTS = 3000
"""Most clients, over all methods, that are drawn one by one."""
_BASELINE_LABEL = 24
"""Longest label of a baseline in the title of an axis, in characters."""


def learning_curves(summary: Summary) -> dict[Quantity, dict[str, Chart]]:
    """Every quantity that some run has, with a chart for each axis that some run has, by the key of the axis."""
    drawn = {}
    for quantity in quantities(summary.study.runs):
        found = [bands(method.method, quantity, AXES, method.place) for method in summary.methods]
        charts = {
            axis.key: _curve_chart(quantity, axis, series)
            for axis in AXES
            if (series := tuple(own[axis.key] for own in found if axis.key in own))
        }
        if charts:
            drawn[quantity] = charts
    return drawn


def _curve_chart(quantity: Quantity, axis: Axis, series: tuple[Series, ...]) -> Chart:
    title = f"{quantity.title} against {axis.title.lower()} for {', '.join(each.label for each in series)}"
    across = AxisScale.fitted((x for each in series for x in each.x), margin=0.02, bounds=(0.0, math.inf))
    return Chart(
        title,
        ChartAxis(axis.title, across, axis.kind),
        ChartAxis(quantity.title, _vertical(quantity, series), quantity.kind),
        series,
    )


def _vertical(quantity: Quantity, series: Sequence[Series]) -> AxisScale:
    """A scale for the means and most of their intervals.

    Along curves an interval may leave the chart: over two or three seeds it can be far wider than the curve.
    """
    means = [mean for each in series for mean in each.y]
    low, high = min(means), max(means)
    reach = math.inf if all(each.is_point for each in series) else high - low
    edges = [
        min(max(edge, low - reach / 2), high + reach / 2)
        for each in series
        for edge in (*(each.low or ()), *(each.high or ()))
        if edge > 0 or not quantity.logarithmic
    ]
    positive = quantity.logarithmic and low > 0
    shown = [edge for edge in edges if not positive or edge >= low / 2]
    bounds = (0.0, 1.0) if quantity.kind == "share" else (0.0 if low >= 0 else -math.inf, math.inf)
    return AxisScale.fitted([*means, *shown], logarithmic=quantity.logarithmic, bounds=bounds)


def difference_chart(summary: Summary) -> Chart | None:
    """Differences to the baseline with their intervals, a row for each method; None without any."""
    differences = [method.difference for method in summary.methods if method.difference is not None]
    if not differences or summary.baseline is None:
        return None
    means = [each.mean for each in differences]
    widest = [abs(each.mean) + (each.half_width or 0.0) for each in differences]
    # Intervals fit the row, except those that are several times wider than the others, such as over two seeds.
    reach = max(4 * median_low(widest), 2 * max(map(abs, means)))
    ends = [edge for each in differences for edge in (each.low, each.high) if edge is not None]
    scale = AxisScale.fitted([0.0, *means, *(min(max(edge, -reach), reach) for edge in ends)], margin=0.08)
    is_share = summary.measure.kind == "share"
    title = f"difference to {shortened(summary.baseline.label, _BASELINE_LABEL)}"
    axis = ChartAxis(
        f"{title} in percentage points" if is_share else title,
        scale,
        "points" if is_share else summary.measure.kind,
    )
    rows = tuple(_difference_row(summary, method) for method in summary.methods)
    return Chart(title, axis, None, rows, mark=0.0)


def _difference_row(summary: Summary, method: MethodFigures) -> Series:
    found = method.difference
    if found is None:
        at = (0.0,) if method is summary.baseline else ()
        return Series(at, label=method.label, place=method.place)
    low, high = (None if end is None else (end,) for end in (found.low, found.high))
    return Series((found.mean,), low=low, high=high, label=method.label, place=method.place)


def weights_chart(summary: Summary) -> Chart | None:
    """Ω/ω of all clients, a row for each method; None if no run has them."""
    rows = _client_rows(summary, lambda run: run.client_ratios(), "Ω/ω", "number")
    ratios = [ratio for row in rows for ratio in row.x]
    if not ratios:
        return None
    hint = "left end: no update arrived" if 0.0 in ratios else "left of 1: under-weighted"
    axis = ChartAxis(f"Ω/ω of each client ({hint})", AxisScale.of_ratios(ratios))
    return Chart("Ω/ω of each client", axis, None, rows, mark=1.0)


def clients_chart(summary: Summary) -> Chart | None:
    """The measure of all clients, a row for each method; None if no run has it."""
    name, kind = summary.measure.name, summary.measure.kind
    rows = _client_rows(summary, lambda run: run.clients, name, kind)
    values = [value for row in rows for value in row.x]
    if not values:
        return None
    scale = AxisScale.fitted(values, bounds=(0.0, 1.0) if kind == "share" else (-math.inf, math.inf))
    axis = ChartAxis(f"{name} of each client on {summary.client_data}", scale, kind)
    return Chart(f"{name[:1].upper()}{name[1:]} of each client", axis, None, rows)


def _client_rows(
    summary: Summary, read: Callable[[RunFigures], Iterable[float | None]], name: str, kind: NumberKind
) -> tuple[Series, ...]:
    """A row of all clients in the runs of each method, with a text for each unless there are too many."""

    def text(value: float, client: int, run: RunFigures) -> str:
        return f"{label(client, run.run.names)}, seed {run.seed}: {name} {show(value, kind)}"

    found = {
        method: [
            (value, client, run)
            for run in method.runs
            for client, value in enumerate(read(run))
            if value is not None and math.isfinite(value)
        ]
        for method in summary.methods
    }
    crowded = sum(map(len, found.values())) > _DOTS
    return tuple(
        Series(
            tuple(value for value, _, _ in clients),
            label=method.label,
            place=method.place,
            texts=() if crowded else tuple(text(*each) for each in clients),
        )
        for method, clients in found.items()
    )


def shortened(text: str, length: int) -> str:
    """A text with its middle replaced by … if it is long."""
    if len(text) <= length:
        return text
    return f"{text[: length // 3]}…{text[-(length - length // 3 - 1) :]}"


WIDTH, HEIGHT = 460.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, WIDTH - 12.0, 10.0, HEIGHT - 42.0
ROW_WIDTH, ROW_HEIGHT = 400.0, 26.0
_MARGIN = 14.0
"""At the ends of a row."""
_ASIDE = 9.0
"""Distance between points at the same position."""
LABEL = 7
"""Longest label of the vertical axis, in characters; longer ones would be cut off and are left out."""
_MARKERS = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.6 3.4 6h-6.8z",
    "m0-3.8 3.8 3.8-3.8 3.8-3.8-3.8z",
    "m0 3.6 3.4-6h-6.8z",
    "m-1-3.4h2v2.4h2.4v2h-2.4v2.4h-2v-2.4h-2.4v-2h2.4z",
    "m-3.4-1.7h6.8v3.4h-6.8z",
)
"""Shapes around a point, as paths that start there."""


def marker(style: LineStyle, points: Points) -> str:
    """The path of a marker at every point."""
    return "".join(f"M{x:.1f} {y:.1f}{_MARKERS[style.marker]}" for x, y in points)


def across(axis: ChartAxis, value: float) -> float:
    """The position of a value on the horizontal axis of curves."""
    return LEFT + axis.scale.at(value) * (RIGHT - LEFT)


def up(axis: ChartAxis, value: float) -> float:
    """The position of a value on the vertical axis of curves, at most a chart's height outside.

    Some SVG readers cannot handle huge numbers.
    """
    if axis.scale.logarithmic and value <= 0:
        return HEIGHT * 2
    return min(max(BOTTOM + axis.scale.at(value) * (TOP - BOTTOM), -HEIGHT), 2 * HEIGHT)


def along(axis: ChartAxis, value: float) -> float:
    """The position of a value on the axis of a row."""
    return _MARGIN + axis.scale.at(value) * (ROW_WIDTH - 2 * _MARGIN)


def ticks(axis: ChartAxis) -> list[tuple[float, str]]:
    """The ticks of an axis with their labels."""
    return [(value, show_tick(value, axis.kind)) for value in axis.ticks]


@dataclass(frozen=True)
class DrawnCurve:
    """The paths of a series, and the texts of its points, separated by |."""

    series: Series
    line: str
    band: str
    markers: str
    positions: str
    values: str
    seeds: str
    """Heights of every run at the points of the mean."""


def curves(chart: Chart) -> list[DrawnCurve]:
    """All series of a chart as paths."""
    assert chart.y is not None
    drawn = []
    for order, series in enumerate(chart.series):
        # Side by side: intervals of points at the same round would cover each other.
        aside = _ASIDE * (order - (len(chart.series) - 1) / 2) if series.is_point else 0.0
        places = [across(chart.x, x) + aside for x in series.x]
        at_heights = partial(_at_heights, chart.y, places)
        points = at_heights(series.y)
        band = ""
        margins: list[float | None] = [None] * len(points)
        if series.low is not None and series.high is not None:
            band = _path([*at_heights(series.high), *reversed(at_heights(series.low))]) + "z"
            margins = [high - mean for high, mean in zip(series.high, series.y, strict=True)]
        texts = [
            " ".join(show_estimate(mean, margin, chart.y.kind)).strip()
            for mean, margin in zip(series.y, margins, strict=True)
        ]
        drawn.append(
            DrawnCurve(
                series,
                _path(points),
                band,
                marker(series.style, [points[place] for place in _marked(series)]),
                "|".join(show(x, chart.x.kind) for x in series.x),
                "|".join(texts),
                "|".join(" ".join(f"{up(chart.y, value):.1f}" for value in run) for run in series.seeds),
            )
        )
    return drawn


def _at_heights(axis: ChartAxis, places: Sequence[float], values: Sequence[float]) -> Points:
    return [(place, up(axis, value)) for place, value in zip(places, values, strict=True)]


def _marked(series: Series) -> Iterable[int]:
    count = len(series.x)
    if count <= MARKERS_SHOWN:
        return range(count)
    stride = count // MARKERS_SHOWN
    # Methods start at different points, so that markers of close curves do not cover each other.
    return range(series.place * 3 % stride, count, stride)


def _path(points: Points) -> str:
    # Two digits, so that the curve stays smooth when a reader zooms in.
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points)


@dataclass(frozen=True)
class Box:
    """Positions of the values of a row, and of their extremes and quartiles."""

    dots: list[float]
    left: float
    lower: float
    middle: float
    upper: float
    right: float


def box(chart: Chart, series: Series) -> Box:
    """The positions of a row; values beyond the scale are drawn at its ends."""
    dots = [along(chart.x, chart.x.scale.kept(value)) for value in series.x]
    quarters = quantiles(dots, n=4, method="inclusive") if len(dots) > 1 else dots * 3
    lower, middle, upper = quarters
    return Box(dots, min(dots), lower, middle, upper, max(dots))
