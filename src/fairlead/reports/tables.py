"""The tables of a report."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from fairlead.results import curves
from fairlead.results.comparison import OverSettings, Summary, Tuning, leading, over_settings
from fairlead.results.estimates import Estimate, NumberKind, show, show_tick
from fairlead.results.figures import FIGURES, MethodFigures, RunFigures
from fairlead.results.sentences import divergences, target_resolution
from fairlead.text import counted


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str
    detail: str = ""
    """Text after it in smaller type."""
    value: float | None = None
    """The sort key in the column; None: last."""
    estimate: Estimate | None = None
    """The estimate behind a mean over seeds."""
    best: bool = False


@dataclass(frozen=True)
class ReportColumn:
    """A column of figures, one for each method."""

    title: str
    note: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class ReportTable:
    """Figures of all methods."""

    key: str
    name: str
    """Its key, followed by the setting where the report has several; unique in the report."""
    title: str
    note: str
    columns: tuple[ReportColumn, ...]

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """One row for each method, in the order of the report."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


_BOLD = "Bold marks the best method, and those within the noise of it over equal seeds."


def report_tables(summary: Summary) -> list[ReportTable]:
    """All tables that these runs can fill."""
    if not summary.methods:
        return []
    makers = (_results_table, _targets_table, _consistency_table, _clients_table, _cost_table)
    return [table for make in makers if (table := make(summary)) is not None]


def _table(
    summary: Summary, key: str, title: str, note: str, columns: Iterable[ReportColumn | None]
) -> ReportTable | None:
    """A table of the known columns; None without any.

    The title names the setting, and the note names the methods with missing runs.
    """
    known = tuple(column for column in columns if column is not None)
    bold = _BOLD if any(cell.best for column in known for cell in column.cells) else ""
    full_note = " ".join(filter(None, (note, bold, divergences(summary), summary.study.shortfalls)))
    return ReportTable(key, summary.key(key), summary.titled(title), full_note, known) if known else None


def _means(
    summary: Summary,
    title: str,
    kind: NumberKind,
    read: Callable[[RunFigures], float | None],
    note: str,
    higher: bool | None = None,
    *,
    interval: bool = True,
) -> ReportColumn | None:
    """Means over the runs of each method with intervals over seeds; None if no method has them.

    `higher`: whether more is better; None: neither.
    """
    found = {method: method.over_seeds(read) for method in summary.methods}
    if not any(found.values()):
        return None
    best = set[MethodFigures]()
    if summary.ranked and higher is not None:
        best = leading(summary.methods, read, higher=higher, unless_all=True)
    cells = (_cell(each, kind, interval=interval, best=method in best) for method, each in found.items())
    return ReportColumn(title, note, tuple(cells))


def _cell(
    found: Estimate | None, kind: NumberKind, *, interval: bool = True, sign: bool = False, best: bool = False
) -> Cell:
    """A mean over seeds; a dash without one."""
    if found is None:
        return Cell("–")
    return Cell(*found.shown(kind, interval=interval, sign=sign), found.mean, found, best)


def overview_table(summaries: Sequence[Summary]) -> ReportTable:
    """Every method over all settings, in the order of `over_settings`."""
    rows, baseline = over_settings(summaries), summaries[0].baseline
    than = f"than {'' if baseline is None else baseline.label} beyond noise"
    counts: dict[str, tuple[str, Callable[[OverSettings], list[str]]]] = {
        "Best or within noise": ("of the best", lambda row: row.leads),
        "Better": (than, lambda row: row.better),
        "Worse": (than, lambda row: row.worse),
        "Clearly worse": ("by more than a point", lambda row: row.behind),
        "Lost": ("a run failed or diverged", lambda row: row.lost),
    }
    columns = [ReportColumn("Mean rank", "", tuple(_cell(row.rank, "number") for row in rows))]
    for title, (note, read) in counts.items():
        numbers = [len(read(row)) for row in rows]
        columns.append(ReportColumn(title, note, tuple(Cell(str(each), "", float(each)) for each in numbers)))
    note = (
        f"Counts are out of {counted(len(summaries), 'setting')}. In each, methods are ranked seed by seed; the "
        "interval of the mean rank is over settings."
    )
    return ReportTable("overview", "overview", "Over all settings", note, tuple(columns))


def tuned_table(summary: Summary) -> ReportTable:
    """Rank, tuning and cost to the target of every method of a setting."""
    tunings = {tuning.method: tuning for tuning in summary.tunings}
    read: dict[str, tuple[str, Callable[[Tuning], Cell]]] = {
        "Setting": ("chosen on tuning seeds", lambda each: Cell(", ".join(one.label for one in each.chosen))),
        "Sensitivity": (
            "best less worst learning rate",
            lambda each: Cell(show(each.spread, each.measure.kind), value=each.spread),
        ),
        "Lost settings": (
            "failed or diverged",
            lambda each: Cell(str(each.num_lost), value=float(each.num_lost)),
        ),
    }
    ranks = tuple(_cell(summary.ranks.get(method.label), "number") for method in summary.methods)
    columns = [ReportColumn("Rank", "mean over seeds", ranks)]
    for title, (note, of) in read.items():
        own = [tunings.get(method.label) for method in summary.methods]
        columns.append(ReportColumn(title, note, tuple(of(each) if each else Cell("–") for each in own)))
    for target, axis in product(summary.targets, (curves.LOCAL_STEPS, curves.BYTES)):
        title = f"{axis.title} to {show_tick(target, summary.measure.kind)}"
        columns.append(ReportColumn(title, "", tuple(_target_cells(summary, target, axis))))
    title = summary.titled("Rank and tuning")
    return ReportTable("tuned", summary.key("tuned"), title, "", tuple(columns))


