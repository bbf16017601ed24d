"""Studies: runs that belong together, as a comparison or a sweep plans them, and the folder that keeps them.

runs.json   folder, labels and outcome of each run
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from fairlead.errors import FieldError, RunFolderError, short
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.run_folder import RunFolder, read_facts, write_facts
from fairlead.experiments.spec import load_experiment
from fairlead.plain_data import LARGEST_INTEGER
from fairlead.randomness import Key
from fairlead.text import counted, listed

Label = str | int | float | bool

_LONGEST_NAME = 100
_INDENTED = 200
"""Runs of an index that is written for people."""


@dataclass(frozen=True)
class PlannedRun:
    """A planned run of a study."""

    folder: str
    """Below that of the study."""
    labels: Mapping[str, Label]
    """Its labels, such as method and seed."""
    experiment: Experiment
    from_spec: Mapping[str, Label] | None = None
    """The part of its algorithm that a comparison took from its spec; None outside of comparisons."""

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
    from_spec: Mapping[str, Label] | None = None
    """As in `PlannedRun`."""


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
            entered = known.get(run.folder, StudyRun(run.folder, run.labels))
            known[run.folder] = replace(entered, from_spec=run.from_spec)
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

    def settle(self, outcomes: Mapping[str, str]) -> None:
        """Note how runs ended, by their folders."""
        self._write([replace(each, outcome=outcomes.get(each.folder, each.outcome)) for each in self.runs()])

    def _write(self, runs: Sequence[StudyRun]) -> None:
        # Indenting a long index takes longer than a short run.
        write_facts(self.index_file, [asdict(run) for run in runs], None if len(runs) > _INDENTED else 2)


class ListedMethod(NamedTuple):
    """An experiment with one of the methods of a comparison."""

    experiment: Experiment
    from_spec: Mapping[str, Label] | None = None
    """As in `PlannedRun`."""
    tuned: Mapping[str, Label] = {}
    """The labels of its tuning runs, if it is one of the settings of a method that is tuned."""


class FoundRun(NamedTuple):
    """The folder of a run, and its entry in the study that it belongs to."""

    folder: RunFolder
    labels: Mapping[str, Label] = {}
    outcome: str = ""
    study: Path | None = None
    from_spec: Mapping[str, Label] | None = None


def runs_below(path: Path) -> Iterator[FoundRun]:
    """Runs in and below a folder: in the order of their study, else of their names."""
    study = StudyFolder(path)
    if study.index_file.is_file():
        yield from runs_of_study(study)
    elif RunFolder(path).holds_run():
        yield FoundRun(RunFolder(path))
    else:
        for inner in sorted(path.iterdir()):
            if inner.is_dir() and not inner.is_symlink():
                yield from runs_below(inner)


def run_at(path: str | PathLike[str]) -> RunFolder:
    """The run in a folder; without one, the error names the runs below it."""
    store = RunFolder(Path(path))
    if store.holds_run():
        return store
    found = runs_below(store.path) if store.path.is_dir() else ()
    below = [run.folder.path for run in found if run.folder.holds_run()]
    within = f"; it contains the runs {listed(below)}" if below else ""
    raise RunFolderError(
        f"{store.path} is not the folder of a run: it has no spec.toml or no rounds.jsonl{within}."
    )


def runs_of_study(study: StudyFolder, planned: Sequence[PlannedRun] | None = None) -> list[FoundRun]:
    """Every run in the index of a study, or those that were planned."""
    path = study.path.resolve()
    asked = None if planned is None else {run.folder for run in planned}
    return [
        FoundRun(study.store(entry), entry.labels, entry.outcome, path, entry.from_spec)
        for entry in study.runs()
        if asked is None or entry.folder in asked
    ]


def describe_labels(labels: Mapping[str, Label]) -> str:
    """Labels in one line: a method by its name alone, a seed as such, anything else as key=value."""
    words = {"method": "{value}", "tuned": "tuning {value}", "seed": "seed {value}"}
    return ", ".join(words.get(key, f"{key}={{value}}").format(value=value) for key, value in labels.items())


def folder_name(text: str) -> str:
    """A text as the name of a folder: the same where that is possible, else with a digest that tells it apart."""
    plain = re.sub(r"[^A-Za-z0-9._=,+-]+", "_", text.replace(":", ",")).lstrip(".")
    if plain == text.replace(":", ",") and 0 < len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[:_LONGEST_NAME]}-{sha256(text.encode()).hexdigest()[:8]}"


_SPAN = re.compile(r"\s*(-?\d{1,18})\.\.(-?\d{1,18})\s*")
_MOST = 10_000
"""Values of a list, and runs of a sweep: planning so many takes about a minute."""
_OPENING, _CLOSING = "([{", ")]}"
_TUNING_SEED = 10_000
"""The first of the seeds for tuning: far from those that people give, so that more of these change nothing."""


def split_values(text: str, named: str) -> list[str]:
    """The values of a list: parted by commas outside of brackets and quotes, with whole spans written out.

    Errors call the list `named`.
    """
    values: list[str] = []
    for value in _split(text):
        span = _SPAN.fullmatch(value)
        if span is None:
            values.append(value.strip())
            continue
        numbers = range(int(span[1]), int(span[2]) + 1)
        if not 0 < len(numbers) <= _MOST:
            raise FieldError(f"{named} must ascend, such as 1..3, to {_MOST} numbers at most, got {value!r}.")
        values += map(str, numbers)
    return values


def read_seeds(text: str, named: str = "--seeds") -> list[int]:
    """Seeds such as "0..4" or "0,1,2"."""
    found = split_values(text, named)
    written = [int(value) for value in found if re.fullmatch(r"\d{1,19}", value)]
    numbers = [number for number in written if number <= LARGEST_INTEGER]
    if len(set(numbers)) < len(found):
        raise FieldError(
            f"{named} must be different whole numbers from 0 to {LARGEST_INTEGER}, such as 0..4 or 0,1,2, got "
            f"{short(text)}."
        )
    return numbers


def _split(text: str) -> list[str]:
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += not quote and character in _OPENING
        depth -= not quote and character in _CLOSING
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def planned_comparison(methods: Mapping[str, ListedMethod], seeds: Sequence[int]) -> list[PlannedRun]:
    """A run for every method and seed, seed by seed, so that methods share the data that were loaded for it."""
    return [
        PlannedRun(
            folder=f"{folder_name(name)}/seed-{seed}",
            labels={"method": name, "seed": seed},
            experiment=replace(method.experiment, seed=seed),
            from_spec=method.from_spec,
        )
        for seed in seeds
        for name, method in methods.items()
    ]


def planned_tuning(
    methods: Mapping[str, ListedMethod], num_seeds: int, seeds: Sequence[int]
) -> list[PlannedRun]:
    """A run for every setting that is tuned and each of so many seeds, none of which is among `seeds`."""
    if num_seeds < 1:
        raise FieldError(f"The number of tuning seeds must be at least 1, got {num_seeds}.")
    others = itertools.islice(
        (seed for seed in itertools.count(_TUNING_SEED) if seed not in seeds), num_seeds
    )
    runs = planned_comparison({name: each for name, each in methods.items() if each.tuned}, list(others))
    labels = [{**methods[str(run.labels["method"])].tuned, "seed": run.experiment.seed} for run in runs]
    return [
        replace(run, folder=f"tuning/{run.folder}", labels=own) for run, own in zip(runs, labels, strict=True)
    ]


def setting_name(method: str, values: Mapping[str, Label]) -> str:
    """A method with values, as in the list of a comparison."""
    return ":".join([method, *(f"{name}={value}" for name, value in values.items())])


def refuse_repeated(names: Sequence[str], rule: str) -> None:
    """Raise if a name is in the list twice."""
    for name in names:
        if names.count(name) > 1:
            raise FieldError(f"{rule}, got {name!r} {names.count(name)} times.")


_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"(log:)?({_NUMBER})\.\.({_NUMBER})")
_DIGITS = 4
"""Digits of a drawn number: enough for any search, and few enough to be read and typed."""


_Draw = Callable[[float], str]
"""The value of a field for a number in [0, 1)."""


def planned_sweep(
    spec: str | PathLike[str],
    *,
    grid: Sequence[str] = (),
    ranges: Sequence[str] = (),
    draws: int = 0,
    draw_seed: int = 0,
    overrides: Sequence[str] = (),
) -> list[PlannedRun]:
    """A run for every point of the grid and, if there are `ranges`, for each of `draws` settings drawn from them.

    The draws depend on `draw_seed` and their number in the list alone: asking for more adds to them. A setting that
    is drawn twice, as few whole numbers are, is run once.
    """
    axes, drawn = [grid_axis(text) for text in grid], [_range(text) for text in ranges]
    if bool(drawn) != bool(draws):
        raise FieldError("--random N needs --range PATH=RANGE, and --range needs --random N.")
    if not 0 <= draws <= _MOST:
        raise FieldError(f"--random must be a whole number from 0 to {_MOST}, got {draws}.")
    if not axes and not drawn:
        raise FieldError(
            "A sweep needs values: --grid seed=0..4, or --random 10 --range algorithm.lr=0.01..1."
        )
    refuse_repeated([path for path, _ in (*axes, *drawn)], "Every field must be swept once")
    settings = dict.fromkeys(_drawn(drawn, number, draw_seed) for number in range(draws)) if drawn else [()]
    planned = []
    for setting, point in itertools.product(settings, grid_points(axes, len(settings))):
        changes = [f"{path}={value}" for path, value in (*setting, *point)]
        labels: dict[str, Label] = {path: as_label(value) for path, value in (*setting, *point)}
        experiment = load_experiment(spec, [*overrides, *changes])
        planned.append(PlannedRun(folder_name(",".join(changes)), labels, experiment))
    return planned


def grid_points(
    axes: Sequence[tuple[str, list[str]]], times: int = 1
) -> Iterator[tuple[tuple[str, str], ...]]:
    """Every combination of the values of fields, refused if there are too many when each is taken so many times."""
    if (number := times * math.prod(len(values) for _, values in axes)) > _MOST:
        raise FieldError(f"A grid must have at most {_MOST} points, got {number}.")
    return itertools.product(*([(path, value) for value in values] for path, values in axes))


def grid_axis(text: str, example: str = "seed=0..4 or algorithm.lr=0.01,0.1") -> tuple[str, list[str]]:
    """A field and its values; errors give the example."""
    path, values = _assignment(text, example)
    split = split_values(values, f"The grid of {path}")
    if not all(split) or len(set(map(as_label, split))) < len(split):
        raise FieldError(f"The grid of {path} must be a list of different values, got {values!r}.")
    return path, split


def _range(text: str) -> tuple[str, _Draw]:
    """A field and what draws its values."""
    path, bounds = _assignment(text, "algorithm.lr=log:1e-3..1")
    found = _RANGE.fullmatch(bounds)
    if found is None:
        raise FieldError(f"The range of {path} must be low..high or log:low..high, got {bounds!r}.")
    low, high = float(found[2]), float(found[3])
    if not -math.inf < low < high < math.inf or (found[1] and low <= 0):
        raise FieldError(
            f"The range of {path} must ascend, between finite numbers and above 0 for log, got "
            f"{short(bounds)}."
        )
    whole = all(re.fullmatch(r"[+-]?\d+", bound) for bound in (found[2], found[3]))

    def draw(share: float) -> str:
        # Whole numbers are drawn from half below the first to half above the last, so that all are alike.
        first, last = (low - 0.5, high + 0.5) if whole and not found[1] else (low, high)
        value = first * (last / first) ** share if found[1] else first + (last - first) * share
        rounded = min(max(math.floor(value + 0.5), int(low)), int(high))
        return str(rounded) if whole else f"{value:.{_DIGITS}g}"

    return path, draw


def _drawn(ranges: Sequence[tuple[str, _Draw]], number: int, seed: int) -> tuple[tuple[str, str], ...]:
    shares = Key.from_seed(seed).fold("sweep", number).generator().random(len(ranges))
    return tuple((path, draw(float(share))) for (path, draw), share in zip(ranges, shares, strict=True))


def _assignment(text: str, example: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or not path.strip() or not value.strip():
        raise FieldError(f"A field and its values must have a form such as {example}, got {text!r}.")
    return path.strip(), value.strip()


def as_label(text: str) -> Label:
    """A value as a number where it is one, so that tables and frames can sort it."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
