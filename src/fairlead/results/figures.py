"""The figures of a run and of a method, and by which of them methods are judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from fairlead.diagnostics.consistency import ConsistencyReport, chance_level, measured_consistency
from fairlead.diagnostics.diversity import running_elud
from fairlead.records import Evaluation
from fairlead.results.curves import (
    COMPUTE_TIME,
    LOCAL_STEPS,
    LOSS,
    VIRTUAL_TIME,
    Quantity,
    metric_quantity,
    spread,
    tenth,
    worst_tenth,
)
from fairlead.results.estimates import Estimate, Judgement, estimate, judged
from fairlead.results.formats import Kind
from fairlead.results.methods import Method, Study
from fairlead.results.runs import ReportedRun
from fairlead.results.study_results import Metric
from fairlead.theory.prediction import known_limit


@dataclass(frozen=True)
class Measure:
    """By which figure methods are judged: accuracy, or the loss where there is none."""

    metric: Metric
    quantity: Quantity
    """Its curve."""

    @property
    def higher(self) -> bool:
        """Whether more is better."""
        return not self.metric.smaller_is_better

    @property
    def name(self) -> str:
        return self.quantity.title.lower()

    @property
    def kind(self) -> Kind:
        return self.quantity.kind

    def better(self, difference: float) -> bool:
        """Whether a difference to another method is in its favour."""
        return difference > 0 if self.higher else difference < 0


def measure_of(study: Study, others: Sequence[Study]) -> Measure:
    """Accuracy if any run of the study evaluated it, or of the others where the study has no evaluation yet."""
    evaluations = _evaluations([study]) or _evaluations(others)
    if any("accuracy" in evaluation.metrics for evaluation in evaluations):
        return Measure(Metric("accuracy", smaller_is_better=False), metric_quantity("accuracy"))
    return Measure(Metric("loss", smaller_is_better=True), LOSS)


def _evaluations(studies: Sequence[Study]) -> list[Evaluation]:
    records = (record for study in studies for run in study.runs for record in run.records)
    return [record.evaluation for record in records if record.evaluation is not None]


def own_target(baseline: Method, measure: Measure) -> tuple[float, ...]:
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


_LAST_FEW = 5
"""Rounds over which Weng 2025 averages."""


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
    bytes_down: float | None
    bytes_up: float | None
    steps: float
    compute_seconds: float | None
    virtual_seconds: float | None
    seconds: float | None
    """Median round times their number: the first one also waits for the process to warm up."""
    reached: tuple[Reached | None, ...]
    """Per target."""

    def client_ratios(self) -> list[float | None]:
        """Ω_i/ω_i of every client, None where ω_i = 0; empty where Ω was not measured."""
        report = self.consistency
        if report is None or report.surrogate is None or report.restored:
            return []
        pairs = zip(report.surrogate.tolist(), report.intended.tolist(), strict=True)
        return [really / asked if asked > 0 else None for really, asked in pairs]


def run_figures(run: ReportedRun, measure: Measure, targets: Sequence[float] = ()) -> RunFigures:
    """One run in figures."""
    experiment, records = run.experiment, run.records
    assert run.seed is not None
    curve, total = measure.quantity.read(run), len(records)
    consistency = None
    if experiment is not None and run.weights is not None and records:
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
        seed=run.seed,
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
        bytes_down=float(sum(record.bytes_down for record in records)) if run.detailed else None,
        bytes_up=float(sum(record.bytes_up for record in records)) if run.detailed else None,
        steps=float(sum(sum(record.num_steps) for record in records)),
        compute_seconds=compute[-1] if compute else None,
        virtual_seconds=virtual[-1] if virtual else None,
        seconds=median(record.seconds for record in records) * total if records and run.detailed else None,
        reached=tuple(_reached(run, measure, target) for target in targets),
    )


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


@dataclass(frozen=True, eq=False)
class MethodFigures:
    """A method in figures, and how it compares with the baseline."""

    method: Method
    place: int
    """Among the methods of all settings of the report: by it a method looks the same in each of them."""
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
        return estimate(list(by_seed(self.runs, read).values()))

    def judged(self, measure: Measure) -> Judgement | None:
        """How it compares with the baseline; None where that may be noise."""
        return (
            judged(self.difference, smaller_is_better=measure.metric.smaller_is_better)
            if self.both_complete
            else None
        )

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
        experiment = self.method.experiment
        limit = None if experiment is None else known_limit(experiment.algorithm, reports[0].intended)
        if limit is None or limit.weights is not None:
            return "What arrived does not tell the weights of the clients."
        return limit.explanation

    def by_design(self) -> bool:
        """Whether corrections restore the objective's weights, whatever work and links are."""
        return bool(self.runs) and all(
            run.consistency.restored
            if run.consistency is not None
            else run.run.summary is not None and run.run.summary.by_design
            for run in self.runs
        )


def by_seed(runs: Sequence[RunFigures], read: Callable[[RunFigures], float | None]) -> dict[int, float]:
    """A figure of the runs that have it."""
    return {run.seed: value for run in runs if (value := read(run)) is not None}
