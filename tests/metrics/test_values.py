"""Metrics over whole sets against transcriptions of their definitions, torchmetrics, and cases by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import functional as TM
from torchmetrics.functional.text import perplexity

import fairlead as fl
from fairlead.errors import DataError, FieldError
from fairlead.metrics.base import Metric
from fairlead.task import METRICS, minimizes

Numbers = NDArray[np.float64]


def value(metric: Metric, outputs: Tensor, targets: Tensor, batch: int = 7) -> float:
    """The figure of examples that come in batches."""
    assert metric.undefined(targets) is None
    pieces = zip(torch.split(outputs, batch), torch.split(targets, batch), strict=True)
    return metric.value(torch.cat([metric.keep(some, own).cpu() for some, own in pieces]))


def drawn(seed: int, count: int, classes: int) -> tuple[Tensor, Tensor]:
    """Rounded scores, so that there are ties, and classes of which some may be missing."""
    generator = torch.Generator().manual_seed(seed)
    outputs = (torch.randn(count, classes, generator=generator) * 2).round(decimals=1)
    targets = torch.randint(classes, (count,), generator=generator)
    return outputs + torch.nn.functional.one_hot(targets, classes), targets


def counted(outputs: Tensor, targets: Tensor) -> list[tuple[int, int, int]]:
    """For each class that occurs: true positives, predictions and examples."""
    predicted, true = outputs.argmax(1).tolist(), targets.tolist()
    return [
        (
            sum(a == b == label for a, b in zip(predicted, true, strict=True)),
            predicted.count(label),
            true.count(label),
        )
        for label in sorted({*predicted, *true})
    ]


def _ratio(above: float, below: float) -> float:
    return above / below if below else 0.0


RATIOS: dict[type[Metric], Callable[[int, int, int], tuple[float, float]]] = {
    fl.PrecisionScore: lambda right, said, are: (right, said),
    fl.RecallScore: lambda right, said, are: (right, are),
    fl.F1Score: lambda right, said, are: (2 * right, said + are),
}


@pytest.mark.parametrize("score", [fl.PrecisionScore, fl.RecallScore, fl.F1Score])
@given(seed=st.integers(0, 10**6), count=st.integers(1, 40), classes=st.integers(2, 5))
def test_counted_scores(
    score: type[fl.F1Score | fl.PrecisionScore | fl.RecallScore], seed: int, count: int, classes: int
) -> None:
    """scikit-learn's definitions: classes among targets or predictions, and 0 for 0/0."""
    outputs, targets = drawn(seed, count, classes)
    counts = counted(outputs, targets)
    pairs = [RATIOS[score](*each) for each in counts]
    ratios = [_ratio(*pair) for pair in pairs]
    supports = [are for _, _, are in counts]
    assert value(score("macro"), outputs, targets) == pytest.approx(sum(ratios) / len(ratios))
    weighted = sum(r * s for r, s in zip(ratios, supports, strict=True)) / count
    assert value(score("weighted"), outputs, targets) == pytest.approx(weighted)
    right = float((outputs.argmax(1) == targets).double().mean())
    assert value(score("micro"), outputs, targets) == pytest.approx(right)
    if classes == 2:
        predicted = outputs.argmax(1)
        one = RATIOS[score](
            int(((predicted == 1) & (targets == 1)).sum()), int(predicted.sum()), int(targets.sum())
        )
        assert value(score("binary"), outputs, targets) == pytest.approx(_ratio(*one))


def pairwise_auc(scores: Numbers, positive: NDArray[np.bool_]) -> float:
    """The share of pairs in the right order, ties as ½."""
    above = scores[positive][:, None] - scores[~positive][None]
    return float((above > 0).mean() + (above == 0).mean() / 2)


def stepwise_precision(scores: Numbers, positive: NDArray[np.bool_]) -> float:
    """Σ (R_n − R_{n−1}) P_n over distinct thresholds from above, as in scikit-learn."""
    total, before = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        chosen = scores >= threshold
        recall = positive[chosen].sum() / positive.sum()
        total += (recall - before) * positive[chosen].mean()
        before = recall
    return float(total)


@pytest.mark.parametrize(
    ("metric", "oracle"), [(fl.AUC(), pairwise_auc), (fl.AveragePrecision(), stepwise_precision)]
)
@given(seed=st.integers(0, 10**6), count=st.integers(3, 40), classes=st.integers(2, 4))
def test_ranked_scores(
    metric: Metric,
    oracle: Callable[[Numbers, NDArray[np.bool_]], float],
    seed: int,
    count: int,
    classes: int,
) -> None:
    """Ties included; more than two classes each against the rest, those that nobody or everybody has left out."""
    outputs, targets = drawn(seed, count, classes)
    true = targets.numpy()
    if len(set(true.tolist())) < 2:
        assert metric.undefined(targets) == "all targets are of one class"
        return
    double = outputs.double()
    if classes == 2:
        expected = oracle((double[:, 1] - double[:, 0]).numpy(), true == 1)
    else:
        scores = double.log_softmax(1).numpy()
        expected = float(np.mean([oracle(scores[:, c], true == c) for c in sorted(set(true.tolist()))]))
    assert value(metric, outputs, targets) == pytest.approx(expected)


