"""The tables of a report: which figures each of them shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairlead.results.comparison import Summary
from fairlead.results.curves import tenth
from fairlead.results.estimates import Estimate, estimate, judged, paired_difference
from fairlead.results.figures import MethodFigures, Reached, RunFigures, by_seed
from fairlead.results.formats import Kind, show, show_estimate, show_signed, show_tick
from fairlead.results.sentences import target_resolution


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str
    detail: str = ""
    """What comes after it in smaller type."""
    value: float | None = None
    """By which the column is sorted; None: last."""
    estimate: Estimate | None = None
    """Behind the text, where it is a mean over seeds."""
    best: bool = False


@dataclass(frozen=True)
class TableColumn:
    """A column of figures."""

    title: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of figures, one for each method."""

    key: str
    name: str
    """Its key, with the setting where the report has several: no other table of the report has it."""
    title: str
    note: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    """In the order of the methods in the report."""


def table_of(
    summary: Summary,
    key: str,
    title: str,
    note: str,
    columns: Sequence[TableColumn],
    rows: Sequence[Sequence[Cell]],
) -> Table:
    """A table whose title also says the setting, and whose note which methods lack runs."""
    note = f"{note} {summary.study.shortfalls}".rstrip()
    return Table(key, summary.key(key), summary.titled(title), note, tuple(columns), tuple(map(tuple, rows)))


_BOLD = "Bold is the best, with what cannot be told from it over equal seeds."


@dataclass(frozen=True)
class MeanColumn:
    """A column whose entries are means over the runs of a method."""

    title: str
    kind: Kind
    read: Callable[[RunFigures], float | None]
    note: str = ""
    higher: bool | None = None
    """Whether more is better; None: neither is."""
    interval: bool = True
    """Whether the mean is shown with its interval over seeds."""


def table_of_means(
    summary: Summary,
    key: str,
    title: str,
    note: str,
    columns: Sequence[MeanColumn],
    *,
    intervals: bool = True,
) -> Table:
    """A table of means; columns that nothing is known of are left out."""
    known: list[TableColumn] = []
    rows: list[list[Cell]] = [[] for _ in summary.methods]
    for column in columns:
        found = [method.over_seeds(column.read) for method in summary.methods]
        if not any(found):
            continue
        known.append(TableColumn(column.title, column.note))
        entrants = {
            place: by_seed(summary.methods[place].runs, column.read)
            for place, each in enumerate(found)
            if each is not None and math.isfinite(each.mean) and summary.methods[place].method.complete
        }
        leading = _leading(entrants, column.higher) if summary.ranked else set()
        for place, (row, each) in enumerate(zip(rows, found, strict=True)):
            shown = intervals and column.interval
            row.append(_cell(each, column.kind, best=place in leading, intervals=shown))
    if any(cell.best for row in rows for cell in row):
        note = f"{note} {_BOLD}"
    return table_of(summary, key, title, note, known, rows)


def _cell(found: Estimate | None, kind: Kind, *, best: bool, intervals: bool) -> Cell:
    if found is None:
        return Cell("–")
    text, detail = show_estimate(found.mean, found.half_width if intervals else None, kind)
    return Cell(text, detail, found.mean, found, best)


def _leading(entrants: Mapping[int, Mapping[int, float]], higher: bool | None) -> set[int]:
    """Of figures by seed the best and those that cannot be told from it; none where that would be all."""
    if higher is None or len(entrants) < 2:
        return set()
    means = {place: math.fsum(values.values()) / len(values) for place, values in entrants.items()}
    best = (max if higher else min)(means, key=lambda place: means[place])
    leading = {
        place
        for place, values in entrants.items()
        if judged(paired_difference(values, entrants[best]), smaller_is_better=not higher) != "worse"
    }
    return leading if len(leading) < len(entrants) else set()


def targets_table(summary: Summary) -> Table | None:
    """What it took to meet each target, and how that compares with the baseline."""
    if not summary.targets or summary.baseline is None:
        return None
    costs: list[tuple[str, Kind, Callable[[Reached], float | None]]] = [
        ("Rounds", "count", lambda reached: float(reached.rounds)),
        ("Compute time", "seconds", lambda reached: reached.compute_seconds),
        ("Virtual time", "seconds", lambda reached: reached.virtual_seconds),
        ("Local steps", "count", lambda reached: reached.steps),
    ]
    columns: list[TableColumn] = []
    rows: list[list[Cell]] = [[] for _ in summary.methods]
    shown = set()
    for place, target in enumerate(summary.targets):
        goal = show_tick(target, summary.measure.kind)
        for title, kind, read in costs:
            cells = _target_cells(summary, place, kind, read)
            if title == "Rounds" or any(cell.estimate is not None for cell in cells):
                shown.add(title)
                columns.append(TableColumn(f"{title} to {goal}"))
                for row, cell in zip(rows, cells, strict=True):
                    row.append(cell)
    sign = "at least" if summary.measure.higher else "at most"
    goals = " and ".join(show_tick(target, summary.measure.kind) for target in summary.targets)
    ratio = (
        f" In brackets the ratio to {summary.baseline.label}, where every run of both got there."
        if summary.compared
        else ""
    )
    explained = {
        "Compute time": "Compute time is that of all devices together.",
        "Local steps": "Local steps are those whose updates arrived.",
    }
    notes = [text for title, text in explained.items() if title in shown]
    first = (
        f"First evaluation with {summary.measure.name} of {sign} {goals}: mean over seeds ± half the 95 % interval "
        f"where every run got there.{ratio}"
    )
    curves = [summary.measure.quantity.read(run.run) for method in summary.methods for run in method.runs]
    resolution = target_resolution(max((curve.spacing for curve in curves), default=0))
    note = " ".join(filter(None, [first, resolution, *notes]))
    return table_of(summary, "targets", "Time to target", note, columns, rows)


