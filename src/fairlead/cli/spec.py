"""The spec that a command was given, and modules of the user's own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.errors import FieldError, short

if TYPE_CHECKING:
    from fairlead.experiments import Experiment


def read_spec(spec: Path, overrides: Sequence[str], seed: int | None) -> Experiment:
    """The experiment of a spec; modules of the user's own may lie beside it or in the working directory."""
    from fairlead.experiments import load_experiment

    find_modules(spec.resolve().parent)
    return load_experiment(spec, overrides, seed=seed)


def find_modules(*folders: Path) -> None:
    """Let specs name parts in modules of the user's own, in the given folders or the working directory."""
    for folder in (*folders, Path.cwd()):
        # Last, so that they hide nothing that is installed.
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def import_modules(names: Sequence[str]) -> None:
    """Import modules whose parts specs may then name; processes that are given such parts import them anew."""
    find_modules()
    for name in names:
        unknown = FieldError(
            "--import must name a module of the working directory or an installed one, as import in Python does, "
            f"got {short(name)}."
        )
        if not all(each.isidentifier() for each in name.split(".")):
            raise unknown
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            # A module that is there, and looks in vain for another, has a message of its own.
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise unknown from error
