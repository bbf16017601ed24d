"""The forward pass of many clients at once, each with parameters of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from fairlead.errors import EngineError
from fairlead.models.base import StackableModule
from fairlead.randomness import keyed_uniform
from fairlead.worlds.engines.base import Objective

StackedLosses = Callable[[Tensor, Tensor, Tensor, "Tensor | None"], Tensor]
"""(params (L, d), inputs (L, B, ...), targets (L, B, ...), noise (L,)) -> losses (L, B)."""

_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.LeakyReLU, nn.SiLU, nn.Identity)


def stacked_losses(objective: Objective, buffers: Tensor) -> StackedLosses:
    """The module's own way, batched products for plain stacks of dense layers, else `vmap`."""
    module = objective.model.module
    if isinstance(module, StackableModule) and not objective.draws_noise:
        return _by_module(objective, module)
    layers = None if objective.draws_noise else _dense_layers(objective)
    return _by_vmap(objective, buffers) if layers is None else _by_products(objective, layers)


def has_own_stack(objective: Objective) -> bool:
    """Whether the model runs in lanes by batched products rather than by `vmap`."""
    stackable = isinstance(objective.model.module, StackableModule) or _dense_layers(objective) is not None
    return stackable and not objective.draws_noise


def refuse_unbatchable(objective: Objective) -> None:
    """Raise an error that names the module which this forward pass cannot run, and the cure."""
    for name, module in objective.model.module.named_modules():
        tracked = getattr(module, "track_running_stats", False)
        if isinstance(module, nn.modules.batchnorm._BatchNorm) or tracked:
            raise EngineError(
                f"The batched engine cannot run {type(module).__name__} {name!r}: its batch statistics "
                "would mix in padding, and its running ones differ by client. Use GroupNorm or "
                'LayerNorm, or engine="loop".'
            )
    _try_forward(objective)


def _dense_layers(objective: Objective) -> list[nn.Module] | None:
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


def _try_forward(objective: Objective) -> None:
    """Run two clients through the model once, so that a model that cannot be batched is named.

    Their losses are compared with those of one client alone: they differ if the model or the loss mixes
    the examples of a batch, since a batch holds padding here.
    """
    device = objective.data.inputs.device
    rows = torch.arange(6, device=device) % len(objective.data.inputs)
    # Away from the initial parameters, where a layer of zeros may hide what lies before it.
    params = objective.model.initial_params()
    shift = keyed_uniform(torch.tensor(1, device=device), params.shape, device)
    params = params + 0.1 * (shift - 0.5).to(params)
    buffers = objective.model.initial_buffers()
    noise = torch.zeros(2, dtype=torch.int64, device=device) if objective.draws_noise else None
    lanes = rows[torch.tensor([[0, 1, 2], [3, 4, 5]], device=device)]
    objective.model.module.train()
    with _naming_modules(objective.model.module) as running, warnings.catch_warnings():
        # An operation without a batching rule runs one client after another: worse than the loop.
        warnings.filterwarnings("error", message="There is a performance drop", category=UserWarning)
        try:
            leaf = params.repeat(2, 1).requires_grad_()
            inputs, targets = objective.data.inputs[lanes], objective.data.targets[lanes]
            losses = stacked_losses(objective, buffers)(leaf, inputs, targets, noise)
            torch.autograd.grad(losses.sum(), leaf)
        except EngineError:
            raise
        except (RuntimeError, ValueError, IndexError, UserWarning) as error:
            culprit = running[-1] if running else "the loss"
            reason = str(error).splitlines()[0].split(" Please file us an issue")[0]
            raise EngineError(
                f"The batched engine cannot run {culprit}: {reason} Rewrite it without control flow that "
                'depends on values, or use engine="loop".'
            ) from error
    with torch.no_grad():
        alone = objective.losses(params, buffers, rows[:2], None if noise is None else noise[0])
    tolerance = torch.finfo(alone.dtype).eps ** 0.5
    if not torch.allclose(losses[0, :2], alone, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise EngineError(
            f"The batched engine cannot run {type(objective.model.module).__name__}: the loss of an example "
            "depends on the other examples of its batch, into which padding would mix. Keep examples apart, "
            'with the batch as first axis wherever dropout is drawn, or use engine="loop".'
        )


@contextmanager
def _naming_modules(module: nn.Module) -> Iterator[list[str]]:
    """A list of the modules that are being called, the innermost last."""
    running: list[str] = []
    hooks = []
    for name, part in module.named_modules():

        def enter(part: nn.Module, args: Any, name: str = name) -> None:
            running.append(f"{type(part).__name__} {name!r}" if name else type(part).__name__)

        def leave(part: nn.Module, args: Any, output: Any) -> None:
            running.pop()

        hooks += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]
    try:
        yield running
    finally:
        for hook in hooks:
            hook.remove()
