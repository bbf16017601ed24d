"""The middle of the page: legend, curves, tables and clients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.clients.names import label
from fairlead.reports.cells import Table
from fairlead.reports.curves import AXES, ROUNDS, Axis, Band, Quantity, bands, quantities
from fairlead.reports.elements import html_table, label_of, section
from fairlead.reports.formats import Kind, show
from fairlead.reports.line_charts import BANDS_AT_ONCE, line_chart
from fairlead.reports.looks import Look, swatch
from fairlead.reports.markup import Markup, join, tag
from fairlead.reports.method_figures import MethodFigures
from fairlead.reports.row_charts import dots_row, ratio_scale, row_axis, value_scale
from fairlead.reports.run_figures import RunFigures
from fairlead.reports.scales import Scale
from fairlead.reports.summary import Summary

_DOTS = 3000
"""Clients of all methods together that are still drawn one by one."""


def legend(labels: Sequence[str]) -> Markup:
    """The methods by their places, with their lines; with a script, also what shows and hides them."""
    if len(labels) < 2:
        return Markup("")
    entries = [
        tag(
            "label",
            tag("input", type="checkbox", checked=True, data_toggle=place),
            swatch(Look(place)),
            label_of(label),
            title=label,
        )
        for place, label in enumerate(labels)
    ]
    buttons = tag(
        "span",
        tag("button", "All", type="button", data_toggle_all="show"),
        tag("button", "None", type="button", data_toggle_all="hide"),
        class_="needs-script buttons",
    )
    return tag(
        "div",
        tag("div", entries, buttons, class_="entries"),
        class_="legend",
        role="group",
        aria_label="Methods shown",
    )


def curves_section(summary: Summary) -> Markup:
    """Learning curves, each against every axis that is known."""
    found = [
        (quantity, [bands(method.method, quantity, AXES) for method in summary.methods])
        for quantity in quantities(summary.study.runs)
    ]
    drawn = [(quantity, by_method) for quantity, by_method in found if any(by_method)]
    if not drawn:
        return Markup("")
    by_axis = [own for _, by_method in drawn for own in by_method]
    used = [axis for axis in AXES if axis is ROUNDS or any(axis.key in own for own in by_axis)]
    figures = [
        _curves_figure(summary, quantity, by_method, used, summary.key(f"chart-{number}"))
        for number, (quantity, by_method) in enumerate(drawn)
    ]
    choices = [
        join(
            tag(
                "input",
                type="radio",
                name=summary.key("axis"),
                id=summary.key(f"axis-{axis.key}"),
                class_=f"axis-{axis.key}",
                checked=axis is ROUNDS,
            ),
            tag("label", axis.title, for_=summary.key(f"axis-{axis.key}")),
        )
        for axis in used
    ]
    note = "Every line is a single run."
    if any(len(method.runs) > 1 for method in summary.methods):
        note = "Lines are means over seeds, shaded areas 95 % intervals."
    points = [band for own in by_axis for band in own.values() if band.is_point]
    if points:
        note += (
            " What was measured once is a point, as evaluations are where evaluate_every is not below rounds."
        )
    if any(band.lows is not None for band in points):
        note += " The upright bar through it is its interval."
    crowded = len(summary.methods) > BANDS_AT_ONCE
    if crowded:
        note += (
            f" With more than {BANDS_AT_ONCE} methods in view only the one that you point at in the legend shows "
            "its interval."
        )
    return section(
        summary.key("curves"),
        summary.titled("Learning curves"),
        tag("p", note, class_="note"),
        tag("span", "Against", class_="choice-title"),
        choices,
        tag("div", figures, class_="charts crowded" if crowded else "charts", data_bands=BANDS_AT_ONCE),
    )


def _curves_figure(
    summary: Summary, quantity: Quantity, found: Sequence[Mapping[str, Band]], axes: Sequence[Axis], name: str
) -> Markup:
    """A quantity against each of the axes, of which the page shows one at a time."""
    plots = []
    for axis in axes:
        curves = [
            (method.place, method.label, own[axis.key])
            for method, own in zip(summary.methods, found, strict=True)
            if axis.key in own
        ]
        if curves:
            plot = line_chart(quantity, axis, curves, name=f"{name}-{axis.key}")
        else:
            lacking = f"runs do not know their {axis.title.lower()}, or have no stretch of it in common"
            plot = tag("p", f"No curve: {lacking}.", class_="note")
        plots.append(tag("div", plot, class_=f"plot by-{axis.key}"))
    caption = tag("figcaption", tag("h3", quantity.title), tag("p", quantity.note, class_="note"))
    return tag("figure", caption, plots)


def table_section(summary: Summary, table: Table, beside: Markup | str = "") -> Markup:
    """A table with its explanation, and what belongs beside it."""
    content = tag("div", html_table(summary, table), beside, class_="pair" if beside else None)
    return section(table.name, table.title, tag("p", table.note, class_="note"), content)


@dataclass(frozen=True, eq=False)
class _Client:
    """A figure of a client in a run."""

    run: RunFigures
    number: int
    value: float

    def describe(self, name: str, kind: Kind) -> str:
        """Who it is, and the figure by its name."""
        who = label(self.number, self.run.run.names)
        return f"{who}, seed {self.run.seed}: {name} {show(self.value, kind)}"


def weights_rows(summary: Summary) -> Markup:
    """Ω/ω of all clients, a row for each method."""
    found = [
        [
            _Client(run, number, ratio)
            for run in method.runs
            for number, ratio in enumerate(run.client_ratios())
            if ratio is not None
        ]
        for method in summary.methods
    ]
    ratios = [client.value for clients in found for client in clients]
    scale, hint = ratio_scale(ratios), "left end: never" if 0.0 in ratios else "left of 1: too little"
    axis = row_axis(scale, "number", f"Ω/ω: how often a client counted its weight ({hint})")
    return _client_rows(summary, found, scale, axis, name="Ω/ω", kind="number", mark=1.0)


def measure_rows(summary: Summary) -> Markup:
    """The measure of all clients, a row for each method."""
    measure = summary.measure
    found = [
        [
            _Client(run, number, value)
            for run in method.runs
            for number, value in enumerate(run.clients)
            if math.isfinite(value)
        ]
        for method in summary.methods
    ]
    scale = value_scale((client.value for clients in found for client in clients), measure.kind)
    axis = row_axis(scale, measure.kind, f"{measure.name} of each client on {summary.client_data}")
    return _client_rows(summary, found, scale, axis, name=measure.name, kind=measure.kind)


def _without_dots(method: MethodFigures) -> str:
    """Why a method has no figures per client."""
    if method.by_design():
        return "by design every client has its weight"
    return "not measured" if method.no_weights() is None else "no weights to measure: see above"


def _client_rows(
    summary: Summary,
    found: Sequence[Sequence[_Client]],
    scale: Scale,
    axis: Markup,
    *,
    name: str,
    kind: Kind,
    mark: float | None = None,
) -> Markup:
    if not any(found):
        return Markup("")
    each = sum(map(len, found)) <= _DOTS
    rows = []
    for method, clients in zip(summary.methods, found, strict=True):
        shown = clients if each else []
        texts = [client.describe(name, kind) for client in shown]
        if clients:
            row = dots_row(Look(method.place), scale, [client.value for client in clients], texts, mark=mark)
        else:
            row = tag("span", _without_dots(method), class_="note")
        title = tag("span", swatch(Look(method.place)), label_of(method.label), class_="name")
        rows.append(tag("li", title, row, data_method=method.place))
    drawn = "Dots are clients, of every seed; the box" if each else "The box"
    note = f"{drawn} holds the middle half of them, the line reaches from the first to the last."
    return tag(
        "div",
        tag("ul", rows, tag("li", axis, class_="axis-row", aria_hidden="true"), class_="strips"),
        tag("p", note, class_="note"),
    )
