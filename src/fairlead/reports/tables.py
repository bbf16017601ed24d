"""The tables of a report, apart from how they are written: as HTML, LaTeX or CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairlead.reports.formats import Kind, show, show_difference, show_estimate, show_tick
from fairlead.reports.statistics import tenth
from fairlead.reports.summary import MethodFigures, Reached, RunFigures, Summary
from fairlead.studies.seed_statistics import Estimate, estimate


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
class Column:
    """A column of figures."""

    title: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of figures, one for each method."""

    key: str
    title: str
    note: str
    columns: tuple[Column, ...]
    methods: tuple[int, ...]
    """Place in the report of the method of each row."""
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class _Figure:
    """A column whose entries are means over the runs of a method."""

    title: str
    kind: Kind
    read: Callable[[RunFigures], float | None]
    note: str = ""
    higher: bool | None = None
    """Whether more is better; None: neither is."""
    interval: bool = True
    """Whether it is shown with that of its mean."""


def report_tables(summary: Summary) -> list[Table]:
    """All tables that these runs can fill."""
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
    table = _figures_table(
        summary,
        "results",
        "Results",
        f"{measure.quantity.title}: mean over seeds ± half the 95 % interval. Evaluations that fall in the "
        "rounds named are averaged.",
        [
            _Figure(
                "Last 10 %", kind, lambda run: run.last_tenth, "mean over the last 10 % of rounds", higher
            ),
            _Figure("Objective", "number", lambda run: run.objective, "Σ ω F of the final model", False),
            _Figure("Final", kind, lambda run: run.final, "after the last round", higher),
            _Figure("Best", kind, lambda run: run.best, "of all evaluations", higher),
            _Figure(
                "Last 5 rounds", kind, lambda run: run.last_five, "mean over the last five rounds", higher
            ),
            _Figure("e-LUDD", "number", lambda run: run.eludd, "mean of e-LUD over rounds"),
        ],
    )
    seeds = Column("Seeds", "finished of all")
    columns, rows = [seeds, *table.columns], [list(row) for row in table.rows]
    for row, figures in zip(rows, summary.methods, strict=True):
        row.insert(0, _seeds(figures))
    if summary.compared and baseline is not None:
        note = f"to {baseline.label}, by pairs of equal seeds"
        columns.insert(2, Column("Difference", note))
        for row, figures in zip(rows, summary.methods, strict=True):
            row.insert(2, _difference(figures.difference, kind))
        place = next((at for at, column in enumerate(columns) if column.title == "Objective"), None)
        if place is not None:
            columns.insert(place + 1, Column("Objective difference", note))
            for row, figures in zip(rows, summary.methods, strict=True):
                row.insert(place + 1, _difference(figures.objective_difference, "number"))
    return Table(table.key, table.title, table.note, tuple(columns), table.methods, tuple(map(tuple, rows)))


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
    columns: list[Column] = []
    rows: list[list[Cell]] = [[] for _ in summary.methods]
    shown = set()
    for place, target in enumerate(summary.targets):
        goal = show_tick(target, summary.measure.kind)
        for title, kind, read in costs:
            cells = _target_cells(summary, place, kind, read)
            if title == "Rounds" or any(cell.estimate is not None for cell in cells):
                shown.add(title)
                columns.append(Column(f"{title} to {goal}"))
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
    first = f"First evaluation with {summary.measure.name} of {sign} {goals}.{ratio}"
    return _table(summary, "targets", "Time to target", " ".join([first, *notes]), columns, rows)


def consistency_table(summary: Summary) -> Table | None:
    """How far the weights really optimised are from those asked for."""
    figures = [
        _Figure("Misplaced weight", "share", lambda run: run.misplaced, "½ Σ |ω − Ω|", False),
        _Figure(
            "By chance",
            "share",
            lambda run: None if run.misplaced is None else run.by_chance,
            "that lost updates and draws alone misplace",
            interval=False,
        ),
        _Figure("χ²(ω‖Ω)", "divergence", lambda run: run.chi_square, "∞: a client was never heard", False),
        _Figure("Least heard", "factor", lambda run: _ratio(run, min), "smallest Ω/ω of a client"),
        _Figure("Most heard", "factor", lambda run: _ratio(run, max), "largest Ω/ω of a client"),
    ]
    note = (
        "ω is the weight of a client in the objective that was asked for, Ω its share of the steps really "
        "taken: to first order the run minimises Σ Ω F."
    )
    for method in summary.methods:
        reason = method.no_weights()
        if reason is not None:
            note += f" {method.label} has no weights that could be measured. {reason}"
    table = _figures_table(summary, "consistency", "Consistency", note, figures)
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
    return Table(table.key, table.title, table.note, table.columns, table.methods, tuple(rows))


