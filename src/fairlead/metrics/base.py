"""The role `Metric`, a figure over a whole set of examples, and those of quantities."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fairlead.component import Component
from fairlead.errors import DataError


class Metric(Component, ABC):
    """A figure over a whole set of examples, such as F1 or AUC, that is not a mean of numbers per example.

    `keep` takes from each batch the numbers of each example that the figure needs, and `value` computes the figure of
    all that was kept. Batches may be of any size; the examples of a client are a slice of those of all.
    """

    higher_is_better: ClassVar[bool] = True
    is_share: ClassVar[bool] = False
    """Whether it is shown in percent."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name under which it is reported."""

    @property
    def title(self) -> str:
        """The name as the title of a column."""
        return self.name.replace("_", " ").capitalize()

    @abstractmethod
    def keep(self, outputs: Any, targets: Tensor) -> Tensor:
        """What the figure needs of a batch, (batch, ...), on any device; a `DataError` if it does not fit the task."""

    @abstractmethod
    def value(self, kept: Tensor) -> float:
        """The figure of all that was kept, (examples, ...), on the CPU."""

    def undefined(self, targets: Tensor) -> str | None:
        """Why examples with these targets have no such figure, in a clause; None where they have one."""
        return None


@dataclass(frozen=True)
class _Quantities(Metric, ABC):
    """Family of figures of predicted quantities: `keep` has predictions beside targets, in float64."""

    def keep(self, outputs: Any, targets: Tensor) -> Tensor:
        if not targets.is_floating_point() or outputs.numel() != targets.numel():
            raise DataError(
                f"Task.metrics: {self.name!r} needs targets that are real numbers, and as many outputs, got targets of "
                f"type {str(targets.dtype).removeprefix('torch.')} and shape {tuple(targets.shape)}, and outputs of "
                f"shape {tuple(outputs.shape)}."
            )
        pairs = torch.stack([outputs.reshape(targets.shape), targets], dim=-1)
        return pairs.reshape(len(targets), -1, 2).cpu().to(torch.float64)


@dataclass(frozen=True)
class MeanAbsoluteError(_Quantities):
    """Mean of |output − target| over all numbers of all targets."""

    higher_is_better = False
    name = "mae"
    title = "MAE"

    def value(self, kept: Tensor) -> float:
        return float((kept[..., 0] - kept[..., 1]).abs().mean())


@dataclass(frozen=True)
class RootMeanSquaredError(_Quantities):
    """√ of the mean of (output − target)² over all numbers of all targets."""

    higher_is_better = False
    name = "rmse"
    title = "RMSE"

    def value(self, kept: Tensor) -> float:
        return math.sqrt(float((kept[..., 0] - kept[..., 1]).square().mean()))


@dataclass(frozen=True)
class R2(_Quantities):
    """The coefficient of determination, the mean over the numbers of a target.

        R² = 1 − Σ (y − ŷ)² / Σ (y − ȳ)²

    Symbols: y a number of a target, ŷ its prediction, ȳ its mean over the examples. A number with the same value in
    all examples is left out; where all are, R² is undefined.
    """

    name = "r2"
    title = "R²"

    def value(self, kept: Tensor) -> float:
        predicted, true = kept.unbind(-1)
        total = (true - true.mean(0)).square().sum(0)
        left = (true - predicted).square().sum(0)
        return float((1 - left / total)[_varies(true)].mean())

    def undefined(self, targets: Tensor) -> str | None:
        return None if bool(_varies(targets.reshape(len(targets), -1)).any()) else "all targets are equal"


def _varies(values: Tensor) -> Tensor:
    """Columns that do not hold one value only; rounding in their mean would make equal ones vary."""
    return (values != values[:1]).any(0)
