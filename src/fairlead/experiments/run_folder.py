"""`RunFolder`: a run on disk.

spec.toml         the experiment, its preset expanded
rounds.jsonl      one JSON object per round, written as the round ends
clients.json      weights and names of its clients, for readers without their data
provenance.json   versions, device, engine, times and outcome of every start of the run
checkpoint/       the last few server states, from which the run can resume
model.safetensors the final model, its parameters by name, once the run is finished
best.safetensors  the model with the best evaluation, for experiments with `keep_best`
summary.json      its summary, once it is finished
preprocessing.json what clients agreed on before round 1, for experiments with `preprocessing`
"""

import fcntl
import json
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, overload

from fairlead.checkpoint.durable_files import make_folder, write_durably
from fairlead.checkpoint.store import KEPT, has_checkpoint
from fairlead.clients.preprocessing import Agreement
from fairlead.errors import FieldError, RunFolderError, disk_errors
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.provenance import ClientFacts, Provenance
from fairlead.experiments.record_io import FactsT, decoded, record_from_line, record_to_line, strict
from fairlead.experiments.spec import load_experiment, to_toml
from fairlead.federation import Federation
from fairlead.privacy import PrivacyStatement
from fairlead.records import Evaluation, RoundRecord, StoredRecords
from fairlead.text import counted, listed


class RoundsFile(StoredRecords):
    """The complete lines of a file, in eight bytes of memory per round.

    A line that a crash cut short has no line break and does not count; the next one replaces it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends = array("q", [0])
        self._last: RoundRecord | None = None
        with disk_errors(path, "read"), path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    self._ends.append(self._ends[-1] + len(line))
            self.cut_short = file.tell() > self._ends[-1]
            """Whether there is a line without an end."""

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> RoundRecord: ...
    @overload
    def __getitem__(self, place: slice) -> list[RoundRecord]: ...
    def __getitem__(self, place: int | slice) -> RoundRecord | list[RoundRecord]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number = range(len(self))[place]
        if number == len(self) - 1 and self._last is not None:
            return self._last
        with disk_errors(self.path, "read"), self.path.open("rb") as file:
            file.seek(self._ends[number])
            line = file.read(self._ends[number + 1] - self._ends[number])
        return self._parsed(line, number)

    def __iter__(self) -> Iterator[RoundRecord]:
        with disk_errors(self.path, "read"), self.path.open("rb") as file:
            for number, line in enumerate(islice(file, len(self))):
                yield self._parsed(line, number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def append(self, record: RoundRecord) -> None:
        line = record_to_line(record).encode() + b"\n"
        with disk_errors(self.path, "written"), self.path.open("ab") as file:
            file.write(line)
        self._ends.append(self._ends[-1] + len(line))
        self._last = record

    def require_readable(self, length: int) -> None:
        """Raise if one of the first `length` records is damaged."""
        for _ in islice(self, length):
            pass

    def cut(self, length: int) -> None:
        """Keep the first `length` records."""
        with disk_errors(self.path, "written"):
            os.truncate(self.path, self._ends[length])
        del self._ends[length + 1 :]
        self._last, self.cut_short = None, False

    def _parsed(self, line: bytes, number: int) -> RoundRecord:
        try:
            record = record_from_line(line.decode())
        except (FieldError, UnicodeDecodeError) as error:
            raise RunFolderError(f"Line {number + 1} of {self.path} is damaged.") from error
        if record.round != number:
            raise RunFolderError(
                f"Line {number + 1} of {self.path} should be round {number + 1}, and is round {record.round + 1}."
            )
        return record


@dataclass(frozen=True)
class RunSummary:
    """A finished run in a few numbers."""

    rounds: int
    seconds: float
    """The median round times the number of rounds, without evaluations."""
    train_loss: float | None
    """Of the last round; None if nothing arrived."""
    evaluation: Evaluation | None
    """The last one, with figures per client where the run has them; None if the model was never evaluated."""
    objective: float | None
    """Σ ω_i F_i of the final model: the intended loss, over the clients' training data; None if no client told it."""
    misplaced_weight: float | None
    """½ Σ |ω_i − Ω_i| as measured; None where there are no such weights."""
    misplaced_by_chance: float
    """The share that lost updates and draws alone would misplace in as many rounds."""
    chi_square: float | None
    """χ²(ω‖Ω) as measured."""
    predicted_chi_square: float | None
    """χ²(ω‖Ω) of theory."""
    by_design: bool
    """Whether the method's corrections guarantee that no weight is misplaced."""
    notice: str | None
    """The notice during training that the run optimizes another objective."""
    privacy: PrivacyStatement | None = None
    """The privacy guarantee of the models; None for an algorithm without one."""
    initial_objective: float | None = None
    """Σ ω_i F_i of the initial model; None with real clients, which are not asked for it."""

    @property
    def learned(self) -> bool:
        """Whether the final model has a lower objective than the initial one, or that is not known."""
        first, last = self.initial_objective, self.objective
        return first is None or last is None or last < first


