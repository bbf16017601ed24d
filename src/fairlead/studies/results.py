"""What came of a study: means over seeds for each method or setting, and how they differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fairlead.errors import FieldError, did_you_mean
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.summary import RunSummary
from fairlead.records import RoundRecord
from fairlead.studies.seed_statistics import Estimate, Judgement, estimate, judged, paired_difference
from fairlead.studies.study import Label, PlannedRun, StudyFolder, describe_labels

_OF_EVERY_RUN = ("objective", "train_loss", "misplaced_weight", "chi_square")
_SMALLER_IS_BETTER = (*_OF_EVERY_RUN, "loss", "mean_squared_error")


@dataclass(frozen=True)
class Metric:
    """The figure by which runs are compared."""

    name: str
    smaller_is_better: bool

    def of(self, summary: RunSummary) -> float | None:
        """Its value at the end of a run, if it was measured."""
        if self.name in _OF_EVERY_RUN:
            value: float | None = getattr(summary, self.name)
            return value
        if summary.evaluation is None:
            return None
        return {"loss": summary.evaluation.loss, **summary.evaluation.metrics}.get(self.name)

    def in_round(self, record: RoundRecord) -> float | None:
        """Its value in a round, where it was measured; of an objective, the training loss."""
        if self.name in ("objective", "train_loss"):
            return record.train_loss
        if record.evaluation is None:
            return None
        return {"loss": record.evaluation.loss, **record.evaluation.metrics}.get(self.name)


@dataclass(frozen=True)
class Result:
    """The runs that differ in their seed only."""

    labels: Mapping[str, Label]
    """What they have in common, such as the method."""
    summaries: Mapping[int, RunSummary]
    """Of those that finished, by seed."""
    failures: Mapping[int, str]
    """Why the others did not finish, by seed."""
    final: Estimate | None
    """The metric at the end; None if no run measured it."""
    difference: Estimate | None
    """Of the metric to the first result, seed by seed; None for the first itself."""
    objective_difference: Estimate | None = None
    """The same of the objective that was asked for."""
    reached: Mapping[int, int | None] = field(default_factory=dict)
    """Rounds until the target was first met, by seed; None where it never was. Empty without a target."""

    @property
    def name(self) -> str:
        """Its labels in one line."""
        return describe_labels(self.labels) or "as in the spec"

    def judged(self, metric: Metric) -> Judgement | None:
        """How it compares with the first result by the metric; None where that may be noise."""
        return judged(self.difference, smaller_is_better=metric.smaller_is_better)

    def judged_otherwise(self, metric: Metric) -> Judgement | None:
        """How it compares by the objective, if that is clear and not what the metric says."""
        by_objective = judged(self.objective_difference, smaller_is_better=True)
        return None if by_objective == self.judged(metric) else by_objective

    def mean(self, figure: str) -> float | None:
        """Mean over seeds of a figure of the summaries; None where a run has none."""
        values = [getattr(summary, figure) for summary in self.summaries.values()]
        return None if not values or None in values else math.fsum(values) / len(values)


def results_of(
    study: StudyFolder,
    planned: Sequence[PlannedRun],
    outcomes: Mapping[str, str],
    metric: Metric,
    target: float | None = None,
) -> list[Result]:
    """A result for each method or setting, in the order of the plan; with rounds to a `target` of the metric."""
    groups: dict[tuple[tuple[str, Label], ...], list[PlannedRun]] = {}
    for run in planned:
        groups.setdefault(_common(run), []).append(run)
    results: list[Result] = []
    first: tuple[dict[int, float], dict[int, float]] | None = None
    for common, runs in groups.items():
        summaries, failures, reached = {}, {}, {}
        for run in runs:
            summary = study.store(run).summary() if outcomes[run.folder] == "finished" else None
            if summary is None:
                failures[run.experiment.seed] = outcomes[run.folder]
            else:
                summaries[run.experiment.seed] = summary
                if target is not None:
                    reached[run.experiment.seed] = _rounds_to(target, metric, study.store(run).records())
        values = {
            seed: value for seed, summary in summaries.items() if (value := metric.of(summary)) is not None
        }
        objectives = {seed: summary.objective for seed, summary in summaries.items()}
        final = estimate(list(values.values()))
        result = Result(dict(common), summaries, failures, final, None, reached=reached)
        if first is None:
            first = values, objectives
        else:
            result = replace(
                result,
                difference=paired_difference(values, first[0]),
                objective_difference=paired_difference(objectives, first[1]),
            )
        results.append(result)
    return results


def _rounds_to(target: float, metric: Metric, records: Sequence[RoundRecord]) -> int | None:
    """Rounds done when the metric first was as good as the target."""
    for record in records:
        value = metric.in_round(record)
        if value is not None and (value <= target if metric.smaller_is_better else value >= target):
            return record.round + 1
    return None


def best_first(results: Sequence[Result], metric: Metric) -> list[Result]:
    """Results from the best to the worst by the mean of the metric; those without one come last."""

    def rank(result: Result) -> float:
        if result.final is None or math.isnan(result.final.mean):
            return math.inf
        return result.final.mean if metric.smaller_is_better else -result.final.mean

    return sorted(results, key=rank)


def chosen_metric(experiment: Experiment, name: str | None, *, minimize: bool = False) -> Metric:
    """The metric of that name; without one the first that the experiment evaluates, or its objective."""
    task = experiment.task or experiment.clients.default_task()
    evaluated = [*task.metric_functions(), "loss"] if experiment.evaluate_every else []
    known = [*evaluated, *_OF_EVERY_RUN]
    if name is not None and name not in known:
        raise FieldError(f"{name!r} is not a figure of these runs." + did_you_mean(name, known))
    chosen = name or known[0]
    return Metric(chosen, minimize or chosen in _SMALLER_IS_BETTER)


def _common(run: PlannedRun) -> tuple[tuple[str, Label], ...]:
    return tuple((key, value) for key, value in run.labels.items() if key != "seed")
