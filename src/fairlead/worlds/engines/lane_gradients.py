"""Gradients of several clients at once by autograd: one pass for all lanes, or a pass for each."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from fairlead.models.base import StackableModule
from fairlead.parameters import FlatModule
from fairlead.worlds.engines.base import LaneBatch, LaneGradient, LaneOrder, LanePath, LocalJobs, Objective
from fairlead.worlds.engines.dense import dense_layers
from fairlead.worlds.engines.relu_pool import joined_pooling

Named = Callable[[Tensor], Mapping[str, Tensor]]
"""Parameters by name that share memory with a vector (d,)."""
Branch = Callable[[Tensor, Tensor, Tensor, Tensor, "Tensor | None", Tensor], Tensor]
"""(params (d,), inputs, targets, weight (B,), noise, out (d,)) -> loss, with its gradient written into `out`."""


StackedLosses = Callable[[Tensor, Tensor, Tensor, "Tensor | None"], Tensor]
"""(params (L, d), inputs (L, B, ...), targets (L, B, ...), noise (L,)) -> losses (L, B)."""


class StackedGradient(LaneGradient):
    """One forward pass of all lanes, and one backward pass over their summed losses."""

    def __init__(self, losses_of: StackedLosses, order: LaneOrder | None = None) -> None:
        self._losses_of, self.order = losses_of, order

    def __call__(self, params: Tensor, batch: LaneBatch, out: Tensor) -> Tensor:
        leaf = params.detach().requires_grad_()
        losses = self._losses_of(leaf, batch.inputs, batch.targets, batch.noise)
        loss = (losses * batch.weight).sum(1)
        out.copy_(torch.autograd.grad(loss.sum(), leaf)[0])
        return loss.detach()


class StackedPath(LanePath, ABC):
    """Family of paths that run the forward pass of all lanes at once."""

    engine = "batched"

    @abstractmethod
    def losses(self, objective: Objective, buffers: Tensor) -> StackedLosses:
        """The loss of every example of every lane."""

    def gradient(self, objective: Objective, buffers: Tensor, *, compiled: bool = False) -> LaneGradient:
        return StackedGradient(self.losses(objective, buffers))


class OwnStack(StackedPath):
    """The module's own way."""

    name, takes_only = "forward_stacked", "models that are a StackableModule, without dropout or augmentation"

    def refusal(self, objective: Objective, jobs: LocalJobs | None = None) -> str | None:
        if objective.draws_noise:
            return "the model draws dropout or augmentation"
        is_stackable = isinstance(objective.model.module, StackableModule)
        return None if is_stackable else "the model is no StackableModule"

    def losses(self, objective: Objective, buffers: Tensor) -> StackedLosses:
        module = objective.model.module
        assert isinstance(module, StackableModule)

        def losses(params: Tensor, inputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:
            lanes, batch = inputs.shape[:2]
            prepared = objective.model.pipeline.apply(inputs.flatten(0, 1), None, params.dtype)
            outputs = module.forward_stacked(params, prepared.view(lanes, batch, *prepared.shape[1:]))
            return objective.loss(outputs.flatten(0, 1), targets.flatten(0, 1)).view(lanes, batch)

        return losses


class BatchedProducts(StackedPath):
    """Batched matrix products for plain stacks of dense layers."""

    name = "batched products"
    takes_only = "linear and elementwise layers with any loss, without dropout or augmentation"

    def refusal(self, objective: Objective, jobs: LocalJobs | None = None) -> str | None:
        if objective.draws_noise:
            return "the model draws dropout or augmentation"
        is_plain = dense_layers(objective)
        return None if is_plain else "the model is no plain stack of linear and elementwise layers"

    def losses(self, objective: Objective, buffers: Tensor) -> StackedLosses:
        sizes, shapes, layers = objective.model.sizes, objective.model.shapes, dense_layers(objective)
        assert layers is not None

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


class Vmap(StackedPath):
    """`torch.func.vmap` of the model."""

    name, takes_only = "vmap", "any model that torch.func.vmap takes"

    def losses(self, objective: Objective, buffers: Tensor) -> StackedLosses:
        return _vmapped(objective, objective.model, buffers, objective.model.unflatten)


class LaneConvolutions(Vmap):
    """`vmap` of a model whose convolutions Triton computes for all lanes at once."""

    name, devices, backend = "lane convolutions", ("cuda",), "triton"
    takes_only = "models with convolutions, in float32"

    def refusal(self, objective: Objective, jobs: LocalJobs | None = None) -> str | None:
        if not any(isinstance(part, nn.Conv2d) for part in objective.model.module.modules()):
            return "the model has no convolution"
        if objective.device.type != "cuda":
            return "the model is not on a CUDA device"
        if (
            torch.is_autocast_enabled("cuda")
            or next(objective.model.module.parameters()).dtype != torch.float32
        ):
            return "the model does not compute in float32"
        return None

    def losses(self, objective: Objective, buffers: Tensor) -> StackedLosses:
        return self._losses(objective, buffers, objective.model.unflatten)

    def gradient(self, objective: Objective, buffers: Tensor, *, compiled: bool = False) -> LaneGradient:
        order = objective.lane_order
        named = objective.model.unflatten if order is None else order.named
        return StackedGradient(self._losses(objective, buffers, named), order)

    def _losses(self, objective: Objective, buffers: Tensor, named: Named) -> StackedLosses:
        from fairlead.worlds.engines.lane_convolutions import LaneKernels

        model = self.joined(objective)
        model.module.train()
        losses_of = _vmapped(objective, model, buffers, named)

        def losses(params: Tensor, inputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:
            with LaneKernels():
                return losses_of(params, inputs, targets, noise)

        return losses

    def joined(self, objective: Objective) -> FlatModule:
        """The model with convolutions joined with ReLU and pooling, for lanes or, without gradients, for one model."""
        from fairlead.worlds.engines.lane_convolutions import joined_convolution

        module = joined_pooling(objective.model.module, joined_convolution)
        return FlatModule(module, objective.model.pipeline)


def _vmapped(objective: Objective, model: FlatModule, buffers: Tensor, named: Named) -> StackedLosses:
    """Losses of the model by `vmap` over lanes, with parameters by name."""

    def one(params: Tensor, inputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:
        return objective.loss(model.call(named(params), buffers, inputs, noise), targets)

    def losses(params: Tensor, inputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:
        in_dims = (0, 0, 0, None if noise is None else 0)
        result: Tensor = vmap(one, in_dims=in_dims)(params, inputs, targets, noise)
        return result

    return losses


def evaluation_model(objective: Objective) -> FlatModule:
    """The model as it is fastest without gradients."""
    path = LaneConvolutions()
    return objective.model if path.missing() or path.refusal(objective) else path.joined(objective)


STACKED: tuple[StackedPath, ...] = (OwnStack(), BatchedProducts(), LaneConvolutions(), Vmap())
"""Fastest first."""


def stacked_path(objective: Objective) -> StackedPath:
    """The first of `STACKED` that takes the model here."""
    return next(path for path in STACKED if not path.missing() and path.refusal(objective) is None)


class Branches(LanePath):
    """A forward and backward pass for each lane."""

    name, engine, takes_only = "branches", "branches", "any model whose batches can be padded"

    def gradient(self, objective: Objective, buffers: Tensor, *, compiled: bool = False) -> LaneGradient:
        return BranchGradient(objective, buffers, compiled=compiled)


class BranchGradient(LaneGradient):
    """Runs the model's ordinary step for every lane, each on a stream of its own.

    No operation needs a batching rule, and convolutions keep the kernels that are fast for one client:
    cuDNN runs a grouped convolution, which is what `vmap` makes of them, one group after another. Launching
    so many small kernels costs more than running them, so this is meant to be captured in a graph, in which
    the streams become parallel branches.
    """

    def __init__(self, objective: Objective, buffers: Tensor, *, compiled: bool = False) -> None:
        self._objective = objective
        self.order = objective.lane_order
        named = objective.model.unflatten if self.order is None else self.order.named
        self._branch_of = (_compiled if compiled else _by_autograd)(objective, buffers, named)
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
        noise = None if batch.noise is None else batch.noise[lane]
        return self._branch_of(
            params[lane], batch.inputs[lane], batch.targets[lane], batch.weight[lane], noise, out[lane]
        )


def _loss_of(objective: Objective, buffers: Tensor) -> Callable[..., Tensor]:
    def loss_of(
        named: Mapping[str, Tensor], inputs: Tensor, targets: Tensor, weight: Tensor, noise: Tensor | None
    ) -> Tensor:
        # A copy: writes to buffers are dropped here, and must not collide with those of other lanes.
        outputs = objective.model.call(
            named, buffers.clone(), inputs, noise, channels_last=objective.channels_last
        )
        return (objective.loss(outputs, targets) * weight).sum()

    return loss_of


def _by_autograd(objective: Objective, buffers: Tensor, named: Named) -> Branch:
    loss_of = _loss_of(objective, buffers)

    def branch(
        params: Tensor, inputs: Tensor, targets: Tensor, weight: Tensor, noise: Tensor | None, out: Tensor
    ) -> Tensor:
        leaf = params.detach().requires_grad_()
        loss = loss_of(named(leaf), inputs, targets, weight, noise)
        out.copy_(torch.autograd.grad(loss, leaf)[0])
        return loss.detach()

    return branch


def _compiled(objective: Objective, buffers: Tensor, named: Named) -> Branch:
    """Forward and backward pass as one function of each parameter by itself.

    So the kernel that ends a parameter's gradient writes it where it belongs; a gradient by the flat vector would
    first be put together and then copied, which for a large model costs as much as a layer.
    """
    gradient_of = grad_and_value(_loss_of(objective, buffers))

    def write_gradient(
        params: Mapping[str, Tensor],
        inputs: Tensor,
        targets: Tensor,
        weight: Tensor,
        noise: Tensor | None,
        out: Mapping[str, Tensor],
    ) -> Tensor:
        loss: Tensor
        gradients, loss = gradient_of(params, inputs, targets, weight, noise)
        for name, gradient in gradients.items():
            out[name].copy_(gradient)
        return loss

    compiled = torch.compile(write_gradient, dynamic=False)

    def branch(
        params: Tensor, inputs: Tensor, targets: Tensor, weight: Tensor, noise: Tensor | None, out: Tensor
    ) -> Tensor:
        loss: Tensor = compiled(named(params), inputs, targets, weight, noise, named(out))
        return loss

    return branch
