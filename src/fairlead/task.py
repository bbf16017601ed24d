"""`Task`: the model, its loss and its metrics."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_parameter_registration_hook

from fairlead.component import Component
from fairlead.errors import (
    ClashError,
    DataError,
    FieldError,
    MemoryBudgetError,
    did_you_mean,
    field_error,
    short,
)
from fairlead.memory.budget import available_bytes
from fairlead.metrics.base import R2, MeanAbsoluteError, Metric, RootMeanSquaredError
from fairlead.metrics.classification import (
    AUC,
    AveragePrecision,
    CalibrationError,
    F1Score,
    Perplexity,
    PrecisionScore,
    RecallScore,
    TopK,
)
from fairlead.models.augmentation import Augmentation, InputPipeline
from fairlead.models.base import ExampleShape, Model
from fairlead.models.imported import InMemoryModel, imported
from fairlead.numerics.rows import widest_float
from fairlead.parameters import FlatModule
from fairlead.randomness import Key, seeded_start
from fairlead.text import counted

PerExample = Callable[[Any, Tensor], Tensor]
"""`(model outputs, targets) -> (batch,)`, one number per example."""
OverAll = Callable[[Any, Tensor], float | Tensor]
"""`(all outputs, all targets) -> number`, one for the whole set of examples."""


@runtime_checkable
class Accumulator(Protocol):
    """An object that sees batches and then gives one number, as those of torchmetrics."""

    def update(self, outputs: Any, targets: Any, /) -> Any: ...

    def compute(self) -> Any: ...


AnyMetric: TypeAlias = OverAll | Accumulator | Metric
"""A figure of examples; a function may also give a number of each, as `PerExample`."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """−log softmax(outputs)[target]; for (batch, time, classes) outputs the mean over time."""
    if outputs.ndim == 2:
        return F.cross_entropy(outputs, targets, reduction="none")
    # Token losses of a sequence: the class axis comes second for torch; -100 marks no target.
    losses = F.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none", ignore_index=-100)
    valid = (targets != -100).to(losses.dtype)
    return (losses * valid).flatten(1).sum(1) / valid.flatten(1).sum(1).clamp(min=1.0)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """½‖output − target‖²."""
    error = (outputs.reshape(targets.shape) - targets).reshape(len(targets), -1)
    return 0.5 * error.square().sum(1)


def mean_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """(output − target)², averaged over the numbers of a target."""
    return squared_error(outputs, targets) * 2 / max(targets[0].numel(), 1)


def model_output(outputs: Tensor, targets: Tensor) -> Tensor:
    """The outputs themselves: for models that compute their own loss per example."""
    return outputs


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether the largest output is at the target, averaged over the targets of a sequence (-100: none)."""
    if outputs.shape[:-1] != targets.shape:
        raise ClashError(
            f"accuracy needs one class for each row of outputs, got targets of shape {tuple(targets.shape)} for "
            f"outputs of shape {tuple(outputs.shape)}: choose other Task.metrics."
        )
    hits, valid = (
        counted.to(widest_float(outputs.device)).reshape(len(targets), -1)
        for counted in (outputs.argmax(-1) == targets, targets != -100)
    )
    return hits.sum(1) / valid.sum(1).clamp(min=1.0)


def refuse_unknown_classes(
    loss: PerExample, outputs: Any, targets: Tensor, whose: Callable[[int], str] | None = None
) -> None:
    """Refuse classes that a model has no output for, before the run starts.

    `whose` names the owner of a row, for the error.
    """
    if loss is not cross_entropy or targets.is_floating_point():
        return
    classes = outputs.shape[-1]
    wrong = ((targets < 0) & (targets != -100)) | (targets >= classes)
    if bool(wrong.any()):
        row = int(wrong.reshape(len(targets), -1).any(1).nonzero()[0])
        raise DataError(
            f"Targets must be classes from 0 to {classes - 1}, since the model has {counted(classes, 'output')}, got "
            f"{int(targets[wrong][0])} in row {row}" + (f", of {whose(row)}." if whose else ".")
        )


LOSSES: dict[str, PerExample] = {f.__name__: f for f in (cross_entropy, squared_error, model_output)}
_COUNTED: list[Metric] = [
    score(average)
    for score in (F1Score, PrecisionScore, RecallScore)
    for average in ("macro", "micro", "weighted", "binary")
]
_OVER_ALL: tuple[Metric, ...] = (
    *_COUNTED, *map(TopK, (2, 3, 5, 10)), AUC(), AveragePrecision(), CalibrationError(), Perplexity(),
    MeanAbsoluteError(), RootMeanSquaredError(), R2(),
)  # fmt: skip
METRICS: dict[str, AnyMetric] = {
    **{f.__name__: f for f in (accuracy, mean_squared_error)},
    **{metric.name: metric for metric in _OVER_ALL},
}
"""Known by name."""

_SMALLER_IS_BETTER = ("loss", "train_loss", "mean_squared_error")
_IN_MEMORY = "in-memory"
"""In place of the module of a function that only a Python program holds."""


