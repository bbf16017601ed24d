"""Reading the spec that a command was given."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.experiments import Experiment


def read_spec(spec: Path, overrides: Sequence[str], seed: int | None) -> Experiment:
    """The experiment of a spec, whose folder may hold the user's own modules."""
    from fairlead.experiments import load_experiment

    folder = str(spec.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return load_experiment(spec, overrides, seed=seed)
