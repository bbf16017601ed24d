"""Closed-form gradients of plain stacks of dense layers, for many clients at once and without autograd."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fairlead.models.augmentation import InputPipeline
from fairlead.task import cross_entropy, squared_error
from fairlead.worlds.engines.base import LaneBatch, LaneGradient, Objective
from fairlead.worlds.engines.stacked import dense_layers

_SMALL_ON_CPU = 10_000
"""Weights of a layer."""


def dense_gradient(objective: Objective) -> LaneGradient | None:
    """The gradient of a plain stack of layers in closed form; None for a model or loss of any other kind.

    What is returned allocates nothing by values and never waits for the device, so that CUDA graphs can capture it.
    """
    layers, loss = dense_stack(objective), _loss_of(objective)
    if layers is None or loss is None:
        return None
    return _DenseGradient(objective.model.pipeline, layers, loss)


def dense_stack(objective: Objective) -> tuple[Affine | Activation, ...] | None:
    """The layers of a model whose gradient has a closed form, or None for a model or loss of any other kind.

    Sums of products in reduced precision are left to autograd, which knows where to round.
    """
    found = None if objective.draws_noise else dense_layers(objective)
    rounded = torch.is_autocast_enabled(objective.device.type)
    precise = next(objective.model.module.parameters()).dtype in (torch.float32, torch.float64)
    if found is None or _loss_of(objective) is None or rounded or not precise:
        return None
    layers: list[Affine | Activation] = []
    pieces = iter(slice(*ends) for ends in pairwise([0, *accumulate(objective.model.sizes)]))
    for layer in found:
        if isinstance(layer, nn.Linear):
            weight, bias = next(pieces), None if layer.bias is None else next(pieces)
            layers.append(Affine(weight, bias, layer.out_features, layer.in_features))
        elif type(layer) in _ACTIVATIONS:
            layers.append(_ACTIVATIONS[type(layer)])
        elif type(layer) is not nn.Identity:
            return None
    return tuple(layers)


def _loss_of(objective: Objective) -> _Loss | None:
    targets = objective.data.targets
    if objective.loss is squared_error:
        return _SquaredError()
    classes = targets.ndim == 1 and targets.dtype == torch.int64 and not objective.marks_missing
    if objective.loss is not cross_entropy or not classes:
        return None
    # The last parameter is a weight or bias of the last linear layer, whose outputs come first.
    return _CrossEntropy(torch.arange(objective.model.shapes[-1][0], device=objective.device)[:, None])


class _Loss(ABC):
    """A loss of the outputs, summed with weights over the examples of each lane."""

    @abstractmethod
    def __call__(self, outputs: Tensor, targets: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Loss (L,) of outputs (L, width, B), and its gradient by them; `weight` is (L, B)."""


@dataclass(frozen=True, eq=False)
class _CrossEntropy(_Loss):
    """−Σ_b w_b log p_b[y_b] with p = softmax(outputs), whose gradient is w (p − 1[y])."""

    classes: Tensor
    """(width, 1) 0, 1, 2, ..."""

    def __call__(self, outputs: Tensor, targets: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        log_p, targets = outputs.log_softmax(1), targets[:, None]
        loss = log_p.gather(1, targets)[:, 0].mul_(weight).sum(1).neg_()
        # Compared rather than scattered, which a device adds up in no fixed order.
        hits = targets == self.classes
        return loss, log_p.exp_().add_(hits, alpha=-1).mul_(weight[:, None])


@dataclass(frozen=True)
class _SquaredError(_Loss):
    """½ Σ_b w_b ‖o_b − y_b‖², whose gradient is w (o − y)."""

    def __call__(self, outputs: Tensor, targets: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        distance = outputs - targets.reshape(*targets.shape[:2], -1).mT
        error = distance * weight[:, None]
        return distance.mul_(error).sum((1, 2)).mul_(0.5), error


class Activation(NamedTuple):
    """An elementwise layer whose derivative is a function of its output."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]
    """(gradient by the output, output) -> gradient by the input."""


RELU = Activation(torch.relu, lambda error, output: torch.ops.aten.threshold_backward(error, output, 0))
_ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: RELU,
    nn.Tanh: Activation(torch.tanh, torch.ops.aten.tanh_backward),
    nn.Sigmoid: Activation(torch.sigmoid, torch.ops.aten.sigmoid_backward),
}


@dataclass(frozen=True)
class Affine:
    """Where the weights (outputs, inputs) and biases of a linear layer stand in the flat vector."""

    weight: slice
    bias: slice | None
    outputs: int
    inputs: int

    def weights_in(self, vectors: Tensor) -> Tensor:
        """(L, outputs, inputs), a view of (L, d)."""
        return vectors[:, self.weight].view(len(vectors), self.outputs, self.inputs)

    def views(self, vector: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weights (outputs, inputs) and biases (outputs,) in a vector (d,)."""
        weights = vector[self.weight].view(self.outputs, self.inputs)
        return weights, None if self.bias is None else vector[self.bias]

    def forward(self, params: Tensor, columns: Tensor) -> Tensor:
        weights = self.weights_in(params)
        if self.bias is None:
            return torch.bmm(weights, columns)
        return torch.baddbmm(params[:, self.bias, None], weights, columns)

    def write_gradient(self, out: Tensor, error: Tensor, columns: Tensor) -> None:
        weights, compiling = self.weights_in(out), torch.compiler.is_compiling()
        # On a CPU a product into rows that lie d apart is made lane by lane: small ones are faster in one go. A
        # compiler, which takes no such rows either, makes the copy a part of what reads it.
        if compiling or (out.device.type == "cpu" and self.outputs * self.inputs < _SMALL_ON_CPU):
            weights.copy_(torch.bmm(error, columns.mT))
        else:
            torch.bmm(error, columns.mT, out=weights)
        if self.bias is None:
            return
        if compiling:
            out[:, self.bias].copy_(error.sum(2))
        else:
            torch.sum(error, 2, out=out[:, self.bias])


@dataclass(frozen=True, eq=False)
class _DenseGradient(LaneGradient):
    """Back-propagation written out. Examples are columns, (L, width, B), over which a softmax vectorises."""

    pipeline: InputPipeline
    layers: tuple[Affine | Activation, ...]
    loss: _Loss

    def __call__(self, params: Tensor, batch: LaneBatch, out: Tensor) -> Tensor:
        prepared = self.pipeline.apply(batch.inputs.flatten(0, 1), None, params.dtype)
        columns = prepared.view(*batch.weight.shape, -1).mT
        needed: list[Tensor] = []
        for layer in self.layers:
            if isinstance(layer, Affine):
                needed.append(columns)
                columns = layer.forward(params, columns)
            else:
                columns = layer.forward(columns)
                needed.append(columns)
        loss, error = self.loss(columns, batch.targets, batch.weight)
        first = next(place for place, layer in enumerate(self.layers) if isinstance(layer, Affine))
        for place in reversed(range(first, len(self.layers))):
            layer = self.layers[place]
            if isinstance(layer, Activation):
                error = layer.backward(error, needed[place])
                continue
            layer.write_gradient(out, error, needed[place])
            if place > first:
                error = torch.bmm(layer.weights_in(params).mT, error)
        return loss
