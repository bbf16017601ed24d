"""What came of every run and every method, in figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from statistics import median

from fairlead.diagnostics.consistency import ConsistencyReport, measured_consistency
from fairlead.diagnostics.diversity import running_elud
from fairlead.diagnostics.surrogate import foregone
from fairlead.errors import FieldError
from fairlead.experiments.comparison import chance_level
from fairlead.records import Evaluation
from fairlead.reports.curves import (
    COMPUTE_TIME,
    LOCAL_STEPS,
    LOSS,
    VIRTUAL_TIME,
    Quantity,
    metric_quantity,
)
from fairlead.reports.formats import Kind
from fairlead.reports.methods import Method, Study, baseline_of, group_runs
from fairlead.reports.runs import ReportedRun, find_runs, read_run
from fairlead.reports.statistics import spread, tenth, worst_tenth
from fairlead.studies.seed_statistics import Estimate, Judgement, estimate, judged, paired_difference

_LAST_FEW = 5
"""Rounds over which Weng 2025 averages."""


@dataclass(frozen=True)
class Measure:
    """By which figure methods are judged: accuracy, or the loss where there is none."""

    quantity: Quantity
    higher: bool
    """Whether more is better."""

    @property
    def name(self) -> str:
        return self.quantity.title.lower()

    @property
    def kind(self) -> Kind:
        return self.quantity.kind

    def better(self, difference: float) -> bool:
        """Whether a difference to another method is in its favour."""
        return difference > 0 if self.higher else difference < 0


@dataclass(frozen=True)
class Reached:
    """What it took a run to meet a target."""

    rounds: int
    steps: float | None
    compute_seconds: float | None
    """Of all devices together, as Weng 2025 counts it; None where devices have no speed."""
    virtual_seconds: float | None
    """By the clock of the simulated world; None where it has none."""


@dataclass(frozen=True, eq=False)
class RunFigures:
    """One run in figures; None stands for what it cannot tell."""

    run: ReportedRun
    seed: int
    final: float | None
    best: float | None
    last_tenth: float | None
    """Mean over the last 10 % of rounds (Zeng 2025)."""
    last_five: float | None
    """Mean over the last five rounds (Weng 2025)."""
    objective: float | None
    eludd: float | None
    consistency: ConsistencyReport | None
    chi_square: float | None
    misplaced: float | None
    by_chance: float | None
    """Share of weight that chance alone would misplace."""
    clients: tuple[float, ...]
    """The measure for every client at the last evaluation; empty if that was not asked for."""
    client_mean: float | None
    client_spread: float | None
    client_worst: float | None
    bytes_down: float
    bytes_up: float
    steps: float
    compute_seconds: float | None
    virtual_seconds: float | None
    seconds: float
    """Median round times their number: the first one also waits for the process to warm up."""
    reached: tuple[Reached | None, ...]
    """Per target."""


@dataclass(frozen=True, eq=False)
class MethodFigures:
    """A method in figures, and how it compares with the baseline."""

    method: Method
    runs: tuple[RunFigures, ...]
    difference: Estimate | None
    """To the baseline over the last 10 % of rounds, by pairs of equal seeds; None for the baseline itself."""
    objective_difference: Estimate | None
    """The same of the objective that was asked for, at the end of the runs."""
    both_complete: bool
    """Whether every run of it and of the baseline finished, without which no difference is judged."""

    @property
    def label(self) -> str:
        return self.method.label

    def over_seeds(self, read: Callable[[RunFigures], float | None]) -> Estimate | None:
        """Mean and interval of a figure over the runs that have it."""
        return estimate([value for run in self.runs if (value := read(run)) is not None])

    def judged(self, measure: Measure) -> Judgement | None:
        """How it compares with the baseline; None where that may be noise."""
        return judged(self.difference, smaller_is_better=not measure.higher) if self.both_complete else None

    def judged_otherwise(self, measure: Measure) -> Judgement | None:
        """How it compares by the objective, if that is clear and not what the measure says."""
        if not self.both_complete:
            return None
        by_objective = judged(self.objective_difference, smaller_is_better=True)
        return None if by_objective == self.judged(measure) else by_objective

    def no_weights(self) -> str | None:
        """Why no weights Ω could be measured, in a sentence; None where they were."""
        if not self.runs or any(run.misplaced is not None for run in self.runs):
            return None
        reports = [run.consistency for run in self.runs if run.consistency is not None]
        if not reports:
            return "The clients' data cannot be read here."
        fate = foregone(self.method.experiment.algorithm, reports[0].intended)
        if fate is None or fate.weights is not None:
            return "What arrived does not tell the weights of the clients."
        return fate.says

    def by_design(self) -> bool:
        """Whether corrections restore the objective's weights, whatever work and links are."""
        return bool(self.runs) and all(
            run.consistency.restored
            if run.consistency is not None
            else run.run.summary is not None and run.run.summary.by_design
            for run in self.runs
        )


