"""`Task`: the model, its loss and its metrics."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_parameter_registration_hook

from fairlead.component import Component, freeze_lists
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
from fairlead.models.augmentation import Augmentation, InputPipeline
from fairlead.models.base import ExampleShape, Model
from fairlead.models.imported import InMemoryModel, imported
from fairlead.parameters import FlatModule
from fairlead.randomness import Key

PerExample = Callable[[Any, Tensor], Tensor]
"""`(model outputs, targets) -> (batch,)`, one number per example."""


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
    hits = (outputs.argmax(-1) == targets).to(torch.float64).reshape(len(targets), -1)
    valid = (targets != -100).to(torch.float64).reshape(len(targets), -1)
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
            f"Targets must be classes from 0 to {classes - 1}, since the model has {classes} outputs, got "
            f"{int(targets[wrong][0])} in row {row}" + (f", of {whose(row)}." if whose else ".")
        )


LOSSES: dict[str, PerExample] = {f.__name__: f for f in (cross_entropy, squared_error, model_output)}
METRICS: dict[str, PerExample] = {f.__name__: f for f in (accuracy, mean_squared_error)}
SMALLER_IS_BETTER = ("loss", "train_loss", "mean_squared_error")
_IN_MEMORY = "in-memory"
"""In place of the module of a function that only a Python program holds."""

_COPIES = 6
"""Copies of the parameters in memory, at least, while the model is made: as modules of two types, vector and step."""


@dataclass(frozen=True)
class Task(Component):
    """The learning task: a model, a loss per example and metrics.

    `model` is a recipe (`MLP(...)`), initialized from the seed of each run, or a module, whose own parameters are the
    start. `loss` and each of `metrics` is a known name, "package.module:function"
    or a function `(outputs, targets) -> (batch,)`. `augment` changes inputs on their way into the model, in
    this order.
    """

    model: Model | nn.Module
    loss: str | PerExample = "cross_entropy"
    metrics: tuple[str | PerExample, ...] = ("accuracy",)
    augment: tuple[Augmentation, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.metrics, str):
            raise field_error(self, "metrics", "a list of metrics", self.metrics)
        freeze_lists(self)
        if not isinstance(self.model, Model | nn.Module):
            raise field_error(
                self, "model", "a Model or a torch.nn.Module (an instance, not a class)", self.model
            )
        self.loss_function()
        self.metric_functions()

    def loss_function(self) -> PerExample:
        return _function(self.loss, LOSSES, "Task.loss")

    def metric_functions(self) -> dict[str, PerExample]:
        """Metrics by the name under which they are reported."""
        named: dict[str, PerExample] = {}
        for metric in self.metrics:
            function = _function(metric, METRICS, "Task.metrics")
            name = metric.rpartition(":")[2] if isinstance(metric, str) else getattr(metric, "__name__", "")
            if name in ("", "loss", "<lambda>") or name in named:
                raise FieldError(
                    f"Task.metrics must be functions with names of their own other than 'loss', got {short(name)}."
                )
            named[name] = function
        return named

    def minimizes(self, metric: str) -> bool:
        """Whether smaller is better: of losses, and of a function whose attribute `higher_is_better` is False."""
        if metric in SMALLER_IS_BETTER:
            return True
        return getattr(self.metric_functions().get(metric), "higher_is_better", None) is False

    def recorded(self) -> "Task":
        """The task as a spec can hold it, with modules and functions of this process by name."""
        model = self.model
        if isinstance(model, nn.Module):
            digest = sha256(repr(model).encode())
            for value in model.state_dict().values():
                digest.update(value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            model = InMemoryModel(type(model).__name__, digest.hexdigest()[:16])
        loss, *metrics = (
            each if isinstance(each, str) else f"{_IN_MEMORY}:{getattr(each, '__name__', 'function')}"
            for each in (self.loss, *self.metrics)
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
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key.fold("init").torch_seed())
            return FlatModule(_built_within_memory(self.model, shape), pipeline)


def _built_within_memory(model: Model, shape: ExampleShape) -> nn.Module:
    """A recipe's module, refused before its parameters are filled if memory is too small."""
    left, sizes = available_bytes(), list[int]()

    def weigh(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        sizes.append(0 if parameter is None else parameter.nbytes)
        if _COPIES * sum(sizes) > left:
            raise _too_large(model, f"needs at least {_COPIES * sum(sizes) / 2**30:.1f} GiB of memory", left)

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


def _function(value: str | PerExample, known: dict[str, PerExample], where: str) -> PerExample:
    if callable(value):
        return value
    if value in known:
        return known[value]
    if value.startswith(f"{_IN_MEMORY}:"):
        return partial(_refuse_missing, value.rpartition(":")[2])
    if ":" in value:
        function: PerExample = imported(value, where)
        return function
    raise FieldError(
        f"{where} must be a function, 'package.module:function' or a known name, got {short(value)}."
        + did_you_mean(value, known)
    )
