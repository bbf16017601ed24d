"""The one reader of runs: from their folders, from studies and from archives, one by one or as a data frame."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

from torch import Tensor

from fairlead.charts.display import FrameLibrary, frame_library, frame_of
from fairlead.errors import FairleadError, FieldError, RunFolderError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.provenance import Provenance, failure_in
from fairlead.experiments.record_io import row_of
from fairlead.experiments.run_folder import RunSummary
from fairlead.experiments.study import FoundRun, Label, describe_labels, runs_below
from fairlead.records import NOTHING_MEASURED, Evaluation, RoundRecord
from fairlead.results.run_archive import ArchivedRun, load_archive, no_run_in
from fairlead.text import ClientNames, counted

RunState = Literal["finished", "interrupted", "running", "waiting", "failed", "unreadable"]


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """One run, read from its folder or from an archive."""

    name: str
    """Its path as given by the user; in an archive also setting, method and seed."""
    path: Path
    labels: Mapping[str, Label] = field(default_factory=dict)
    """The labels that its study gives it; empty for a run on its own."""
    seed: int | None = None
    """None if the run never started or cannot be read."""
    state: RunState = "unreadable"
    reason: str = ""
    """Why it did not finish, in one sentence; empty if it did."""
    experiment: Experiment | None = None
    """None without a seed, and in archives, which keep no spec."""
    spec: str = ""
    """Its text; empty where there is none."""
    records: tuple[RoundRecord, ...] = ()
    origin: tuple[Mapping[str, str | None], ...] = ()
    """Provenance by name, once for every start."""
    weights: Tensor | None = None
    """ω, (N,); None if the run did not note them."""
    names: ClientNames | None = None
    """Names of clients, where known."""
    held_out: bool | None = None
    """Whether figures per client are of their own test data, not of training data; None if unknown."""
    summary: RunSummary | None = None
    """The summary that the run wrote at its end."""
    study: Path | None = None
    """The study or archive that it belongs to; None for a run on its own."""
    target: float | None = None
    """The accuracy or loss to reach that was archived with it."""
    from_spec: Mapping[str, Label] | None = None
    """The part of its algorithm that a comparison took from its spec; None if that was not noted."""
    real: bool = False
    """Whether its clients were real."""
    detailed: bool = False
    """Whether its rounds have cohorts, bytes and seconds, which archived curves lack."""

    @property
    def finished(self) -> bool:
        return self.state == "finished"

    @property
    def one_model(self) -> bool:
        """Whether its clients share all parameters, so that Σ ω_i F_i is the objective of a model that they use."""
        return self.experiment is None or self.experiment.algorithm.solver.own_parameters is None

    @property
    def objective(self) -> float | None:
        """Σ ω_i F_i of the final model; None also where clients keep parameters of their own."""
        return self.summary.objective if self.summary is not None and self.one_model else None

    @property
    def label(self) -> str | None:
        """The name that its study gives its method; None for a run on its own."""
        return describe_labels(self.values) or None

    @property
    def values(self) -> dict[str, Label]:
        """Its labels without those of its place: the method, or the values that a sweep or a tuning run tries."""
        return {
            name: value for name, value in self.labels.items() if name not in ("seed", "setting", "tuned")
        }

    @property
    def tuned(self) -> str | None:
        """The method whose setting it tries; None if it is not a tuning run."""
        return str(self.labels["tuned"]) if "tuned" in self.labels else None

    def after(self, rounds: int) -> Self:
        """As it was after so many rounds, if it is longer."""
        if self.experiment is None or len(self.records) < rounds or self.experiment.rounds <= rounds:
            return self
        own = replace(self.experiment, rounds=rounds)
        return replace(
            self, state="finished", reason="", experiment=own, records=self.records[:rounds], summary=None
        )

    @property
    def setting(self) -> str | None:
        """The setting in which its study compares methods; None in a study without settings."""
        return str(self.labels["setting"]) if "setting" in self.labels else None


def read_runs(paths: Iterable[str | PathLike[str]]) -> list[ReportedRun]:
    """All runs in and below folders, and those in archives."""
    given = {path.resolve(): path for path in map(Path, paths)}.values()
    found = find_runs(path for path in given if not path.is_file())
    archived = [run for path in given if path.is_file() for run in archived_runs(path)]
    return [*map(read_run, found), *archived]


def find_runs(paths: Iterable[str | PathLike[str]]) -> list[FoundRun]:
    """Runs among and below the given folders, each once: in the order of their study, else of their names."""
    found: dict[Path, FoundRun] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise RunFolderError(f"{path} does not exist.")
        below = list(runs_below(path)) if path.is_dir() else []
        if not below:
            raise no_run_in(path)
        for run in below:
            found.setdefault(run.folder.path.resolve(), run)
    return list(found.values())


def read_run(found: FoundRun) -> ReportedRun:
    """A run as it stands; one that cannot be read has the reason instead of an exception."""
    folder, spec = found.folder, ""
    nothing = ReportedRun(
        str(folder.path), folder.path, found.labels, study=found.study, from_spec=found.from_spec
    )
    if not folder.holds_run():
        failure = failure_in(found.outcome)
        if failure is None:
            return replace(nothing, state="waiting", reason="Not started yet.")
        return replace(nothing, state="failed", reason=f"Failed: {failure}")
    try:
        spec = folder.spec_file.read_text(encoding="utf-8", errors="replace")
        experiment, records = folder.experiment(), tuple(folder.records())
        starts, summary = tuple(folder.provenance()), folder.summary()
        clients = folder.clients()
    except (FairleadError, OSError) as error:
        return replace(nothing, reason=str(error), spec=spec)
    outcome = starts[-1].outcome if starts else "running"
    if summary is not None:
        # Its process may have been killed before it could note the end.
        outcome = "finished"
    elif outcome == "running" and failure_in(found.outcome) is not None:
        # Its process died before it could note why, and the study noticed.
        outcome = found.outcome
    state, reason = _ending(outcome, f"after {len(records)} of {experiment.rounds} rounds")
    run = replace(
        nothing,
        seed=experiment.seed,
        state=state,
        reason=reason,
        experiment=experiment,
        spec=spec,
        records=records,
        origin=tuple(map(_origin, starts)),
        summary=summary,
        detailed=True,
    )
    if clients is None:
        return run
    names, held_out = clients.client_names, clients.held_out
    return replace(run, weights=clients.omega, names=names, held_out=held_out, real=clients.real)


def _origin(start: Provenance) -> dict[str, str | None]:
    facts = asdict(start) | {"paths": "; ".join(map(str, start.paths)) or None}
    return {name: None if value is None else str(value) for name, value in facts.items()}


def _ending(outcome: str, after: str) -> tuple[RunState, str]:
    if outcome == "finished":
        return "finished", ""
    if outcome == "interrupted":
        return "interrupted", f"Stopped {after}; it can be resumed."
    if (failure := failure_in(outcome)) is not None:
        return "failed", f"Failed {after}: {failure}"
    return "running", f"Still running, or ended without notice, {after}."


_ORIGIN = ("machine", "precision", "engine", "torch", "fairlead", "git_commit", "date", "seconds")
"""The provenance that an archived run has."""


def archived_runs(file: Path) -> list[ReportedRun]:
    """The runs of an archive."""
    runs = load_archive(file)
    if not runs:
        raise FieldError(f"{file} holds no run.")
    for run in runs:
        if not run.setting:
            raise FieldError(f"Run {run.method}, seed {run.seed} in {file} has no setting.")
    return [_reported(run, file) for run in runs]


def _reported(run: ArchivedRun, file: Path) -> ReportedRun:
    origin = {name: getattr(run, name) for name in _ORIGIN}
    return ReportedRun(
        name=f"{file}: {run.name}",
        path=file,
        labels={"setting": run.setting, "method": run.method, "seed": run.seed},
        seed=run.seed,
        state="finished" if run.failure is None else "failed",
        reason="" if run.failure is None else f"Failed after {counted(run.rounds, 'round')}: {run.failure}",
        records=tuple(_record(run, round) for round in range(run.rounds)),
        origin=({name: None if value is None else str(value) for name, value in origin.items()},),
        study=file.resolve(),
        target=run.target,
    )


def _record(run: ArchivedRun, round: int) -> RoundRecord:
    """The archived numbers of a round: no cohort and no bytes, and the local steps of all clients together."""
    steps = run.number("steps", round)
    loss, accuracy = run.number("loss", round), run.number("accuracy", round)
    evaluation = None
    if loss is not None or accuracy is not None:
        metrics = {} if accuracy is None else {"accuracy": accuracy}
        evaluation = Evaluation(math.nan if loss is None else loss, metrics)
    return replace(
        NOTHING_MEASURED,
        round=round,
        num_steps=() if steps is None else (int(steps),),
        train_loss=run.number("train_loss", round),
        direction_norm=math.nan,
        step_norm=math.nan,
        elud=run.number("elud", round),
        evaluation=evaluation,
    )


_Row = dict[str, Label | None]


def load_frame(*paths: str | PathLike[str], library: FrameLibrary = "pandas") -> Any:
    """All rounds of the runs in and below folders, and of those in files, as a pandas or Polars data frame.

    The files are those in which a reproduction keeps its runs (`NAME-SCALE.runs.jsonl.xz`).

    Columns: `run`, the folder of the run, or its file and name there; `finished`, whether it finished;
    `method`, swept fields and other labels of its study; `seed`; then the numbers of the round
    (`record_io.row_of`; fewer of a run that is kept in a file), which is counted from 0. A run that failed in its
    first round, or that has not started, is one row without such numbers. Values per client are left to
    `load_records`.
    """
    for path in paths:
        if not isinstance(path, str | PathLike):
            raise FieldError(f"load_frame takes folders or files, as in load_frame('a', 'b'), got {path!r}.")
    # Refused before runs are read.
    frame_library(library, "load_frame")
    rows = [
        row
        for path in {path.resolve(): path for path in map(Path, paths)}.values()
        for row in (_rows_archived(path) if path.is_file() else _rows_below(path))
    ]
    # Rounds differ in their measurements: every column of any of them.
    return frame_of(rows, library, "load_frame")


def _rows_below(folder: Path) -> Iterator[_Row]:
    """A row for every round of the runs in a folder and below it."""
    for found in find_runs([folder]):
        store = found.folder
        records = store.records() if store.rounds_file.exists() else []
        starts = store.provenance()
        seed = {"seed": starts[0].seed} if starts else {}
        head = {"run": str(store.path), "finished": store.summary() is not None, **found.labels, **seed}
        yield from _rows(head, [row_of(record) for record in records])


def _rows_archived(file: Path) -> Iterator[_Row]:
    """A row for every round of the runs that a file keeps; its columns are called as those of run folders."""
    for run in load_archive(file):
        head: _Row = {
            "run": f"{file}: {run.name}",
            "finished": run.failure is None,
            "setting": run.setting,
            "method": run.method,
            "seed": run.seed,
        }
        columns = {curve: "local_steps" if curve == "steps" else curve for curve in run.curves}
        rounds: list[_Row] = [
            {"round": round, **{column: run.number(curve, round) for curve, column in columns.items()}}
            for round in range(run.rounds)
        ]
        yield from _rows(head, rounds)


def _rows(head: Mapping[str, Label | None], rounds: Sequence[Mapping[str, Label | None]]) -> Iterator[_Row]:
    """What is known of a run with the numbers of each round, or alone if it has none."""
    for numbers in rounds or [{}]:
        yield {**head, **numbers}
