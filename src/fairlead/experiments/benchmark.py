"""Benchmarks: suites of tasks and kinds of heterogeneity as data, and the settings at which methods are tried.

A suite is a TOML file. Each of its cells is a task with a kind of heterogeneity, and an ordinary experiment: the fields
`spec` of the suite, of the task and of the kind, merged in this order.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tomli_w

from fairlead.clients.files import read_setup
from fairlead.component import Component, PositiveCount, WholeList, WholeRange
from fairlead.errors import FieldError, did_you_mean, field_error
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.method_list import methods_on, preset_and_values
from fairlead.experiments.spec import TomlTable, from_toml, merged_tables
from fairlead.experiments.study import (
    ListedMethod,
    PlannedRun,
    StudyFolder,
    planned_comparison,
    planned_tuning,
    read_seeds,
    refuse_repeated,
    setting_name,
    split_values,
)
from fairlead.plain_data import from_plain, refuse_unknown
from fairlead.text import listed

SUITES = ("quick", "full")


class BenchmarkCell(NamedTuple):
    """A task with a kind of heterogeneity."""

    name: str
    experiment: Experiment
    lr: str
    """The learning rates of the clients to try, in the format of a grid."""
    digest: str
    """Of its tables in the suite: the same on every machine, wherever the data are."""


class Entrant(NamedTuple):
    """A method of a benchmark."""

    name: str
    text: str
    """As in the list of a comparison."""
    tune: tuple[str, ...]
    """What is tried besides learning rates of the clients, such as "mu=0.01,0.1"."""


@dataclass(frozen=True)
class SuiteTask(Component):
    """A task of a suite."""

    lr: str
    spec: TomlTable = field(default_factory=dict)
    sources: tuple[TomlTable, ...] = ()
    """Its data in a folder, of which the first that is there is taken; none for embedded data."""
    kinds: tuple[str, ...] | None = None
    """None: all of the suite."""
    half: PositiveCount | None = None
    """In place of `boundary = "half"` in a kind."""


@dataclass(frozen=True)
class SuiteKind(Component):
    """A kind of heterogeneity."""

    spec: TomlTable


@dataclass(frozen=True)
class SuiteMethod(Component):
    """A method, and what is tried besides learning rates of the clients."""

    preset: str | None = None
    """None: the preset of its name."""
    tune: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite(Component):
    """The cells and methods of a benchmark, and the rule by which settings are pruned."""

    title: str
    seeds: str
    tune_seeds: PositiveCount
    rungs: Annotated[tuple[int, ...], WholeList(1, fewest=1)]
    """Rounds after which settings are pruned, and of the last rung."""
    keep: Annotated[int, WholeRange(2)]
    """Of so many settings of a method, one goes on."""
    budget: PositiveCount
    """Settings of a method, at most."""
    others: tuple[str, ...]
    """What is tried with methods that the suite does not have."""
    spec: TomlTable
    tasks: dict[str, SuiteTask]
    kinds: dict[str, SuiteKind]
    methods: dict[str, SuiteMethod]
    name: str = field(default="", metadata={"in_memory": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.rungs) != sorted(set(self.rungs)):
            raise field_error(self, "rungs", "ascending", self.rungs)
        for name, task in self.tasks.items():
            refuse_unknown(task.kinds or (), list(self.kinds), "a kind of the suite", f"tasks.{name}.kinds")

    @property
    def result_seeds(self) -> list[int]:
        return read_seeds(self.seeds, "seeds of the suite")

    @property
    def rule(self) -> str:
        """How settings are pruned, in a sentence."""
        early, last, keep = self.rungs[:-1], self.rungs[-1], self.keep
        if not early:
            return f"Every setting is tried for {last} rounds."
        return (
            f"Successive halving: after {listed(early)} rounds, the best 1 in {keep} of the settings of a method "
            f"(rounded up) go on, the last of them to {last} rounds."
        )

    def survivors(self, number: int) -> int:
        """How many of so many settings go on."""
        return -(-number // self.keep)

    def cells(
        self, pattern: str = "*", data: Path | None = None, overrides: Sequence[str] = ()
    ) -> tuple[list[BenchmarkCell], list[str]]:
        """The cells whose names fit a pattern such as "digits*" or "*/links", and sentences on tasks without data."""
        names = [
            (task, kind)
            for task, own in self.tasks.items()
            for kind in own.kinds or self.kinds
            if any(fnmatchcase(f"{task}/{kind}", each) for each in split_values(pattern, "--cells"))
        ]
        if not names:
            tasks, kinds = listed(list(self.tasks)), listed(list(self.kinds))
            raise FieldError(
                f"No cell fits {pattern!r}: give a task and a kind, such as '*/links'. Tasks are {tasks}; kinds are "
                f"{kinds}."
            )
        absent = {task: _absence(task, self.tasks[task], data) for task, _ in names}
        cells = [self._cell(task, kind, data, overrides) for task, kind in names if not absent[task]]
        return cells, [reason for reason in absent.values() if reason]

    def _cell(self, task: str, kind: str, data: Path | None, overrides: Sequence[str]) -> BenchmarkCell:
        own = self.tasks[task]
        spec = merged_tables(merged_tables(self.spec, own.spec), self.kinds[kind].spec)
        digest = sha256(json.dumps([spec, own.sources, own.half], sort_keys=True).encode()).hexdigest()[:16]
        source = _found(own, data)
        if source is not None:
            # A kind may deal the data anew.
            spec = {**spec, "clients": merged_tables(source, spec.get("clients", {}))}
        for part in ("work", "link"):
            if spec.get(part, {}).get("boundary") == "half":
                if own.half is None:
                    raise FieldError(
                        f"tasks.{task}.half is missing: the {part} of {kind} has boundary = 'half'."
                    )
                spec = {**spec, part: {**spec[part], "boundary": own.half}}
        table = {**spec, "rounds": self.rungs[-1]}
        name = f"{task}/{kind}"
        experiment = from_toml(Experiment, tomli_w.dumps(table), overrides, source=f"cell {name}")
        return BenchmarkCell(name, experiment, own.lr, digest)

    def entrants(self, methods: str | None, tune: Sequence[str] = ()) -> list[Entrant]:
        """The methods of the suite, or those of a list; `tune` is tried with those that the suite does not have."""
        own = {
            name: Entrant(name, method.preset or name, method.tune) for name, method in self.methods.items()
        }
        texts = list(own) if methods is None else split_values(methods, "--methods")
        refuse_repeated(texts, "Every method must be listed once")
        if tune and own.keys() >= set(texts):
            raise FieldError("--tune needs a method in --methods that the suite does not have.")
        return [own.get(text, Entrant(text, text, tuple(tune or self.others))) for text in texts]


def suite_named(name: str) -> Suite:
    """A suite of the package, or that of a TOML file."""
    if name in SUITES:
        text = files("fairlead.experiments").joinpath(f"{name}_suite.toml").read_text(encoding="utf-8")
    elif name.endswith(".toml"):
        text = read_setup(Path(name), "suite")
    else:
        raise FieldError(
            f"--suite must be {', '.join(SUITES)} or a TOML file, got {name!r}.{did_you_mean(name, SUITES)}"
        )
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FieldError(f"{name} is not TOML: {error}.") from error
    return replace(from_plain(Suite, table), name=Path(name).stem)


def _found(task: SuiteTask, data: Path | None) -> dict[str, Any] | None:
    """The first source of a task's data that is in a folder, with its whole path; None for embedded data."""
    for source in task.sources if data is not None else ():
        if (data / source["path"]).exists():
            return {**source, "path": str(data / source["path"])}
    return None


