"""The virtual clock of a run: how long its rounds would have taken on the clients' devices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from fairlead.errors import FieldError, did_you_mean
from fairlead.records import RoundRecord


def elapsed(records: Sequence[RoundRecord]) -> tuple[float, ...]:
    """Virtual seconds from the start of the run to the end of each round.

    >>> elapsed([])
    ()
    """
    seconds = [record.virtual_seconds for record in records]
    if None in seconds:
        raise FieldError(
            "The records have no virtual seconds: give the world devices, for instance "
            "devices=FixedDevices(step_seconds=0.1)."
        )
    return tuple(accumulate(s for s in seconds if s is not None))


def time_to(records: Sequence[RoundRecord], level: float, metric: str = "accuracy") -> float | None:
    """Virtual seconds until `metric` was first measured at `level` or above; None if it never was."""
    for record, time in zip(records, elapsed(records), strict=True):
        if record.evaluation is None:
            continue
        measured = record.evaluation.metrics
        if metric not in measured:
            raise FieldError(f"{metric!r} was not measured." + did_you_mean(metric, measured))
        if measured[metric] >= level:
            return time
    return None
