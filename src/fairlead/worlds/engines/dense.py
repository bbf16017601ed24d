"""Closed-form gradients of plain stacks of dense layers, for many clients at once and without autograd."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from fairlead.local_solver import LocalSolver
from fairlead.models.augmentation import InputPipeline
from fairlead.parameters import FlatModule
from fairlead.task import cross_entropy, squared_error
from fairlead.worlds.engines.base import (
    NOT_UNSHIFTED,
    LaneBatch,
    LaneGradient,
    LanePath,
    LocalJobs,
    Objective,
    sgd_only,
    unshifted,
)

if TYPE_CHECKING:
    from fairlead.worlds.engines.mlp_triton import MlpDescent

_SMALL_ON_CPU = 10_000
"""Weights of a layer."""
_MOST_CLASSES = 128
"""Of the Triton kernels, which hold the scores of a block of examples at once."""
NOT_DENSE = "the model, its loss or the precision has no closed form"
_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.LeakyReLU, nn.SiLU, nn.Identity)


class ClosedForm(LanePath):
    """Gradients of plain stacks of layers in closed form.

    They allocate nothing by values and never wait for the device, so that CUDA graphs can capture them.
    """

    name, engine = "closed form", "batched"
    takes_only = (
        "linear layers with ReLU, tanh or sigmoid, and cross-entropy or squared error, but not in bfloat16"
    )

    def refusal(self, objective: Objective, jobs: LocalJobs | None = None) -> str | None:
        return NOT_DENSE if dense_stack(objective) is None else None

    def gradient(self, objective: Objective, buffers: Tensor, *, compiled: bool = False) -> LaneGradient:
        layers, loss = dense_stack(objective), _loss_of(objective)
        assert layers is not None
        assert loss is not None
        return _DenseGradient(objective.model.pipeline, layers, loss)


class MlpTriton(ClosedForm):
    """Steps of networks with one hidden layer by Triton kernels, in which no gradient is ever written."""

    name, devices, backend = "MLP kernels", ("cuda",), "triton"
    takes_only = (
        f"two linear layers with ReLU between, at most {_MOST_CLASSES} classes, plain SGD or Proximal"
    )

    def refusal(self, objective: Objective, jobs: LocalJobs | None = None) -> str | None:
        inputs, targets = objective.data.inputs, objective.data.targets
        layers = _two_layers(objective)
        if layers is None:
            return "the model is no pair of linear layers in float32 with ReLU between and cross-entropy after them"
        if layers[1].outputs > _MOST_CLASSES:
            return f"the model has more than {_MOST_CLASSES} classes"
        if inputs.dtype not in (torch.float32, torch.uint8):
            return "the examples are neither float32 numbers nor bytes"
        if jobs is not None and not unshifted(jobs.steps.solver):
            return NOT_UNSHIFTED
        if not inputs.is_cuda or not inputs.is_contiguous() or not targets.is_contiguous():
            return "the examples do not lie in one piece on a CUDA device"
        return None

    def kernels(self, objective: Objective, solver: LocalSolver) -> "MlpDescent":
        from fairlead.worlds.engines.mlp_triton import MlpDescent

        layers, descent, data = _two_layers(objective), sgd_only(solver), objective.data
        assert layers is not None
        assert descent is not None
        return MlpDescent(*layers, data.inputs.flatten(1), data.targets, descent)


def _two_layers(objective: Objective) -> "tuple[Affine, Affine] | None":
    """The layers of a model with one hidden layer of ReLU that computes in float32 on its inputs as they are."""
    precise = next(objective.model.module.parameters()).dtype == torch.float32
    if not precise or objective.model.pipeline.steps or objective.loss is not cross_entropy:
        return None
    match dense_stack(objective):
        case (Affine(bias=slice()) as below, between, Affine(bias=slice()) as above) if between is RELU:
            return below, above
    return None


def dense_layers(objective: Objective) -> list[nn.Module] | None:
    """The layers of a plain stack of linear and elementwise ones, or None for any other model.

    Subclasses, hooks, parametrized or shared weights and sequences may compute something else: their
    parameters would not be these in this order, or their types or inputs would not be these.
    """
    module = objective.model.module
    # Not by children(), which leaves out a layer that is used a second time.
    named = {"": module} if type(module) is nn.Linear else dict(module._modules)
    layers = [layer for layer in named.values() if layer is not None]
    if type(module) not in (nn.Linear, nn.Sequential) or len(layers) < len(named):
        return None
    names = [
        f"{place}.{name}".lstrip(".")
        for place, layer in zip(named, layers, strict=True)
        for name, _ in layer.named_parameters()
    ]
    flat_inputs = objective.data.inputs.ndim == 2
    if layers and type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1):
        layers, flat_inputs = layers[1:], True
    kinds_fit = all(type(layer) in (nn.Linear, *_ELEMENTWISE) for layer in layers)
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    plain = bool(layers) and flat_inputs and kinds_fit and not hooked
    return layers if plain and names == list(objective.model.names) else None


def dense_stack(objective: Objective) -> "tuple[Affine | Activation, ...] | None":
    """The layers of a model whose gradient has a closed form, or None for a model or loss of any other kind.

    Sums of products in reduced precision are left to autograd, which knows where to round.
    """
    found = None if objective.draws_noise else dense_layers(objective)
    rounded = torch.is_autocast_enabled(objective.device.type)
    precise = next(objective.model.module.parameters()).dtype in (torch.float32, torch.float64)
    if found is None or _loss_of(objective) is None or rounded or not precise:
        return None
    layers: list[Affine | Activation] = []
    affine = iter(affine_layers(objective.model, found))
    for layer in found:
        if isinstance(layer, nn.Linear):
            layers.append(next(affine))
        elif type(layer) in _ACTIVATIONS:
            layers.append(_ACTIVATIONS[type(layer)])
        elif type(layer) is not nn.Identity:
            return None
    return tuple(layers)


def affine_layers(model: FlatModule, layers: Iterable[nn.Module]) -> "list[Affine]":
    """The linear ones of `dense_layers`."""
    pieces = iter(slice(*ends) for ends in pairwise([0, *accumulate(model.sizes)]))
    return [
        Affine(
            next(pieces), None if layer.bias is None else next(pieces), layer.out_features, layer.in_features
        )
        for layer in layers
        if isinstance(layer, nn.Linear)
    ]


DenseLoss = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(outputs (L, width, B), targets, weight (L, B)) -> weighted sum of losses (L,), and its gradient by the outputs."""