def _results_table(summary: Summary) -> ReportTable | None:
    """The measure and the objective of every method, and differences to the baseline."""
    measure, means = summary.measure, partial(_means, summary)
    name = measure.quantity.title
    titles = {figure: (title.capitalize(), note) for figure, (title, _, note) in FIGURES.items()}
    if measure.at_the_end:
        titles = {measure.figure: (name, "of the final model")}
    else:
        title, _, note = FIGURES[measure.figure]
        titles[measure.figure] = (f"{name}, {title}", note)
    figures = {
        figure: means(title, measure.kind, partial(RunFigures.figure, figure=figure), note, measure.higher)
        for figure, (title, note) in titles.items()
    }
    objective = None
    if measure.metric != "objective":
        objective = means("Objective", "number", lambda run: run.objective, "Σ ω F of the final model", False)
    columns = [
        ReportColumn("Seeds", "finished of all", tuple(map(_seeds, summary.methods))),
        figures.pop(measure.figure),
        _differences(summary, "Difference", measure.kind, lambda method: method.difference),
        objective,
        objective
        and _differences(
            summary, "Objective difference", "number", lambda method: method.objective_difference
        ),
        *figures.values(),
        means(
            "Update diversity", "number", lambda run: run.eludd, "e-LUDD, mean over rounds; 1 if all agree"
        ),
    ]
    averaged = "" if measure.at_the_end else ", averaged over the evaluations in the named rounds"
    note = f"{name}: mean over seeds ± half the 95 % interval{averaged}."
    return _table(summary, "results", "Results", note, columns)


def _seeds(figures: MethodFigures) -> Cell:
    total = figures.method.num_runs
    done = sum(run.finished for run in figures.method.runs)
    text = str(done) if done == total else f"{done} of {total}"
    still_running = not done and any(run.state != "failed" for run in figures.method.runs)
    return Cell(text, "so far" if still_running else "", float(done))


def _differences(
    summary: Summary, title: str, kind: NumberKind, read: Callable[[MethodFigures], Estimate | None]
) -> ReportColumn | None:
    """Differences to the baseline; None without other methods."""
    if not summary.compared or summary.baseline is None:
        return None
    cells = tuple(_cell(read(method), kind, sign=True) for method in summary.methods)
    unit = "percentage points " if kind == "share" else ""
    return ReportColumn(title, f"{unit}to {summary.baseline.label}, paired by seed", cells)


_COSTS = {
    curves.ROUNDS: "",
    curves.COMPUTE_TIME: "Compute time is the sum over all devices.",
    curves.VIRTUAL_TIME: "",
    curves.LOCAL_STEPS: "Local steps count if their update arrived.",
}
"""Costs of a target, with an explanation."""


def _targets_table(summary: Summary) -> ReportTable | None:
    """The cost of reaching each target, and its ratio to the baseline's."""
    if not summary.targets or summary.baseline is None:
        return None
    columns, explained = [], set()
    goals = [show_tick(target, summary.measure.kind) for target in summary.targets]
    for target, goal in zip(summary.targets, goals, strict=True):
        for axis, explanation in _COSTS.items():
            cells = _target_cells(summary, target, axis)
            if axis is curves.ROUNDS or any(cell.estimate is not None for cell in cells):
                explained.add(explanation)
                columns.append(ReportColumn(f"{axis.title} to {goal}", "", tuple(cells)))
    ratio = f"In brackets: the ratio to {summary.baseline.label}, where every run of both reached it."
    notes = [
        f"First evaluation with {summary.measure.name} of {'at least' if summary.measure.higher else 'at most'} "
        f"{' and '.join(goals)}: mean over seeds ± half the 95 % interval where every run reached it.",
        ratio if summary.compared else "",
        target_resolution(summary),
        *(explanation for explanation in _COSTS.values() if explanation in explained),
    ]
    return _table(summary, "targets", "Time to target", " ".join(filter(None, notes)), columns)