@dataclass(frozen=True)
class Task(Component):
    """The learning task: a model, a loss per example and metrics.

    `model` is a recipe (`MLP(...)`), initialized from the seed of each run, or a module, whose own parameters are the
    start. `loss` is a known name, "package.module:function" or a function `(outputs, targets) -> (batch,)`. Each of
    `metrics` is such a function too, a known name, a `Metric` such as `TopK(k=3)`, a function of all outputs and
    targets to one number, an object with `update(outputs, targets)` and `compute()`, as those of torchmetrics, or the
    "package.module:name" of one. `augment` changes inputs on their way into the model, in this order.
    """

    model: Model | nn.Module
    loss: str | PerExample = "cross_entropy"
    metrics: tuple[str | AnyMetric, ...] = ("accuracy",)
    augment: tuple[Augmentation, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.metrics, str):
            raise field_error(self, "metrics", "a list of metrics", self.metrics)
        super().__post_init__()
        if not isinstance(self.model, Model | nn.Module):
            raise field_error(
                self, "model", "a Model or a torch.nn.Module (an instance, not a class)", self.model
            )
        self.loss_function()
        self.named_metrics()

    def loss_function(self) -> PerExample:
        return _function(self.loss, LOSSES, "Task.loss")

    def named_metrics(self) -> dict[str, AnyMetric]:
        """Metrics by the name under which they are reported."""
        named: dict[str, AnyMetric] = {}
        for given in self.metrics:
            metric = _function(given, METRICS, "Task.metrics", "a metric")
            name = given.rpartition(":")[2] if isinstance(given, str) else _name_of(metric)
            if name in ("", "loss", "<lambda>") or name in named:
                raise FieldError(
                    "Task.metrics must have different names other than 'loss'; a lambda has none, so define a "
                    f"function; got {short(name)}."
                )
            named[name] = metric
        return named

    def how_to_add(self, metric: str) -> str:
        """A sentence on how to evaluate a known metric too; empty for others."""
        names = [name for name in self.metrics if isinstance(name, str)]
        if metric not in METRICS or metric in names or len(names) < len(self.metrics):
            return ""
        listed = ",".join(f'"{name}"' for name in (*names, metric))
        return f" Add it to the task: --set 'task.metrics=[{listed}]'."

    def minimizes(self, metric: str) -> bool:
        """Whether smaller is better of a metric of the task, or of the loss."""
        return minimizes(metric, self.named_metrics())

    def recorded(self) -> "Task":
        """The task as a spec can hold it, with modules and functions of this process by name."""
        model = self.model
        if isinstance(model, nn.Module):
            digest = sha256(repr(model).encode())
            for value in model.state_dict().values():
                digest.update(value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            model = InMemoryModel(type(model).__name__, digest.hexdigest()[:16])
        loss = self.loss if isinstance(self.loss, str) else f"{_IN_MEMORY}:{_name_of(self.loss)}"
        metrics = (
            each if isinstance(each, str | Metric) else f"{_IN_MEMORY}:{_name_of(each)}"
            for each in self.metrics
        )
        return replace(self, model=model, loss=loss, metrics=tuple(metrics))

    @property
    def description(self) -> str:
        """The task in words that are the same in every process; functions appear by name."""
        loss = self.loss if isinstance(self.loss, str) else getattr(self.loss, "__qualname__", "a callable")
        return f"{self.model!r} {loss} {self.augment!r}"

    def build(self, shape: ExampleShape, key: Key) -> FlatModule:
        """The model as a function of a flat vector, initialized from the key."""
        pipeline = InputPipeline(self.augment)
        pipeline.require_shape(shape.inputs)
        if isinstance(self.model, nn.Module):
            return FlatModule(self.model, pipeline)
        with seeded_start(key):
            return FlatModule(_built_within_memory(self.model, shape), pipeline)


def _built_within_memory(model: Model, shape: ExampleShape) -> nn.Module:
    """A recipe's module, refused before its parameters are filled if memory is too small."""
    left, sizes = available_bytes(), list[int]()

    def weigh(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        sizes.append(0 if parameter is None else parameter.nbytes)
        if (needed := model.copies * sum(sizes)) > left:
            raise _too_large(model, f"needs at least {needed / 2**30:.1f} GiB of memory", left)

    try:
        with register_module_parameter_registration_hook(weigh):
            return model.build(shape)
    except RuntimeError as error:
        # torch raises no special class for failed allocations or overflowing sizes.
        if re.search("allocate|overflow", str(error)):
            raise _too_large(model, "needs more memory than can be allocated", left) from error
        raise


def _too_large(model: Model, needs: str, left: int) -> MemoryBudgetError:
    return MemoryBudgetError(
        f"Task.model {short(model)} {needs}, and {left / 2**30:.1f} GiB are left: make it smaller."
    )


def _refuse_missing(name: str, outputs: Any, targets: Tensor) -> Tensor:
    raise DataError(
        f"The function {name} was in the memory of a Python program, and no spec holds it: give it again in Python."
    )


FunctionT = TypeVar("FunctionT", PerExample, AnyMetric)


def _function(
    value: str | FunctionT, known: Mapping[str, FunctionT], where: str, what: str = "a function"
) -> FunctionT:
    found: Any = value
    if isinstance(value, str) and value in known:
        return known[value]
    if isinstance(value, str) and value.startswith(f"{_IN_MEMORY}:"):
        found = partial(_refuse_missing, value.rpartition(":")[2])
    elif isinstance(value, str) and ":" in value:
        found = imported(value, where)
    if (isinstance(found, Metric | Accumulator) or callable(found)) and not isinstance(found, type):
        return cast("FunctionT", found)
    raise FieldError(
        f"{where} must be {what}, 'package.module:name' or a known name, got {short(value)}."
        + (did_you_mean(value, known) if isinstance(value, str) else "")
    )


def _name_of(metric: AnyMetric) -> str:
    """Its own name, or that of its class in small letters: MulticlassF1Score is multiclass_f1_score."""
    named = getattr(metric, "name", None) or getattr(metric, "__name__", None)
    if isinstance(named, str):
        return named
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(metric).__name__).lower()


def minimizes(name: str, metrics: Mapping[str, AnyMetric] = METRICS) -> bool:
    """Whether smaller is better: of losses, and of one of the metrics whose attribute `higher_is_better` is False."""
    return name in _SMALLER_IS_BETTER or getattr(metrics.get(name), "higher_is_better", None) is False
