"""Runs as a report sees them: what was asked, what happened, and how it ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlead.errors import FairleadError, FieldError, RunFolderError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.provenance import Provenance, failure_in
from fairlead.experiments.run_folder import RunFolder
from fairlead.experiments.study import StudyFolder, describe_labels
from fairlead.experiments.summary import RunSummary
from fairlead.presets import fedavg
from fairlead.records import Evaluation, RoundRecord
from fairlead.results.run_archive import KeptRun, load_runs, no_run_in
from fairlead.text import ClientNames, counted, names_from
from fairlead.worlds.base import objective_weights

_ANY_ALGORITHM = fedavg(lr=1.0)

State = Literal["finished", "interrupted", "running", "waiting", "failed", "unreadable"]


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """One run, read from its folder or from a file that keeps it."""

    name: str
    """Its path as people gave it; with what tells it apart where the path is that of many."""
    path: Path
    label: str | None
    """What the study that it belongs to calls its method; None for a run on its own."""
    seed: int | None
    """None if it was never started or cannot be read."""
    state: State
    reason: str
    """Why it did not finish, in one sentence; empty if it did."""
    experiment: Experiment | None
    """None without a seed, and where the spec was not kept."""
    spec: str
    """Its text; empty where there is none."""
    records: tuple[RoundRecord, ...]
    origin: tuple[Mapping[str, str | None], ...]
    """Where it was made, by name: once for every start."""
    weights: Tensor | None
    """ω, (N,); None if the run did not note them and the clients' data cannot be read here."""
    names: ClientNames | None
    """What clients are called, where somebody says so."""
    held_out: bool | None
    """Whether figures per client are of test data of their own, not of training data; None if nobody knows."""
    summary: RunSummary | None
    """What the run itself noted at its end."""
    study: Path | None = None
    """Where the study is that it belongs to; None for a run on its own."""
    setting: str | None = None
    """Under which its study compares methods; None where that has no settings."""
    target: float | None = None
    """The accuracy or loss to be met that was kept with it."""
    detailed: bool = False
    """Whether its rounds say who took part, what was sent and how long it took: kept curves do not."""

    @property
    def finished(self) -> bool:
        return self.state == "finished"


@dataclass(frozen=True)
class FoundRun:
    """Where a run is, and what the study that it belongs to says of it."""

    folder: RunFolder
    label: str | None = None
    outcome: str = ""
    study: Path | None = None
    setting: str | None = None


def find_runs(paths: Iterable[str | PathLike[str]]) -> list[FoundRun]:
    """Runs among and below the given folders, each once: in the order of their study, else of their names."""
    found: dict[Path, FoundRun] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise RunFolderError(f"{path} does not exist.")
        below = list(_runs_below(path)) if path.is_dir() else []
        if not below:
            raise no_run_in(path)
        for run in below:
            found.setdefault(run.folder.path.resolve(), run)
    return list(found.values())


def _runs_below(path: Path) -> Iterator[FoundRun]:
    study = StudyFolder(path)
    if study.index_file.is_file():
        for entry in study.runs():
            labels = {name: value for name, value in entry.labels.items() if name not in ("seed", "setting")}
            setting = str(entry.labels["setting"]) if "setting" in entry.labels else None
            label = describe_labels(labels) or None
            yield FoundRun(study.store(entry), label, entry.outcome, study.path.resolve(), setting)
    elif _holds_run(RunFolder(path)):
        yield FoundRun(RunFolder(path))
    else:
        for inner in sorted(path.iterdir()):
            if inner.is_dir() and not inner.is_symlink():
                yield from _runs_below(inner)


def _holds_run(folder: RunFolder) -> bool:
    return folder.spec_file.is_file() and folder.rounds_file.is_file()


def read_run(found: FoundRun) -> ReportedRun:
    """A run as it stands; one that cannot be read says why instead of ending the report."""
    folder, spec = found.folder, ""
    nothing = ReportedRun(
        name=str(folder.path),
        path=folder.path,
        label=found.label,
        seed=None,
        state="unreadable",
        reason="",
        experiment=None,
        spec=spec,
        records=(),
        origin=(),
        weights=None,
        names=None,
        held_out=None,
        summary=None,
        study=found.study,
        setting=found.setting,
    )
    if not _holds_run(folder):
        failure = failure_in(found.outcome)
        if failure is None:
            return replace(nothing, state="waiting", reason="Not started yet.")
        return replace(nothing, state="failed", reason=f"Failed: {failure}")
    try:
        spec = folder.spec_file.read_text(encoding="utf-8", errors="replace")
        experiment, records = folder.experiment(), tuple(folder.records())
        starts, summary = tuple(folder.provenance()), folder.summary()
        clients = _clients_of(folder, experiment)
    except (FairleadError, OSError) as error:
        return replace(nothing, reason=str(error), spec=spec)
    outcome = starts[-1].outcome if starts else "running"
    if outcome == "running" and failure_in(found.outcome) is not None:
        # Its process died without a word, and the study noticed.
        outcome = found.outcome
    state, reason = _ending(outcome, f"after {len(records)} of {experiment.rounds} rounds")
    return replace(
        nothing,
        seed=experiment.seed,
        state=state,
        reason=reason,
        experiment=experiment,
        spec=spec,
        records=records,
        origin=tuple(map(_origin, starts)),
        weights=clients.weights,
        names=clients.names,
        held_out=clients.held_out,
        summary=summary,
        detailed=True,
    )


