"""The gallery: every reproduction by name, and what is left out with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.errors import FieldError, did_you_mean
from fairlead.reproductions import wang2021 as wang2021_quadratics
from fairlead.reproductions import wang2021 as wang2021_training
from fairlead.reproductions import wang2024, zeng2023, zeng2025
from fairlead.reproductions import wang2024 as wang2024_splits
from fairlead.reproductions import weng2025 as weng2025_quadratics
from fairlead.reproductions import weng2025 as weng2025_training
from fairlead.reproductions.bias_table import BIAS_TABLE
from fairlead.reproductions.reproduction import Reproduction, cited

_ALL: tuple[Reproduction, ...] = (
    wang2021_quadratics.LEMMA_1,
    wang2021_quadratics.FIGURE_2,
    wang2021_quadratics.FIGURE_4,
    wang2021_training.FIGURE_5,
    wang2021_training.TABLE_1,
    wang2024.THEOREM_3,
    wang2024_splits.FIGURE_1_FEMNIST,
    wang2024_splits.FIGURE_1_MNIST,
    wang2024_splits.FIGURE_3,
    wang2024_splits.FIGURE_4,
    zeng2023.TABLE_1,
    zeng2023.FIGURE_2,
    zeng2023.FIGURE_5,
    zeng2023.FIGURE_6,
    zeng2023.FIGURE_7,
    zeng2023.FIGURE_8,
    zeng2023.FIGURE_9,
    zeng2025.TABLE_2_CIFAR10,
    zeng2025.TABLE_2_CIFAR100,
    zeng2025.TABLE_2_AGNEWS,
    zeng2025.FIGURE_1,
    zeng2025.FIGURE_4,
    zeng2025.FIGURE_6,
    weng2025_quadratics.FIGURE_4,
    weng2025_quadratics.FIGURE_7,
    *weng2025_training.TABLE_1,
    *weng2025_training.TABLE_4,
    *weng2025_training.TABLE_5,
    BIAS_TABLE,
)

REPRODUCTIONS: dict[str, Reproduction] = {entry.name: entry for entry in _ALL}
"""By name, paper by paper."""


@dataclass(frozen=True)
class Omitted:
    """A published result that is not in the gallery."""

    reference: str
    where: str
    reason: str

    @property
    def paper(self) -> str:
        """The paper as text cites it."""
        return cited(self.reference)


OMITTED = (
    Omitted(
        "zeng2025fedaware",
        "Figs. 2, 3 and 8",
        "Curves of the runs of Table 2, which `fairlead report` draws from what is kept of them.",
    ),
    Omitted("zeng2025fedaware", "Fig. 5", "A picture of a partition, without a claim."),
    Omitted(
        "wang2024unreasonable", "Figs. 1 and 3, Stack Overflow", "The data cannot be had as plain files."
    ),
    Omitted("wang2024unreasonable", "Fig. 2", "A drawing."),
    Omitted("wang2024unreasonable", "Table 2", "Rates of theorems, without a measurement."),
    Omitted(
        "weng2025fedacs",
        "Tables 1 and 4, seconds",
        "Times of the authors' machine; local steps are counted instead.",
    ),
)


def reproduction_named(name: str) -> Reproduction:
    """The reproduction of that name."""
    if name not in REPRODUCTIONS:
        raise FieldError(
            f"{name!r} is not a reproduction."
            + did_you_mean(
                name, REPRODUCTIONS, otherwise="`fairlead list reproductions` shows what there is."
            )
        )
    return REPRODUCTIONS[name]
