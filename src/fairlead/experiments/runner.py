"""Running an experiment in a folder: records, checkpoints, interrupts and resuming."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from math import isnan
from os import PathLike
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Literal

from fairlead.checkpoint.store import KEPT, warn
from fairlead.clients.source import FederatedData
from fairlead.diagnostics.measurement import chance_level
from fairlead.errors import FieldError, RunFolderError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.kept_models import keep_model
from fairlead.experiments.provenance import Provenance, client_facts, continued, ended, provenance_of
from fairlead.experiments.run_folder import RunFolder, RunSummary
from fairlead.federation import Federation
from fairlead.records import RoundRecord

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextmanager
def handling(signals: Iterable[int], handler: _Handler) -> Iterator[None]:
    """Let a handler receive signals, if this is the main thread: Python lets no other receive any."""
    in_main = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, handler) for number in signals if in_main}
    try:
        yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)


@contextmanager
def interrupts(on_interrupt: Callable[[], None] | None = None) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second raises `KeyboardInterrupt`."""
    interrupted = threading.Event()

    def receive(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        if on_interrupt:
            on_interrupt()

    # Signals that the parent process ignores stay ignored.
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    with handling(heeded, receive):
        yield interrupted


Ending = Literal["finished", "interrupted"]


@dataclass(frozen=True, eq=False)
class Run:
    """A run that finished or was interrupted."""

    federation: Federation
    folder: RunFolder
    outcome: Ending
    summary: RunSummary | None
    """Its summary; None if it was interrupted."""


def run_experiment(
    experiment: Experiment,
    folder: str | PathLike[str],
    *,
    resume: bool = False,
    checkpoint_every: int = 10,
    keep_checkpoints: int = KEPT,
    data: FederatedData | None = None,
    build: Callable[[], Federation] | None = None,
    stop: threading.Event | None = None,
    on_start: Callable[[Federation], None] | None = None,
    on_round: Callable[[RoundRecord], None] | None = None,
    on_interrupt: Callable[[], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
    on_recovery: Callable[[str], None] | None = None,
) -> Run:
    """Run an experiment and store it in a folder.

    With `resume` the run in the folder continues, with more rounds than before if asked; without a run in the folder
    a new one starts. There is a checkpoint every `checkpoint_every` rounds and after the last, and the
    `keep_checkpoints` newest are kept: if the newest is damaged, the run resumes from the one before. `data` are those
    of `Experiment.load`, if already loaded; `build` makes the federation instead of `Experiment.build`, for worlds
    that are not simulated. The callbacks are called when the federation is ready, after every round and at an
    interrupt; `on_notice` gets a sentence when the run is found to optimize another objective than intended
    (`Federation.notice`), and `on_recovery` one when resuming lost rounds or found a damaged checkpoint, for which a
    `CheckpointWarning` is issued without it.

    The first interrupt (Ctrl-C or SIGTERM) finishes the round and saves a checkpoint; the second stops immediately,
    and the run then resumes from the last checkpoint. A resumed run is the same, bit for bit, as an uninterrupted one.
    With `stop` signals are ignored, and the run ends after the round in which the event is set.
    """
    for name, value in (("checkpoint_every", checkpoint_every), ("keep_checkpoints", keep_checkpoints)):
        if value < 1:
            raise FieldError(f"run_experiment.{name} must be at least 1, got {value}.")
    store = RunFolder(Path(folder))
    fresh = not resume or store.is_free()
    if fresh:
        store.refuse_occupied()
    if build is None and data is None and experiment.preprocessing is not None:
        experiment.require_device()
        data = experiment.load()
    federation = experiment.build(data) if build is None else build()
    with store.claimed():
        again, damage = None, list[str]()
        if fresh:
            federation.records = store.begin(experiment)
        else:
            again = store.restore(federation, experiment, damage.append)

        def greet() -> None:
            if on_start:
                on_start(federation)
            for sentence in damage:
                (on_recovery or warn)(sentence)
            if on_recovery and again:
                on_recovery(again)

        def is_over() -> bool:
            return federation.stopped or federation.state.round == experiment.rounds

        # Restoring has removed the summary of a run with rounds left.
        summary = None if fresh else store.summary()
        if summary is not None:
            greet()
            return Run(federation, store, "finished", summary)
        if data is not None and data.agreement is not None:
            store.settle(data.agreement)
        best = None
        if experiment.keep_best is not None:
            best = experiment.best_so_far(experiment.keep_best).after(federation.records)
        with noted(store, federation) as start:
            greet()
            with interrupts(on_interrupt) if stop is None else nullcontext(stop) as interrupted:
                for record in federation.train(
                    experiment.rounds - federation.state.round,
                    evaluate_every=experiment.evaluate_every,
                    per_client=experiment.evaluates_clients,
                ):
                    done, stopping = federation.state.round, interrupted.is_set()
                    if best is not None and best.add(record):
                        keep_model(store.best_file, federation, best.metric, best.sign * best.score)
                    saving = stopping or done % checkpoint_every == 0 or is_over()
                    if saving:
                        store.save(federation, keep_checkpoints)
                    if saving or done == start.first_round + 1:
                        # A process that is killed cannot say later how it computed.
                        store.note(continued(start, federation), renew=True)
                    if on_round:
                        on_round(record)
                    if on_notice and federation.notice is not None:
                        on_notice(federation.notice)
                        on_notice = None
                    if stopping:
                        break
                if is_over():
                    summary = summarize(federation)
                    keep_model(store.model_file, federation)
                    store.conclude(summary)
        return Run(federation, store, "interrupted" if summary is None else "finished", summary)


@contextmanager
def noted(store: RunFolder, federation: Federation) -> Iterator[Provenance]:
    """Note clients and start of a run in its folder, and then its outcome.

    It is finished if it has a summary, else interrupted.
    """
    store.introduce(client_facts(federation))
    start = provenance_of(federation)
    store.note(start)
    try:
        yield start
    except BaseException as error:
        said = f"failed: {error}" if isinstance(error, Exception) else "interrupted"
        # On a full disk this fails too; the first error is the one to report.
        with suppress(RunFolderError):
            store.note(ended(start, federation, said), renew=True)
        raise
    outcome = "interrupted" if store.summary() is None else "finished"
    store.note(ended(start, federation, outcome), renew=True)


def summarize(federation: Federation) -> RunSummary:
    """The summary of a federation after its last round."""
    records, consistency, world = federation.records, federation.consistency(), federation.world
    simulation = world.simulation
    start = None if simulation is None else simulation.objective_at(*simulation.initial_model(federation.key))
    last = world.objective_at(federation.params, federation.state.buffers)
    evaluation = next((record.evaluation for record in reversed(records) if record.evaluation), None)
    return RunSummary(
        rounds=len(records),
        seconds=median(record.seconds for record in records) * len(records) if records else 0.0,
        train_loss=records[-1].train_loss if records else None,
        evaluation=evaluation,
        # Real clients that do not answer are no divergence.
        objective=None if simulation is None and isnan(last) else last,
        misplaced_weight=consistency.total_variation,
        misplaced_by_chance=chance_level(records, consistency.intended),
        chi_square=consistency.chi_square,
        predicted_chi_square=consistency.predicted_chi_square,
        by_design=consistency.restored,
        notice=federation.notice,
        privacy=federation.privacy,
        initial_objective=start,
    )
