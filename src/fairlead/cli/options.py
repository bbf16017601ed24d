"""Arguments and options that several commands share, and how their values are read."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from fairlead.errors import FieldError, short

if TYPE_CHECKING:
    from fairlead.experiments.experiment import Experiment

SpecArgument = Annotated[Path, Argument(help="The TOML file of the experiment.", metavar="SPEC")]
OverridesOption = Annotated[
    list[str] | None,
    Option(
        "--set", metavar="PATH=VALUE", help="Override a value of the spec, such as algorithm.server.lr=0.03."
    ),
]
SeedOption = Annotated[int | None, Option(help="Seed; overrides the spec's.")]
RoundsOption = Annotated[int | None, Option(help="Number of rounds; overrides the spec's.")]
DeviceOption = Annotated[
    str | None, Option(help="Device to train on: cpu, cuda, cuda:<number> or mps; overrides the spec's.")
]
CheckpointOption = Annotated[int, Option(help="Rounds between checkpoints.")]
QuietOption = Annotated[bool, Option("--quiet", "-q", help="Print only errors.")]
JsonOption = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
StudyOption = Annotated[
    Path | None,
    Option(
        "--output",
        "-o",
        help="Folder of the runs. Default: runs/SPEC-COMMAND, or runs/SPEC-COMMAND-N-rounds with --rounds N.",
    ),
]
JobsOption = Annotated[
    int | None, Option(help="Number of parallel runs. Default: one per core, or per GPU if all runs use one.")
]
MetricOption = Annotated[str | None, Option(help="The metric to compare; by default the first of the task.")]
MinimizeOption = Annotated[
    bool, Option("--minimize", help="Smaller is better; automatic for losses and fairlead's own metrics.")
]
FigureOption = Annotated[
    Literal["last-tenth", "last5", "final", "best"],
    Option(
        help="The number to compare: the mean over the last 10 % or the last 5 rounds, the final or the best round."
    ),
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
        value = math.nan
    if not math.isfinite(value):
        raise FieldError(f"--target must be a number or a percentage, such as 0.5 or 50%, got {short(text)}.")
    if not number.endswith("%"):
        return value
    if not 0 <= value <= 100:
        raise FieldError(f"--target must be from 0% to 100%, got {short(text)}.")
    return value / 100


def all_overrides(overrides: list[str] | None, rounds: int | None, device: str | None = None) -> list[str]:
    """The overrides of `--set`, `--rounds` and `--device`."""
    given = {"rounds": rounds, "device": device}
    return [*(overrides or []), *(f"{name}={value}" for name, value in given.items() if value is not None)]


def read_spec(spec: Path, overrides: Sequence[str], seed: int | None) -> Experiment:
    """The experiment of a spec; it may name modules beside it or in the working directory."""
    from fairlead.experiments.spec import load_experiment

    find_modules(spec.resolve().parent)
    return load_experiment(spec, overrides, seed=seed)


def find_modules(*folders: Path) -> None:
    """Let specs name parts in modules of the given folders or the working directory."""
    for folder in (*folders, Path.cwd()):
        # Last, so that they do not shadow installed packages.
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def import_modules(names: Sequence[str]) -> None:
    """Import modules, so that specs can name their parts; worker processes import them again."""
    find_modules()
    for name in names:
        unknown = FieldError(
            "--import must name an installed module or one of the working directory, as in a Python import, "
            f"got {short(name)}."
        )
        if not all(each.isidentifier() for each in name.split(".")):
            raise unknown
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            # A module that exists but fails to import another one has its own message.
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise unknown from error
