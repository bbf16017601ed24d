"""The runs in the folder of a study, as they are kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime

from fairlead.experiments.provenance import Provenance
from fairlead.reproductions.reproduction import machine
from fairlead.reproductions.statistics import Statistic
from fairlead.studies.kept_runs import KeptRun, curves_of
from fairlead.studies.study import StudyFolder


def kept_runs_of(
    study: StudyFolder, statistics: Mapping[str, Statistic], targets: Mapping[str, float | None]
) -> Iterator[KeptRun]:
    """The runs that finished or failed in the settings of `targets`, which have the accuracy to be met, if any."""
    for run in study.runs() if study.index_file.exists() else ():
        store, setting = study.store(run), str(run.labels["setting"])
        starts, finished = store.provenance(), store.summary() is not None
        failure = None if finished or not starts else starts[-1].failure
        if setting not in targets or not (finished or failure):
            continue
        records, experiment, last = store.records(), store.experiment(), starts[-1]
        asked = statistics if finished else {}
        measured = {name: statistic(records, targets[setting]) for name, statistic in asked.items()}
        yield KeptRun(
            setting=setting,
            method=str(run.labels["method"]),
            seed=experiment.seed,
            rounds=len(records),
            figures={name: value for name, value in measured.items() if value is not None},
            curves=curves_of(records),
            seconds=math.fsum(map(_spent, starts)),
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


def _spent(start: Provenance) -> float:
    """Seconds that a start of a run lasted; none if it was cut off."""
    if start.ended is None:
        return 0.0
    span = datetime.fromisoformat(start.ended) - datetime.fromisoformat(start.started)
    return span.total_seconds()