def _target_cells(
    summary: Summary, place: int, kind: Kind, read: Callable[[Reached], float | None]
) -> list[Cell]:
    baseline = next(each for each in summary.methods if each.method is summary.baseline)
    theirs = _spent(baseline, place, read)
    reference = estimate(theirs) if _all_arrived(baseline, theirs) else None
    cells = []
    for method in summary.methods:
        spent = _spent(method, place, read)
        found = estimate(spent)
        if found is None:
            cells.append(Cell("–"))
            continue
        complete = _all_arrived(method, spent)
        alike = summary.baseline is not None and method.method.comparable_with(summary.baseline)
        # Of the runs that were quick enough to get there an interval would say nothing.
        text, detail = show_estimate(found.mean, found.half_width if complete else None, kind)
        if not complete:
            so_far = "" if any(run.run.finished for run in method.runs) else "so far, "
            detail = f"{so_far}in {len(spent)} of {method.method.num_runs} runs"
        elif summary.compared and alike and reference is not None and reference.mean > 0:
            detail = f"{detail} ({show(found.mean / reference.mean, 'factor')})".lstrip()
        cells.append(Cell(text, detail, found.mean if complete else None, found))
    return cells


def _all_arrived(method: MethodFigures, spent: Sequence[float]) -> bool:
    """Whether every run got there; one that did not finish did not."""
    return method.method.complete and len(spent) == method.method.num_runs


def _spent(method: MethodFigures, place: int, read: Callable[[Reached], float | None]) -> list[float]:
    reached = [run.reached[place] for run in method.runs]
    return [cost for each in reached if each is not None and (cost := read(each)) is not None]


def report_tables(summary: Summary) -> list[Table]:
    """All tables that these runs can fill."""
    if not summary.methods:
        return []
    tables = [
        results_table(summary),
        targets_table(summary),
        consistency_table(summary),
        clients_table(summary),
        cost_table(summary),
    ]
    return [table for table in tables if table is not None]


def results_table(summary: Summary) -> Table:
    """How good every method was, and how much better than the baseline."""
    measure, baseline = summary.measure, summary.baseline
    kind, higher = measure.kind, measure.higher
    means = {
        "last-tenth": MeanColumn(
            "Last 10 %", kind, lambda run: run.last_tenth, "mean over the last 10 % of rounds", higher
        ),
        "final": MeanColumn("Final", kind, lambda run: run.final, "after the last round", higher),
        "best": MeanColumn("Best", kind, lambda run: run.best, "of all evaluations", higher),
        "last5": MeanColumn(
            "Last 5 rounds", kind, lambda run: run.last_five, "mean over the last five rounds", higher
        ),
    }
    compared, others = means.pop(measure.figure), means.values()
    table = table_of_means(
        summary,
        "results",
        "Results",
        f"{measure.quantity.title}: mean over seeds ± half the 95 % interval. Evaluations that fall in the "
        "rounds named are averaged.",
        [
            compared,
            MeanColumn("Objective", "number", lambda run: run.objective, "Σ ω F of the final model", False),
            *others,
            MeanColumn("e-LUDD", "number", lambda run: run.eludd, "mean of e-LUD over rounds"),
        ],
    )
    seeds = TableColumn("Seeds", "finished of all")
    columns, rows = [seeds, *table.columns], [list(row) for row in table.rows]
    for row, figures in zip(rows, summary.methods, strict=True):
        row.insert(0, _seeds(figures))
    if summary.compared and baseline is not None:
        note = f"to {baseline.label}, by pairs of equal seeds"
        unit = "percentage points " if kind == "share" else ""
        columns.insert(2, TableColumn("Difference", f"{unit}{note}"))
        for row, figures in zip(rows, summary.methods, strict=True):
            row.insert(2, _difference(figures.difference, kind))
        place = next((at for at, column in enumerate(columns) if column.title == "Objective"), None)
        if place is not None:
            columns.insert(place + 1, TableColumn("Objective difference", note))
            for row, figures in zip(rows, summary.methods, strict=True):
                row.insert(place + 1, _difference(figures.objective_difference, "number"))
    return replace(table, columns=tuple(columns), rows=tuple(map(tuple, rows)))


