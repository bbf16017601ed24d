"""Tables whose entries are means over the runs of a method."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairlead.reports.cells import Cell, Column, Table, table_of
from fairlead.reports.formats import Kind, show_estimate
from fairlead.reports.run_figures import RunFigures
from fairlead.reports.summary import Summary
from fairlead.studies.seed_statistics import Estimate


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
    entrants = [summary.ranked and method.method.complete for method in summary.methods]
    known: list[Column] = []
    rows: list[list[Cell]] = [[] for _ in summary.methods]
    for column in columns:
        found = [method.over_seeds(column.read) for method in summary.methods]
        if not any(found):
            continue
        known.append(Column(column.title, column.note))
        ranked = [each.mean for each, enters in zip(found, entrants, strict=True) if each and enters]
        best = _best(ranked, column.higher)
        for row, each, enters in zip(rows, found, entrants, strict=True):
            mark = best if enters else None
            row.append(_cell(each, column.kind, mark, intervals=intervals and column.interval))
    return table_of(summary, key, title, note, known, rows)


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
