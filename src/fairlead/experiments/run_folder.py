"""`RunFolder`: a run on disk.

spec.toml         the experiment, its preset expanded
rounds.jsonl      one JSON object per round, written as the round ends
provenance.json   versions, device, engine, times and outcome of every start of the run
checkpoint/       the server state from which the run can go on
summary.json      what came of it, once it is finished
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path

from fairlead.checkpoint import has_checkpoint, write_durably
from fairlead.errors import FieldError, RunFolderError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.provenance import Provenance
from fairlead.experiments.record_lines import decoded, record_from_line, record_to_line, strict
from fairlead.experiments.spec import load_experiment, to_toml
from fairlead.experiments.summary import RunSummary
from fairlead.federation import Federation
from fairlead.records import RoundRecord


def load_records(folder: str | PathLike[str]) -> list[RoundRecord]:
    """The records of a run, from its folder."""
    return RunFolder(Path(folder)).records()


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    A crash at any moment leaves it readable: a line that was cut short is ignored, and what comes
    after the last checkpoint is dropped and computed again when the run is resumed.
    """

    path: Path

    @property
    def spec_file(self) -> Path:
        return self.path / "spec.toml"

    @property
    def rounds_file(self) -> Path:
        return self.path / "rounds.jsonl"

    @property
    def provenance_file(self) -> Path:
        return self.path / "provenance.json"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def summary_file(self) -> Path:
        return self.path / "summary.json"

    def is_free(self) -> bool:
        """Whether a new run may use this folder: nothing of a run is in it, or no finished round."""
        if self.rounds_file.exists():
            return self.rounds_file.stat().st_size == 0
        return not any(file.exists() for file in (self.spec_file, self.provenance_file, self.checkpoint))

    def is_done(self, experiment: Experiment) -> bool:
        """Whether the experiment has been run to its end here."""
        summary = self.summary()
        return summary is not None and summary.rounds == experiment.rounds and self.experiment() == experiment

    def refuse_occupied(self) -> None:
        """Raise if a new run may not use this folder."""
        with self._one_sentence("read"):
            if not self.is_free():
                raise RunFolderError(
                    f"{self.path} already holds {self._contents()}: resume it, or choose another folder."
                )

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the folder for this process; one that another process holds is refused."""
        with self._one_sentence("written"):
            self.path.mkdir(parents=True, exist_ok=True)
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

    def begin(self, experiment: Experiment) -> None:
        """Make the claimed folder that of a new run; a folder that holds another one is refused."""
        spec = to_toml(experiment)
        self.refuse_occupied()
        with self._one_sentence("written"):
            write_durably(self.spec_file, spec.encode())
            self.provenance_file.unlink(missing_ok=True)

    def restore(self, federation: Federation, experiment: Experiment) -> str | None:
        """Put a fresh federation where the run in this folder stopped, records included.

        Returns a sentence on rounds that have to be computed again, if there are any.
        """
        self.refuse_another(experiment)
        if has_checkpoint(self.checkpoint):
            federation.resume(self.checkpoint)
        done = federation.state.round
        if done > experiment.rounds:
            raise RunFolderError(
                f"The run in {self.path} is already {done} rounds long: {experiment.rounds} are too few."
            )
        *lines, rest = self._split()
        if len(lines) < done:
            raise RunFolderError(
                f"{self.rounds_file} holds {len(lines)} rounds, but the checkpoint was made after {done}: "
                "this run cannot be resumed."
            )
        federation.records[:] = self._parse(lines[:done])
        with self._one_sentence("written"):
            os.truncate(self.rounds_file, sum(len(line) + 1 for line in lines[:done]))
            write_durably(self.spec_file, to_toml(experiment).encode())
            if done < experiment.rounds:
                self.summary_file.unlink(missing_ok=True)
        return _computed_again(done, len(lines) - done, cut_short=bool(rest))

    def append(self, record: RoundRecord) -> None:
        """Add the record of a round."""
        with self._one_sentence("written"), self.rounds_file.open("a", encoding="utf-8") as file:
            file.write(record_to_line(record) + "\n")

    def save(self, federation: Federation) -> None:
        """Write a checkpoint, after making sure that the records before it are on the disk."""
        with self._one_sentence("written"):
            with self.rounds_file.open("a") as file:
                os.fsync(file.fileno())
            federation.save(self.checkpoint)

    def experiment(self) -> Experiment:
        """The experiment of the run."""
        return load_experiment(self.spec_file)

    def records(self) -> list[RoundRecord]:
        """All rounds that ended."""
        return self._parse(self._lines())

    def conclude(self, summary: RunSummary) -> None:
        """Keep what came of the run, which is thereby done."""
        content = json.dumps(strict(asdict(summary)), indent=2, allow_nan=False)
        with self._one_sentence("written"):
            write_durably(self.summary_file, content.encode() + b"\n")

    def summary(self) -> RunSummary | None:
        """What came of the run, or None if it is not finished."""
        if not self.summary_file.exists():
            return None
        with self._one_sentence("read"):
            content = self.summary_file.read_bytes()
        try:
            return decoded(RunSummary, json.loads(content))
        except (ValueError, TypeError) as error:
            raise RunFolderError(f"{self.summary_file} is damaged: {error}.") from error

    def note(self, start: Provenance, *, renew: bool = False) -> None:
        """Add a start of the run to its provenance, or renew what is said of the latest."""
        starts = self.provenance()
        starts = [*(starts[:-1] if renew else starts), start]
        content = json.dumps([asdict(each) for each in starts], indent=2, allow_nan=False)
        with self._one_sentence("written"):
            write_durably(self.provenance_file, content.encode() + b"\n")

    def provenance(self) -> list[Provenance]:
        """Every start of the run, oldest first."""
        if not self.provenance_file.exists():
            return []
        with self._one_sentence("read"):
            content = self.provenance_file.read_bytes()
        try:
            return [Provenance(**each) for each in json.loads(content)]
        except (ValueError, TypeError) as error:
            raise RunFolderError(f"{self.provenance_file} is damaged: {error}.") from error

    def _contents(self) -> str:
        if not self.rounds_file.exists():
            return "files of the same names as a run's"
        return f"a run of {len(self._lines())} rounds"

    def refuse_another(self, experiment: Experiment) -> None:
        """Raise if the run in this folder is of another experiment: resuming may only lengthen it."""
        own = self.experiment()
        differing = [
            field.name
            for field in fields(experiment)
            if field.name != "rounds" and getattr(experiment, field.name) != getattr(own, field.name)
        ]
        if differing:
            raise RunFolderError(
                f"The run in {self.path} is another experiment, with a different {' and '.join(differing)}: "
                "resume it with its own spec.toml, or choose another folder."
            )

    def _lines(self) -> list[bytes]:
        """Complete lines of the records' file; one that a crash cut short has no line break."""
        return self._split()[:-1]

    def _split(self) -> list[bytes]:
        with self._one_sentence("read"):
            return self.rounds_file.read_bytes().split(b"\n")

    def _parse(self, lines: list[bytes]) -> list[RoundRecord]:
        records = []
        for number, line in enumerate(lines):
            try:
                records.append(record_from_line(line.decode()))
            except (FieldError, UnicodeDecodeError) as error:
                raise RunFolderError(f"Line {number + 1} of {self.rounds_file} is damaged.") from error
            if records[-1].round != number:
                raise RunFolderError(
                    f"Line {number + 1} of {self.rounds_file} should be round {number}, and is round "
                    f"{records[-1].round}."
                )
        return records

    @contextmanager
    def _one_sentence(self, verb: str) -> Iterator[None]:
        """Say in one sentence what the disk refused."""
        try:
            yield
        except OSError as error:
            file = error.filename or self.path
            raise RunFolderError(f"{file} cannot be {verb}: {error.strerror}.") from error


def _computed_again(done: int, later: int, *, cut_short: bool) -> str | None:
    """A sentence on what a run loses that is resumed from a checkpoint."""
    if not later and not cut_short:
        return None
    lost = []
    if later:
        lost.append(f"{later} later {'round is' if later == 1 else 'rounds are'} computed again")
    if cut_short:
        lost.append("a last line that was cut short is dropped")
    return f"Going on after round {done}, the last checkpoint: {', and '.join(lost)}."
