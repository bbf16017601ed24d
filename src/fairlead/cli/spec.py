"""Reading the spec that a command was given."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
