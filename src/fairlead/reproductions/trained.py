"""Tables of runs by method and setting, one run folder for every cell and seed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fairlead.algorithm import Algorithm
from fairlead.clients.source import ClientSource, Excerpt
from fairlead.component import summary
from fairlead.errors import FieldError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.spec import from_toml, to_toml
from fairlead.experiments.study import PlannedRun, StudyFolder, folder_name
from fairlead.models.augmentation import Augmentation
from fairlead.models.base import Model
from fairlead.presets import method_named, with_aware
from fairlead.reproductions.claims import TableCell
from fairlead.reproductions.data_sets import NotRunError, require_data, source_of
from fairlead.reproductions.reproduction import FailedRun, Measured, Reproduction, Request, Scale
from fairlead.results import run_archive
from fairlead.results.curves import Curve, FigureName
from fairlead.results.run_archive import ArchivedRun, Place, RunCurves, Statistic
from fairlead.settings import Setting
from fairlead.task import Task
from fairlead.text import counted


def top_accuracy(curves: RunCurves, target: float | None) -> float | None:
    """The best accuracy of all rounds, in percent (Zeng 2023)."""
    return _percent(curves, "best")


def last_tenth_accuracy(curves: RunCurves, target: float | None) -> float | None:
    """Mean accuracy of the last 10 % of rounds, in percent (Zeng 2025)."""
    return _percent(curves, "last-tenth")


def last_five_accuracy(curves: RunCurves, target: float | None) -> float | None:
    """Mean accuracy of the last five rounds, in percent (Weng 2025)."""
    return _percent(curves, "last5")


def final_accuracy(curves: RunCurves, target: float | None) -> float | None:
    """Accuracy after the last round, in percent (Wang 2021)."""
    return _percent(curves, "final")


def rounds_to_target(curves: RunCurves, target: float | None) -> float | None:
    """Rounds until the accuracy is first reached, infinite if it never is (Weng 2025 Tables 1, 4 and 5)."""
    curve = _measured(curves, "accuracy")
    if target is None or not len(curve):
        return None
    done = curve.rounds_to(target, higher=True)
    return math.inf if done is None else float(done)


def rounds_on_mean_curve(runs: Sequence[ArchivedRun]) -> float | None:
    """Rounds until the mean accuracy over seeds reaches the target, infinite if it never does (Weng 2025 Fig. 6)."""
    if not runs or runs[0].target is None:
        return None
    curves = zip(*(run.curves["accuracy"] for run in runs), strict=True)
    return rounds_to_target(
        {"accuracy": [math.fsum(values) / len(runs) for values in curves]}, runs[0].target
    )


def steps_to_target(curves: RunCurves, target: float | None) -> float | None:
    """Local steps behind all received updates until the accuracy is first reached, in thousands."""
    done = rounds_to_target(curves, target)
    if done is None or math.isinf(done):
        return done
    return math.fsum(curves["steps"][: int(done)]) / 1000


def mean_elud(curves: RunCurves, target: float | None) -> float | None:
    """e-LUDD, the mean of e-LUD over rounds; rounds whose updates cancel are left out (Zeng 2025)."""
    known = _measured(curves, "elud").finite.values
    return math.fsum(known) / len(known) if known else None


def late_loss(curves: RunCurves, target: float | None) -> float | None:
    """Mean loss of the second half of the rounds."""
    total = len(curves.get("loss", ()))
    return _measured(curves, "loss").tail_mean(total, total // 2)


def _measured(curves: RunCurves, name: str) -> Curve:
    """A curve where it was measured."""
    points = enumerate(curves.get(name, ()), start=1)
    return Curve.of(point for point in points if not math.isnan(point[1]))


def _percent(curves: RunCurves, figure: FigureName) -> float | None:
    total = len(curves.get("accuracy", ()))
    share = _measured(curves, "accuracy").figure(figure, total, higher=True)
    return None if share is None else 100 * share


@dataclass(frozen=True)
class Size:
    """The size of a run at a scale."""

    rounds: int
    examples: int | None = None
    """Training examples; None: all."""
    model: Model | None = None
    """Replaces the column's model where that would take too long."""
    clients: ClientSource | None = None
    """Replaces the synthetic clients of a setting, likewise."""
    evaluate_every: int = 1
    """Rounds between two evaluations."""


