"""The table of what it took to meet each target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.reports.cells import Cell, Column, Table, table_of
from fairlead.reports.formats import Kind, show, show_estimate, show_tick
from fairlead.reports.method_figures import MethodFigures
from fairlead.reports.run_figures import Reached
from fairlead.reports.summary import Summary
from fairlead.studies.results import target_resolution
from fairlead.studies.seed_statistics import estimate


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
