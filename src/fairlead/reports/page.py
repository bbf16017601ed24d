"""`report.html`: one file that needs no network and runs only its own script."""

import math
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, Self

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairlead import __version__
from fairlead.charts.chart import BANDS_AT_ONCE, Chart, LineStyle, Series
from fairlead.charts.display import Display
from fairlead.charts.figures import COLORS
from fairlead.component import Component, worded
from fairlead.component import summary as first_sentence
from fairlead.conditions.work import EqualWork
from fairlead.errors import FieldError, disk_errors
from fairlead.reports import charts, paper_files
from fairlead.reports.tables import ReportTable, overview_table, report_tables, tuned_table
from fairlead.results.comparison import Summary, over_settings
from fairlead.results.curves import AXES, ROUNDS, Axis, Quantity
from fairlead.results.estimates import show
from fairlead.results.figures import Measure, MethodFigures, RunFigures
from fairlead.results.runs import ReportedRun
from fairlead.results.sentences import COVERED, describe_standing, headline, tunings, why
from fairlead.text import counted, listed, shown

_LINKS = {
    "standing": "At a glance",
    "curves": "Curves",
    "results": "Results",
    "consistency": "Consistency",
    "clients": "Clients",
}
"""Sections of a setting that the header links to."""
_CLIENT_ROWS = 30
"""Most rows in a run's table of clients."""