@given(seed=st.integers(0, 10**6), count=st.integers(2, 40), width=st.integers(1, 3))
def test_quantities(seed: int, count: int, width: int) -> None:
    generator = np.random.default_rng(seed)
    true, predicted = generator.normal(size=(2, count, width)).astype(np.float32)
    outputs, targets = torch.from_numpy(predicted), torch.from_numpy(true)
    error = predicted.astype(float) - true
    assert value(fl.MeanAbsoluteError(), outputs, targets) == pytest.approx(np.abs(error).mean())
    assert value(fl.RootMeanSquaredError(), outputs, targets) == pytest.approx(np.sqrt((error**2).mean()))
    r2 = 1 - (error**2).sum(0) / ((true.astype(float) - true.astype(float).mean(0)) ** 2).sum(0)
    assert value(fl.R2(), outputs, targets) == pytest.approx(r2.mean())


def test_a_constant_target_is_left_out_of_r2() -> None:
    targets = torch.tensor([[1.0, 0.1], [2.0, 0.1], [3.0, 0.1]])
    outputs = torch.tensor([[1.0, 9.0], [2.0, 9.0], [2.0, 9.0]])
    assert value(fl.R2(), outputs, targets) == pytest.approx(1 - 1 / 2)
    assert fl.R2().undefined(targets[:, 1]) == "all targets are equal"


@given(seed=st.integers(0, 10**6), count=st.integers(1, 30), k=st.integers(1, 4))
def test_top_k_is_the_place_of_the_target(seed: int, count: int, k: int) -> None:
    outputs, targets = drawn(seed, count, 5)
    order = np.argsort(-outputs.numpy(), axis=1, kind="stable")
    expected = np.mean([own in first[:k] for own, first in zip(targets.tolist(), order, strict=True)])
    assert value(fl.TopK(k), outputs, targets) == pytest.approx(expected)
    if k == 1:
        assert value(fl.TopK(1), outputs, targets) == float(fl.accuracy(outputs, targets).mean())


@given(seed=st.integers(0, 10**6), count=st.integers(1, 40), bins=st.integers(1, 20))
def test_calibration_error(seed: int, count: int, bins: int) -> None:
    outputs, targets = drawn(seed, count, 3)
    chances = outputs.double().softmax(1).numpy()
    confidence, hits = chances.max(1), chances.argmax(1) == targets.numpy()
    expected = 0.0
    for place in range(bins):
        inside = (confidence * bins > place) & (confidence * bins <= place + 1)
        if inside.any():
            expected += inside.mean() * abs(hits[inside].mean() - confidence[inside].mean())
    assert value(fl.CalibrationError(bins), outputs, targets) == pytest.approx(expected)


def test_perplexity_counts_tokens_alike() -> None:
    """Sequences of 1 and 3 targets: exp of the mean over 4 targets, not over 2 sequences."""
    outputs = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[1, -100, -100], [0, 3, 2]])
    logs = outputs.double().log_softmax(-1)
    total = logs[0, 0, 1] + logs[1, 0, 0] + logs[1, 1, 3] + logs[1, 2, 2]
    assert value(fl.Perplexity(), outputs, targets) == pytest.approx(math.exp(-float(total) / 4))
    uniform = torch.zeros(5, 7)
    assert value(fl.Perplexity(), uniform, torch.arange(5)) == pytest.approx(7)


def test_places_without_target_count_nowhere() -> None:
    outputs = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(1))
    targets = torch.randint(3, (4, 5), generator=torch.Generator().manual_seed(2))
    kept = torch.rand(4, 5, generator=torch.Generator().manual_seed(3)) < 0.7
    marked = torch.where(kept, targets, -100)
    for metric in (fl.F1Score(), fl.AUC(), fl.AveragePrecision(), fl.CalibrationError(), fl.Perplexity()):
        alone = value(metric, outputs[kept], targets[kept])
        assert value(metric, outputs, marked, batch=2) == pytest.approx(alone), metric.name
        assert metric.undefined(torch.full((2, 3), -100)) is not None


