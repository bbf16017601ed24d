"""Figures of a run and of a method, and the measure by which methods are compared."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median
from typing import Self, get_args

from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.diagnostics.diversity import running_elud
from fairlead.diagnostics.measurement import chance_level, measured_consistency
from fairlead.errors import FieldError, did_you_mean
from fairlead.experiments.experiment import Experiment
from fairlead.records import Evaluation
from fairlead.results import curves
from fairlead.results.curves import Axis, Curve, FigureName, Quantity
from fairlead.results.estimates import Comparative, Estimate, NumberKind, estimate, mean_of, paired_difference
from fairlead.results.methods import MethodRuns
from fairlead.results.runs import ReportedRun
from fairlead.stopping import refuse_percentage
from fairlead.task import METRICS, AnyMetric, minimizes
from fairlead.theory.prediction import known_limit

FIGURES: dict[FigureName, tuple[str, str, str]] = {
    "last-tenth": ("last 10 %", "over the last 10 % of rounds", "mean over the last 10 % of rounds"),
    "final": ("final", "after the last round", "after the last round"),
    "best": ("best", "in the best round", "of all evaluations"),
    "last5": ("last 5 rounds", "over the last 5 rounds", "mean over the last five rounds"),
}
"""Each figure as the title of a column, in a sentence, and as the note below a title."""
_AT_THE_END: dict[str, tuple[str, NumberKind]] = {
    "objective": ("Objective", "number"),
    "misplaced_weight": ("Misplaced weight", "share"),
    "chi_square": ("Chi-square", "divergence"),
}
"""Metrics of the final model alone, with title and kind."""


@dataclass(frozen=True)
class Measure:
    """The measure by which methods are compared: a figure of a metric."""

    metric: str
    higher: bool
    """Whether more is better."""
    figure: FigureName
    quantity: Quantity
    """The curve of the metric; a single point where only the final model has it."""

    @property
    def name(self) -> str:
        return self.quantity.title.lower()

    @property
    def kind(self) -> NumberKind:
        return self.quantity.kind

    @property
    def at_the_end(self) -> bool:
        """Whether only the final model has the metric."""
        return self.metric in _AT_THE_END

    @property
    def column(self) -> str:
        """The figure as the title of a column."""
        return "final model" if self.at_the_end else FIGURES[self.figure][0]

    @property
    def described(self) -> str:
        """Metric and figure, as in "accuracy over the last 10 % of rounds"."""
        return f"{self.name} {'of the final model' if self.at_the_end else FIGURES[self.figure][1]}"

    @property
    def direction(self) -> str:
        return "larger is better" if self.higher else "smaller is better"

    @property
    def over_rounds(self) -> Quantity:
        """The curve to draw: the training loss where rounds do not have the metric."""
        return curves.TRAIN_LOSS if self.at_the_end else self.quantity

    def refuse_target(self, target: float, named: str) -> None:
        """Raise if rounds cannot be counted up to a target, which the user knows as `named`."""
        if self.at_the_end:
            raise FieldError(
                f"{named} must be left out where runs are compared by {self.metric}, which only the final model "
                f"has, got {target:g}."
            )
        refuse_percentage(self.metric, target, named)


def measure_named(
    metric: str,
    figure: FigureName = "last-tenth",
    *,
    minimize: bool = False,
    metrics: Mapping[str, AnyMetric] = METRICS,
) -> Measure:
    """A figure of the metric with that name, one of `metrics` if they have it."""
    if figure not in get_args(FigureName):
        raise FieldError(f"figure must be one of {', '.join(get_args(FigureName))}, got {figure!r}.")
    shared = metric.removeprefix("personal_")
    if metric in _AT_THE_END:
        title, kind = _AT_THE_END[metric]
        key, read = metric.replace("_", "-"), partial(_at_the_end, metric)
        quantity = Quantity(key, title, "Of the final model.", read, kind)
    else:
        losses = {"loss": curves.LOSS, "train_loss": curves.TRAIN_LOSS}
        quantity = losses.get(metric) or curves.metric_quantity(metric, metrics.get(shared))
    higher = metric not in _AT_THE_END and not minimizes(shared, metrics)
    return Measure(metric, higher and not minimize, figure, quantity)


def _at_the_end(metric: str, run: ReportedRun) -> Curve:
    value = run.objective if metric == "objective" else getattr(run.summary, metric, None)
    return Curve((), ()) if value is None else Curve((len(run.records),), (value,))


def planned_measure(
    planned: Iterable[Experiment],
    metric: str | None,
    figure: FigureName = "last-tenth",
    *,
    minimize: bool = False,
) -> Measure:
    """The measure of experiments: their first metric unless one is named, or the objective if they evaluate nothing.

    Clients' own models are measured in all runs if some method has any.
    """
    experiment = max(planned, key=lambda each: each.algorithm.solver.is_personal)
    task = experiment.learning_task
    named = task.named_metrics()
    evaluated = [*named, "loss"] if experiment.evaluate_every else []
    own = [f"personal_{name}" for name in evaluated]
    # First for a personal method; for others, the figures of clients with the one model.
    evaluated = [*own, *evaluated] if experiment.algorithm.solver.is_personal else [*evaluated, *own]
    cure = task.how_to_add(metric) if metric is not None and evaluated else ""
    chosen = _named_or_first(metric, [*evaluated, *_AT_THE_END, "train_loss"], cure)
    return measure_named(chosen, figure, minimize=minimize, metrics=named)


def runs_measure(
    runs: Sequence[ReportedRun], metric: str | None, figure: FigureName, *, minimize: bool
) -> Measure:
    """The measure of runs, as `planned_measure` chooses it."""
    evaluations = [record.evaluation for run in runs for record in run.records if record.evaluation]
    named = [
        *dict.fromkeys(name for each in evaluations for name in each.metrics),
        *(["loss"] if evaluations else []),
    ]
    own = [f"personal_{name}" for name in named if not name.startswith("personal_")]
    shared = [name for name in named if name not in own]
    known = [*own, *shared] if own and own[0] in named else [*shared, *own]
    planned = not runs or any(run.experiment is None or run.experiment.evaluate_every for run in runs)
    if not known and planned:
        # Nothing was evaluated yet.
        known = [metric or "accuracy"]
    chosen = _named_or_first(metric, [*known, *_AT_THE_END, "train_loss"])
    return measure_named(chosen, figure, minimize=minimize, metrics=curves.metrics_of(runs))


def _named_or_first(metric: str | None, known: Sequence[str], cure: str = "") -> str:
    if metric is not None and metric not in known:
        # Personal metrics are named only to those who ask for one, or compare a personal method.
        personal = any(name.startswith("personal_") for name in (metric, known[0]))
        shown = [name for name in known if personal or not name.startswith("personal_")]
        raise FieldError(f"{metric!r} is not a metric of these runs.{cure or did_you_mean(metric, shown)}")
    return metric or known[0]


def _ended_alike(one: ReportedRun, other: ReportedRun) -> bool:
    """Whether both finished, and a rule may have ended them at different rounds."""
    return one.finished and other.finished and one.experiment is not None and other.experiment is not None


def own_target(baseline: MethodRuns, measure: Measure) -> tuple[float, ...]:
    """A target that every run of the baseline holds over its last 10 % of rounds, to two digits on the easy side."""
    if measure.at_the_end:
        return ()
    ends = [RunFigures(run, measure).figure("last-tenth") for run in baseline.counted]
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


@dataclass(frozen=True, eq=False)
class RunFigures:
    """One run in figures; each is None where the run does not have it."""

    run: ReportedRun
    measure: Measure

    @property
    def seed(self) -> int:
        assert self.run.seed is not None
        return self.run.seed

    @cached_property
    def _curve(self) -> Curve:
        return self.measure.quantity.read(self.run)

    def figure(self, figure: FigureName) -> float | None:
        """A figure of the metric; None also where it diverged."""
        found = self._measured(figure)
        return None if found is None or self._is_beyond(found) else found

    def _measured(self, figure: FigureName) -> float | None:
        total = max(self._curve.rounds, default=0)
        return self._curve.figure(figure, total, higher=self.measure.higher)

    def _is_beyond(self, value: float) -> bool:
        """Whether a value shows divergence; an infinite χ² only shows that a client's updates never arrived."""
        return not math.isfinite(value) and self.measure.metric != "chi_square"

    @property
    def diverged(self) -> bool:
        """Whether the run finished with an infinite figure, or one that is not a number."""
        found = self._measured(self.measure.figure)
        return self.run.finished and found is not None and self._is_beyond(found)

    @property
    def value(self) -> float | None:
        """The figure by which methods are compared."""
        return self.figure(self.measure.figure)

    @property
    def objective(self) -> float | None:
        """Σ ω_i F_i of the final model."""
        return self.run.objective

    @property
    def eludd(self) -> float | None:
        """The mean of e-LUD over rounds."""
        found = running_elud(self.run.records)[-1] if self.run.records else math.nan
        return None if math.isnan(found) else found

    @cached_property
    def consistency(self) -> ConsistencyReport | None:
        experiment, weights, records = self.run.experiment, self.run.weights, self.run.records
        if experiment is None or weights is None or not records:
            return None
        return measured_consistency(records, weights, algorithm=experiment.algorithm)

    @property
    def chi_square(self) -> float | None:
        if self.consistency is not None:
            return self.consistency.chi_square
        return None if self.run.summary is None else self.run.summary.chi_square

    @property
    def misplaced(self) -> float | None:
        if self.consistency is not None:
            return self.consistency.total_variation
        return None if self.run.summary is None else self.run.summary.misplaced_weight

    @property
    def by_chance(self) -> float | None:
        """Share of weight that chance alone would misplace."""
        if self.run.summary is not None:
            return self.run.summary.misplaced_by_chance
        if self.run.weights is None or not self.run.records:
            return None
        return chance_level(self.run.records, self.run.weights)

    @cached_property
    def clients(self) -> tuple[float, ...]:
        """The metric of every client at the last evaluation; empty if clients were not evaluated."""
        evaluation: Evaluation | None = next(
            (record.evaluation for record in reversed(self.run.records) if record.evaluation), None
        )
        return () if evaluation is None else evaluation.of_clients(self.measure.metric)

    @property
    def client_mean(self) -> float | None:
        known = [value for value in self.clients if math.isfinite(value)]
        return mean_of(known) if known else None

    @property
    def client_spread(self) -> float | None:
        return curves.spread(self.clients)

    @property
    def client_variance(self) -> float | None:
        return None if self.client_spread is None else self.client_spread**2

    @property
    def client_gini(self) -> float | None:
        return curves.gini(self.clients)

    @property
    def client_worst(self) -> float | None:
        return curves.worst_tenth(self.clients, higher=self.measure.higher)

    @property
    def bytes_down(self) -> float | None:
        return float(sum(record.bytes_down for record in self.run.records)) if self.run.detailed else None

    @property
    def bytes_up(self) -> float | None:
        return float(sum(record.bytes_up for record in self.run.records)) if self.run.detailed else None

    @property
    def steps(self) -> float:
        return float(sum(sum(record.num_steps) for record in self.run.records))

    def total(self, axis: Axis) -> float | None:
        """The value of an axis at the end; None for a run without it."""
        return (axis.read(self.run) or (None,))[-1]

    @property
    def seconds(self) -> float | None:
        """The median round times their number, because the first one also warms up the process."""
        records = self.run.records
        if not records or not self.run.detailed:
            return None
        return median(record.seconds for record in records) * len(records)

    def rounds_to(self, target: float) -> int | None:
        """Rounds until the metric first met a target; None if it never did."""
        return self._curve.rounds_to(target, higher=self.measure.higher)

    def cost_of(self, target: float, axis: Axis) -> float | None:
        """The value of an axis when a target was first met; None also for a run without that axis."""
        done, spent = self.rounds_to(target), axis.read(self.run)
        return None if done is None or spent is None else spent[done - 1]

    def client_ratios(self) -> list[float | None]:
        """Ω_i/ω_i of every client, None where ω_i = 0; empty where Ω was not measured."""
        report = self.consistency
        if report is None or report.surrogate is None or report.restored:
            return []
        pairs = zip(report.surrogate.tolist(), report.intended.tolist(), strict=True)
        return [really / asked if asked > 0 else None for really, asked in pairs]