@dataclass(frozen=True)
class TableRow:
    """A method of a table: a preset with arguments beyond those of the setting."""

    preset: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    aware: Mapping[str, Any] | None = None
    """Arguments of `with_aware`, for a method "× AWARE"; None: without the projection."""
    calibrate: Literal["clients", "server"] | None = None
    """As in `Algorithm`."""

    def algorithm(self, setting: Setting) -> Algorithm:
        """The method with the setting's client side, schedule of learning rates included."""
        algorithm = method_named(self.preset).build(**{**setting.client_side(), **self.arguments})
        solver = algorithm.solver
        optimizer = replace(solver.optimizer, schedule=setting.solver.optimizer.schedule)
        solver = replace(solver, optimizer=optimizer)
        algorithm = replace(algorithm, solver=solver, calibrate=self.calibrate)
        return algorithm if self.aware is None else with_aware(algorithm, **self.aware)


@dataclass(frozen=True)
class TableColumn:
    """The clients of a column: a published setting on a data set, or with its own synthetic clients."""

    setting: Setting
    data: str | None = None
    model: Model | None = None
    """None: the default model of the data."""
    augment: tuple[Augmentation, ...] = ()
    target: float | None = None
    """The target accuracy, for statistics that need one."""
    rows: Mapping[str, TableRow] | None = None
    """The methods of this column; None: those of the table."""
    stand_in: Model | None = None
    """Replaces `model` at scales with a model of their own; None: theirs."""
    adjust: Callable[[Experiment], Experiment] | None = None
    """Changes a finished experiment, for example by the work of its clients."""