def _absence(name: str, task: SuiteTask, data: Path | None) -> str:
    """Why a task cannot be run, in a sentence; empty if it can."""
    sources = [source["path"] for source in task.sources]
    if not sources or _found(task, data) is not None:
        return ""
    if data is None:
        return f"{name} is left out: it needs the folder of its data, --data FOLDER."
    return f"{name} is left out: {data} lacks {listed(sources)}."


def settings_of(cell: BenchmarkCell, entrants: Iterable[Entrant], budget: int) -> dict[str, ListedMethod]:
    """Every setting of every method, by name; refused if a method has more than `budget`."""
    found: dict[str, ListedMethod] = {}
    for entrant in entrants:
        fixed = {value.partition("=")[0] for value in preset_and_values(entrant.text)[1]}
        axes = [axis for axis in (f"lr={cell.lr}", *entrant.tune) if axis.partition("=")[0] not in fixed]
        tried = methods_on(cell.experiment, [entrant.text], axes)
        if len(tried) > budget:
            raise FieldError(
                f"{entrant.name} has {len(tried)} settings in {cell.name}, but every method may try {budget}: leave "
                "some out."
            )
        for each in tried.values():
            values = {name: value for name, value in each.tuned.items() if name != "tuned"}
            tuned = {"tuned": entrant.name, **values}
            found[setting_name(entrant.name, values)] = each._replace(tuned=tuned)
    return found


def planned_trials(
    cell: BenchmarkCell, settings: Mapping[str, ListedMethod], suite: Suite
) -> list[PlannedRun]:
    """The tuning runs of a cell, in their full length."""
    return _in_cell(cell, planned_tuning(settings, suite.tune_seeds, suite.result_seeds))


def planned_results(
    cell: BenchmarkCell, chosen: Mapping[str, ListedMethod], seeds: Sequence[int]
) -> list[PlannedRun]:
    """The runs of the chosen settings; methods have their plain names."""
    names = {setting: method.tuned["tuned"] for setting, method in chosen.items()}
    return [
        replace(run, labels={**run.labels, "method": names[str(run.labels["method"])]})
        for run in _in_cell(cell, planned_comparison(chosen, seeds))
    ]


def _in_cell(cell: BenchmarkCell, runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    return [
        replace(run, folder=f"{cell.name}/{run.folder}", labels={"setting": cell.name, **run.labels})
        for run in runs
    ]


def shortened(runs: Iterable[PlannedRun], rounds: int) -> list[PlannedRun]:
    """The runs with so many rounds."""
    return [replace(run, experiment=replace(run.experiment, rounds=rounds)) for run in runs]


def is_beyond(study: StudyFolder, run: PlannedRun) -> bool:
    """Whether the folder of a run holds the same one with more rounds."""
    store = study.store(run)
    return not store.is_free() and len(store.log()) > run.experiment.rounds
