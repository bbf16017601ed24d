"""The forward pass of many clients at once, each with parameters of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from fairlead.errors import EngineError
from fairlead.worlds.engines.base import Objective

StackedLosses = Callable[[Tensor, Tensor, Tensor, "Tensor | None"], Tensor]
"""(params (L, d), inputs (L, B, ...), targets (L, B, ...), noise (L,)) -> losses (L, B)."""

_Elementwise = nn.ReLU | nn.Tanh | nn.Sigmoid | nn.GELU | nn.ELU | nn.LeakyReLU | nn.SiLU | nn.Identity


def stacked_losses(objective: Objective) -> StackedLosses:
    """Batched matrix products for plain stacks of dense layers, `vmap` for everything else."""
    layers = _dense_layers(objective.model.module)
    if layers is None or objective.draws_noise:
        return _by_vmap(objective)
    return _by_products(objective, layers)


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


def _dense_layers(module: nn.Module) -> list[nn.Module] | None:
    """The layers of a plain stack of linear and elementwise ones, or None for any other model."""
    if isinstance(module, nn.Linear):
        return [module]
    if type(module) is not nn.Sequential:
        return None
    layers = list(module)
    if layers and isinstance(layers[0], nn.Flatten) and layers[0].start_dim == 1:
        layers = layers[1:]
    kinds_fit = all(isinstance(layer, nn.Linear | _Elementwise) for layer in layers)
    trained = all(parameter.requires_grad for parameter in module.parameters())
    distinct = len(set(map(id, layers))) == len(layers)
    return layers if kinds_fit and trained and distinct else None


def _by_products(objective: Objective, layers: list[nn.Module]) -> StackedLosses:
    sizes, shapes = objective.model.sizes, objective.model.shapes
    flattens = not isinstance(objective.model.module, nn.Linear)

    def losses(params: Tensor, inputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:
        lanes, batch = inputs.shape[:2]
        pieces = iter(
            piece.view(lanes, *shape)
            for piece, shape in zip(torch.split(params, sizes, dim=1), shapes, strict=True)
        )
        hidden = inputs.flatten(2) if flattens else inputs
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


def _by_vmap(objective: Objective) -> StackedLosses:
    def one(params: Tensor, inputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:
        return objective.loss(objective.model.call(params, None, inputs, noise), targets)

    def losses(params: Tensor, inputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:
        in_dims = (0, 0, 0, None if noise is None else 0)
        result: Tensor = vmap(one, in_dims=in_dims)(params, inputs, targets, noise)
        return result

    return losses


def _try_forward(objective: Objective) -> None:
    """Run two clients through the model once, so that a model that cannot be batched is named."""
    running: list[str] = []
    hooks = []
    for name, module in objective.model.module.named_modules():

        def enter(module: nn.Module, args: Any, name: str = name) -> None:
            running.append(f"{type(module).__name__} {name!r}" if name else type(module).__name__)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            running.pop()

        hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    rows = torch.zeros((2, 1), dtype=torch.int64, device=objective.data.inputs.device)
    params = objective.model.initial_params().repeat(2, 1)
    noise = torch.zeros(2, dtype=torch.int64, device=params.device)
    try:
        with torch.no_grad():
            stacked_losses(objective)(
                params,
                objective.data.inputs[rows],
                objective.data.targets[rows],
                noise if objective.draws_noise else None,
            )
    except RuntimeError as error:
        culprit = running[-1] if running else "the loss"
        reason = str(error).splitlines()[0]
        raise EngineError(
            f"The batched engine cannot run {culprit}: {reason} Rewrite it without control flow that "
            'depends on values, or use engine="loop".'
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