def _origin(start: Provenance) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in asdict(start).items()}


def _ending(outcome: str, after: str) -> tuple[State, str]:
    if outcome == "finished":
        return "finished", ""
    if outcome == "interrupted":
        return "interrupted", f"Stopped {after}; it can be resumed."
    if (failure := failure_in(outcome)) is not None:
        return "failed", f"Failed {after}: {failure}"
    return "running", f"Still running, or ended without notice, {after}."


class _Clients(NamedTuple):
    weights: Tensor | None
    names: ClientNames | None
    held_out: bool | None


def _clients_of(folder: RunFolder, experiment: Experiment) -> _Clients:
    """As the run noted them, or else as their data have them."""
    noted = folder.clients()
    if noted is not None:
        names = None if noted.names is None else names_from(np.asarray(noted.names, dtype=object))
        return _Clients(torch.tensor(noted.weights, dtype=torch.float64), names, noted.held_out)
    # What else the experiment says does not matter here: methods that met the same clients share one entry.
    asked = replace(experiment, algorithm=_ANY_ALGORITHM, task=None, rounds=1)
    try:
        return _loaded_clients(asked)
    except (FairleadError, OSError, ImportError):
        # The data may lie on the machine that made the run; everything else can be told without.
        return _Clients(None, None, None)


@cache
def _loaded_clients(experiment: Experiment) -> _Clients:
    """ω as `Experiment.build` has it, names, and what `worlds.evaluation` measures clients on, without the model."""
    data, weights = experiment.load(), experiment.weights
    if weights is None:
        weights = "examples" if data.weights is None else tuple(data.weights.tolist())
    held_out = data.test is not None and data.test.num_clients == data.train.num_clients
    return _Clients(objective_weights(weights, data.train.sizes), data.train.names, held_out)


_ORIGIN = ("machine", "precision", "engine", "torch", "fairlead", "git_commit", "date", "seconds")
"""What a kept run tells of where it was made."""


def kept_runs_in(file: Path) -> list[ReportedRun]:
    """The runs that a file keeps; each of its settings is one of the report."""
    runs = load_runs(file)
    if not runs:
        raise FieldError(f"{file} holds no run.")
    for run in runs:
        if not run.setting:
            raise FieldError(
                f"setting must be the name of one, got '' for {run.method}, seed {run.seed} in {file}."
            )
    return [_reported(run, file) for run in runs]


def _reported(run: KeptRun, file: Path) -> ReportedRun:
    origin = {name: getattr(run, name) for name in _ORIGIN}
    return ReportedRun(
        name=f"{file}: {run.name}",
        path=file,
        label=run.method,
        seed=run.seed,
        state="finished" if run.failure is None else "failed",
        reason="" if run.failure is None else f"Failed after {counted(run.rounds, 'round')}: {run.failure}",
        experiment=None,
        spec="",
        records=tuple(_record(run, round) for round in range(run.rounds)),
        origin=({name: None if value is None else str(value) for name, value in origin.items()},),
        weights=None,
        names=None,
        held_out=None,
        summary=None,
        study=file.resolve(),
        setting=run.setting,
        target=run.target,
    )


def _record(run: KeptRun, round: int) -> RoundRecord:
    """What is known of a round: not who took part nor what was sent, and local steps of all clients together."""
    steps = run.number("steps", round)
    return RoundRecord(
        round=round,
        asked=(),
        multiplicity=(),
        arrived=(),
        num_steps=() if steps is None else (int(steps),),
        effective_steps=None,
        coefficients=None,
        remembered={},
        train_loss=run.number("train_loss", round),
        direction_norm=math.nan,
        step_norm=math.nan,
        elud=run.number("elud", round),
        bytes_down=0,
        bytes_up=0,
        evaluation=_evaluation(run, round),
    )


def _evaluation(run: KeptRun, round: int) -> Evaluation | None:
    loss, accuracy = run.number("loss", round), run.number("accuracy", round)
    if loss is None and accuracy is None:
        return None
    return Evaluation(math.nan if loss is None else loss, {} if accuracy is None else {"accuracy": accuracy})