def _target_cells(summary: Summary, target: float, axis: curves.Axis) -> list[Cell]:
    def spent_by(method: MethodFigures) -> Estimate | None:
        return method.over_seeds(lambda run: run.cost_of(target, axis))

    def all_arrived(method: MethodFigures, spent: Estimate) -> bool:
        """Whether every run finished and reached the target."""
        return method.method.complete and spent.count == method.method.num_runs

    baseline = summary.baseline
    assert baseline is not None
    reference = spent_by(baseline)
    cells = []
    for method in summary.methods:
        found = spent_by(method)
        if found is None:
            cells.append(Cell("–"))
            continue
        complete = all_arrived(method, found)
        # An interval over only the runs that reached it would say nothing about the method.
        text, detail = found.shown(axis.kind, interval=complete)
        if not complete:
            so_far = "" if any(run.run.finished for run in method.runs) else "so far, "
            detail = f"{so_far}in {found.count} of {method.method.num_runs} runs"
        elif (
            summary.compared
            and method.method.comparable_with(baseline.method)
            and reference is not None
            and all_arrived(baseline, reference)
            and reference.mean > 0
        ):
            detail = f"{detail} ({show(found.mean / reference.mean, 'factor')})".lstrip()
        cells.append(Cell(text, detail, found.mean if complete else None, found))
    return cells


def _consistency_table(summary: Summary) -> ReportTable | None:
    """The distance between effective and intended weights."""

    def by_chance(run: RunFigures) -> float | None:
        return None if run.misplaced is None else run.by_chance

    def extreme(choose: Callable[[list[float]], float], run: RunFigures) -> float | None:
        """The smallest or largest Ω/ω over the clients with ω > 0."""
        ratios = [ratio for ratio in run.client_ratios() if ratio is not None]
        return choose(ratios) if ratios else None

    note = (
        "ω is the weight of a client in the intended objective, and Ω its share of the steps taken. To first order, "
        "the run minimizes Σ Ω F instead of Σ ω F."
    )
    for method in summary.methods:
        reason = method.no_weights()
        if reason is not None:
            note += f" The weights of {method.label} cannot be measured. {reason}"
    lost = "expected from lost updates and sampling alone"
    infinite = "∞: no update of a client arrived"
    means = partial(_means, summary)
    found = [
        means("Misplaced weight", "share", lambda run: run.misplaced, "½ Σ |ω − Ω|", False),
        means("By chance", "share", by_chance, lost, interval=False),
        means("χ²(ω‖Ω)", "divergence", lambda run: run.chi_square, infinite, False),
        means("Smallest Ω/ω", "factor", partial(extreme, min), "of a client"),
        means("Largest Ω/ω", "factor", partial(extreme, max), "of a client"),
    ]
    columns: list[ReportColumn] = []
    for column in filter(None, found):
        cells = list(column.cells)
        for place, method in enumerate(summary.methods):
            if method.by_design():
                known = Cell("by design", value=0.0, estimate=cells[place].estimate)
                cells[place] = Cell("–") if columns else known
        columns.append(replace(column, cells=tuple(cells)))
    return _table(summary, "consistency", "Consistency", note, columns)


def _clients_table(summary: Summary) -> ReportTable | None:
    """How evenly the final model serves clients."""
    kind, higher, means = summary.measure.kind, summary.measure.higher, partial(_means, summary)
    worst = f"mean over the worst tenth{_number_of_worst(summary)}"
    deviation = "standard deviation over clients"
    return _table(
        summary,
        "clients",
        "Clients",
        f"{summary.measure.quantity.title} of the final model for every client, on {summary.client_data}.",
        [
            means("Mean", kind, lambda run: run.client_mean, "over clients, unweighted", higher),
            means("Worst 10 %", kind, lambda run: run.client_worst, worst, higher),
            means("Spread", kind, lambda run: run.client_spread, deviation, False),
            means("Variance", "number", lambda run: run.client_variance, "over clients", False),
            means("Gini", "number", lambda run: run.client_gini, "0 if all clients have the same", False),
        ],
    )


def _number_of_worst(summary: Summary) -> str:
    """The number of clients in the worst tenth, if it is the same in all runs."""
    runs = [run for method in summary.methods for run in method.runs if run.clients]
    counts = {sum(map(math.isfinite, run.clients)) for run in runs}
    if len(counts) != 1:
        return ""
    (count,) = counts
    return f": {curves.tenth(count)} of {count} clients"


def _cost_table(summary: Summary) -> ReportTable | None:
    """The cost of a whole run."""
    means = partial(_means, summary, interval=False)
    simulated = "of the simulation, without evaluations"
    columns = [
        means("Bytes down", "bytes", lambda run: run.bytes_down, "to clients"),
        means("Bytes up", "bytes", lambda run: run.bytes_up, "of updates that arrived"),
        means("Local steps", "count", lambda run: run.steps, "whose updates arrived"),
        means(
            "Compute time", "seconds", lambda run: run.total(curves.COMPUTE_TIME), "of all devices together"
        ),
        means(
            "Virtual time", "seconds", lambda run: run.total(curves.VIRTUAL_TIME), "by the simulated clock"
        ),
        means("Wall time", "seconds", lambda run: run.seconds, simulated),
    ]
    note = "Totals, averaged over seeds."
    if columns[-1] is not None:
        note += (
            " Wall time is the median time of a round times the number of rounds, which excludes the startup of "
            "processes."
        )
    return _table(summary, "cost", "Cost of a run", note, columns)
