"""What came of one method, over its runs and against the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairlead.diagnostics.surrogate import foregone
from fairlead.reports.measure import Measure
from fairlead.reports.methods import Method
from fairlead.reports.run_figures import RunFigures
from fairlead.studies.seed_statistics import Estimate, Judgement, estimate, judged


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
        fate = None if experiment is None else foregone(experiment.algorithm, reports[0].intended)
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


def by_seed(runs: Sequence[RunFigures], read: Callable[[RunFigures], float | None]) -> dict[int, float]:
    """A figure of the runs that have it."""
    return {run.seed: value for run in runs if (value := read(run)) is not None}
