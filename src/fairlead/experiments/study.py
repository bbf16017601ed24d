"""`StudyFolder`: a folder of runs that belong together, as a comparison or a sweep makes it.

runs.json   folder, labels and outcome of each run
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

from fairlead.errors import RunFolderError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.run_folder import RunFolder, read_facts, write_facts
from fairlead.text import counted

Label = str | int | float | bool

_LONGEST_NAME = 100


@dataclass(frozen=True)
class PlannedRun:
    """A planned run of a study."""

    folder: str
    """Below that of the study."""
    labels: Mapping[str, Label]
    """Its labels, such as method and seed."""
    experiment: Experiment

    @property
    def name(self) -> str:
        """Its labels in one line."""
        return describe_labels(self.labels)


@dataclass(frozen=True)
class StudyRun:
    """A run in the index of its study."""

    folder: str
    labels: Mapping[str, Label]
    outcome: str = "waiting"
    """"waiting", "finished", "interrupted" or "failed: " with the reason."""


@dataclass(frozen=True)
class StudyFolder:
    """The folder of a study."""

    path: Path

    @property
    def index_file(self) -> Path:
        return self.path / "runs.json"

    def runs(self) -> list[StudyRun]:
        """All runs of the study, in the order in which they were planned."""
        return read_facts(self.index_file, lambda runs: [StudyRun(**run) for run in runs])

    def store(self, run: PlannedRun | StudyRun) -> RunFolder:
        """The folder of a run."""
        return RunFolder(self.path / run.folder)

    def plan(self, planned: Sequence[PlannedRun]) -> None:
        """Enter runs into the index, after those that it has; folders with other experiments are refused."""
        for run in planned:
            if not self.store(run).is_free():
                self.store(run).refuse_another(run.experiment)
        known = {run.folder: run for run in self.runs()} if self.index_file.exists() else {}
        for run in planned:
            known.setdefault(run.folder, StudyRun(run.folder, run.labels))
        self._write(list(known.values()))

    def put_first(self, planned: Sequence[PlannedRun]) -> None:
        """Move runs to the front of the index: the first method is the default baseline of every comparison."""
        known = {run.folder: run for run in self.runs()}
        self._write(list({**{run.folder: known[run.folder] for run in planned}, **known}.values()))

    def refuse_other_lengths(self, planned: Sequence[PlannedRun]) -> None:
        """Raise if a run here has another number of rounds than the planned ones, unless the study varies it."""
        asked = sorted({run.experiment.rounds for run in planned})
        for run in self.runs() if self.index_file.exists() else ():
            store = self.store(run)
            if "rounds" in run.labels or store.is_free():
                continue
            rounds = store.experiment().rounds
            if rounds not in asked:
                raise RunFolderError(
                    f"{self.path} holds runs of {counted(rounds, 'round')}, which cannot be compared with runs of "
                    f"{' and '.join(map(str, asked))}: choose another folder with --output."
                )

    def settle(self, run: PlannedRun, outcome: str) -> None:
        """Note how a run ended."""
        self._write(
            [replace(each, outcome=outcome) if each.folder == run.folder else each for each in self.runs()]
        )

    def _write(self, runs: Sequence[StudyRun]) -> None:
        write_facts(self.index_file, [asdict(run) for run in runs])


def describe_labels(labels: Mapping[str, Label]) -> str:
    """Labels in one line: a method by its name alone, a seed as such, anything else as key=value."""
    words = {"method": "{value}", "seed": "seed {value}"}
    return ", ".join(words.get(key, f"{key}={{value}}").format(value=value) for key, value in labels.items())


def folder_name(text: str) -> str:
    """A text as the name of a folder: the same where that is possible, else with a digest that tells it apart."""
    plain = re.sub(r"[^A-Za-z0-9._=,+-]+", "_", text.replace(":", ",")).lstrip(".")
    if plain == text.replace(":", ",") and 0 < len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[:_LONGEST_NAME]}-{sha256(text.encode()).hexdigest()[:8]}"
