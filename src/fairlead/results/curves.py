"""Learning curves: of one run, and as means over the seeds of a method."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import pstdev
from typing import Literal, Self

import numpy as np
import torch

from fairlead.charts.chart import Series
from fairlead.diagnostics.measurement import Tally, report_of
from fairlead.experiments.study import folder_name
from fairlead.metrics.base import Metric
from fairlead.records import RoundRecord
from fairlead.results.estimates import LARGEST, NumberKind, estimate, mean_of
from fairlead.results.methods import MethodRuns
from fairlead.results.runs import ReportedRun
from fairlead.task import METRICS, AnyMetric

FigureName = Literal["last-tenth", "last5", "final", "best"]
"""The figure of a curve by which runs are compared."""


@dataclass(frozen=True)
class Curve:
    """A quantity of one run at the rounds where it was measured."""

    rounds: tuple[int, ...]
    """Numbers of finished rounds, ascending."""
    values: tuple[float, ...]
    """Infinite or NaN where a run diverged."""

    @classmethod
    def of(cls, points: Iterable[tuple[int, float]]) -> Self:
        """A curve through (round, value) points."""
        pairs = list(points)
        return cls(tuple(done for done, _ in pairs), tuple(value for _, value in pairs))

    @property
    def points(self) -> Iterator[tuple[int, float]]:
        """(round, value) of every measurement."""
        return zip(self.rounds, self.values, strict=True)

    @property
    def finite(self) -> Self:
        """The curve without infinite values, those that are not numbers, and those too large to be drawn."""
        return self.of(point for point in self.points if abs(point[1]) <= LARGEST)

    def __len__(self) -> int:
        return len(self.values)

    def minus(self, other: Self, before: int = 0) -> list[float]:
        """The differences to another curve, that many rounds before, where both were measured."""
        known = {done + before: value for done, value in other.points}
        return [value - known[done] for done, value in self.points if done in known]

    @property
    def spacing(self) -> int:
        """Most rounds between two measurements, or before the first; 0 without any."""
        return max((later - done for done, later in pairwise((0, *self.rounds))), default=0)

    def tail_mean(self, total: int, last: int) -> float | None:
        """Mean of the measurements in the `last` of `total` rounds; None without any."""
        tail = [value for done, value in self.points if total - last < done <= total]
        return mean_of(tail) if tail else None

    def best(self, *, higher: bool) -> float | None:
        """The largest finite value, or the smallest unless `higher` is better; the last if none is finite."""
        values = self.finite.values or self.values[-1:]
        return (max if higher else min)(values, default=None)

    def figure(self, name: FigureName, total: int, *, higher: bool) -> float | None:
        """A figure over `total` rounds; None where nothing was measured in them.

        The mean of the measurements in the last tenth of the rounds (Zeng 2025) or in the last five (Weng 2025); the
        last one; the best one.
        """
        if name == "best":
            return self.best(higher=higher)
        if name == "final":
            return self.values[-1] if self.values else None
        return self.tail_mean(total, tenth(total) if name == "last-tenth" else 5)

    def rounds_to(self, target: float, *, higher: bool) -> int | None:
        """Rounds until the target was first met; None if it never was."""
        met = (done for done, value in self.points if (value >= target if higher else value <= target))
        return next(met, None)


def tenth(rounds: int) -> int:
    """The number of rounds in the last 10 %, rounded up."""
    return -(-rounds // 10)


def worst_tenth(values: Sequence[float], *, higher: bool) -> float | None:
    """Mean over the worst 10 % (at least one) of the finite values; None without any."""
    known = sorted((value for value in values if math.isfinite(value)), reverse=not higher)
    return mean_of(known[: tenth(len(known))]) if known else None


def spread(values: Sequence[float]) -> float | None:
    """Population standard deviation of the finite values; None without any."""
    known = [value for value in values if math.isfinite(value)]
    return pstdev(known) if known else None


def gini(values: Sequence[float]) -> float | None:
    """Σ_i Σ_j |x_i − x_j| / (2 n Σ x) of the finite values: 0 if all are equal, near 1 if one has everything.

    None without any, and where one is negative, as an R² may be.
    """
    known = sorted(value for value in values if math.isfinite(value))
    if not known or known[0] < 0:
        return None
    ranked = math.fsum((2 * place - len(known) + 1) * value for place, value in enumerate(known))
    return ranked / (len(known) * math.fsum(known)) if known[-1] > 0 else 0.0


_POINTS = 100
"""Most points of a drawn curve."""
_FLOOR = 1e-6
"""Smaller χ² are drawn at this value, since a logarithmic axis has no 0."""


@dataclass(frozen=True)
class Quantity:
    """A figure that changes over a run."""

    key: str
    """Part of file names."""
    title: str
    note: str
    read: Callable[[ReportedRun], Curve]
    kind: NumberKind = "number"
    logarithmic: bool = False
    """Whether its axis is logarithmic where values span an order of magnitude."""


@dataclass(frozen=True)
class Axis:
    """A measure of progress."""

    key: str
    title: str
    kind: NumberKind
    read: Callable[[ReportedRun], tuple[float, ...] | None]
    """Its value after each round; None for a run without it."""


def quantities(runs: Sequence[ReportedRun]) -> list[Quantity]:
    """Everything that can be drawn for these runs: metrics of evaluations first, then figures of rounds."""
    evaluations = [record.evaluation for run in runs for record in run.records if record.evaluation]
    names = dict.fromkeys(name for evaluation in evaluations for name in evaluation.metrics)
    ordered = sorted(names, key=lambda name: name != "accuracy")
    metrics = metrics_of(runs)
    named = [metric_quantity(name, metrics.get(name.removeprefix("personal_"))) for name in ordered]
    return [*named, LOSS, TRAIN_LOSS, OBJECTIVE, ELUD, CHI_SQUARE]


def metrics_of(runs: Iterable[ReportedRun]) -> dict[str, AnyMetric]:
    """Metrics by name: those of the library, and those of the runs' tasks."""
    tasks = [run.experiment.task for run in runs if run.experiment and run.experiment.task]
    return METRICS | {name: metric for task in tasks for name, metric in task.named_metrics().items()}


