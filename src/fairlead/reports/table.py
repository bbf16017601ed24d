"""Tables whose entries are means over the runs of a method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.results.comparison import Summary
from fairlead.results.estimates import Estimate, judged, paired_difference
from fairlead.results.figures import RunFigures, by_seed
from fairlead.results.formats import Kind, show_estimate


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
    name: str
    """Its key, with the setting where the report has several: no other table of the report has it."""
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    """In the order of the methods in the report."""


def table_of(
    summary: Summary,
    key: str,
    title: str,
    note: str,
    columns: Sequence[Column],
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
    known: list[Column] = []
    rows: list[list[Cell]] = [[] for _ in summary.methods]
    for column in columns:
        found = [method.over_seeds(column.read) for method in summary.methods]
        if not any(found):
            continue
        known.append(Column(column.title, column.note))
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
