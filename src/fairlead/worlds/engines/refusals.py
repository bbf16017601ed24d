"""Models that several clients cannot run side by side, and what to do about them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fairlead.errors import EngineError
from fairlead.randomness import keyed_uniform
from fairlead.worlds.engines.base import Objective
from fairlead.worlds.engines.lane_gradients import Backend
from fairlead.worlds.engines.stacked import stacked_losses


def refuse_unbatchable(objective: Objective, backend: Backend) -> None:
    """Raise an error that names the module which several clients at once cannot run, and the cure."""
    for name, module in objective.model.module.named_modules():
        tracked = getattr(module, "track_running_stats", False)
        if isinstance(module, nn.modules.batchnorm._BatchNorm) or tracked:
            raise EngineError(
                f"The batched engine cannot run {type(module).__name__} {name!r}: its batch statistics "
                "would mix in padding, and its running ones differ by client. Use GroupNorm or "
                'LayerNorm, or engine="loop".'
            )
    # In full precision, where a difference can only come from the other examples.
    with torch.autocast(objective.device.type, enabled=False):
        padded, alone = _trial_losses(objective, backend)
    tolerance = torch.finfo(alone.dtype).eps ** 0.5
    if not torch.allclose(padded[:2], alone, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise EngineError(
            f"The batched engine cannot run {type(objective.model.module).__name__}: the loss of an example "
            "depends on the other examples of its batch, into which padding would mix. Keep examples apart, "
            'with the batch as first axis wherever dropout is drawn, or use engine="loop".'
        )


def _trial_losses(objective: Objective, backend: Backend) -> tuple[Tensor, Tensor]:
    """Losses of a batch of three examples, and of its first two alone."""
    params, buffers = _trial_params(objective), objective.model.initial_buffers()
    rows = torch.arange(6, device=params.device).view(2, 3) % len(objective.data.inputs)
    noise = torch.zeros(2, dtype=torch.int64, device=params.device) if objective.draws_noise else None
    objective.model.module.train()
    if backend == "stacked":
        padded = _try_stacked(objective, params.repeat(2, 1), buffers, rows, noise)[0]
    else:
        with torch.no_grad():
            padded = objective.losses(params, buffers, rows[0], None if noise is None else noise[0])
    with torch.no_grad():
        alone = objective.losses(params, buffers, rows[0, :2], None if noise is None else noise[0])
    return padded, alone


def _trial_params(objective: Objective) -> Tensor:
    """Parameters away from the initial ones, where a layer of zeros may hide what lies before it."""
    params = objective.model.initial_params()
    shift = keyed_uniform(torch.tensor(1, device=params.device), params.shape, params.device)
    return params + 0.1 * (shift - 0.5).to(params)


def _try_stacked(
    objective: Objective, params: Tensor, buffers: Tensor, rows: Tensor, noise: Tensor | None
) -> Tensor:
    """Losses of two clients run at once, so that a module which cannot be is named."""
    with _naming_modules(objective.model.module) as running, warnings.catch_warnings():
        # An operation without a batching rule runs one client after another: worse than the loop.
        warnings.filterwarnings("error", message="There is a performance drop", category=UserWarning)
        try:
            leaf = params.requires_grad_()
            inputs, targets = objective.examples(rows)
            # The hooks turn plain stacks away from batched products to vmap: it refuses a loss that decides by
            # values, among which those products would show it other clients' too.
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
    return losses.detach()


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
