"""Output of commands: results to standard output, progress to standard error."""

import json
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH = 140
"""Width of tables that go to a file or another program, in characters."""

INTERRUPTED = 130
"""Exit status of a command stopped by Ctrl-C, by the convention of shells."""


def console(*, stderr: bool = False) -> Console:
    """A console that writes plain text without control characters unless it is a terminal."""
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _PIPED_WIDTH
    return made


def say(text: str = "") -> None:
    """Print text without wrapping long lines."""
    console().print(text, soft_wrap=True)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print a table, with the columns in `numbers` aligned to the right.

    If the terminal is too narrow, columns in `spare` are left out, first ones first, and a line names them.
    """
    target = console()
    left_out = _without_room(columns, rows, spare, target.width)
    kept = [place for place, column in enumerate(columns) if column not in left_out]
    columns, rows = [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, column in enumerate(columns):
        table.add_column(
            column, justify="right" if column in numbers else "left", no_wrap=position == 0, overflow="fold"
        )
    for row in rows:
        table.add_row(*map(Text, row))
    if target.is_terminal:
        target.print(table)
        if left_out:
            names = ", ".join(column.replace("\n", " ") for column in left_out)
            say(f"No room for {names}: widen the terminal or use --json.")
        return
    with target.capture() as captured:
        target.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def _without_room(
    columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str], width: int
) -> list[str]:
    """The columns to leave out, taken from `spare` in order, so that the others fit."""
    widths = [
        max(len(line) for text in texts for line in text.split("\n")) + 2
        for texts in zip(columns, *rows, strict=True)
    ]
    left_out: list[str] = []
    for column in spare:
        if sum(wide for name, wide in zip(columns, widths, strict=True) if name not in left_out) <= width:
            break
        if column in columns:
            left_out.append(column)
    return left_out


def print_json(data: Any) -> None:
    """Print data as strict JSON: infinities and NaN as strings."""
    from fairlead.experiments.record_io import strict

    typer.echo(json.dumps(strict(data), indent=2, allow_nan=False, ensure_ascii=False))