def read_facts(file: Path, decode: Callable[[Any], FactsT]) -> FactsT:
    """What `decode` makes of the content of a JSON file."""
    with disk_errors(file, "read"):
        content = file.read_bytes()
    try:
        return decode(json.loads(content))
    except (ValueError, TypeError, RecursionError) as error:
        raise RunFolderError(f"{file} is damaged: {error}.") from error


def write_facts(file: Path, facts: Any, indent: int | None = 2) -> None:
    """Write plain data as strict JSON, so that a crash leaves the old file or the new one."""
    content = json.dumps(strict(facts), indent=indent, allow_nan=False, ensure_ascii=False)
    with disk_errors(file, "written"):
        make_folder(file.parent)
        write_durably(file, content.encode() + b"\n")


def load_agreement(place: str | PathLike[str]) -> Agreement:
    """The preprocessing of a run, from its folder or from the file beside an exported model."""
    path = Path(place)
    file = RunFolder(path).agreement_file if path.is_dir() else path
    return read_facts(file, lambda facts: decoded(Agreement, facts))


def load_records(folder: str | PathLike[str]) -> list[RoundRecord]:
    """The records of a run, from its folder."""
    return RunFolder(Path(folder)).records()


class _FileName:
    """The name of a file; as an attribute of a `RunFolder`, its path there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "RunFolder", owner: type["RunFolder"]) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    A crash at any moment leaves it readable: a line that was cut short is ignored, and rounds
    after the last checkpoint are dropped and recomputed when the run is resumed.
    """

    path: Path

    spec_file = _FileName("spec.toml")
    rounds_file = _FileName("rounds.jsonl")
    provenance_file = _FileName("provenance.json")
    clients_file = _FileName("clients.json")
    checkpoint = _FileName("checkpoint")
    summary_file = _FileName("summary.json")
    model_file = _FileName("model.safetensors")
    best_file = _FileName("best.safetensors")
    agreement_file = _FileName("preprocessing.json")

    def holds_run(self) -> bool:
        """Whether a run has started here."""
        return self.spec_file.is_file() and self.rounds_file.is_file()

    def is_free(self) -> bool:
        """Whether a new run may use this folder: nothing of a run is in it, or no finished round."""
        if self.rounds_file.exists():
            return self.rounds_file.stat().st_size == 0
        return not any(file.exists() for file in (self.spec_file, self.provenance_file, self.checkpoint))

    def is_done(self, experiment: Experiment) -> bool:
        """Whether the experiment has been run to its end here."""
        summary = self.summary()
        if summary is None or self.experiment() != experiment.recorded():
            return False
        return summary.rounds == experiment.rounds or experiment.stopped_by(self.log()) is not None

    def refuse_occupied(self) -> None:
        """Raise if a new run may not use this folder."""
        with disk_errors(self.path, "read"):
            if self.is_free():
                return
            held = "files of the same names as a run's"
            if self.rounds_file.exists():
                held = f"a run of {counted(len(self.log()), 'round')}, which fairlead run {self.path} resumes"
            raise RunFolderError(f"{self.path} already holds {held}: choose another folder for a new run.")

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the folder for this process; one that another process holds is refused.

        The hold ends with the process, however that ends.
        """
        with disk_errors(self.path, "written"):
            make_folder(self.path)
            self._refuse_links()
            # The records' file, since it is the first that a run has: it marks the folder as ours.
            file = self.rounds_file.open("a")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(
                    f"{self.path} is in use by another process: wait for it to end, or choose another folder."
                ) from None
            except OSError:
                # Some network file systems have no locks; a run there goes unguarded.
                pass
            yield

    def begin(self, experiment: Experiment) -> RoundsFile:
        """Make the claimed folder that of a new run and return its records; one that holds another is refused."""
        spec = _spec_of(experiment)
        self.refuse_occupied()
        with disk_errors(self.path, "written"):
            write_durably(self.spec_file, spec.encode())
            for file in (self.provenance_file, self.summary_file, self.model_file, self.best_file):
                file.unlink(missing_ok=True)
        return self.log()

    def restore(
        self, federation: Federation, experiment: Experiment, on_damage: Callable[[str], None]
    ) -> str | None:
        """Restore a fresh federation to the state in which the run in this folder stopped, records included.

        Returns a sentence on rounds that have to be recomputed, if there are any; `on_damage` gets one if the newest
        checkpoint cannot be used.
        """
        self.refuse_another(experiment)
        finished = self.summary() is not None
        if has_checkpoint(self.checkpoint):
            federation.resume(self.checkpoint, on_damage)
        elif finished:
            raise RunFolderError(
                f"The run in {self.path} is finished and kept no checkpoint, so it can be neither resumed nor extended."
            )
        done = federation.state.round
        if done > experiment.rounds:
            raise RunFolderError(
                f"The run in {self.path} is already {done} rounds long: {experiment.rounds} are too few."
            )
        log = self.log()
        if len(log) < done:
            raise RunFolderError(
                f"{self.rounds_file} holds {len(log)} rounds, but the checkpoint was made after {done}: "
                "this run cannot be resumed."
            )
        again = _computed_again(done, len(log) - done, cut_short=log.cut_short)
        log.require_readable(done)
        federation.records = log
        over = done == experiment.rounds or experiment.stopped_by(islice(log, done)) is not None
        if finished and again is None and over and self.experiment() == experiment.recorded():
            return None
        with disk_errors(self.path, "written"):
            # The summary goes first: a run that loses rounds is no longer finished.
            if not over:
                self.summary_file.unlink(missing_ok=True)
                self.model_file.unlink(missing_ok=True)
            log.cut(done)
            write_durably(self.spec_file, _spec_of(experiment).encode())
        return again

    def log(self) -> RoundsFile:
        """The records of the run, read lazily from its file."""
        return RoundsFile(self.rounds_file)

    def save(self, federation: Federation, keep: int = KEPT) -> None:
        """Write a checkpoint, after making sure that the records before it are on the disk."""
        self.sync_rounds()
        federation.save(self.checkpoint, keep=keep)

    def sync_rounds(self) -> None:
        """Make sure that the records are on the disk."""
        with disk_errors(self.rounds_file, "written"), self.rounds_file.open("ab") as file:
            os.fsync(file.fileno())

    def experiment(self) -> Experiment:
        """The experiment of the run."""
        return load_experiment(self.spec_file)

    def records(self) -> list[RoundRecord]:
        """All rounds that ended."""
        return list(self.log())

    def conclude(self, summary: RunSummary) -> None:
        """Store the summary of the run, which is thereby finished."""
        write_facts(self.summary_file, asdict(summary))

    def summary(self) -> RunSummary | None:
        """The summary of the run, or None if it is not finished."""
        return self._kept(self.summary_file, RunSummary)

    def introduce(self, clients: ClientFacts) -> None:
        """Store the weights and names of the clients."""
        write_facts(self.clients_file, asdict(clients), indent=None)

    def clients(self) -> ClientFacts | None:
        """Weights and names of the clients; None in folders without them."""
        return self._kept(self.clients_file, ClientFacts)

    def settle(self, agreement: Agreement) -> None:
        """Store the preprocessing that the clients agreed on."""
        write_facts(self.agreement_file, asdict(agreement), indent=None)

    def agreement(self) -> Agreement | None:
        """The preprocessing that the clients agreed on; None without one."""
        return self._kept(self.agreement_file, Agreement)

    def note(self, start: Provenance, *, renew: bool = False) -> None:
        """Add a start of the run to its provenance, or replace the latest."""
        starts = self.provenance()
        starts = [*(starts[:-1] if renew else starts), start]
        write_facts(self.provenance_file, [asdict(each) for each in starts])

    def provenance(self) -> list[Provenance]:
        """Every start of the run, oldest first."""
        if not self.provenance_file.exists():
            return []
        return read_facts(self.provenance_file, lambda starts: [decoded(Provenance, each) for each in starts])

    def _kept(self, file: Path, declared: type[FactsT]) -> FactsT | None:
        """The facts in a file; None if there is no such file."""
        return read_facts(file, lambda facts: decoded(declared, facts)) if file.exists() else None

    def _refuse_links(self) -> None:
        """Raise if a file of the run is a link, because writing to it would change another folder."""
        for name, kind in vars(RunFolder).items():
            if isinstance(kind, _FileName) and (file := getattr(self, name)).is_symlink():
                raise RunFolderError(
                    f"{file} is a symbolic link, and a run writes to its own folder only: put the file itself "
                    "there, or choose another folder."
                )

    def refuse_another(self, experiment: Experiment) -> None:
        """Raise if the run in this folder is of another experiment: resuming may only lengthen it."""
        own, experiment = self.experiment(), experiment.recorded()
        differing = [
            field.name
            for field in fields(experiment)
            if field.name != "rounds" and getattr(experiment, field.name) != getattr(own, field.name)
        ]
        if differing:
            raise RunFolderError(
                f"The run in {self.path} is another experiment, with a different {listed(differing, len(differing))}: "
                "resume it with its own spec.toml, or choose another folder."
            )


_IN_MEMORY = """\
# Data, model or functions of this run were in the memory of a Python program. This file notes their names and
# digests, but cannot hold them: `fairlead run` cannot repeat or resume the run. Use run_experiment(experiment,
# folder, resume=True) in Python, with the same data.

"""


def _spec_of(experiment: Experiment) -> str:
    """The text of spec.toml."""
    return (_IN_MEMORY if experiment.is_in_memory else "") + to_toml(experiment.recorded())


def _computed_again(done: int, later: int, *, cut_short: bool) -> str | None:
    """A sentence on the rounds that resuming from a checkpoint loses."""
    lost = [f"{later} later {'round is' if later == 1 else 'rounds are'} recomputed"] if later else []
    if cut_short:
        lost.append("a last line that was cut short is dropped")
    return f"Resuming after round {done}, the last checkpoint: {', and '.join(lost)}." if lost else None
