"""`StopRule`: when a run ends before its last round; and the best evaluation so far."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.component import Component, Finite, PositiveCount
from fairlead.errors import FieldError
from fairlead.records import RoundRecord
from fairlead.text import counted


def refuse_percentage(metric: str, target: float, named: str) -> None:
    """Raise if a target of the accuracy, which the user knows as `named`, is no share."""
    if metric == "accuracy" and not 0 <= target <= 1:
        meant = f": write {target / 100:g} for {target:g} %" if 1 < target <= 100 else ""
        raise FieldError(f"{named} must be from 0 to 1 for accuracy, got {target:g}{meant}.")


@dataclass(frozen=True)
class StopRule(Component):
    """Ends a run early: once a `metric` reaches a `target`, or has not improved in `patience` evaluations.

    The `metric` is one of the task, or "loss"; with "personal_" before it, of the models that clients use. Larger is
    better, except for losses and metrics that say so themselves; `minimize` overrides that.

    >>> StopRule("accuracy", patience=3)
    StopRule(metric='accuracy', patience=3, target=None, minimize=None)
    """

    metric: str
    patience: PositiveCount | None = None
    target: Finite | None = None
    minimize: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience is None and self.target is None:
            raise FieldError("stop_when needs patience or target.")
        if self.target is not None:
            refuse_percentage(self.metric, self.target, "stop_when.target")

    def best_so_far(self) -> BestSoFar:
        """The best value of its metric, before the first round."""
        return BestSoFar(self.metric, -1 if self.minimize else 1)

    def is_met(self, best: BestSoFar) -> bool:
        """Whether a run with this best evaluation ends now."""
        return self.reason(best) is not None

    def reason(self, best: BestSoFar) -> str | None:
        """Why a run with this best evaluation ends now; None if it does not."""
        value = f"{best.sign * best.score:.4g}"
        if self.target is not None and best.score >= best.sign * self.target:
            return f"{self.metric} {value} reached the target {self.target:g}"
        if self.patience is not None and best.since >= self.patience:
            return f"{self.metric} did not improve on {value} in {counted(self.patience, 'evaluation')}"
        return None


@dataclass
class BestSoFar:
    """The best value of a metric in the evaluations of a run; it follows from the records alone."""

    metric: str
    sign: int
    """1 if larger is better, −1 if smaller is."""
    score: float = -math.inf
    """The best value, times the sign."""
    since: int = 0
    """Evaluations since the best one."""

    def add(self, record: RoundRecord) -> bool:
        """Take in a round; True if its evaluation is the best so far, of equals the first."""
        if record.evaluation is None:
            return False
        known = {"loss": record.evaluation.loss, **record.evaluation.metrics}
        value = known.get(self.metric, record.evaluation.overall(self.metric))
        if value is None:
            raise FieldError(
                f"keep_best and stop_when must name a metric that is evaluated ({', '.join(known)}), got "
                f"{self.metric!r}."
            )
        score = self.sign * value
        if score > self.score:
            self.score, self.since = score, 0
            return True
        self.since += 1
        return False

    def after(self, records: Iterable[RoundRecord]) -> BestSoFar:
        """The same after these rounds."""
        for record in records:
            self.add(record)
        return self
