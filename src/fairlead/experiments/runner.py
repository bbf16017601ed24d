"""Running an experiment in a folder: records, checkpoints, interrupts and resuming."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Literal

from fairlead.errors import FieldError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.provenance import now, provenance_of
from fairlead.experiments.run_folder import RunFolder
from fairlead.federation import Federation
from fairlead.records import RoundRecord


@dataclass(frozen=True, eq=False)
class Run:
    """A run that has ended, for now or for good."""

    federation: Federation
    folder: RunFolder
    outcome: Literal["finished", "interrupted"]


def run_experiment(
    experiment: Experiment,
    folder: str | PathLike[str],
    *,
    resume: bool = False,
    checkpoint_every: int = 10,
    on_start: Callable[[Federation], None] | None = None,
    on_round: Callable[[RoundRecord], None] | None = None,
    on_interrupt: Callable[[], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Run:
    """Run an experiment and keep it in a folder.

    With `resume` the run that the folder holds goes on, to more rounds than before if asked; a folder
    without one starts a new run. There is a checkpoint every `checkpoint_every` rounds and after the
    last. The functions are called when the federation is ready, after every round, at an interrupt, and
    once when the run is seen to optimise another objective than asked (`Federation.notice`).

    The first interrupt (Ctrl-C or SIGTERM) lets the round end and saves a checkpoint; the second stops
    at once, and resuming then starts from the last checkpoint. A resumed run is the same, bit for bit, as
    one that was never interrupted.
    """
    if checkpoint_every < 1:
        raise FieldError(f"run_experiment.checkpoint_every must be at least 1, got {checkpoint_every}.")
    store = RunFolder(Path(folder))
    federation = experiment.build()
    if resume and not store.is_free():
        store.restore(federation, experiment)
    else:
        store.begin(experiment)
    start = provenance_of(federation)
    store.note(start)
    if on_start:
        on_start(federation)
    outcome: Literal["finished", "interrupted"] = "finished"
    said = "interrupted"
    try:
        with _interrupts(on_interrupt) as interrupted:
            remaining = experiment.rounds - federation.state.round
            for record in federation.train(
                remaining, evaluate_every=experiment.evaluate_every, per_client=experiment.per_client
            ):
                store.append(record)
                done = federation.state.round
                stopping = interrupted.is_set()
                if stopping or done % checkpoint_every == 0 or done == experiment.rounds:
                    store.save(federation)
                if on_round:
                    on_round(record)
                if on_notice and federation.notice is not None:
                    on_notice(federation.notice)
                    on_notice = None
                if stopping and done < experiment.rounds:
                    outcome = "interrupted"
                    break
        said = outcome
    except Exception as error:
        said = f"failed: {error}"
        raise
    finally:
        ended = replace(start, ended=now(), next_round=federation.state.round, outcome=said)
        store.note(ended, renew=True)
    return Run(federation, store, outcome)


@contextmanager
def _interrupts(on_interrupt: Callable[[], None] | None) -> Iterator[threading.Event]:
    """An event that the first interrupt sets; the second raises `KeyboardInterrupt`."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        # Python lets only the main thread receive signals.
        yield interrupted
        return

    def receive(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        if on_interrupt:
            on_interrupt()

    previous = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
