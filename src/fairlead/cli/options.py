"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.errors import FieldError, short

SpecArgument = Annotated[Path, typer.Argument(help="The TOML file of the experiment.", metavar="SPEC")]
OverridesOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a value, such as algorithm.server.lr=0.03."),
]
RoundsOption = Annotated[int | None, typer.Option(help="Rounds instead of the spec's.")]
CheckpointOption = Annotated[int, typer.Option(help="Rounds between checkpoints.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
JobsOption = Annotated[
    int | None,
    typer.Option(help="Runs side by side; by default one per core, or per GPU if all runs use one."),
]
MetricOption = Annotated[
    str | None, typer.Option(help="The figure that counts; by default the first metric of the task.")
]
MinimizeOption = Annotated[
    bool, typer.Option("--minimize", help="Smaller is better; known for losses and fairlead's own metrics.")
]


def read_target(text: str) -> float:
    """A value of `--target`: a number, or a percentage for a share.

    >>> read_target("50%")
    0.5
    """
    number = text.strip()
    try:
        value = float(number.removesuffix("%"))
    except ValueError:
        raise FieldError(
            f"--target must be a number or a percentage, such as 0.5 or 50%, got {short(text)}."
        ) from None
    if not number.endswith("%"):
        return value
    if not 0 <= value <= 100:
        raise FieldError(f"--target must be from 0% to 100%, got {short(text)}.")
    return value / 100


def all_overrides(overrides: list[str] | None, rounds: int | None) -> list[str]:
    """What `--set` and `--rounds` change."""
    return [*(overrides or []), *([] if rounds is None else [f"rounds={rounds}"])]
