"""Runs that failed, as an outcome tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.diagnostics.wording import counted
from fairlead.reproductions.table import Cell


@dataclass(frozen=True)
class FailedRun:
    """A run that cannot go on, and so has no figures."""

    method: str
    setting: str
    seed: int
    rounds: int
    """That it did before."""
    reason: str
    """A sentence."""
    columns: tuple[str, ...]
    """Of the figures that the table lacks."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The places of these figures."""
        return tuple(Cell(self.method, column) for column in self.columns)

    def __str__(self) -> str:
        where = Cell(self.method, self.setting)
        return f"{where}, seed {self.seed}, failed after {counted(self.rounds, 'round')}: {self.reason}"


def failed_cells(failures: Sequence[FailedRun]) -> frozenset[Cell]:
    """All places that lack a figure because a run failed."""
    return frozenset(cell for failure in failures for cell in failure.cells)