@dataclass(frozen=True, kw_only=True)
class TrainedTable(Reproduction):
    """A reproduction whose figures are statistics of runs."""

    columns: Mapping[str, TableColumn]
    rows: Mapping[str, TableRow] = field(default_factory=dict)
    """The methods of every column without its own `rows`."""
    statistics: Mapping[str, Statistic]
    """By the suffix of the column's name, which is empty for a single statistic."""
    sizes: Mapping[Scale, Size]
    shares: tuple[str, ...] = ()
    """Names of tables whose runs of the same methods in the same settings count here too, and are not repeated."""
    on_mean_curve: str = ""
    """The statistic for the rounds to the target on the mean accuracy over seeds; empty: none."""

    @cached_property
    def cells(self) -> dict[TableCell, TableRow]:
        """Every method in every column, column by column."""
        return {
            TableCell(name, title): row
            for title, column in self.columns.items()
            for name, row in (column.rows or self.rows).items()
        }

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column.data for column in self.columns.values() if column.data))

    @property
    def parts(self) -> tuple[str, ...]:
        """Methods and columns: runs can be restricted to some of either."""
        return (*dict.fromkeys(cell.row for cell in self.cells), *self.columns)

    @property
    def options_used(self) -> frozenset[str]:
        return frozenset(["device", "only", "computing", "run", *(["data"] if self.needs else [])])

    @property
    def figure(self) -> FigureName | None:
        names: dict[Statistic, FigureName]
        names = {top_accuracy: "best", last_five_accuracy: "last5", final_accuracy: "final"}
        return next((names[each] for each in self.statistics.values() if each in names), None)

    @property
    def measured(self) -> str:
        figures = {name: _phrase(statistic) for name, statistic in self.statistics.items()}
        phrases = [f"{name}: {phrase}" if name else phrase for name, phrase in figures.items()]
        targets = sorted({column.target for column in self.columns.values() if column.target is not None})
        if self.on_mean_curve:
            phrases.append(f"{self.on_mean_curve}: {_phrase(rounds_on_mean_curve)}")
        phrases += [f"the target accuracy is {target:.0%}" for target in targets]
        return "; ".join(phrases)

    def describe(self, scale: Scale) -> str:
        size = self.sizes[scale]
        examples = "" if size.examples is None else f" on {size.examples:,} examples"
        return f"{counted(len(self.cells), 'run')} of {counted(size.rounds, 'round')} for each seed{examples}"

    def planned(self, request: Request) -> list[PlannedRun]:
        """A run for every method, column and seed, seed by seed and column by column."""
        return [
            PlannedRun(
                folder=f"{folder_name(cell.column)}/{folder_name(cell.row)}/seed-{seed}",
                labels={"setting": cell.column, "method": cell.row, "seed": seed},
                experiment=self._experiment(cell, request, seed),
            )
            for seed in request.seeds
            for cell in self.cells
            if self._is_asked(cell, request.only)
        ]

    def measure(self, request: Request) -> Measured:
        table = f"{self.name}-{request.scale}"
        shared = self._held(request.scale, request.out, self.shares) if self.shares else {}
        beside = {place for place, run in shared.items() if run.failure is None}
        if request.collect is None:
            require_data(self.needs, request.data)
            planned = [run for run in self.planned(request) if tuple(run.labels.values()) not in beside]
            request.run(StudyFolder(request.out / table), planned)
        runs = self._gathered(request)
        own = [run for run in runs if run.place not in beside]
        if own:
            run_archive.save_archive(run_archive.archive_file(request.out, table), own)
        finished = [run for run in runs if run.failure is None]
        failures = tuple(self._failed(run, run.failure) for run in runs if run.failure is not None)
        if not finished:
            raise NotRunError(self._nothing_finished(request, failures))
        results: dict[TableCell, dict[int, float]] = {}
        curves: dict[TableCell, dict[int, Curve]] = {}
        for run in finished:
            for name, curve in _curves(run).items():
                place = TableCell(run.method, figure_column(run.setting, f"{name} curve"))
                curves.setdefault(place, {})[run.seed] = curve
            for name, value in run.figures.items():
                place = TableCell(run.method, figure_column(run.setting, name))
                results.setdefault(place, {})[run.seed] = value
        pooled = {}
        for cell in self.cells if self.on_mean_curve else ():
            alike = [run for run in finished if (run.method, run.setting) == cell]
            rounds = rounds_on_mean_curve(alike)
            if rounds is not None:
                place = TableCell(cell.row, figure_column(cell.column, self.on_mean_curve))
                pooled[place] = rounds, len(alike)
        return Measured(
            results,
            math.fsum(run.seconds for run in finished),
            "; ".join(dict.fromkeys(run.machine for run in finished)),
            "; ".join(dict.fromkeys(run.fairlead for run in finished)),
            "; ".join(dict.fromkeys(run.git_commit or "unknown" for run in finished)),
            max(run.date for run in finished),
            ", ".join(dict.fromkeys(run.precision for run in finished)),
            failures,
            curves,
            pooled,
        )

    def _nothing_finished(self, request: Request, failures: Sequence[FailedRun]) -> str:
        """The reason why nothing can be judged at a scale, and the scales that have runs."""
        if failures:
            more = f" {len(failures) - 1} more failed." if len(failures) > 1 else ""
            return f"No run has finished: {failures[0]}{more}"
        if not request.collect:
            return "No run has finished yet."
        folders = (request.out, *request.collect)
        others = [scale for scale in self.sizes if any(self._held(scale, folder) for folder in folders)]
        if not others:
            return f"No run was found in {' or '.join(map(str, request.collect))}."
        either = " or ".join(f"--scale {other}" for other in others)
        return (
            f"No run at scale {request.scale} has finished; there are runs at scale {' and '.join(others)}: add "
            f"{either}."
        )

    def _gathered(self, request: Request) -> list[ArchivedRun]:
        """The runs of all folders of a request in the order of the table; each collected folder is reported."""
        found = self._held(request.scale, request.out)
        taken = []
        for folder in request.collect or ():
            here = self._held(request.scale, folder)
            taken.append(f"{self.name}: {_taken_in(here, folder, found)}.")
            found = run_archive.merged(found, here.values())
        for sentence in taken if found else ():
            request.tell(sentence)
        order = list(self.cells)
        return sorted(
            found.values(), key=lambda run: (order.index(TableCell(run.method, run.setting)), run.seed)
        )

    def _held(self, scale: Scale, folder: Path, names: Sequence[str] = ()) -> dict[Place, ArchivedRun]:
        """Every run at a scale in a folder, from archives or run folders of tables: this and `shares` unless named."""
        rounds, runs = self.sizes[scale].rounds, list[ArchivedRun]()
        targets = {setting: column.target for setting, column in self.columns.items()}
        for name in names or (*self.shares, self.name):
            table = f"{name}-{scale}"
            archived = run_archive.load_archive(run_archive.archive_file(folder, table))
            # Another table has figures of its own.
            runs += archived if name == self.name else [self._with_figures(run) for run in archived]
            runs += run_archive.archive_study(StudyFolder(folder / table), self.statistics, targets)
        return run_archive.merged(
            {},
            [
                run
                for run in runs
                if TableCell(run.method, run.setting) in self.cells
                and (run.rounds == rounds if run.failure is None else run.rounds < rounds)
            ],
        )

    def _with_figures(self, run: ArchivedRun) -> ArchivedRun:
        figures = run_archive.figures_of(run.curves, self.statistics, run.target)
        return replace(run, figures={} if run.failure else figures)

    def _failed(self, run: ArchivedRun, reason: str) -> FailedRun:
        columns = tuple(figure_column(run.setting, name) for name in self.statistics)
        return FailedRun(run.method, run.setting, run.seed, run.rounds, reason, columns)

    def _is_asked(self, cell: TableCell, only: Sequence[str]) -> bool:
        rows = [name for name in only if name not in self.columns]
        columns = [name for name in only if name in self.columns]
        return (not rows or cell.row in rows) and (not columns or cell.column in columns)

    def _experiment(self, cell: TableCell, request: Request, seed: int) -> Experiment:
        column, size = self.columns[cell.column], self.sizes[request.scale]
        setting = column.setting
        clients = _clients(column, size, request)
        model = (column.stand_in or size.model) if size.model else column.model
        task = clients.default_task() if model is None else Task(model)
        experiment = Experiment(
            clients,
            self.cells[cell].algorithm(setting),
            size.rounds,
            task=replace(task, augment=column.augment),
            work=setting.work,
            link=setting.link,
            seed=seed,
            evaluate_every=size.evaluate_every,
            device=request.device,
        )
        if column.adjust is not None:
            experiment = column.adjust(experiment)
        if not request.computing:
            return experiment
        # Last, because the adjustment builds the experiment on the CPU, which may not support these options.
        return from_toml(Experiment, to_toml(experiment), request.computing)


