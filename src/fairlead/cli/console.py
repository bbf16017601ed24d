"""Where commands write: results to standard output, progress to standard error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH = 140
"""Columns of tables that go to a file or another program, where there is no window to ask."""

INTERRUPTED = 130
"""Exit status of a command stopped by Ctrl-C, as shells have it."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def console(*, stderr: bool = False) -> Console:
    """A console that writes plain text without control characters unless it is a terminal."""
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _PIPED_WIDTH
    return made


def say(text: str = "") -> None:
    """Print text as it is; long lines are left to the terminal."""
    console().print(text, soft_wrap=True)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()
) -> None:
    """Print a table; the columns in `numbers` are aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, column in enumerate(columns):
        table.add_column(
            column, justify="right" if column in numbers else "left", no_wrap=position == 0, overflow="fold"
        )
    for row in rows:
        table.add_row(*map(Text, row))
    target = console()
    if target.is_terminal:
        target.print(table)
        return
    with target.capture() as captured:
        target.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def print_json(data: Any) -> None:
    """Print data as strict JSON: infinities and NaN as strings."""
    from fairlead.experiments.record_lines import strict

    typer.echo(json.dumps(strict(data), indent=2, allow_nan=False, ensure_ascii=False))