@dataclass(frozen=True, eq=False)
class MethodFigures:
    """A method in figures, and its difference to the baseline."""

    method: MethodRuns
    place: int
    """Among the methods of all settings of the report, so that a method looks the same in each of them."""
    measure: Measure
    runs: tuple[RunFigures, ...]
    baseline: Self | None = None
    """None for the baseline itself."""

    @property
    def label(self) -> str:
        return self.method.label

    @cached_property
    def value(self) -> Estimate | None:
        """The figure by which methods are compared."""
        return self.over_seeds(lambda run: run.value)

    @cached_property
    def num_diverged(self) -> int:
        """The number of runs that diverged."""
        return sum(run.diverged for run in self.runs)

    @property
    def unmeasured(self) -> bool:
        """Whether no run has the measure, not even a diverged one."""
        return self.value is None and not self.num_diverged

    @property
    def complete(self) -> bool:
        """Whether every run finished and has the measure."""
        return self.method.complete and self.value is not None and self.value.count == self.method.num_runs

    def by_seed(self, read: Callable[[RunFigures], float | None]) -> dict[int, float]:
        """A figure of the runs that have it."""
        return {run.seed: value for run in self.runs if (value := read(run)) is not None}

    def over_seeds(self, read: Callable[[RunFigures], float | None]) -> Estimate | None:
        """Mean and interval of a figure over the runs that have it."""
        return estimate(list(self.by_seed(read).values()))

    def difference_to(
        self, other: Self, read: Callable[[RunFigures], float | None] = lambda run: run.value
    ) -> Estimate | None:
        """The difference of a figure by pairs of equal seed and length; None where methods cannot be compared.

        Finished runs of one experiment differ in length only if `stop_when` ended them, and are compared.
        Rounds before a failure or an interrupt are not compared with the last rounds of other runs.
        """
        if self is other or self.method.failed or not self.method.comparable_with(other.method):
            return None
        others = {run.seed: run.run for run in other.runs}
        own = {
            run.seed: read(run)
            for run in self.runs
            if (paired := others.get(run.seed)) is not None
            and (_ended_alike(run.run, paired) or len(run.run.records) == len(paired.records))
        }
        return paired_difference(
            {seed: value for seed, value in own.items() if value is not None}, other.by_seed(read)
        )

    @cached_property
    def difference(self) -> Estimate | None:
        """To the baseline; None for the baseline itself."""
        return None if self.baseline is None else self.difference_to(self.baseline)

    @cached_property
    def objective_difference(self) -> Estimate | None:
        """The same of the objective of the final models."""
        return None if self.baseline is None else self.difference_to(self.baseline, lambda run: run.objective)

    @property
    def both_complete(self) -> bool:
        """Whether every run of it and of the baseline finished without divergence, else no difference is judged."""
        pair = (self, self.baseline or self)
        return all(each.method.complete and not each.num_diverged for each in pair)

    @property
    def judged(self) -> Comparative | None:
        """How it compares with the baseline; None where that may be noise."""
        if self.difference is None or not self.both_complete:
            return None
        return self.difference.judged(higher=self.measure.higher)

    @property
    def judged_otherwise(self) -> Comparative | None:
        """How it compares by the objective, if that is clear and the measure does not say the same."""
        if self.objective_difference is None or not self.both_complete:
            return None
        by_objective = self.objective_difference.judged(higher=False)
        return None if by_objective == self.judged else by_objective

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
            return "The received updates do not determine the weights of the clients."
        return limit.explanation

    def by_design(self) -> bool:
        """Whether corrections restore the objective's weights under any work and links."""
        return bool(self.runs) and all(
            run.consistency.restored
            if run.consistency is not None
            else run.run.summary is not None and run.run.summary.by_design
            for run in self.runs
        )