@dataclass(frozen=True, eq=False)
class Summary:
    """All figures of a study."""

    study: Study
    measure: Measure
    baseline: Method | None
    """None if no run could be read."""
    targets: tuple[float, ...]
    methods: tuple[MethodFigures, ...]

    @property
    def compared(self) -> bool:
        """Whether there is more than one method."""
        return len(self.methods) > 1

    @property
    def ranked(self) -> bool:
        """Whether one method may be called the best."""
        return self.compared and self.study.comparable

    @property
    def client_data(self) -> str:
        """What figures per client were measured on."""
        held_out = {run.run.held_out for method in self.methods for run in method.runs if run.clients}
        if held_out == {True}:
            return "its own held-out data"
        if held_out == {False}:
            return "its own training data"
        return "its own held-out data where it has some, else its training data"


def summarise_runs(
    folders: Iterable[str | PathLike[str]], *, baseline: str | None = None, targets: Sequence[float] = ()
) -> Summary:
    """Figures of all runs in and below the given folders.

    Runs that differ in nothing but the seed are repetitions of one method. Methods are compared with the
    one called `baseline`: FedAvg unless given, or the first. `targets` are accuracies or losses to reach.
    """
    study = group_runs([read_run(found) for found in find_runs(folders)])
    return summarise_study(study, baseline=baseline, targets=targets)


def summarise_study(study: Study, *, baseline: str | None = None, targets: Sequence[float] = ()) -> Summary:
    """Figures of all methods; without targets, one that every run of the baseline meets is taken."""
    measure = _measure(study)
    _check_targets(targets, measure)
    if not study.methods:
        return Summary(study, measure, None, tuple(targets), ())
    reference = baseline_of(study, baseline)
    if not targets:
        targets = _own_target(reference, measure)
    figures = {
        method.label: tuple(run_figures(run, measure, targets) for run in method.counted)
        for method in study.methods
    }
    theirs = figures[reference.label]

    def difference(method: Method, read: Callable[[RunFigures], float | None]) -> Estimate | None:
        if method is reference or not method.comparable_with(reference):
            return None
        return paired_difference(_by_seed(figures[method.label], read), _by_seed(theirs, read))

    methods = tuple(
        MethodFigures(
            method,
            figures[method.label],
            difference(method, lambda run: run.last_tenth),
            difference(method, lambda run: run.objective),
            both_complete=method.complete and reference.complete,
        )
        for method in study.methods
    )
    return Summary(study, measure, reference, tuple(targets), methods)


