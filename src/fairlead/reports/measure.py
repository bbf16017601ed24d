"""By which figure the methods of a study are judged, and the target that it sets by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.records import Evaluation
from fairlead.reports.curves import LOSS, Quantity, metric_quantity
from fairlead.reports.formats import Kind
from fairlead.reports.methods import Method, Study
from fairlead.reports.statistics import tenth
from fairlead.studies.results import Metric


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
