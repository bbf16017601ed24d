"""Live figures of a run, and trackers for TensorBoard, MLflow, Weights & Biases and Aim."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.checkpoint.durable_files import write_durably
from fairlead.component import Component
from fairlead.errors import FieldError, optional_package
from fairlead.experiments.record_io import row_of
from fairlead.experiments.run_folder import RunFolder
from fairlead.plain_data import to_plain
from fairlead.records import Evaluation, RoundRecord


class RoundFigures(NamedTuple):
    """A round in a few numbers."""

    done: int
    """Rounds so far, this one included."""
    arrived: int
    asked: int
    train_loss: float | None
    evaluation: Evaluation | None
    """The latest, without figures per client."""
    evaluated: bool
    """Whether it was made in this round."""


def figures_of(record: RoundRecord, evaluation: Evaluation | None = None) -> RoundFigures:
    """The figures of a record; `evaluation` is that of an earlier round, for a record without one."""
    own = record.evaluation
    return RoundFigures(
        done=record.round + 1,
        arrived=len(record.arrived),
        asked=len(record.asked),
        train_loss=record.train_loss,
        evaluation=evaluation if own is None else Evaluation(own.loss, own.metrics),
        evaluated=own is not None,
    )


class LiveFigures:
    """The figures of each round, with the latest evaluation so far."""

    def __init__(self) -> None:
        self._evaluation: Evaluation | None = None

    def of(self, record: RoundRecord) -> RoundFigures:
        """The figures of the round that has just ended."""
        figures = figures_of(record, self._evaluation)
        self._evaluation = figures.evaluation
        return figures


class Tracker(ABC):
    """Receives the rounds of a run as they end."""

    @abstractmethod
    def write(self, record: RoundRecord) -> None:
        """Write a round as step `round + 1`, the number of finished rounds."""

    @abstractmethod
    def close(self, outcome: str) -> None:
        """Finish with the outcome of the run."""


class TensorBoardTracker(Tracker):
    """Scalars in the folder `tensorboard` of the run: `tensorboard --logdir runs` shows them.

    A resumed run continues in the same folder, and hides the rounds that it recomputes.
    """

    def __init__(self, tensorboard: Any, store: RunFolder, experiment: Component, first_round: int) -> None:
        purge = first_round + 1 if first_round else None
        self._writer = tensorboard.SummaryWriter(str(store.path / "tensorboard"), purge_step=purge)

    def write(self, record: RoundRecord) -> None:
        for name, value in _numbers(record).items():
            self._writer.add_scalar(name, value, record.round + 1)

    def close(self, outcome: str) -> None:
        self._writer.close()


class MlflowTracker(Tracker):
    """A run of the MLflow experiment "fairlead", where `MLFLOW_TRACKING_URI` says.

    The spec becomes its parameters. A resumed run continues in the same one, whose id is in the folder.
    """

    def __init__(self, mlflow: Any, store: RunFolder, experiment: Component, first_round: int) -> None:
        self._client = mlflow.MlflowClient()
        id_file = store.path / "mlflow_run_id"
        if kept := _kept_id(id_file, first_round):
            self._run = kept
            self._client.update_run(self._run, status="RUNNING")
            return
        known = self._client.get_experiment_by_name("fairlead")
        owner = known.experiment_id if known else self._client.create_experiment("fairlead")
        self._run = self._client.create_run(owner, run_name=str(store.path)).info.run_id
        write_durably(id_file, self._run.encode() + b"\n")
        for name, value in flat_spec(experiment).items():
            self._client.log_param(self._run, name, value)

    def write(self, record: RoundRecord) -> None:
        for name, value in _numbers(record).items():
            self._client.log_metric(self._run, name, value, step=record.round + 1)

    def close(self, outcome: str) -> None:
        status = {"finished": "FINISHED", "interrupted": "KILLED"}.get(outcome, "FAILED")
        self._client.set_terminated(self._run, status)


class WandbTracker(Tracker):
    """A run of the Weights & Biases project "fairlead"; `WANDB_MODE=offline` keeps it in the folder of the run.

    The spec becomes its config. A resumed run continues in the same one, whose id is in the folder.
    """

    def __init__(self, wandb: Any, store: RunFolder, experiment: Component, first_round: int) -> None:
        known = _kept_id(store.path / "wandb_run_id", first_round)
        self._run = wandb.init(
            project="fairlead",
            name=str(store.path),
            id=known,
            resume="allow" if known else None,
            config=flat_spec(experiment),
            dir=str(store.path),
        )
        write_durably(store.path / "wandb_run_id", self._run.id.encode() + b"\n")

    def write(self, record: RoundRecord) -> None:
        self._run.log(_numbers(record), step=record.round + 1)

    def close(self, outcome: str) -> None:
        self._run.finish(exit_code=0 if outcome == "finished" else 1)


class AimTracker(Tracker):
    """A run of the Aim experiment "fairlead", in the repository of the working directory: `aim up` shows it.

    The spec becomes its parameters. A resumed run continues in the same one, whose hash is in the folder.
    """

    def __init__(self, aim: Any, store: RunFolder, experiment: Component, first_round: int) -> None:
        known = _kept_id(store.path / "aim_run_hash", first_round)
        self._run = aim.Run(run_hash=known, experiment="fairlead", system_tracking_interval=None)
        self._run.name = str(store.path)
        self._run["spec"] = flat_spec(experiment)
        write_durably(store.path / "aim_run_hash", self._run.hash.encode() + b"\n")

    def write(self, record: RoundRecord) -> None:
        for name, value in _numbers(record).items():
            self._run.track(value, name=name, step=record.round + 1)

    def close(self, outcome: str) -> None:
        self._run["outcome"] = outcome
        self._run.close()


def _kept_id(file: Path, first_round: int) -> str | None:
    """The id of the run that a resumed one continues; None for a new one."""
    return file.read_text().strip() if first_round and file.exists() else None


OpenTracker = Callable[[RunFolder, Component, int], Tracker]
"""Opens the log of a run, given its folder, its experiment or algorithm, and the rounds that it has already."""


_TRACKERS: dict[str, tuple[Callable[..., Tracker], str, str]] = {
    "tensorboard": (TensorBoardTracker, "torch.utils.tensorboard", "pip install 'tensorboard>=2.16,<3'"),
    "mlflow": (MlflowTracker, "mlflow", "pip install 'mlflow-skinny>=2.16,<4'"),
    "wandb": (WandbTracker, "wandb", "pip install 'wandb>=0.19,<1'"),
    "aim": (AimTracker, "aim", "pip install 'aim>=3.25,<4'"),
}
"""Each tracker with the module that it needs, and the command that installs it."""


def tracker_named(name: str, setting: str = "--log") -> OpenTracker:
    """The constructor of the tracker with that name; a missing package raises now, before the run starts."""
    if name not in _TRACKERS:
        raise FieldError(f"{setting} must be one of {', '.join(sorted(_TRACKERS))}, got {name!r}.")
    tracker, module, command = _TRACKERS[name]
    needs = f"The log {name} needs a package: install it with {command}."
    return partial(tracker, optional_package(module, needs))


def _numbers(record: RoundRecord) -> dict[str, float]:
    row = row_of(record)
    del row["round"]
    return {name: float(value) for name, value in row.items() if value is not None}


def flat_spec(run: Component) -> dict[str, str]:
    """The fields of what describes a run as text, by their paths in a spec; those at their default are left out."""

    def leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from leaves(item, f"{path}.{key}")
        else:
            yield path.removeprefix("."), str(value)

    return dict(leaves(to_plain(run, type(run)), ""))