def metric_quantity(name: str, metric: AnyMetric | None) -> Quantity:
    """A metric of the task, such as accuracy."""
    shared = name.removeprefix("personal_")
    personal = shared != name
    is_share = metric.is_share if isinstance(metric, Metric) else shared == "accuracy"
    title = metric.title if isinstance(metric, Metric) else shared.replace("_", " ").capitalize()
    return Quantity(
        folder_name(name),
        f"Personal {title.lower()}" if personal else title,
        "Of the models that clients use, on their own examples; every client counts alike."
        if personal
        else "Global model on the test set; without a test set, the weighted mean over clients.",
        lambda run: _evaluated(
            run, lambda record: record.evaluation.overall(name) if record.evaluation else None
        ),
        "share" if is_share else "number",
    )


def _evaluated(run: ReportedRun, read: Callable[[RoundRecord], float | None]) -> Curve:
    """A figure of rounds, where it is known."""
    points = [(record.round + 1, read(record)) for record in run.records]
    curve = Curve.of((done, value) for done, value in points if value is not None)
    # An archive without losses has NaN in all of its evaluations.
    missing = not run.detailed and all(map(math.isnan, curve.values))
    return Curve((), ()) if missing else curve


def _objective(run: ReportedRun) -> Curve:
    """Σ ω_i F_i from the losses of all clients."""
    weights = run.weights

    def read(record: RoundRecord) -> float | None:
        evaluation = record.evaluation
        if weights is None or not run.one_model or evaluation is None or evaluation.client_loss is None:
            return None
        losses = torch.tensor(evaluation.client_loss, dtype=weights.dtype)
        asked = weights > 0
        return float(weights[asked] @ losses[asked])

    return _evaluated(run, read)


def _chi_square(run: ReportedRun) -> Curve:
    """χ²(ω‖Ω) of all rounds so far, at evenly spaced rounds."""
    if run.weights is None or run.experiment is None:
        return Curve((), ())
    tally, points = Tally(run.weights), []
    stops = set(_spread(range(1, len(run.records) + 1)))
    for record in run.records:
        tally.add([record])
        if record.round + 1 in stops:
            report = report_of(tally, run.experiment.algorithm)
            if not report.restored and report.chi_square is not None and math.isfinite(report.chi_square):
                points.append((record.round + 1, max(report.chi_square, _FLOOR)))
    return Curve.of(points)


