"""Runs of a study: one after another in a process that keeps the data they share, in parallel over cores or GPUs."""

import os
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import NamedTuple

import torch

from fairlead.checkpoint.durable_files import write_durably
from fairlead.clients.preprocessing import Preprocessing
from fairlead.clients.source import ClientSource, FederatedData
from fairlead.errors import FairleadError, FieldError
from fairlead.experiments import start_worker
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.run_folder import RunFolder
from fairlead.experiments.runner import handling, interrupts, run_experiment
from fairlead.experiments.study import PlannedRun, StudyFolder
from fairlead.experiments.tracking import LiveFigures, RoundFigures
from fairlead.records import RoundRecord
from fairlead.worlds.device import shared_gpus

_PAUSE = 0.2
"""Seconds between two reports of rounds: more are unreadable."""
_INDEX_EVERY = 20
"""Pause after a write for this many times its duration: writing a long index takes longer than a short run."""


class Began(NamedTuple):
    """A run starts or resumes."""

    done: int
    """Rounds that are already finished."""


class Advanced(NamedTuple):
    """A round has ended; not every one is reported."""

    figures: RoundFigures


class Said(NamedTuple):
    """A message of a run."""

    text: str


class Ended(NamedTuple):
    """A run has ended."""

    outcome: str
    """"finished", "interrupted" or "failed: " with the reason."""
    before: bool = False
    """Whether it was already finished, and not run again."""


Event = Began | Advanced | Said | Ended
DataKey = tuple[ClientSource, int, Preprocessing | None]


def data_key(experiment: Experiment) -> DataKey:
    """What determines the data of an experiment."""
    return experiment.clients, experiment.seed, experiment.preprocessing


class Checkpoints(NamedTuple):
    """Checkpoints of the runs of a study."""

    every: int
    """Rounds between two."""
    keep: bool
    """Whether a run that has finished keeps its last one."""


class RunExecutor:
    """Runs experiments in folders and keeps the data of the last one while the next has the same."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._loaded: tuple[DataKey, FederatedData] | None = None

    def run(
        self, experiment: Experiment, store: RunFolder, tell: Callable[[Event], None], stop: threading.Event
    ) -> None:
        """Run or resume an experiment; an error becomes its outcome."""
        error_file = store.path / "error.txt"
        error_file.unlink(missing_ok=True)
        try:
            outcome = self._run(experiment, store, tell, stop)
        except FairleadError as error:
            outcome = f"failed: {error}"
        except Exception as error:
            outcome = f"failed: {type(error).__name__}: {error} (see error.txt in its folder)"
            store.path.mkdir(parents=True, exist_ok=True)
            write_durably(error_file, traceback.format_exc().encode())
        tell(Ended(outcome))

    def _run(
        self, experiment: Experiment, store: RunFolder, tell: Callable[[Event], None], stop: threading.Event
    ) -> str:
        live, told = LiveFigures(), float("-inf")

        def advance(record: RoundRecord) -> None:
            nonlocal told
            figures = live.of(record)
            if monotonic() - told > _PAUSE or figures.done == experiment.rounds:
                told = monotonic()
                tell(Advanced(figures))

        ended = run_experiment(
            experiment,
            store.path,
            resume=True,
            checkpoint_every=self._checkpoints.every,
            data=self._data(experiment),
            stop=stop,
            on_start=lambda federation: tell(Began(federation.state.round)),
            on_round=advance,
            on_recovery=lambda text: tell(Said(text)),
        )
        if ended.outcome == "finished" and not self._checkpoints.keep:
            shutil.rmtree(store.checkpoint)
        return ended.outcome

    def _data(self, experiment: Experiment) -> FederatedData:
        key = data_key(experiment)
        if self._loaded is None or self._loaded[0] != key:
            # Let go of the old data first: two copies might not fit.
            self._loaded = None
            self._loaded = key, experiment.load()
        return self._loaded[1]


_POLL = 0.2
"""Seconds after which an interrupt is noticed."""


def usable_cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        # Only Linux tells which cores a process may use.
        return os.cpu_count() or 1


def default_jobs(planned: Sequence[PlannedRun]) -> int:
    """As many processes as there are cores, or GPUs if all runs use one, and not more than runs."""
    on_gpu = bool(planned) and all(run.experiment.device != "cpu" for run in planned)
    devices = torch.cuda.device_count() if on_gpu else usable_cores()
    return max(min(devices, len(planned)), 1)


def visible_device(worker: int, count: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that shows a worker one GPU out of `count`, in turn; nothing where there is no choice."""
    if count < 2:
        return {}
    name = "CUDA_VISIBLE_DEVICES"
    devices = environment[name].split(",") if environment.get(name) else list(map(str, range(count)))
    return {name: devices[worker % count].strip()}


