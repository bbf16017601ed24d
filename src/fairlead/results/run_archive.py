"""An archive of runs: one compressed file for a table, with figures, curves and provenance of each run.

Archives of the same table add up: parts may be run on different days and machines and merged later. Failed runs are
archived too, so that nobody mistakes them for runs that were never made.
"""

import json
import lzma
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fairlead.checkpoint.durable_files import write_durably
from fairlead.clients.files import read_file
from fairlead.errors import FieldError, RunFolderError
from fairlead.experiments.provenance import failure_in, machine
from fairlead.experiments.record_io import decoded, strict
from fairlead.experiments.study import StudyFolder
from fairlead.records import RoundRecord

_DIGITS = 5
"""Digits of curves: more than a plot shows."""

_ENDING = ".runs.jsonl.xz"

Place = tuple[str, str, int]
"""Setting, method and seed."""

RunCurves = Mapping[str, Sequence[float]]
"""Curves of a run by name: a number for every round, NaN where there was none."""

Statistic = Callable[[RunCurves, float | None], float | None]
"""A figure of the curves of a run and the target of its setting; None where it was not measured."""


@dataclass(frozen=True)
class ArchivedRun:
    """A run of a table that finished or failed."""

    setting: str
    method: str
    seed: int
    rounds: int
    """The number of finished rounds."""
    figures: Mapping[str, float]
    """By the name of the statistic; empty if it failed."""
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
    """The accuracy to reach in its setting, if there is one."""

    @property
    def place(self) -> Place:
        """Its place in the table."""
        return self.setting, self.method, self.seed

    @property
    def name(self) -> str:
        """Its place in words."""
        return f"{self.setting}, {self.method}, seed {self.seed}"

    def number(self, curve: str, round: int) -> float | None:
        """The value of a curve after a round; None where there is none."""
        value = self.curves[curve][round] if curve in self.curves else math.nan
        return None if math.isnan(value) else value


def archive_file(folder: Path, table: str) -> Path:
    """The archive of a table in a folder."""
    return folder / f"{table}{_ENDING}"


def table_name(file: Path) -> str:
    """The table whose runs an archive holds, by the name of the file."""
    return file.name.removesuffix(_ENDING)


def no_run_in(folder: Path) -> RunFolderError:
    """The error for a folder without runs; it names an archive in the folder if there is one."""
    archive = next(iter(sorted(folder.glob(f"*{_ENDING}"))), None) if folder.is_dir() else None
    hint = "" if archive is None else f" It has archives of runs: name them, such as {archive}."
    return RunFolderError(f"{folder} is not the folder of a run, and there is none below it.{hint}")


def save_archive(file: Path, runs: Iterable[ArchivedRun]) -> None:
    """Write runs into a file, replacing its content."""
    lines = [json.dumps(strict(asdict(run)), allow_nan=False, ensure_ascii=False) for run in runs]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_durably(file, lzma.compress("".join(f"{line}\n" for line in lines).encode()))


def load_archive(file: Path) -> list[ArchivedRun]:
    """The runs in a file; none if there is no such file."""
    if not file.exists():
        return []
    try:
        lines = read_file(file).decode().splitlines()
        return [decoded(ArchivedRun, json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise FieldError(f"{file} holds no runs: give run folders or .runs.jsonl.xz files.") from error


def merged(former: Mapping[Place, ArchivedRun], later: Iterable[ArchivedRun]) -> dict[Place, ArchivedRun]:
    """Runs by place: later ones replace former ones, and finished ones replace failed ones."""
    found = dict(former)
    for run in later:
        known = found.get(run.place)
        if known is None or known.failure is not None or run.failure is None:
            found[run.place] = run
    return found


def archive_study(
    study: StudyFolder, statistics: Mapping[str, Statistic], targets: Mapping[str, float | None]
) -> Iterator[ArchivedRun]:
    """The finished and failed runs of a study, in the settings of `targets` with the accuracy to reach, if any."""
    for run in study.runs() if study.index_file.exists() else ():
        store, setting = study.store(run), str(run.labels["setting"])
        starts, finished = store.provenance(), store.summary() is not None
        failure = None if finished or not starts else failure_in(starts[-1].outcome)
        if setting not in targets or not (finished or failure):
            continue
        records, experiment, last = store.records(), store.experiment(), starts[-1]
        curves = curves_of(records)
        yield ArchivedRun(
            setting=setting,
            method=str(run.labels["method"]),
            seed=experiment.seed,
            rounds=len(records),
            figures=figures_of(curves, statistics, targets[setting]) if finished else {},
            curves={name: tuple(map(_rounded, values)) for name, values in curves.items()},
            seconds=math.fsum(start.duration for start in starts),
            machine="; ".join(dict.fromkeys(machine(start.device) for start in starts)),
            precision=experiment.precision,
            engine=last.engine,
            torch=last.torch,
            fairlead=last.fairlead,
            git_commit=last.git_commit,
            date=last.started[:10],
            failure=failure,
            target=targets[setting],
        )


def figures_of(
    curves: RunCurves, statistics: Mapping[str, Statistic], target: float | None
) -> dict[str, float]:
    """The figures of a run that were measured, by name."""
    measured = {name: statistic(curves, target) for name, statistic in statistics.items()}
    return {name: value for name, value in measured.items() if value is not None}


def curves_of(records: Sequence[RoundRecord]) -> dict[str, tuple[float, ...]]:
    """The archived curves; one without any number is left out."""
    evaluations = [record.evaluation for record in records]
    curves: dict[str, list[float | None]] = {
        "accuracy": [each.metrics.get("accuracy") if each else None for each in evaluations],
        "loss": [each.loss if each else None for each in evaluations],
        "train_loss": [record.train_loss for record in records],
        "elud": [record.elud for record in records],
        "consensus": [record.consensus for record in records],
        "update_norm": [record.update_norm for record in records],
        "coherence": [record.coherence for record in records],
        "arrived": [float(len(record.arrived)) for record in records],
        "steps": [float(sum(record.num_steps)) for record in records],
    }
    return {
        name: tuple(math.nan if value is None else float(value) for value in values)
        for name, values in curves.items()
        if any(value is not None for value in values)
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
