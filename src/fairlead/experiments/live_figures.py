"""Figures of a run for its live display."""

from time import monotonic
from typing import NamedTuple

from fairlead.diagnostics.consistency import report_of
from fairlead.federation import Federation
from fairlead.records import Evaluation, RoundRecord

_PAUSE = 0.5
"""Seconds between two computations of the weights, which cost more than counting."""


class RoundFigures(NamedTuple):
    """A round in a few numbers."""

    done: int
    """Rounds so far, this one included."""
    arrived: int
    asked: int
    train_loss: float | None
    elud: float | None
    """e-LUD of the received updates (Zeng 2025)."""
    chi_square: float | None
    """χ²(ω‖Ω) of all rounds so far; None if the method has none."""
    evaluation: Evaluation | None
    """The latest, without figures per client."""
    evaluated: bool
    """Whether it was made in this round."""


def figures_of(
    record: RoundRecord, evaluation: Evaluation | None = None, chi_square: float | None = None
) -> RoundFigures:
    """The figures of a record; `evaluation` and χ² are given if the record does not hold them."""
    own = record.evaluation
    return RoundFigures(
        done=record.round + 1,
        arrived=len(record.arrived),
        asked=len(record.asked),
        train_loss=record.train_loss,
        elud=record.elud,
        chi_square=chi_square,
        evaluation=evaluation if own is None else Evaluation(own.loss, own.metrics),
        evaluated=own is not None,
    )


class LiveFigures:
    """Follows a federation and returns the figures of each round."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._chi_square: float | None = None
        self._looked = float("-inf")
        self._evaluation: Evaluation | None = None

    def of(self, record: RoundRecord) -> RoundFigures:
        """The figures of the round that has just ended."""
        if record.evaluation is not None or monotonic() - self._looked > _PAUSE:
            run = self._federation
            run.monitor.watch(run.records)
            self._chi_square = report_of(run.monitor.tally, run.algorithm).chi_square
            self._looked = monotonic()
        figures = figures_of(record, self._evaluation, self._chi_square)
        self._evaluation = figures.evaluation
        return figures
