"""Tables of figures: ours by seed, and what a paper prints in the same place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from fairlead.studies.seed_statistics import estimate


class Cell(NamedTuple):
    """A place in a table."""

    row: str
    """As a rule the method."""
    column: str
    """As a rule the setting, and what is measured in it."""

    def __str__(self) -> str:
        return f"{self.row} ({self.column})" if self.column else self.row


class Published(NamedTuple):
    """A number as a paper prints it."""

    value: float
    """Infinite where the paper says that a target was never met."""
    spread: float | None = None
    """What stands after ±."""


BySeed = Mapping[int, float]
Results = Mapping[Cell, BySeed]
"""What was measured; a cell whose runs are missing is left out."""


def mean(values: BySeed) -> float:
    """Over seeds; infinite if one of them is."""
    return sum(values.values()) / len(values)


def deviation(values: BySeed) -> float | None:
    """Sample standard deviation over seeds, as papers print it; None for one seed or infinite values."""
    found = estimate(list(values.values()))
    if found is None or found.half_width is None:
        return None
    centre = found.mean
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values.values()) / (len(values) - 1))


def column(name: str, values: Mapping[str, float | tuple[float, float]]) -> dict[Cell, Published]:
    """A column of a published table: numbers by row, alone or with what stands after ±."""
    return {
        Cell(row, name): Published(*value) if isinstance(value, tuple) else Published(value)
        for row, value in values.items()
    }