def run_figures(run: ReportedRun, measure: Measure, targets: Sequence[float] = ()) -> RunFigures:
    """One run in figures."""
    experiment, records = run.experiment, run.records
    assert experiment is not None
    curve, total = measure.quantity.read(run), len(records)
    consistency = None
    if run.weights is not None and records:
        consistency = measured_consistency(records, run.weights, algorithm=experiment.algorithm)
    noted = run.summary
    chance = noted.misplaced_by_chance if noted else None
    if chance is None and run.weights is not None and records:
        chance = chance_level(records, run.weights)
    eludd = running_elud(records)[-1] if records else math.nan
    evaluation = next((record.evaluation for record in reversed(records) if record.evaluation), None)
    clients = _client_values(evaluation, measure)
    known = [value for value in clients if math.isfinite(value)]
    compute, virtual = COMPUTE_TIME.read(run), VIRTUAL_TIME.read(run)
    return RunFigures(
        run=run,
        seed=experiment.seed,
        final=curve.values[-1] if len(curve) else None,
        best=curve.best(higher=measure.higher),
        last_tenth=curve.tail_mean(total, tenth(total)),
        last_five=curve.tail_mean(total, _LAST_FEW),
        objective=None if noted is None else noted.objective,
        eludd=None if math.isnan(eludd) else eludd,
        consistency=consistency,
        chi_square=consistency.chi_square if consistency else noted.chi_square if noted else None,
        misplaced=consistency.total_variation if consistency else noted.misplaced_weight if noted else None,
        by_chance=chance,
        clients=clients,
        client_mean=math.fsum(known) / len(known) if known else None,
        client_spread=spread(clients),
        client_worst=worst_tenth(clients, higher=measure.higher),
        bytes_down=float(sum(record.bytes_down for record in records)),
        bytes_up=float(sum(record.bytes_up for record in records)),
        steps=float(sum(sum(record.num_steps) for record in records)),
        compute_seconds=compute[-1] if compute else None,
        virtual_seconds=virtual[-1] if virtual else None,
        seconds=median(record.seconds for record in records) * total if records else 0.0,
        reached=tuple(_reached(run, measure, target) for target in targets),
    )


def _measure(study: Study) -> Measure:
    evaluations = (record.evaluation for run in study.runs for record in run.records if record.evaluation)
    if any("accuracy" in evaluation.metrics for evaluation in evaluations):
        return Measure(metric_quantity("accuracy"), higher=True)
    return Measure(LOSS, higher=False)


def _check_targets(targets: Sequence[float], measure: Measure) -> None:
    for target in targets:
        if measure.kind == "share" and not 0 <= target <= 1:
            raise FieldError(
                f"--target must be an accuracy between 0 and 1 (say 0.7 for 70 %), got {target:g}."
            )


def _own_target(baseline: Method, measure: Measure) -> tuple[float, ...]:
    """What every run of the baseline holds over its last 10 % of rounds, to two digits on the easy side."""
    ends = [
        measure.quantity.read(run).tail_mean(len(run.records), tenth(len(run.records)))
        for run in baseline.counted
    ]
    held = [end for end in ends if end is not None]
    if not held:
        return ()
    weakest = min(held) if measure.higher else max(held)
    if measure.kind == "share":
        return (math.floor(weakest * 100) / 100,)
    if weakest == 0:
        return (0.0,)
    unit = 10.0 ** (math.floor(math.log10(abs(weakest))) - 1)
    whole = math.floor(weakest / unit) if measure.higher else math.ceil(weakest / unit)
    return (whole * unit,)


def _reached(run: ReportedRun, measure: Measure, target: float) -> Reached | None:
    done = measure.quantity.read(run).rounds_to(target, higher=measure.higher)
    if done is None:
        return None
    spent = [axis.read(run) for axis in (LOCAL_STEPS, COMPUTE_TIME, VIRTUAL_TIME)]
    steps, compute, virtual = (None if total is None else total[done - 1] for total in spent)
    return Reached(done, steps, compute, virtual)


def _client_values(evaluation: Evaluation | None, measure: Measure) -> tuple[float, ...]:
    if evaluation is None:
        return ()
    if measure.quantity is LOSS:
        return evaluation.client_loss or ()
    return tuple(evaluation.client_metrics.get("accuracy", ()))


def _by_seed(runs: Sequence[RunFigures], read: Callable[[RunFigures], float | None]) -> dict[int, float]:
    return {run.seed: value for run in runs if (value := read(run)) is not None}