def clients_table(summary: Summary) -> Table | None:
    """How evenly the final model serves clients."""
    measure = summary.measure
    figures = [
        _Figure(
            "Mean",
            measure.kind,
            lambda run: run.client_mean,
            "over clients, each counted once",
            measure.higher,
        ),
        _Figure(
            "Worst 10 %",
            measure.kind,
            lambda run: run.client_worst,
            f"mean over the worst tenth{_number_of_worst(summary)}",
            measure.higher,
        ),
        _Figure(
            "Spread", measure.kind, lambda run: run.client_spread, "standard deviation over clients", False
        ),
    ]
    note = f"{measure.quantity.title} of the final model for every client, on {summary.client_data}."
    table = _figures_table(summary, "clients", "Clients", note, figures)
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
    figures = [
        _Figure("Bytes down", "bytes", lambda run: run.bytes_down, "to clients"),
        _Figure("Bytes up", "bytes", lambda run: run.bytes_up, "of updates that arrived"),
        _Figure("Local steps", "count", lambda run: run.steps, "whose updates arrived"),
        _Figure("Compute time", "seconds", lambda run: run.compute_seconds, "of all devices together"),
        _Figure("Virtual time", "seconds", lambda run: run.virtual_seconds, "by the simulated clock"),
        _Figure("Wall time", "seconds", lambda run: run.seconds, "of this simulation, without evaluations"),
    ]
    note = (
        "Totals, mean over seeds. Wall time is the median round of a run times their number, which leaves "
        "out what the start of a process takes."
    )
    table = _figures_table(summary, "cost", "Cost of a run", note, figures, intervals=False)
    return table if table.columns else None


def _figures_table(
    summary: Summary, key: str, title: str, note: str, figures: Sequence[_Figure], *, intervals: bool = True
) -> Table:
    """A table of means; columns that nothing is known of are left out."""
    columns: list[Column] = []
    rows: list[list[Cell]] = [[] for _ in summary.methods]
    for figure in figures:
        found = [method.over_seeds(figure.read) for method in summary.methods]
        if not any(found):
            continue
        columns.append(Column(figure.title, figure.note))
        entrants = [summary.ranked and method.method.complete for method in summary.methods]
        ranked = [each.mean for each, enters in zip(found, entrants, strict=True) if each and enters]
        best = _best(ranked, figure.higher)
        for row, each, enters in zip(rows, found, entrants, strict=True):
            mark = best if enters else None
            row.append(_cell(each, figure.kind, mark, intervals=intervals and figure.interval))
    return _table(summary, key, title, note, columns, rows)


def _table(
    summary: Summary,
    key: str,
    title: str,
    note: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
) -> Table:
    places = tuple(range(len(summary.methods)))
    note = f"{note} {summary.study.shortfalls}".rstrip()
    return Table(key, title, note, tuple(columns), places, tuple(map(tuple, rows)))


def _cell(found: Estimate | None, kind: Kind, best: float | None, *, intervals: bool) -> Cell:
    if found is None:
        return Cell("–")
    text, detail = show_estimate(found.mean, found.half_width if intervals else None, kind)
    return Cell(text, detail, found.mean, found, best is not None and found.mean == best)


def _best(means: Sequence[float], higher: bool | None) -> float | None:
    known = [mean for mean in means if math.isfinite(mean)]
    if higher is None or len(known) < 2 or len(set(known)) == 1:
        return None
    return max(known) if higher else min(known)


def _seeds(figures: MethodFigures) -> Cell:
    total = figures.method.num_runs
    done = sum(run.finished for run in figures.method.runs)
    text = str(done) if done == total else f"{done} of {total}"
    return Cell(text, "" if done else "so far", float(done))


def _difference(found: Estimate | None, kind: Kind) -> Cell:
    if found is None:
        return Cell("–")
    text, detail = show_estimate(found.mean, found.half_width, kind)
    if kind == "share" or not detail:
        text = show_difference(found.mean, kind)
    elif found.mean > 0 and any(digit in text for digit in "123456789"):
        text = f"+{text}"
    return Cell(text, detail, found.mean, found)


def _ratio(run: RunFigures, choose: Callable[[list[float]], float]) -> float | None:
    """The smallest or largest Ω/ω of the clients that should count."""
    ratios = client_ratios(run)
    return choose([ratio for ratio in ratios if ratio is not None]) if ratios else None


def client_ratios(run: RunFigures) -> list[float | None]:
    """Ω_i/ω_i of every client, None where ω_i = 0; empty where Ω was not measured."""
    report = run.consistency
    if report is None or report.surrogate is None or report.restored:
        return []
    pairs = zip(report.surrogate.tolist(), report.intended.tolist(), strict=True)
    return [really / asked if asked > 0 else None for really, asked in pairs]


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
        if not complete:
            so_far = "" if any(run.run.finished for run in method.runs) else "so far, "
            detail = f"{so_far}in {len(spent)} of {method.method.num_runs} runs"
        elif summary.compared and alike and reference is not None and reference.mean > 0:
            detail = f"({show(found.mean / reference.mean, 'factor')})"
        else:
            detail = ""
        cells.append(Cell(show(found.mean, kind), detail, found.mean if complete else None, found))
    return cells


def _all_arrived(method: MethodFigures, spent: Sequence[float]) -> bool:
    """Whether every run got there; one that did not finish did not."""
    return method.method.complete and len(spent) == method.method.num_runs


def _spent(method: MethodFigures, place: int, read: Callable[[Reached], float | None]) -> list[float]:
    reached = [run.reached[place] for run in method.runs]
    return [cost for each in reached if each is not None and (cost := read(each)) is not None]