class _Worker:
    """A process that is given one run at a time."""

    def __init__(
        self, number: int, checkpoints: Checkpoints, threads: int, gpus: int, shared: Mapping[str, str]
    ) -> None:
        self._environment = {**visible_device(number, gpus, os.environ), **shared}
        self._arguments = *checkpoints, threads
        self.run: PlannedRun | None = None
        self._data: DataKey | None = None
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=start_worker, args=(theirs, *self._arguments), daemon=True
        )
        with _inherited(self._environment):
            self.process.start()
        theirs.close()

    def take(self, waiting: list[PlannedRun], study: StudyFolder) -> None:
        """Begin the next run, preferably one whose data it has; a process that has died is replaced."""
        if self.process.exitcode is not None:
            self._data = None
            self._start()
        alike = [run for run in waiting if data_key(run.experiment) == self._data]
        run = self.run = (alike or waiting)[0]
        self._data = data_key(run.experiment)
        waiting.remove(run)
        # A dead process is noticed when the next event is received.
        with suppress(OSError):
            self.connection.send((run.experiment, study.store(run)))

    def receive(self) -> Event | None:
        """The next event of the worker; None if its process has died."""
        try:
            event: Event = self.connection.recv()
        except (EOFError, ConnectionResetError):
            return None
        return event

    def interrupt(self) -> None:
        """Stop its run after the round, the second time immediately; without a run the process ends."""
        self.process.terminate()

    def stop(self) -> None:
        """Wait for the end of a worker that has no run or was interrupted."""
        self.connection.close()
        self.process.join()