def _loss_of(objective: Objective) -> DenseLoss | None:
    targets = objective.data.targets
    if objective.loss is squared_error:
        return _squared_error
    are_classes = targets.ndim == 1 and targets.dtype == torch.int64 and not objective.marks_missing
    if objective.loss is not cross_entropy or not are_classes:
        return None
    # The last parameter is a weight or bias of the last linear layer, whose outputs come first.
    classes = torch.arange(objective.model.shapes[-1][0], device=objective.device)[:, None]
    return partial(_cross_entropy, classes)


def _squared_error(outputs: Tensor, targets: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """½ Σ_b w_b ‖o_b − y_b‖², whose gradient is w (o − y)."""
    distance = outputs - targets.reshape(*targets.shape[:2], -1).mT
    error = distance * weight[:, None]
    return distance.mul_(error).sum((1, 2)).mul_(0.5), error


def _cross_entropy(
    classes: Tensor, outputs: Tensor, targets: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """−Σ_b w_b log p_b[y_b] with p = softmax(outputs), whose gradient is w (p − 1[y]); `classes` are 0, 1, 2, ..."""
    log_p, targets = outputs.log_softmax(1), targets[:, None]
    loss = log_p.gather(1, targets)[:, 0].mul_(weight).sum(1).neg_()
    # Compared rather than scattered, which a device adds up in no fixed order.
    hits = targets == classes
    return loss, log_p.exp_().add_(hits, alpha=-1).mul_(weight[:, None])


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
    """Back-propagation written out. Examples are columns, (L, width, B), over which a softmax vectorizes."""

    pipeline: InputPipeline
    layers: tuple[Affine | Activation, ...]
    loss: DenseLoss

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
