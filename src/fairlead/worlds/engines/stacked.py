"""The forward pass of many clients at once, each with parameters of its own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import vmap

from fairlead.models.base import StackableModule
from fairlead.worlds.engines.base import LaneBatch, LaneGradient, Objective

StackedLosses = Callable[[Tensor, Tensor, Tensor, "Tensor | None"], Tensor]
"""(params (L, d), inputs (L, B, ...), targets (L, B, ...), noise (L,)) -> losses (L, B)."""

_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.LeakyReLU, nn.SiLU, nn.Identity)


def stacked_losses(objective: Objective, buffers: Tensor) -> StackedLosses:
    """The module's own way, batched products for plain stacks of dense layers, else `vmap`."""
    module = objective.model.module
    if isinstance(module, StackableModule) and not objective.draws_noise:
        return _by_module(objective, module)
    layers = None if objective.draws_noise else dense_layers(objective)
    return _by_vmap(objective, buffers) if layers is None else _by_products(objective, layers)


class StackedGradient(LaneGradient):
    """One forward pass of all lanes, and one backward pass over their summed losses."""

    def __init__(self, objective: Objective, buffers: Tensor) -> None:
        self._losses_of = stacked_losses(objective, buffers)

    def __call__(self, params: Tensor, batch: LaneBatch, out: Tensor) -> Tensor:
        leaf = params.detach().requires_grad_()
        losses = self._losses_of(leaf, batch.inputs, batch.targets, batch.noise)
        loss = (losses * batch.weight).sum(1)
        out.copy_(torch.autograd.grad(loss.sum(), leaf)[0])
        return loss.detach()


def has_own_stack(objective: Objective) -> bool:
    """Whether the model runs in lanes by batched products rather than by `vmap`."""
    stackable = isinstance(objective.model.module, StackableModule) or dense_layers(objective) is not None
    return stackable and not objective.draws_noise


def dense_layers(objective: Objective) -> list[nn.Module] | None:
    """The layers of a plain stack of linear and elementwise ones, or None for any other model.

    Subclasses, hooks, parametrised or shared weights and sequences may compute something else: their
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


def _by_module(objective: Objective, module: StackableModule) -> StackedLosses:
    def losses(params: Tensor, inputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:
        lanes, batch = inputs.shape[:2]
        prepared = objective.model.pipeline.apply(inputs.flatten(0, 1), None, params.dtype)
        outputs = module.forward_stacked(params, prepared.view(lanes, batch, *prepared.shape[1:]))
        return objective.loss(outputs.flatten(0, 1), targets.flatten(0, 1)).view(lanes, batch)

    return losses


def _by_products(objective: Objective, layers: list[nn.Module]) -> StackedLosses:
    sizes, shapes = objective.model.sizes, objective.model.shapes

    def losses(params: Tensor, inputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:
        lanes, batch = inputs.shape[:2]
        pieces = iter(
            piece.view(lanes, *shape)
            for piece, shape in zip(torch.split(params, sizes, dim=1), shapes, strict=True)
        )
        hidden = objective.model.pipeline.apply(inputs.flatten(0, 1), None, params.dtype)
        hidden = hidden.view(lanes, batch, -1)
        for layer in layers:
            if not isinstance(layer, nn.Linear):
                hidden = layer(hidden)
                continue
            weight = next(pieces).mT
            if layer.bias is None:
                hidden = torch.bmm(hidden, weight)
            else:
                hidden = torch.baddbmm(next(pieces)[:, None, :], hidden, weight)
        return objective.loss(hidden.flatten(0, 1), targets.flatten(0, 1)).view(lanes, batch)

    return losses


def _by_vmap(objective: Objective, buffers: Tensor) -> StackedLosses:
    def one(params: Tensor, inputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:
        return objective.loss(objective.model.call(params, buffers, inputs, noise), targets)

    def losses(params: Tensor, inputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:
        in_dims = (0, 0, 0, None if noise is None else 0)
        result: Tensor = vmap(one, in_dims=in_dims)(params, inputs, targets, noise)
        return result

    return losses
