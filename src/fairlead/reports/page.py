"""`report.html`: one file that opens without a network and runs nothing but its own script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from fairlead import __version__
from fairlead.errors import FieldError
from fairlead.reports.ranking import standing_section
from fairlead.reports.sections import (
    curves_section,
    legend,
    measure_rows,
    runs_section,
    table_section,
    unfinished_section,
    weights_rows,
)
from fairlead.reports.style import Markup, join, tag
from fairlead.reports.tables import report_tables
from fairlead.reports.template import count_of, section
from fairlead.results.comparison import Summary

_LINKS = {
    "standing": "At a glance",
    "curves": "Curves",
    "results": "Results",
    "consistency": "Consistency",
    "clients": "Clients",
}
"""Sections of a setting that the head of the page leads to."""


def write_page(summaries: Sequence[Summary], path: Path, title: str) -> None:
    """Write the page of all settings, over an earlier one if there is one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render_page(summaries, title), encoding="utf-8")
    except OSError as error:
        raise FieldError(f"{path} cannot be written: {error.strerror}.") from error


def render_page(summaries: Sequence[Summary], title: str) -> str:
    """The whole page: settings one after the other, and all runs at its end."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – fairlead report"),
        tag("style", Markup(style)),
    )
    body = tag("body", _content(summaries, title), tag("script", Markup(script)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _content(summaries: Sequence[Summary], title: str) -> Markup:
    found = {
        **{key: section for summary in summaries for key, section in _setting_sections(summary).items()},
        "unfinished": unfinished_section(summaries),
        "runs": runs_section(summaries),
    }
    shown = {key: section for key, section in found.items() if section}
    links = [tag("a", name, href=f"#{key}") for key, name in _links(summaries).items() if key in shown]
    return join(
        tag("a", "Skip to the results", href="#main", class_="skip"),
        _header(summaries, title, tag("nav", links, aria_label="Contents")),
        legend(_labels(summaries)),
        tag("main", shown.values(), id="main"),
        tag(
            "footer",
            f"Made by fairlead {__version__} from what the runs left. Intervals are 95 % over seeds.",
        ),
        tag("div", class_="tip", id="tip", role="status", hidden=True),
    )


def _setting_sections(summary: Summary) -> dict[str, Markup]:
    """What the page says of a setting, by the names that its parts have there."""
    if not summary.methods:
        key, absences = summary.key("standing"), tag("p", summary.study.absences, class_="lead")
        return {key: section(key, summary.titled("At a glance"), absences)} if summary.study.absent else {}
    beside = {"consistency": weights_rows, "clients": measure_rows}
    sections = {"standing": standing_section(summary), "curves": curves_section(summary)}
    for table in report_tables(summary):
        rows = beside[table.key](summary) if table.key in beside else ""
        sections[table.key] = table_section(summary, table, rows)
    return {summary.key(key): section for key, section in sections.items()}


def _links(summaries: Sequence[Summary]) -> dict[str, str]:
    """Where the head of the page leads to: the sections of a single setting, or every setting."""
    if len(summaries) == 1:
        of_settings = {summaries[0].key(key): name for key, name in _LINKS.items()}
    else:
        of_settings = {summary.key("standing"): summary.setting or "Other runs" for summary in summaries}
    return {**of_settings, "runs": "Runs"}


def _labels(summaries: Sequence[Summary]) -> list[str]:
    """The methods of all settings by their places."""
    places = {method.place: method.label for summary in summaries for method in summary.methods}
    return [places[place] for place in sorted(places)]


def _header(summaries: Sequence[Summary], title: str, contents: Markup) -> Markup:
    runs = [run for summary in summaries for run in summary.study.runs]
    seeds = {run.seed for run in runs if run.seed is not None}
    methods = {label for summary in summaries for label in summary.study.labels}
    counts = {"method": len(methods), "seed": len(seeds), "run": len(runs)}
    if len(summaries) > 1:
        counts["setting"] = len(summaries)
    facts = ", ".join(count_of(count, noun) for noun, count in counts.items())
    unfinished = sum(not run.finished for run in runs)
    alerts = []
    if unfinished:
        text = f"{unfinished} of {count_of(len(runs), 'run')} did not finish."
        alerts.append(tag("p", tag("a", text, href="#unfinished"), class_="alert"))
    differing = dict.fromkeys(name for summary in summaries for name in summary.study.differing_conditions())
    if differing:
        text = f"These runs differ in more than the method: also in {' and '.join(differing)}."
        alerts.append(tag("p", text, class_="alert"))
    theme = tag("button", "Theme: system", type="button", id="theme", class_="needs-script")
    return tag(
        "header",
        tag("div", tag("h1", title), tag("p", facts, class_="facts")),
        tag("div", contents, theme, class_="tools"),
        alerts,
    )


def _asset(name: str) -> str:
    return files("fairlead.reports").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """The hash by which the page's policy knows its own style and script."""
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
