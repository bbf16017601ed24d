"""The middle of the page: legend, curves, tables and clients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.reports.charts import (
    BANDS_AT_ONCE,
    Scale,
    dots_row,
    line_chart,
    ratio_scale,
    row_axis,
    value_scale,
)
from fairlead.reports.style import Look, Markup, join, swatch, tag
from fairlead.reports.table import Table
from fairlead.reports.template import count_of, cut, html_table, label_of, scrolling, section
from fairlead.results.comparison import Summary
from fairlead.results.curves import AXES, ROUNDS, Axis, Band, Quantity, bands, quantities
from fairlead.results.figures import Measure, MethodFigures, RunFigures
from fairlead.results.formats import Kind, show
from fairlead.results.runs import ReportedRun
from fairlead.text import label, shown

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


_CLIENT_ROWS = 30
"""Rows of a run's table of clients."""
_LONG = 60
"""Characters of a run's name before it is cut in the middle."""


def unfinished_section(summaries: Sequence[Summary]) -> Markup:
    """Runs that failed, stopped or could not be read, with the reason."""
    studies = [summary.study for summary in summaries]
    reasons: list[tuple[ReportedRun, str, str]] = [
        (run, run.state, run.reason) for study in studies for run in study.runs if not run.finished
    ]
    known = {id(run) for run, _, _ in reasons}
    reasons += [
        (run, "repeated", "Another run has the same experiment and seed: left out.")
        for study in studies
        for run in study.repeated
        if id(run) not in known
    ]
    if not reasons:
        return Markup("")
    rows = [
        tag(
            "tr",
            tag("th", _run_name(run), scope="row"),
            tag("td", tag("span", state, class_=f"state {state}")),
            tag("td", reason, class_="reason"),
        )
        for run, state, reason in reasons
    ]
    heads = [tag("th", head, scope="col") for head in ("Run", "State", "Reason")]
    return section(
        "unfinished",
        "Runs that did not finish",
        tag(
            "p",
            "Unfinished runs are excluded from all figures unless their method has no finished run.",
            class_="note",
        ),
        scrolling(
            "runs that did not finish",
            tag("table", tag("thead", tag("tr", heads)), tag("tbody", rows), class_="stacked"),
        ),
    )


def runs_section(summaries: Sequence[Summary]) -> Markup:
    """Every run with its spec and where its numbers come from."""
    entries = []
    for summary in summaries:
        for method in summary.methods:
            figures = {id(run.run): run for run in method.runs}
            for run in method.method.runs:
                entries.append(_run_entry(summary.measure, method, run, figures.get(id(run))))
        for run in (*summary.study.repeated, *summary.study.unusable):
            entries.append(_run_entry(summary.measure, None, run, None))
    return section(
        "runs",
        "Runs",
        tag(
            "p",
            "Open a run for where it was made, and for its spec and clients if they are known.",
            class_="note",
        ),
        entries,
    )


def _run_entry(
    measure: Measure, method: MethodFigures | None, run: ReportedRun, figures: RunFigures | None
) -> Markup:
    label, place = ("", None) if method is None else (method.label, method.place)
    seed = "" if run.seed is None else f"seed {run.seed}"
    facts = [run.setting, label, seed, count_of(len(run.records), "round")]
    if figures is not None and figures.value is not None:
        facts.append(show(figures.value, measure.kind))
    head = tag(
        "summary",
        "" if place is None else swatch(Look(place)),
        tag("span", _run_name(run), class_="run-name"),
        tag("span", " · ".join(filter(None, facts)), class_="facts"),
        "" if run.finished else tag("span", run.state, class_=f"state {run.state}"),
    )
    notice = run.summary.notice if run.summary is not None else None
    body = [
        tag("p", run.reason, class_="reason") if run.reason else "",
        tag("p", notice, class_="notice") if notice else "",
        _starts(run),
        join(tag("h4", "Spec"), tag("pre", run.spec.strip(), tabindex="0")) if run.spec.strip() else "",
        _clients_of(measure, figures) if figures is not None else "",
    ]
    return tag("details", head, tag("div", body, class_="run"), data_method=place)


def _starts(run: ReportedRun) -> Markup:
    """Where every start was made as a table: one column a start."""
    if not run.origin:
        return tag("p", "Nothing is noted of where it was made.", class_="note")
    rows = []
    for name in run.origin[0]:
        entries = [tag("td", "–" if (value := start[name]) is None else value) for start in run.origin]
        rows.append(tag("tr", tag("th", name.replace("_", " "), scope="row"), entries))
    return join(
        tag("h4", "Where it was made"),
        scrolling("where it was made", tag("table", tag("tbody", rows), class_="plain")),
    )


def _clients_of(measure: Measure, figures: RunFigures) -> Markup:
    """ω, Ω and the measure of the clients, those first whose weight moved most."""
    report, values = figures.consistency, figures.clients
    if report is None and not values:
        return Markup("")
    count = len(values) if report is None else len(report.intended)
    unknown = [math.nan] * count
    asked = unknown if report is None else report.intended.tolist()
    really = unknown if report is None or report.surrogate is None else report.surrogate.tolist()
    order = sorted(range(count), key=lambda client: _moved(really[client], asked[client]), reverse=True)
    rows = []
    for client in order[:_CLIENT_ROWS]:
        ratio = really[client] / asked[client] if asked[client] > 0 else None
        cells = [show(asked[client], "share"), show(really[client], "share"), show(ratio, "factor")]
        if values:
            cells.append(show(values[client], measure.kind))
        entries = [tag("td", cell, class_="figure") for cell in cells]
        rows.append(tag("tr", tag("th", _client_name(client, figures), scope="row"), entries))
    measured_on = {True: " (held-out)", False: " (training)", None: ""}[figures.run.held_out]
    measured = [f"{measure.quantity.title}{measured_on}"] if values else []
    titles = ["asked ω", "really Ω", "Ω/ω", *measured]
    heads = [tag("th", title, scope="col", class_="figure") for title in titles]
    head = tag("thead", tag("tr", tag("th", "Client", scope="col"), heads))
    note = f"The {_CLIENT_ROWS} of {count} clients whose weight moved most." if count > _CLIENT_ROWS else ""
    return join(
        tag("h4", "Clients"),
        tag("p", note, class_="note") if note else "",
        scrolling("clients of this run", tag("table", head, tag("tbody", rows), class_="plain sortable")),
    )


def _client_name(client: int, figures: RunFigures) -> str:
    names = figures.run.names
    return str(client) if names is None else shown(str(names[client]))


def _moved(really: float, asked: float) -> float:
    return 0.0 if math.isnan(really) else abs(really - asked)


def _run_name(run: ReportedRun) -> Markup:
    return tag("span", cut(run.name, _LONG), title=run.name, class_="path")
