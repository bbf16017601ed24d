"""Runs of a table, small enough to be kept beside the code: a line each, with figures, curves and where it was run.

Files of the same table add up: pieces may be run on different days and machines, and put together later. Runs that
failed are kept too, so that nobody takes them for runs that were never made.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fairlead.checkpoint.durable_files import write_durably
from fairlead.errors import FieldError, RunFolderError
from fairlead.experiments.record_io import decoded, strict
from fairlead.records import RoundRecord

_DIGITS = 5
"""Of what is kept of every round: more than a plot shows."""

_ENDING = ".runs.jsonl.xz"

Place = tuple[str, str, int]
"""Setting, method and seed."""


@dataclass(frozen=True)
class KeptRun:
    """A run of a table that finished or failed."""

    setting: str
    method: str
    seed: int
    rounds: int
    """That it did."""
    figures: Mapping[str, float]
    """By the name of the statistic; none if it failed."""
    curves: Mapping[str, tuple[float, ...]]
    """A number for every round, NaN where there was none."""
    seconds: float
    """From start to end, evaluations included."""
    machine: str
    precision: str
    engine: str
    torch: str
    fairlead: str
    git_commit: str | None
    date: str
    failure: str | None = None
    """Why it failed, in a sentence; None if it finished."""
    target: float | None = None
    """The accuracy to be met in its setting, if there is one."""

    @property
    def place(self) -> Place:
        """What tells it apart from the other runs of its table."""
        return self.setting, self.method, self.seed

    @property
    def name(self) -> str:
        """The same in one line."""
        return f"{self.setting}, {self.method}, seed {self.seed}"

    def number(self, curve: str, round: int) -> float | None:
        """What is kept of a round; None where there was nothing."""
        value = self.curves[curve][round] if curve in self.curves else math.nan
        return None if math.isnan(value) else value


def runs_file(folder: Path, table: str) -> Path:
    """Where the runs of a table at a scale are kept in a folder."""
    return folder / f"{table}{_ENDING}"


def no_run_in(folder: Path) -> RunFolderError:
    """That a folder holds no folder of a run; files of kept runs in it are pointed to."""
    kept = next(iter(sorted(folder.glob(f"*{_ENDING}"))), None) if folder.is_dir() else None
    hint = "" if kept is None else f" It has files of kept runs: name them, such as {kept}."
    return RunFolderError(f"{folder} is not the folder of a run, and there is none below it.{hint}")


def table_name(file: Path) -> str:
    """The table whose runs a file keeps, by the name of the file."""
    return file.name.removesuffix(_ENDING)


def save_runs(file: Path, runs: Iterable[KeptRun]) -> None:
    """Write runs into a file, in the place of what it held."""
    lines = [json.dumps(strict(asdict(run)), allow_nan=False, ensure_ascii=False) for run in runs]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_durably(file, lzma.compress("".join(f"{line}\n" for line in lines).encode()))


def load_runs(file: Path) -> list[KeptRun]:
    """The runs in a file; none if there is no such file."""
    if not file.exists():
        return []
    try:
        lines = lzma.decompress(file.read_bytes()).decode().splitlines()
        return [decoded(KeptRun, json.loads(line)) for line in lines]
    except (lzma.LZMAError, ValueError, TypeError) as error:
        raise FieldError(f"{file} does not hold the runs of a reproduction.") from error


def merged(former: Mapping[Place, KeptRun], later: Iterable[KeptRun]) -> dict[Place, KeptRun]:
    """Runs by place: later ones stand before former ones, and those that finished before those that failed."""
    found = dict(former)
    for run in later:
        known = found.get(run.place)
        if known is None or known.failure is not None or run.failure is None:
            found[run.place] = run
    return found


def curves_of(records: Sequence[RoundRecord]) -> dict[str, tuple[float, ...]]:
    """What is kept of every round; a curve that has no number at all is left out."""
    curves: dict[str, list[float | None]] = {
        "accuracy": [_metric(record, "accuracy") for record in records],
        "loss": [_of_evaluation(record) for record in records],
        "train_loss": [record.train_loss for record in records],
        "elud": [record.elud for record in records],
        "arrived": [float(len(record.arrived)) for record in records],
        "steps": [float(sum(record.num_steps)) for record in records],
    }
    return {
        name: tuple(math.nan if value is None else float(f"{value:.{_DIGITS}g}") for value in values)
        for name, values in curves.items()
        if any(value is not None for value in values)
    }


def _metric(record: RoundRecord, name: str) -> float | None:
    return None if record.evaluation is None else record.evaluation.metrics.get(name)


def _of_evaluation(record: RoundRecord) -> float | None:
    return None if record.evaluation is None else record.evaluation.loss
