"""The charts of a report, for the page and for papers: learning curves, differences and clients."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median_low

from fairlead.charts.chart import Chart, ChartAxis, Scale, Series, fitted, ratio_scale
from fairlead.results.comparison import Summary
from fairlead.results.curves import AXES, Axis, Quantity, bands, quantities
from fairlead.results.figures import MethodFigures, RunFigures
from fairlead.results.formats import Kind, show
from fairlead.text import label

_DOTS = 3000
"""Most clients, over all methods, that are drawn one by one."""
_BASELINE_LABEL = 24
"""Longest label of a baseline in the title of an axis, in characters."""


@dataclass(frozen=True)
class LearningCurves:
    """A quantity of all methods, with a chart for every axis that some run has, by the key of the axis."""

    quantity: Quantity
    charts: dict[str, Chart]


def learning_curves(summary: Summary) -> list[LearningCurves]:
    """The curves of every quantity that some run has."""
    drawn = []
    for quantity in quantities(summary.study.runs):
        found = [
            {
                key: replace(band, label=method.label, place=method.place)
                for key, band in bands(method.method, quantity, AXES).items()
            }
            for method in summary.methods
        ]
        charts = {
            axis.key: _curve_chart(quantity, axis, series)
            for axis in AXES
            if (series := tuple(own[axis.key] for own in found if axis.key in own))
        }
        if charts:
            drawn.append(LearningCurves(quantity, charts))
    return drawn


def _curve_chart(quantity: Quantity, axis: Axis, series: tuple[Series, ...]) -> Chart:
    title = f"{quantity.title} against {axis.title.lower()} for {', '.join(each.label for each in series)}"
    across = fitted((x for each in series for x in each.x), margin=0.02, bounds=(0.0, math.inf))
    return Chart(
        title,
        ChartAxis(axis.title, across, axis.kind),
        ChartAxis(quantity.title, _vertical(quantity, series), quantity.kind),
        series,
    )


def _vertical(quantity: Quantity, series: Sequence[Series]) -> Scale:
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
    return fitted([*means, *shown], logarithmic=quantity.logarithmic, bounds=bounds)


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
    scale = fitted([0.0, *means, *(min(max(edge, -reach), reach) for edge in ends)], margin=0.08)
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
        at = (0.0,) if method.method is summary.baseline else ()
        return Series(at, label=method.label, place=method.place)
    low, high = (None if end is None else (end,) for end in (found.low, found.high))
    return Series((found.mean,), low=low, high=high, label=method.label, place=method.place)


def weights_chart(summary: Summary) -> Chart | None:
    """Ω/ω of all clients, a row for each method; None if no run has them."""

    def axis(ratios: Sequence[float]) -> ChartAxis:
        hint = "left end: no update arrived" if 0.0 in ratios else "left of 1: under-weighted"
        return ChartAxis(f"Ω/ω of each client ({hint})", ratio_scale(ratios))

    return _client_chart(summary, lambda run: run.client_ratios(), axis, "Ω/ω", "number", mark=1.0)


def clients_chart(summary: Summary) -> Chart | None:
    """The measure of all clients, a row for each method; None if no run has it."""
    measure = summary.measure

    def axis(values: Sequence[float]) -> ChartAxis:
        bounds = (0.0, 1.0) if measure.kind == "share" else (-math.inf, math.inf)
        title = f"{measure.name} of each client on {summary.client_data}"
        return ChartAxis(title, fitted(values, bounds=bounds), measure.kind)

    return _client_chart(summary, lambda run: run.clients, axis, measure.name, measure.kind)


def _client_chart(
    summary: Summary,
    read: Callable[[RunFigures], Iterable[float | None]],
    axis: Callable[[Sequence[float]], ChartAxis],
    name: str,
    kind: Kind,
    mark: float | None = None,
) -> Chart | None:
    found = [
        [
            (value, run, client)
            for run in method.runs
            for client, value in enumerate(read(run))
            if value is not None and math.isfinite(value)
        ]
        for method in summary.methods
    ]
    values = [value for clients in found for value, _, _ in clients]
    if not values:
        return None
    rows = []
    for method, clients in zip(summary.methods, found, strict=True):
        texts = (
            f"{label(client, run.run.names)}, seed {run.seed}: {name} {show(value, kind)}"
            for value, run, client in (clients if len(values) <= _DOTS else ())
        )
        own = tuple(value for value, _, _ in clients)
        rows.append(Series(own, label=method.label, place=method.place, texts=tuple(texts)))
    title = f"{name[:1].upper()}{name[1:]} of each client"
    return Chart(title, axis(values), None, tuple(rows), mark)


def shortened(text: str, length: int) -> str:
    """A text with its middle replaced by … if it is long."""
    if len(text) <= length:
        return text
    return f"{text[: length // 3]}…{text[-(length - length // 3 - 1) :]}"
