"""The gradient of many clients, one forward and backward pass each, side by side on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairlead.worlds.engines.base import LaneBatch, LaneGradient, Objective

LaneLoss = Callable[[Tensor, Tensor, Tensor, Tensor, "Tensor | None"], Tensor]


class BranchGradient(LaneGradient):
    """Runs the model's ordinary step for every lane, each on a stream of its own.

    No operation needs a batching rule, and convolutions keep the kernels that are fast for one client:
    cuDNN runs a grouped convolution, which is what `vmap` makes of them, one group after another. Launching
    so many small kernels costs more than running them, so this is meant to be captured in a graph, in which
    the streams become parallel branches.
    """

    def __init__(self, objective: Objective, buffers: Tensor, *, compiled: bool = False) -> None:
        self._objective = objective
        self._loss_of = _lane_loss(objective, buffers, compiled=compiled)
        self._streams: list[Any] = []

    def __call__(self, params: Tensor, batch: LaneBatch, out: Tensor) -> Tensor:
        pipeline = self._objective.model.pipeline
        if not pipeline.steps:
            # Once for all lanes: then there is nothing left for it to do in each of them.
            whole = pipeline.apply(batch.inputs.flatten(0, 1), None, params.dtype)
            if self._objective.channels_last:
                whole = whole.contiguous(memory_format=torch.channels_last)
            batch = batch._replace(inputs=whole.view(batch.inputs.shape))
        if params.device.type != "cuda":
            return torch.stack([self._branch(params, batch, out, lane) for lane in range(len(params))])
        while len(self._streams) < len(params):
            self._streams.append(torch.cuda.Stream(params.device))  # type: ignore[no-untyped-call]
        trunk, losses = torch.cuda.current_stream(params.device), []
        for lane, stream in enumerate(self._streams[: len(params)]):
            stream.wait_stream(trunk)
            with torch.cuda.stream(stream):
                losses.append(self._branch(params, batch, out, lane))
        for stream in self._streams[: len(params)]:
            trunk.wait_stream(stream)
        return torch.stack(losses)

    def _branch(self, params: Tensor, batch: LaneBatch, out: Tensor, lane: int) -> Tensor:
        leaf = params[lane].detach().requires_grad_()
        noise = None if batch.noise is None else batch.noise[lane]
        loss = self._loss_of(leaf, batch.inputs[lane], batch.targets[lane], batch.weight[lane], noise)
        out[lane].copy_(torch.autograd.grad(loss, leaf)[0])
        return loss.detach()


def _lane_loss(objective: Objective, buffers: Tensor, *, compiled: bool) -> LaneLoss:
    def loss_of(
        params: Tensor, inputs: Tensor, targets: Tensor, weight: Tensor, noise: Tensor | None
    ) -> Tensor:
        outputs = objective.outputs(params, buffers, inputs, noise)
        return (objective.loss(outputs, targets) * weight).sum()

    return torch.compile(loss_of, dynamic=False) if compiled else loss_of
