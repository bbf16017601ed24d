"""The last sections of the page: runs that did not finish, and every run with its spec and provenance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fairlead.clients.names import shown
from fairlead.reports.elements import count_of, cut, scrolling, section
from fairlead.reports.formats import show
from fairlead.reports.looks import Look, swatch
from fairlead.reports.markup import Markup, join, tag
from fairlead.reports.measure import Measure
from fairlead.reports.method_figures import MethodFigures
from fairlead.reports.run_figures import RunFigures
from fairlead.reports.runs import ReportedRun
from fairlead.reports.summary import Summary

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
        tag("p", "Their rounds are in no figure, unless no run of their method finished.", class_="note"),
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
    if figures is not None and figures.last_tenth is not None:
        facts.append(show(figures.last_tenth, measure.kind))
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