LOSS = Quantity(
    "loss",
    "Test loss",
    "Global model on the test set; without a test set, the objective.",
    lambda run: _evaluated(run, lambda record: record.evaluation.loss if record.evaluation else None),
    logarithmic=True,
)
TRAIN_LOSS = Quantity(
    "train-loss",
    "Training loss",
    "Mean over the local steps of clients whose update arrived.",
    lambda run: _evaluated(run, lambda record: record.train_loss),
    logarithmic=True,
)
OBJECTIVE = Quantity(
    "objective",
    "Objective Σ ω F",
    "The intended objective: the weighted loss of all clients. Needs per_client = true.",
    _objective,
    logarithmic=True,
)
ELUD = Quantity(
    "elud",
    "Update diversity (e-LUD)",
    "How much the updates of a round differ; 1 if all agree. Rounds whose updates cancel are left out.",
    lambda run: _evaluated(run, lambda record: record.elud),
)
CHI_SQUARE = Quantity(
    "chi-square",
    "Weight error χ²(ω‖Ω)",
    "Distance of the effective weights Ω from the intended ω, once every client has sent an update.",
    _chi_square,
    logarithmic=True,
)


def _total(read: Callable[[RoundRecord], float | None]) -> Callable[[ReportedRun], tuple[float, ...] | None]:
    """Running sums of a figure of rounds; None if a round lacks it, or if it is 0 in all rounds."""

    def total(run: ReportedRun) -> tuple[float, ...] | None:
        steps = [read(record) for record in run.records]
        known = [step for step in steps if step is not None]
        return tuple(accumulate(known)) if any(known) and len(known) == len(steps) else None

    return total


ROUNDS = Axis("rounds", "Rounds", "count", _total(lambda record: 1.0))
VIRTUAL_TIME = Axis("virtual", "Virtual time", "seconds", _total(lambda record: record.virtual_seconds))
COMPUTE_TIME = Axis("compute", "Compute time", "seconds", _total(lambda record: record.device_seconds))
LOCAL_STEPS = Axis("steps", "Local steps", "count", _total(lambda record: float(sum(record.num_steps))))
BYTES = Axis("bytes", "Bytes", "bytes", _total(lambda record: float(record.bytes_down + record.bytes_up)))
AXES = (ROUNDS, VIRTUAL_TIME, COMPUTE_TIME, LOCAL_STEPS, BYTES)


def bands(method: MethodRuns, quantity: Quantity, axes: Sequence[Axis], place: int = 0) -> dict[str, Series]:
    """The mean curve of a method against every axis that its runs have, by the key of the axis."""
    curves = [(run, curve) for run in method.counted if len(curve := quantity.read(run).finite)]
    found = {}
    for axis in axes:
        progress = [(axis.read(run), curve) for run, curve in curves]
        placed = [
            (tuple(done[number - 1] for number in curve.rounds), curve.values)
            for done, curve in progress
            if done is not None
        ]
        drawn = band_of(placed) if placed else None
        if drawn is not None:
            found[axis.key] = replace(drawn, label=method.label, place=place)
    return found


def band_of(curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Series | None:
    """Mean and interval of curves, each given by ascending positions and values.

    Curves with the same positions are averaged there; curves of one point each, at the mean of their positions.
    Others are interpolated linearly over the range that all of them cover; None if there is no such range.
    """
    positions = _common_positions([own for own, _ in curves])
    if not positions:
        return None
    read = np.array([np.interp(positions, own, values) for own, values in curves])
    found = [each for values in read.T.tolist() if (each := estimate(values)) is not None]
    intervals = [(each.low, each.high) for each in found if each.low is not None and each.high is not None]
    lows, highs = zip(*intervals, strict=True) if len(intervals) == len(found) else (None, None)
    seeds = tuple(map(tuple, read.tolist())) if len(curves) > 1 else ()
    return Series(tuple(positions), tuple(each.mean for each in found), lows, highs, seeds=seeds)


def _common_positions(all_positions: Sequence[Sequence[float]]) -> list[float]:
    first = all_positions[0]
    if all(tuple(own) == tuple(first) for own in all_positions):
        return _spread(first)
    if all(len(own) == 1 for own in all_positions):
        return [math.fsum(own[0] for own in all_positions) / len(all_positions)]
    low, high = max(own[0] for own in all_positions), min(own[-1] for own in all_positions)
    if low > high:
        return []
    inner = sorted({position for own in all_positions for position in own if low <= position <= high})
    if len(inner) <= _POINTS:
        return inner
    return [low + (high - low) * step / (_POINTS - 1) for step in range(_POINTS)]


def _spread(values: Sequence[float]) -> list[float]:
    """At most `_POINTS` of the values, evenly spaced, with the first and the last."""
    count = len(values)
    if count <= _POINTS:
        return list(values)
    return [values[round(place * (count - 1) / (_POINTS - 1))] for place in range(_POINTS)]
