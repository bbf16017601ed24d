"""Figures of predicted classes: counts by class, rankings by score, and figures of the predicted probabilities."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fairlead.component import PositiveCount
from fairlead.errors import DataError
from fairlead.metrics.base import Metric

Average = Literal["macro", "micro", "weighted", "binary"]
_NO_TARGET = -100
"""Marks a place of a sequence without target."""


def class_scores(metric: Metric, outputs: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
    """A score (logit) of every class, (batch, ..., classes), and the classes, (batch, ...).

    A single output per target is the logit of class 1 against class 0.
    """
    if isinstance(outputs, Tensor):
        whole = not targets.is_floating_point()
        if whole and outputs.ndim == targets.ndim + 1 and outputs.shape[-1] > 1:
            return outputs, targets
        if outputs.numel() == targets.numel() and bool(_is_zero_or_one(targets)):
            logit = outputs.reshape(len(targets), -1)
            return torch.stack([torch.zeros_like(logit), logit], -1), targets.reshape(logit.shape).long()
    got = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
    raise DataError(
        f"Task.metrics: {metric.name!r} needs targets that are classes, and an output for each class, got targets of "
        f"type {str(targets.dtype).removeprefix('torch.')} and shape {tuple(targets.shape)}, and outputs of {got}."
    )


def no_target(targets: Tensor) -> str | None:
    """Why there is no figure of classes where every place of every sequence is without target."""
    return "no example has a target" if bool((targets == _NO_TARGET).all()) else None


def _is_zero_or_one(targets: Tensor) -> Tensor:
    return ((targets == 0) | (targets == 1) | (targets == _NO_TARGET)).all()


def _valid(kept: Tensor) -> Tensor:
    """Rows (n, k) of the places whose target, the last number, is known."""
    rows = kept.reshape(-1, kept.shape[-1])
    return rows[rows[:, -1] != _NO_TARGET]


@dataclass(frozen=True)
class _Counts(Metric, ABC):
    """Family of ratios of counts by class; the predicted class is the one with the largest output.

    `average`: "macro" is the mean over the classes that occur among targets or predictions, "weighted" the same by
    their number of targets, "micro" the ratio of the counts of all classes together (the accuracy), "binary" the
    figure of class 1. A ratio 0/0, as the precision of a class that is never predicted, counts as 0.
    """

    average: Average = "macro"

    is_share = True

    @property
    def name(self) -> str:
        return f"{type(self).__name__.removesuffix('Score').lower()}_{self.average}"

    @abstractmethod
    def ratio(self, right: Tensor, predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
        """Numerator and denominator from counts of each class: predicted rightly, predicted, and true."""

    def keep(self, outputs: Any, targets: Tensor) -> Tensor:
        scores, classes = class_scores(self, outputs, targets)
        return torch.stack([scores.argmax(-1), classes], -1)

    def value(self, kept: Tensor) -> float:
        said, true = _valid(kept).unbind(1)
        size = max(int(kept.max()) + 1, 2)
        counts = [torch.bincount(some, minlength=size).double() for some in (said[said == true], said, true)]
        above, below = self.ratio(*counts)
        if self.average == "micro":
            return float(above.sum() / below.sum())
        ratios = above / below.clamp(min=1)
        if self.average == "binary":
            return float(ratios[1])
        if self.average == "weighted":
            return float(ratios @ counts[2] / counts[2].sum())
        return float(ratios[(counts[1] + counts[2]) > 0].mean())

    def undefined(self, targets: Tensor) -> str | None:
        if self.average == "binary" and not bool(_is_zero_or_one(targets)):
            return "some targets are neither class 0 nor class 1"
        return no_target(targets)


@dataclass(frozen=True)
class F1Score(_Counts):
    """The harmonic mean of precision and recall: 2·right/(predicted + true) of each class.

    `average`: "macro" (mean over the classes that occur among targets or predictions), "weighted" (by their number of
    targets), "micro" (all classes together) or "binary" (class 1).
    """

    def ratio(self, right: Tensor, predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * right, predicted + true


@dataclass(frozen=True)
class PrecisionScore(_Counts):
    """The share of right ones among the predictions of a class; 0 for a class that is never predicted.

    `average` as for `F1Score`.
    """

    def ratio(self, right: Tensor, predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
        return right, predicted


@dataclass(frozen=True)
class RecallScore(_Counts):
    """The share of the examples of a class that are found; 0 for a class that occurs in predictions only.

    `average` as for `F1Score`.
    """

    def ratio(self, right: Tensor, predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
        return right, true


@dataclass(frozen=True)
class _Rankings(Metric, ABC):
    """Family of figures of the order of scores, of class 1 for two classes.

    With more classes it is the mean over the classes that some examples have and others do not, each against the rest
    and by its predicted probability. With a single class among the targets it is undefined.
    """

    @abstractmethod
    def ranked(self, positive: Tensor, negative: Tensor) -> Tensor:
        """The figure from the numbers of either kind at each distinct score, the lowest first."""

    def keep(self, outputs: Any, targets: Tensor) -> Tensor:
        scores, classes = class_scores(self, outputs, targets)
        scores = scores.cpu().to(torch.float64)
        # Differences of logits and logarithms have no ties where probabilities would round to 0 or 1.
        ordered = scores.diff(dim=-1) if scores.shape[-1] == 2 else scores.log_softmax(-1)
        return torch.cat([ordered, classes.cpu().double()[..., None]], -1)

    def value(self, kept: Tensor) -> float:
        *columns, true = _valid(kept).unbind(1)
        found = []
        for label, scores in enumerate(columns, start=1 if len(columns) == 1 else 0):
            is_positive = true == label
            if not bool(scores.isfinite().all()):
                return math.nan
            if bool(is_positive.any()) and not bool(is_positive.all()):
                _, place = torch.unique(scores, return_inverse=True)
                positive = torch.bincount(place, weights=is_positive.double())
                found.append(self.ranked(positive, torch.bincount(place) - positive))
        return float(torch.stack(found).mean())

    def undefined(self, targets: Tensor) -> str | None:
        known = targets[targets != _NO_TARGET]
        return None if bool((known != known[:1]).any()) else "all targets are of one class"


@dataclass(frozen=True)
class AUC(_Rankings):
    """The area under the ROC curve: the chance that an example of a class scores above one of the rest, ties as ½.

    Two classes: class 1 against class 0. More: the mean over the classes, each against the rest. With a single class
    among the targets it is undefined.
    """

    name = "auc"
    title = "AUC"

    def ranked(self, positive: Tensor, negative: Tensor) -> Tensor:
        below = negative.cumsum(0) - negative / 2
        return positive @ below / (positive.sum() * negative.sum())


@dataclass(frozen=True)
class AveragePrecision(_Rankings):
    """The mean precision over the examples of a class, each at the threshold of its own score.

        Σ_n (R_n − R_{n−1}) P_n

    Symbols: R_n, P_n recall and precision at the n-th distinct score from above, so that equal scores count together.
    Classes as for `AUC`.
    """

    name = "average_precision"

    def ranked(self, positive: Tensor, negative: Tensor) -> Tensor:
        positive, negative = positive.flip(0), negative.flip(0)
        found = positive.cumsum(0)
        return positive @ (found / (found + negative.cumsum(0))) / positive.sum()


@dataclass(frozen=True)
class Perplexity(Metric):
    """exp of the mean −log probability of the targets, over all targets of all sequences alike."""

    higher_is_better = False
    name = "perplexity"

    def keep(self, outputs: Any, targets: Tensor) -> Tensor:
        scores, classes = class_scores(self, outputs, targets)
        losses = F.cross_entropy(scores.movedim(-1, 1), classes, reduction="none", ignore_index=_NO_TARGET)
        parts = torch.stack([losses, (classes != _NO_TARGET).to(losses.dtype)], -1).cpu().double()
        return parts.reshape(len(targets), -1, 2).sum(1)

    def value(self, kept: Tensor) -> float:
        losses, counts = kept.sum(0)
        # A tensor, since math.exp raises where the result would be infinite.
        return float((losses / counts).exp())

    def undefined(self, targets: Tensor) -> str | None:
        return no_target(targets)


@dataclass(frozen=True)
class TopK(Metric):
    """Whether the target is among the k largest outputs, averaged over the targets of a sequence.

    Of equal outputs the one of the lower class comes first. Reduces to accuracy for k = 1.
    """

    k: PositiveCount = 5

    is_share = True

    @property
    def name(self) -> str:
        return f"top_{self.k}_accuracy"

    def keep(self, outputs: Any, targets: Tensor) -> Tensor:
        scores, classes = class_scores(self, outputs, targets)
        if self.k >= scores.shape[-1]:
            raise DataError(
                f"TopK.k must be below the number of classes, which is {scores.shape[-1]}, got {self.k}."
            )
        valid = classes != _NO_TARGET
        own = scores.gather(-1, classes.clamp(min=0)[..., None])
        earlier = torch.arange(scores.shape[-1], device=scores.device) < classes[..., None]
        ahead = ((scores > own) | ((scores == own) & earlier)).sum(-1)
        hits = (ahead < self.k) & valid & ~scores.isnan().any(-1)
        rows = (len(targets), -1)
        return hits.reshape(rows).sum(1).cpu().double() / valid.reshape(rows).sum(1).clamp(min=1).cpu()

    def value(self, kept: Tensor) -> float:
        return float(kept.mean())

    def undefined(self, targets: Tensor) -> str | None:
        return no_target(targets)


@dataclass(frozen=True)
class CalibrationError(Metric):
    """The expected calibration error of the most probable class.

        Σ_b n_b/n |accuracy_b − confidence_b|

    Symbols: the bins b divide the confidence, the largest probability, into `bins` intervals ((b−1)/bins, b/bins].
    An empty bin counts nothing.
    """

    bins: PositiveCount = 15

    higher_is_better = False
    references = ("guo2017calibration",)

    @property
    def name(self) -> str:
        return "calibration_error" if self.bins == 15 else f"calibration_error_{self.bins}"

    def keep(self, outputs: Any, targets: Tensor) -> Tensor:
        scores, classes = class_scores(self, outputs, targets)
        confidence, said = scores.cpu().double().softmax(-1).max(-1)
        classes = classes.cpu()
        return torch.stack([confidence, (said == classes).double(), classes.double()], -1)

    def value(self, kept: Tensor) -> float:
        confidence, hits, _ = _valid(kept).unbind(1)
        if not bool(confidence.isfinite().all()):
            return math.nan
        place = (confidence * self.bins).ceil().long() - 1
        return float(torch.bincount(place, weights=hits - confidence).abs().sum() / len(place))

    def undefined(self, targets: Tensor) -> str | None:
        return no_target(targets)
