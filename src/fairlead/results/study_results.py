"""What came of a study: means over seeds for each method or setting, and how they differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fairlead.errors import FieldError, did_you_mean
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.provenance import failure_in
from fairlead.experiments.study import Label, PlannedRun, StudyFolder, describe_labels
from fairlead.experiments.summary import RunSummary
from fairlead.records import RoundRecord
from fairlead.results.estimates import Estimate, Judgement, estimate, judged, paired_difference
from fairlead.text import counted, listed

_AT_THE_END = ("objective", "misplaced_weight", "chi_square")
_OF_EVERY_RUN = (*_AT_THE_END, "train_loss")
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
        """Its value in a round, where it was measured."""
        if self.name == "train_loss":
            return record.train_loss
        if record.evaluation is None:
            return None
        return {"loss": record.evaluation.loss, **record.evaluation.metrics}.get(self.name)

    def spacing(self, experiment: Experiment) -> int:
        """Most rounds from one value to the next, or to the first."""
        return 1 if self.name == "train_loss" else min(experiment.evaluate_every, experiment.rounds)

    @property
    def over_rounds(self) -> Metric:
        """What curves show: the metric, or the training loss for the objective, which rounds do not measure."""
        return Metric("train_loss", smaller_is_better=True) if self.name == "objective" else self

    def refuse_target(self, target: float, named: str) -> None:
        """Raise if rounds cannot be counted up to a target, which the user knows as `named`."""
        if self.name in _AT_THE_END:
            raise FieldError(
                f"{named} must be left out where runs are compared by {self.name}, which is known at their end "
                f"alone, got {target:g}."
            )
        if self.name == "accuracy" and not 0 <= target <= 1:
            meant = f": say {target / 100:g} for {target:g} %" if 1 < target <= 100 else ""
            raise FieldError(f"{named} must be from 0 to 1 for accuracy, got {target:g}{meant}.")


_OBJECTIVE = Metric("objective", smaller_is_better=True)


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
    """Rounds until the target was first met, by seed of those that finished; None where it never was.

    Empty without a target.
    """

    @property
    def name(self) -> str:
        """Its labels in one line."""
        return describe_labels(self.labels) or "as in the spec"

    @property
    def num_runs(self) -> int:
        """Of all that were planned."""
        return len(self.summaries) + len(self.failures)

    @property
    def is_complete(self) -> bool:
        """Whether all runs finished and measured the metric."""
        return self.final is not None and self.final.count == self.num_runs

    @property
    def learnt(self) -> bool:
        """As `may_have_learnt` has it."""
        going_on = any(failure_in(outcome) is None for outcome in self.failures.values())
        return may_have_learnt(self.summaries.values(), going_on=going_on)

    def against(self, other: Result, metric: Metric) -> Result:
        """The same with its differences to another result."""
        return replace(
            self,
            difference=paired_difference(
                _measured(self.summaries, metric), _measured(other.summaries, metric)
            ),
            objective_difference=paired_difference(
                _measured(self.summaries, _OBJECTIVE), _measured(other.summaries, _OBJECTIVE)
            ),
        )

    def judged(self, metric: Metric) -> Judgement | None:
        """How it compares with the first result by the metric; None where that may be noise, or runs are missing.

        A mean over the survivors may flatter.
        """
        if self.failures:
            return None
        return judged(self.difference, smaller_is_better=metric.smaller_is_better)

    def judged_otherwise(self, metric: Metric) -> Judgement | None:
        """How it compares by the objective, if that is clear and not what the metric says."""
        if self.failures:
            return None
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
        final = estimate(list(_measured(summaries, metric).values()))
        result = Result(dict(common), summaries, failures, final, None, reached=reached)
        results.append(result.against(results[0], metric) if results else result)
    return results


def _measured(summaries: Mapping[int, RunSummary], metric: Metric) -> dict[int, float]:
    """The metric by seed, of the runs that have it."""
    return {seed: value for seed, summary in summaries.items() if (value := metric.of(summary)) is not None}


def _rounds_to(target: float, metric: Metric, records: Sequence[RoundRecord]) -> int | None:
    """Rounds done when the metric first was as good as the target."""
    for record in records:
        value = metric.in_round(record)
        if value is not None and (value <= target if metric.smaller_is_better else value >= target):
            return record.round + 1
    return None


def may_have_learnt(finished: Iterable[RunSummary | None], *, going_on: bool) -> bool:
    """Whether a run is left that may have learnt: not every one failed or ended no better than it began.

    Of runs that finished without a summary nobody knows; `going_on` is whether some neither finished nor failed.
    """
    return going_on or any(summary is None or summary.learnt for summary in finished)


def told_unlearnt(names: Sequence[str], number: int, noun: str) -> str:
    """A sentence on those of a number of methods, or whatever the noun says, of which no run learnt."""
    found = f"No run of {any_or_listed(names, number, noun)} ended with a lower objective than its initial model has"
    return f"{found}: the learning rate may be too large."


def any_or_listed(names: Sequence[str], number: int, noun: str) -> str:
    """`any method` where the names are those of all, else the names."""
    return f"any {noun}" if len(names) == number > 1 else listed(names)


def target_resolution(apart: int) -> str:
    """A sentence on how late a target is noticed that is looked at so many rounds apart; empty if in every one."""
    if apart < 2:
        return ""
    return (
        f"Evaluations are up to {apart} rounds apart: a target may have been met up to "
        f"{counted(apart - 1, 'round')} before it was noticed."
    )


def best_first(results: Sequence[Result], metric: Metric) -> list[Result]:
    """Results from the best to the worst by the mean of the metric, those that are not complete after the others.

    A mean over the seeds that got through says little of a setting under which others diverge.
    """

    def rank(result: Result) -> tuple[bool, float]:
        if result.final is None or math.isnan(result.final.mean):
            return not result.is_complete, math.inf
        mean = result.final.mean
        return not result.is_complete, mean if metric.smaller_is_better else -mean

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
