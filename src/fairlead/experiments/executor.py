"""One run of a study after another in one process, which keeps the data that they share."""

import shutil
import threading
import traceback
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from fairlead.checkpoint.durable_files import write_durably
from fairlead.clients.source import ClientSource, FederatedData
from fairlead.errors import FairleadError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.live_figures import LiveFigures, RoundFigures
from fairlead.experiments.run_folder import RunFolder
from fairlead.experiments.runner import run_experiment
from fairlead.federation import Federation
from fairlead.records import RoundRecord

_PAUSE = 0.2
"""Seconds between two reports of rounds: more are unreadable."""


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
DataKey = tuple[ClientSource, int]


def data_key(experiment: Experiment) -> DataKey:
    """What determines the data of an experiment."""
    return experiment.clients, experiment.seed


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
        try:
            outcome = self._run(experiment, store, tell, stop)
        except FairleadError as error:
            outcome = f"failed: {error}"
        except Exception as error:
            outcome = f"failed: {type(error).__name__}: {error} (see error.txt in its folder)"
            store.path.mkdir(parents=True, exist_ok=True)
            write_durably(store.path / "error.txt", traceback.format_exc().encode())
        tell(Ended(outcome))

    def _run(
        self, experiment: Experiment, store: RunFolder, tell: Callable[[Event], None], stop: threading.Event
    ) -> str:
        live: LiveFigures
        told = float("-inf")

        def begin(federation: Federation) -> None:
            nonlocal live
            live = LiveFigures(federation)
            tell(Began(federation.state.round))

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
            on_start=begin,
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