def _curves(run: ArchivedRun) -> dict[str, Curve]:
    """The archived curves, and mean ‖g_i‖ / ‖Σ p̂_i g_i‖, which is the diversity in the released code of Zeng 2023."""
    curves = dict(run.curves)
    if {"update_norm", "consensus"} <= curves.keys():
        lengths = zip(curves["update_norm"], curves["consensus"], strict=True)
        curves["diversity"] = tuple(norm / math.sqrt(rho) if rho else math.inf for norm, rho in lengths)
    return {name: Curve.of(enumerate(values, start=1)).finite for name, values in curves.items()}


def figure_column(column: str, statistic: str) -> str:
    """The column of a figure: the column of its runs and the name of the statistic."""
    return f"{column}: {statistic}" if statistic else column


def _clients(column: TableColumn, size: Size, request: Request) -> ClientSource:
    setting = column.setting
    if column.data is None:
        made = size.clients or setting.clients
        if made is None:
            raise FieldError("A column needs a data set, or a setting with synthetic clients.")
        return made
    source = source_of(column.data, request.data)
    if size.examples is not None:
        source = Excerpt(source, size.examples)
    return setting.deal(source)


def _phrase(statistic: object) -> str:
    """The description of a statistic, to be put into a sentence."""
    phrases = summary(statistic).rstrip(".")
    return phrases[:1].lower() + phrases[1:]


def _taken_in(runs: Mapping[Place, ArchivedRun], folder: Path, known: Mapping[Place, ArchivedRun]) -> str:
    """How many runs a folder holds, and how many are new or failed."""
    if not runs:
        return f"{folder} has no run at this scale"
    failed = sum(run.failure is not None for run in runs.values())
    finished = {place for place, run in known.items() if run.failure is None}
    new = sum(place not in (known if run.failure else finished) for place, run in runs.items())
    facts = [f"{new or 'none'} new", *([f"{failed} failed"] if failed else [])]
    return f"{counted(len(runs), 'run')} imported from {folder}, {', '.join(facts)}"