def write_page(summaries: Sequence[Summary], path: Path, title: str, notes: list[str] | None = None) -> None:
    """Write the page of all settings, replacing an earlier one."""
    page = render_page(summaries, title, notes)
    with disk_errors(path, "written", FieldError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")


def render_page(summaries: Sequence[Summary], title: str, notes: list[str] | None = None) -> str:
    """The whole page: one setting after the other, and all runs at the end.

    With `notes` it is that of a benchmark: they stand on top with a table over all settings, and curves and runs are
    left out, because there are too many.
    """
    places = {method.place: method.label for summary in summaries for method in summary.methods}
    runs = [run for summary in summaries for run in summary.study.runs]
    settings = [_SettingSection.of(each, brief=notes is not None) for each in summaries]
    return _environment().get_template("page.html.jinja").render(
        title=title,
        version=__version__,
        notes=notes,
        overview=None if notes is None else overview_table(summaries),
        entrants=[] if notes is None else over_settings(summaries),
        settings=settings,
        links=_links(settings) | ({"runs": "Runs"} if notes is None else {}),
        facts=_facts(summaries),
        labels=[places[place] for place in sorted(places)],
        num_runs=len(runs),
        num_unfinished=sum(not run.finished for run in runs),
        differing=dict.fromkeys(
            name for summary in summaries for name in summary.study.differing_conditions()
        ),
        reasons=_reasons(summaries),
        entries=[] if notes is not None else [entry for summary in summaries for entry in _entries(summary)],
    )  # fmt: skip


def render_display(display: Display) -> str:
    """A result as HTML for a notebook, with its own style."""
    # Identifiers must differ from those of other outputs of the notebook.
    key = f"fairlead-{sha256(repr(display).encode()).hexdigest()[:12]}-"
    columns = display.table.values()
    rows = list(zip(*columns, strict=True))
    prose = [Markup(' class="prose"') if max(map(len, cells), default=0) > 30 else "" for cells in columns]
    template = _environment().get_template("notebook.html.jinja")
    return template.render(display=display, rows=rows, prose=prose, key=key, colors=COLORS)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("fairlead", "reports"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters |= {
        "breakable": _breakable,
        "digest": _digest,
        "why": why,
        "px": lambda value: f"{value:.1f}".removesuffix(".0"),
    }
    made.globals |= {
        **{each.__name__: each for each in (headline, describe_standing, tunings, counted, show, shown)},
        "svg": charts,
        "paper": paper_files,
        "style_of": LineStyle,
        "client_rows_at_most": _CLIENT_ROWS,
        "shortened": charts.shortened,
        "bands_at_once": BANDS_AT_ONCE,
        "covered": COVERED,
        "style": _asset("page.css"),
        "script": _asset("page.js"),
    }
    return made


def _asset(name: str) -> Markup:
    return Markup(files("fairlead.reports").joinpath(name).read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    """The hash that lets the page's policy accept its own style and script."""
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _breakable(label: str) -> Markup:
    """A label with line breaks allowed after separators."""
    return Markup("<wbr>").join(re.split(r"(?<=[-_/,+ (])|(?<=\.)(?!\d)", label))


_FACT_LENGTH = 160
"""Longest description of a part in the head, in characters."""


class _Fact(NamedTuple):
    """A condition of the runs in the head of the page."""

    text: str
    explanation: str = ""

    @classmethod
    def of(cls, part: object) -> Self:
        if not isinstance(part, Component):
            return cls(type(part).__name__)
        # The sentence with the values of the fields that it names.
        own = {f"`{name}`": charts.shortened(worded(value), 60) for name, value in vars(part).items()}
        told = re.sub(r"`\w+`", lambda name: own.get(name[0], name[0].strip("`")), first_sentence(type(part)))
        return cls(charts.shortened(worded(part), _FACT_LENGTH), told)


def _conditions(summary: Summary) -> dict[str, list[tuple[_Fact, str]]]:
    """Data, model, clients, work, links, learning rate and rounds; with the names of methods where they differ."""
    by_method = {method.label: _facts_of(method) for method in summary.methods}
    found: dict[str, list[tuple[_Fact, str]]] = {}
    for name in dict.fromkeys(name for facts in by_method.values() for name in facts):
        labels: dict[_Fact, list[str]] = {}
        for label, facts in by_method.items():
            if name in facts:
                labels.setdefault(facts[name], []).append(label)
        found[name] = [(fact, listed(own) if len(labels) > 1 else "") for fact, own in labels.items()]
    return found


def _facts_of(method: MethodFigures) -> dict[str, _Fact]:
    experiment, runs = method.method.experiment, method.method.counted
    if experiment is None or not runs:
        return {}
    solver, server = experiment.algorithm.solver, experiment.algorithm.server
    steps = counted(solver.epochs or 1, "epoch") if solver.steps is None else counted(solver.steps, "step")
    equal = _Fact(f"{steps} by every client")
    asked = sorted({len(record.asked) for run in runs for record in run.records})
    number = None if runs[0].weights is None else len(runs[0].weights)
    some = " to ".join(map(str, dict.fromkeys(asked[:1] + asked[-1:]))) + (f" of {number}" if number else "")
    cohort = f"all {number}" if asked == [number] else some
    batch = "full batches" if solver.batch_size is None else f"batches of {solver.batch_size}"
    at_server = "" if server.lr == 1.0 else f", {server.lr:.3g} on the server"
    every = experiment.evaluate_every
    spacing = "round" if every == 1 else f"{every} rounds"
    return {
        "Data": _Fact.of(experiment.clients),
        "Model": _Fact.of(experiment.learning_task.model) if experiment.has_task else _Fact("of the clients"),
        "Clients": _Fact(f"{cohort} in each round"),
        "Work": equal if isinstance(experiment.work, EqualWork) else _Fact.of(experiment.work),
        "Links": _Fact.of(experiment.link),
        "Learning rate": _Fact(
            f"{solver.optimizer.lr:g}{at_server}; {type(solver.optimizer).__name__}, {batch}"
        ),
        "Rounds": _Fact(f"{experiment.rounds}, {f'evaluated every {spacing}' if every else 'not evaluated'}"),
    }


@dataclass(frozen=True)
class _SettingSection:
    """The content of the page for one setting."""

    summary: Summary
    differences: Chart | None
    curves: dict[Quantity, dict[str, Chart]]
    tables: list[ReportTable]
    clients: dict[str, Chart | None]
    """Charts of clients by the key of the table beside them."""
    conditions: dict[str, list[tuple[_Fact, str]]]

    @classmethod
    def of(cls, summary: Summary, *, brief: bool) -> Self:
        clients: dict[str, Chart | None] = {}
        if not brief:
            clients = {"consistency": charts.weights_chart(summary), "clients": charts.clients_chart(summary)}
        return cls(
            summary,
            charts.difference_chart(summary),
            {} if brief else charts.learning_curves(summary),
            [*([tuned_table(summary)] if brief else []), *report_tables(summary)],
            clients,
            _conditions(summary),
        )

    @property
    def sections(self) -> set[str]:
        """Keys of the sections that have content."""
        keys = {table.key for table in self.tables}
        if self.summary.methods or self.summary.study.absent or self.summary.tunings:
            keys.add("standing")
        return keys | {"curves"} if self.curves else keys

    @property
    def axes(self) -> list[Axis]:
        """Axes that some curve is drawn against."""
        used = {key for drawn in self.curves.values() for key in drawn}
        return [axis for axis in AXES if axis is ROUNDS or axis.key in used]

    @property
    def points(self) -> list[Series]:
        """The series of a single measurement."""
        drawn = [chart for by_axis in self.curves.values() for chart in by_axis.values()]
        return [series for chart in drawn for series in chart.series if series.is_point]

    @property
    def crowded(self) -> bool:
        """Whether there are too many methods to show all intervals."""
        return len(self.summary.methods) > BANDS_AT_ONCE


def _links(settings: Sequence[_SettingSection]) -> dict[str, str]:
    """Links of the header by section: the sections of a single setting, or one for each setting."""
    if len(settings) == 1:
        (only,) = settings
        found = {only.summary.key(key): title for key, title in _LINKS.items() if key in only.sections}
    else:
        found = {
            each.summary.key("standing"): each.summary.setting or "Other runs"
            for each in settings
            if "standing" in each.sections
        }
    return found


def _facts(summaries: Sequence[Summary]) -> str:
    """The numbers of methods, seeds and runs."""
    runs = [run for summary in summaries for run in summary.study.runs]
    counts = {
        "method": len({label for summary in summaries for label in summary.study.labels}),
        "seed": len({run.seed for run in runs if run.seed is not None}),
        "run": len(runs),
    }
    if len(summaries) > 1:
        counts["setting"] = len(summaries)
    return ", ".join(counted(count, noun) for noun, count in counts.items())


def _reasons(summaries: Sequence[Summary]) -> list[tuple[ReportedRun, str, str]]:
    """Runs that failed, stopped or cannot be read, with state and reason."""
    studies = [summary.study for summary in summaries]
    unfinished = [(run, run.state, run.reason) for study in studies for run in study.runs if not run.finished]
    left_out = "Another run has the same experiment and seed, so this one is left out."
    repeated = [run for study in studies for run in study.repeated if run.finished]
    return [*unfinished, *((run, "repeated", left_out) for run in repeated)]


class _RunEntry(NamedTuple):
    """A run with its figures, if it has any."""

    run: ReportedRun
    measure: Measure
    method: MethodFigures | None = None
    figures: RunFigures | None = None

    @property
    def clients(self) -> list[tuple[int, float, float]]:
        """Number, ω and Ω of every client, largest error of the weight first; NaN where they are unknown."""
        if self.figures is None:
            return []
        report, count = self.figures.consistency, len(self.figures.clients)
        asked = [math.nan] * count if report is None else report.intended.tolist()
        surrogate = None if report is None else report.surrogate
        really = [math.nan] * len(asked) if surrogate is None else surrogate.tolist()

        def moved(client: tuple[int, float, float]) -> float:
            return 0.0 if math.isnan(client[2]) else abs(client[2] - client[1])

        return sorted(zip(range(len(asked)), asked, really, strict=True), key=moved, reverse=True)


def _entries(summary: Summary) -> list[_RunEntry]:
    """Every run of a setting, those of the methods first."""
    found = []
    for method in summary.methods:
        figures = {id(run.run): run for run in method.runs}
        found += [_RunEntry(run, summary.measure, method, figures.get(id(run))) for run in method.method.runs]
    others = (*summary.study.repeated, *summary.study.unusable)
    return [*found, *(_RunEntry(run, summary.measure) for run in others)]
