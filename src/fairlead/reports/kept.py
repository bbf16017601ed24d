"""Runs that a reproduction keeps in a file, as a report sees them: without specs, and without anything of clients."""

from __future__ import annotations

import math
from pathlib import Path

from fairlead.diagnostics.wording import counted
from fairlead.errors import FieldError
from fairlead.records import Evaluation, RoundRecord
from fairlead.reports.runs import ReportedRun
from fairlead.studies.kept_runs import KeptRun, load_runs

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
