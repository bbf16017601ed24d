"""Figures of a single run, as papers print them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fairlead.records import RoundRecord
from fairlead.reports.statistics import Curve, tenth

Statistic = Callable[[Sequence[RoundRecord], float | None], float | None]
"""A figure of all rounds of a run and the target of its setting; None where it was not measured."""


def top_accuracy(records: Sequence[RoundRecord], target: float | None) -> float | None:
    """The best accuracy of all rounds, in percent (Zeng 2023)."""
    return _percent(_accuracy(records).best(higher=True))


def last_tenth_accuracy(records: Sequence[RoundRecord], target: float | None) -> float | None:
    """Mean accuracy of the last 10 % of rounds, in percent (Zeng 2025)."""
    return _percent(_accuracy(records).tail_mean(len(records), tenth(len(records))))


def last_five_accuracy(records: Sequence[RoundRecord], target: float | None) -> float | None:
    """Mean accuracy of the last five rounds, in percent (Weng 2025)."""
    return _percent(_accuracy(records).tail_mean(len(records), 5))


def final_accuracy(records: Sequence[RoundRecord], target: float | None) -> float | None:
    """Accuracy after the last round, in percent (Wang 2021)."""
    return _percent(_accuracy(records).tail_mean(len(records), 1))


def rounds_to_target(records: Sequence[RoundRecord], target: float | None) -> float | None:
    """Rounds until the accuracy is first met, infinite if it never is (Weng 2025 Tables 1, 4 and 5)."""
    curve = _accuracy(records)
    if target is None or not len(curve):
        return None
    done = curve.rounds_to(target, higher=True)
    return math.inf if done is None else float(done)


def steps_to_target(records: Sequence[RoundRecord], target: float | None) -> float | None:
    """Local steps of all clients that were heard until the accuracy is first met, in thousands."""
    done = rounds_to_target(records, target)
    if done is None or math.isinf(done):
        return done
    return sum(sum(record.num_steps) for record in records[: int(done)]) / 1000


def mean_elud(records: Sequence[RoundRecord], target: float | None) -> float | None:
    """e-LUDD, the mean of e-LUD over rounds; rounds whose updates cancel are left out (Zeng 2025)."""
    known = [record.elud for record in records if record.elud is not None and math.isfinite(record.elud)]
    return math.fsum(known) / len(known) if known else None


def late_loss(records: Sequence[RoundRecord], target: float | None) -> float | None:
    """Mean loss of the second half of the rounds."""
    points = [(record.round + 1, record.evaluation.loss) for record in records if record.evaluation]
    curve = Curve(tuple(done for done, _ in points), tuple(loss for _, loss in points))
    return curve.tail_mean(len(records), len(records) // 2)


def early_coherence(records: Sequence[RoundRecord], target: float | None) -> float | None:
    """Mean cosine between two clients' updates in the first 10 % of rounds (Zeng 2025 Fig. 6)."""
    return _cosine(records[: tenth(len(records))])


def late_coherence(records: Sequence[RoundRecord], target: float | None) -> float | None:
    """Mean cosine between two clients' updates in the last 10 % of rounds (Zeng 2025 Fig. 6)."""
    return _cosine(records[-tenth(len(records)) :])


def _cosine(records: Sequence[RoundRecord]) -> float | None:
    cosines = [
        record.coherence / math.comb(len(record.arrived), 2)
        for record in records
        if record.coherence is not None and len(record.arrived) > 1
    ]
    return math.fsum(cosines) / len(cosines) if cosines else None


def _accuracy(records: Sequence[RoundRecord]) -> Curve:
    points = [
        (record.round + 1, record.evaluation.metrics["accuracy"])
        for record in records
        if record.evaluation is not None and "accuracy" in record.evaluation.metrics
    ]
    return Curve(tuple(done for done, _ in points), tuple(value for _, value in points))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