def consistency_table(summary: Summary) -> Table | None:
    """How far the weights really optimised are from those asked for."""
    columns = [
        MeanColumn("Misplaced weight", "share", lambda run: run.misplaced, "½ Σ |ω − Ω|", False),
        MeanColumn(
            "By chance",
            "share",
            lambda run: None if run.misplaced is None else run.by_chance,
            "that lost updates and draws alone misplace",
            interval=False,
        ),
        MeanColumn("χ²(ω‖Ω)", "divergence", lambda run: run.chi_square, "∞: a client was never heard", False),
        MeanColumn("Least heard", "factor", lambda run: _ratio(run, min), "smallest Ω/ω of a client"),
        MeanColumn("Most heard", "factor", lambda run: _ratio(run, max), "largest Ω/ω of a client"),
    ]
    note = (
        "ω is the weight of a client in the objective that was asked for, Ω its share of the steps really "
        "taken: to first order the run minimises Σ Ω F."
    )
    for method in summary.methods:
        reason = method.no_weights()
        if reason is not None:
            note += f" {method.label} has no weights that could be measured. {reason}"
    table = table_of_means(summary, "consistency", "Consistency", note, columns)
    if not table.columns:
        return None
    rows = [
        tuple(
            Cell("by design", value=0.0, estimate=cell.estimate) if not place else Cell("–")
            for place, cell in enumerate(row)
        )
        if method.by_design()
        else row
        for method, row in zip(summary.methods, table.rows, strict=True)
    ]
    return replace(table, rows=tuple(rows))


def clients_table(summary: Summary) -> Table | None:
    """How evenly the final model serves clients."""
    measure = summary.measure
    columns = [
        MeanColumn(
            "Mean",
            measure.kind,
            lambda run: run.client_mean,
            "over clients, each counted once",
            measure.higher,
        ),
        MeanColumn(
            "Worst 10 %",
            measure.kind,
            lambda run: run.client_worst,
            f"mean over the worst tenth{_number_of_worst(summary)}",
            measure.higher,
        ),
        MeanColumn(
            "Spread", measure.kind, lambda run: run.client_spread, "standard deviation over clients", False
        ),
    ]
    note = f"{measure.quantity.title} of the final model for every client, on {summary.client_data}."
    table = table_of_means(summary, "clients", "Clients", note, columns)
    return table if table.columns else None


def _number_of_worst(summary: Summary) -> str:
    """How many clients the worst tenth are, where that is the same in all runs."""
    counts = {
        sum(map(math.isfinite, run.clients))
        for method in summary.methods
        for run in method.runs
        if run.clients
    }
    if len(counts) != 1:
        return ""
    (count,) = counts
    return f": {tenth(count)} of {count} clients"


def cost_table(summary: Summary) -> Table | None:
    """What a whole run took."""
    columns = [
        MeanColumn("Bytes down", "bytes", lambda run: run.bytes_down, "to clients"),
        MeanColumn("Bytes up", "bytes", lambda run: run.bytes_up, "of updates that arrived"),
        MeanColumn("Local steps", "count", lambda run: run.steps, "whose updates arrived"),
        MeanColumn("Compute time", "seconds", lambda run: run.compute_seconds, "of all devices together"),
        MeanColumn("Virtual time", "seconds", lambda run: run.virtual_seconds, "by the simulated clock"),
        MeanColumn(
            "Wall time", "seconds", lambda run: run.seconds, "of this simulation, without evaluations"
        ),
    ]
    note = "Totals, mean over seeds."
    if any(run.seconds is not None for method in summary.methods for run in method.runs):
        note += (
            " Wall time is the median round of a run times their number, which leaves out what the start of a "
            "process takes."
        )
    table = table_of_means(summary, "cost", "Cost of a run", note, columns, intervals=False)
    return table if table.columns else None


def _seeds(figures: MethodFigures) -> Cell:
    total = figures.method.num_runs
    done = sum(run.finished for run in figures.method.runs)
    text = str(done) if done == total else f"{done} of {total}"
    going_on = not done and any(run.state != "failed" for run in figures.method.runs)
    return Cell(text, "so far" if going_on else "", float(done))


def _difference(found: Estimate | None, kind: Kind) -> Cell:
    if found is None:
        return Cell("–")
    text, detail = show_signed(found.mean, found.half_width, kind)
    return Cell(text, detail, found.mean, found)


def _ratio(run: RunFigures, choose: Callable[[list[float]], float]) -> float | None:
    """The smallest or largest Ω/ω of the clients that should count."""
    ratios = run.client_ratios()
    return choose([ratio for ratio in ratios if ratio is not None]) if ratios else None