def run_in_workers(
    study: StudyFolder,
    planned: Sequence[PlannedRun],
    *,
    jobs: int,
    checkpoints: Checkpoints,
    watch: Callable[[PlannedRun, Event], None],
    stop: threading.Event,
) -> None:
    """Give runs to `jobs` processes until all have ended or `stop` is set."""
    waiting, threads = list(planned), max(usable_cores() // jobs, 1)
    gpus = torch.cuda.device_count() if any(run.experiment.device == "cuda" for run in planned) else 0
    crowded = 0 < gpus < min(jobs, len(planned))
    none: AbstractContextManager[dict[str, str]] = nullcontext({})
    with shared_gpus() if crowded else none as shared:
        if crowded:
            how = (
                "share a GPU by NVIDIA MPS" if shared else "take turns on a GPU: NVIDIA MPS is not available"
            )
            watch(planned[0], Said(f"{-(-min(jobs, len(planned)) // gpus)} processes {how}."))
        workers = [
            _Worker(number, checkpoints, threads, gpus, shared) for number in range(min(jobs, len(planned)))
        ]
        _distribute(workers, waiting, study, watch, stop)


def _distribute(
    workers: Sequence[_Worker],
    waiting: list[PlannedRun],
    study: StudyFolder,
    watch: Callable[[PlannedRun, Event], None],
    stop: threading.Event,
) -> None:
    asked_to_stop = False
    try:
        while True:
            for worker in workers:
                if worker.run is None and waiting and not stop.is_set():
                    worker.take(waiting, study)
            busy = {worker.connection: worker for worker in workers if worker.run is not None}
            if not busy:
                return
            if stop.is_set() and not asked_to_stop:
                asked_to_stop = True
                for worker in busy.values():
                    worker.interrupt()
            for connection in wait(list(busy), timeout=_POLL):
                assert isinstance(connection, Connection)
                worker = busy[connection]
                event, run = worker.receive(), worker.run
                assert run is not None
                if event is None:
                    worker.stop()
                    lost = f"failed: its process ended with exit status {worker.process.exitcode}"
                    event = Ended("interrupted" if stop.is_set() else lost)
                if isinstance(event, Ended):
                    worker.run = None
                watch(run, event)
    finally:
        for worker in workers:
            worker.interrupt()
        for worker in workers:
            worker.stop()


def serve(connection: Connection, every: int, keep: bool, threads: int) -> None:
    """The loop of a worker: execute runs until its connection is closed."""
    torch.set_num_threads(threads)
    executor = RunExecutor(Checkpoints(every, keep))

    def tell(event: Event) -> None:
        try:
            connection.send(event)
        except OSError:
            # The parent process is gone; the run can be resumed.
            raise SystemExit(1) from None

    with suppress(EOFError, ConnectionError, KeyboardInterrupt), interrupts() as stop:
        while True:
            experiment, store = connection.recv()
            executor.run(experiment, store, tell, stop)


@contextmanager
def _inherited(environment: Mapping[str, str]) -> Iterator[None]:
    """Start processes with some variables set; they ignore Ctrl-C, which the terminal sends to all processes."""
    former = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        with handling([signal.SIGINT], signal.SIG_IGN):
            yield
    finally:
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
    """Execute the planned runs that are not finished yet; returns the outcome of each run by its folder.

    With more than one of `jobs` (by default one per core, or per GPU where all runs use one) the runs are distributed
    over as many processes. `watch` receives all events, in this process. A failed run does not stop the others.
    Without `keep_finished_checkpoints` a finished run keeps only its records and cannot be extended. Interrupts are
    those of `run_experiment`: running and waiting runs resume when the study is run again. A script that calls this
    with several jobs must do so under `if __name__ == "__main__":`, because the processes import it.
    """
    if jobs is not None and jobs < 1:
        raise FieldError(f"run_study.jobs must be at least 1, got {jobs}.")
    if checkpoint_every < 1:
        raise FieldError(f"run_study.checkpoint_every must be at least 1, got {checkpoint_every}.")
    checkpoints = Checkpoints(checkpoint_every, keep_finished_checkpoints)
    done = {run.folder for run in planned if study.store(run).is_done(run.experiment)}
    for run in planned:
        # Once, not in every run; finished runs need no device.
        if run.folder not in done:
            run.experiment.require_device()
    study.plan(planned)
    outcomes = {run.folder: "waiting" for run in planned}
    unsettled: dict[str, str] = {}
    due = 0.0

    def settle() -> None:
        nonlocal due
        began = monotonic()
        study.settle(unsettled)
        unsettled.clear()
        due = monotonic() + _INDEX_EVERY * (monotonic() - began)

    def note(run: PlannedRun, event: Event) -> None:
        if isinstance(event, Ended):
            outcomes[run.folder] = unsettled[run.folder] = event.outcome
        if unsettled and monotonic() > due:
            settle()
        watch(run, event)

    ahead = []
    for run in planned:
        if run.folder in done:
            note(run, Ended("finished", before=True))
        else:
            ahead.append(run)
    jobs = min(jobs or default_jobs(ahead), len(ahead))
    try:
        with interrupts(on_interrupt) as stop:
            if jobs > 1:
                run_in_workers(study, ahead, jobs=jobs, checkpoints=checkpoints, watch=note, stop=stop)
            else:
                executor = RunExecutor(checkpoints)
                for run in ahead:
                    if stop.is_set():
                        break
                    executor.run(run.experiment, study.store(run), partial(note, run), stop)
    finally:
        if unsettled:
            settle()
    return outcomes
