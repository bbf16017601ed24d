"""A table before it is written as HTML, LaTeX or CSV: columns, and a row of cells for each method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.reports.summary import Summary
from fairlead.studies.seed_statistics import Estimate


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
