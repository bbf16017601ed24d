"""Running a study: what is not done yet, here or side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fairlead.errors import FieldError
from fairlead.experiments.interrupts import interrupts
from fairlead.studies.executor import Checkpoints, Ended, Event, Executor
from fairlead.studies.study import PlannedRun, StudyFolder
from fairlead.studies.workers import default_jobs, run_in_workers


def run_study(
    study: StudyFolder,
    planned: Sequence[PlannedRun],
    *,
    jobs: int | None = None,
    checkpoint_every: int = 10,
    keep_finished_checkpoints: bool = True,
    watch: Callable[[PlannedRun, Event], None] = lambda run, event: None,
    on_interrupt: Callable[[], None] | None = None,
) -> dict[str, str]:
    """Run what is planned and not done yet; returns the outcome of each run by its folder.

    With more than one of `jobs` (by default one per core, or per GPU where all runs use one) the runs go to
    as many processes. `watch` is told what happens, in this process. A run that fails leaves the others
    alone. Without `keep_finished_checkpoints` a finished run leaves its records alone, and no state from which
    it could be made longer. Interrupts are those of `run_experiment`: what was running, and what was waiting,
    goes on when the study is run again. A script that calls this with several jobs must do so under
    `if __name__ == "__main__":`, since the processes import it.
    """
    if jobs is not None and jobs < 1:
        raise FieldError(f"run_study.jobs must be at least 1, got {jobs}.")
    if checkpoint_every < 1:
        raise FieldError(f"run_study.checkpoint_every must be at least 1, got {checkpoint_every}.")
    checkpoints = Checkpoints(checkpoint_every, keep_finished_checkpoints)
    done = {run.folder for run in planned if study.store(run).is_done(run.experiment)}
    for run in planned:
        # Every run would say the same; those that are done need no device.
        if run.folder not in done:
            run.experiment.require_device()
    study.plan(planned)
    outcomes = {run.folder: "waiting" for run in planned}

    def note(run: PlannedRun, event: Event) -> None:
        if isinstance(event, Ended):
            outcomes[run.folder] = event.outcome
            study.settle(run, event.outcome)
        watch(run, event)

    ahead = []
    for run in planned:
        if run.folder in done:
            note(run, Ended("finished", before=True))
        else:
            ahead.append(run)
    jobs = min(jobs or default_jobs(ahead), len(ahead))
    with interrupts(on_interrupt) as stop:
        if jobs > 1:
            run_in_workers(study, ahead, jobs=jobs, checkpoints=checkpoints, watch=note, stop=stop)
        else:
            executor = Executor(checkpoints)
            for run in ahead:
                if stop.is_set():
                    break
                executor.run(run.experiment, study.store(run), partial(note, run), stop)
    return outcomes