def test_torchmetrics_agrees() -> None:
    outputs, targets = drawn(5, 400, 4)
    # Without ties, which torchmetrics breaks as torch.topk happens to.
    outputs = outputs + 0.01 * torch.rand(outputs.shape, generator=torch.Generator().manual_seed(0))
    chances = outputs.softmax(1)
    assert sorted(set(targets.tolist())) == [0, 1, 2, 3]
    kind: Any = {"task": "multiclass", "num_classes": 4, "average": "macro"}
    for metric, theirs in (
        (fl.F1Score(), TM.f1_score(chances, targets, **kind)),
        (fl.PrecisionScore(), TM.precision(chances, targets, **kind)),
        (fl.RecallScore(), TM.recall(chances, targets, **kind)),
        (fl.AUC(), TM.auroc(chances, targets, **kind)),
        (fl.AveragePrecision(), TM.average_precision(chances, targets, **kind)),
        (fl.TopK(2), TM.accuracy(chances, targets, "multiclass", num_classes=4, average="micro", top_k=2)),
        (
            fl.CalibrationError(),
            TM.calibration_error(chances, targets, task="multiclass", num_classes=4, n_bins=15),
        ),
        (fl.Perplexity(), perplexity(outputs[None], targets[None])),
    ):
        # torchmetrics computes in float32.
        assert isinstance(theirs, Tensor)
        assert value(metric, outputs, targets) == pytest.approx(float(theirs), abs=2e-5), metric.name
    predicted, true = torch.randn(2, 50, generator=torch.Generator().manual_seed(3))
    theirs = TM.r2_score(predicted, true)
    assert isinstance(theirs, Tensor)
    assert value(fl.R2(), predicted, true) == pytest.approx(float(theirs), abs=1e-5)
    assert value(fl.MeanAbsoluteError(), predicted, true) == pytest.approx(
        float(TM.mean_absolute_error(predicted, true))
    )


def test_a_single_output_is_the_logit_of_class_1() -> None:
    both, targets = drawn(3, 30, 2)
    logit = (both[:, 1] - both[:, 0]).round(decimals=1).double()
    both = torch.stack([torch.zeros_like(logit), logit], 1)
    for metric in (fl.AUC(), fl.F1Score("binary"), fl.Perplexity(), fl.CalibrationError(5)):
        for single, own in ((logit, targets), (logit[:, None], targets[:, None].float())):
            assert value(metric, single, own) == pytest.approx(value(metric, both, targets), rel=1e-5)


def test_numbers_that_are_none_stay_visible() -> None:
    """A model that diverged has no AUC, and no hit among its outputs."""
    outputs, targets = torch.full((4, 3), math.nan), torch.tensor([0, 1, 2, 0])
    for metric in (fl.AUC(), fl.AveragePrecision(), fl.CalibrationError(), fl.Perplexity()):
        assert math.isnan(value(metric, outputs, targets)), metric.name
    assert value(fl.TopK(2), outputs, targets) == 0
    assert math.isnan(value(fl.RootMeanSquaredError(), outputs[:, 0], targets.float()))
    assert value(fl.Perplexity(), torch.tensor([[2000.0, 0.0]]), torch.tensor([1])) == math.inf


@pytest.mark.parametrize(
    ("metric", "outputs", "targets", "sentence"),
    [
        (fl.AUC(), torch.zeros(2, 3), torch.full((2, 3), 0.5), "'auc' needs targets that are classes"),
        (fl.F1Score(), torch.zeros(2, 1), torch.tensor([0, 2]), "'f1_macro' needs targets that are classes"),
        (fl.R2(), torch.zeros(2, 3), torch.tensor([0, 1]), "'r2' needs targets that are real numbers"),
        (fl.TopK(3), torch.zeros(2, 3), torch.tensor([0, 1]), "TopK.k must be below the number of classes"),
    ],
)
def test_wrong_tasks_are_refused(metric: Metric, outputs: Tensor, targets: Tensor, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        metric.keep(outputs, targets)


def test_wrong_fields_are_refused() -> None:
    with pytest.raises(FieldError, match=r"F1Score\.average must be"):
        fl.F1Score("mean")  # type: ignore[arg-type]
    with pytest.raises(FieldError, match=r"TopK\.k must be"):
        fl.TopK(0)
    with pytest.raises(FieldError, match=r"CalibrationError\.bins must be"):
        fl.CalibrationError(0)


def test_names_and_directions() -> None:
    lower = {name for name in METRICS if minimizes(name)}
    assert lower == {"mean_squared_error", "calibration_error", "perplexity", "mae", "rmse"}
    assert fl.TopK(3).name == "top_3_accuracy"
    assert fl.CalibrationError(10).name == "calibration_error_10"
    assert fl.F1Score("binary").undefined(torch.tensor([0, 1, 2])) is not None
