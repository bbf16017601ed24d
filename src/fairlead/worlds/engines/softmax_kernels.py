"""Softmax regression by plain SGD on a GPU: all local steps of all clients in one kernel."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairlead.task import cross_entropy
from fairlead.worlds.engines.base import (
    NOT_UNSHIFTED,
    FlatBatches,
    LocalJobs,
    LocalReturns,
    Objective,
    WholePath,
    flat_batches,
    sgd_only,
    unshifted,
)
from fairlead.worlds.engines.dense import dense_layers


@dataclass(frozen=True, eq=False)
class LinearWork:
    """The local work of m clients whose model is one linear layer, as flat arrays.

    Steps descend

        mean of −log softmax(W x/scale + b)[y] + ½ λ‖(W, b)‖² + ½ μ‖(W, b) − anchor‖².
    """

    inputs: Tensor
    """(examples, width), in the type of `anchor` or as bytes."""
    input_scale: float
    """What inputs are divided by: 255 for bytes, else 1."""
    targets: Tensor
    """(examples,) classes."""
    batches: FlatBatches
    lrs: Tensor
    """(longest,) float64."""
    anchor: Tensor
    """(d,): W row by row, then b if there is one."""
    num_classes: int
    weight_decay: float
    """λ."""
    mu: float
    """μ."""


class SoftmaxTriton(WholePath):
    """One linear layer with cross-entropy, trained by plain SGD."""

    name, engine, devices, backend = "softmax kernel", "batched", ("cuda",), "triton"
    takes_only = "softmax regression by plain SGD or Proximal, in full precision"

    def refusal(self, objective: Objective, jobs: LocalJobs) -> str | None:
        layer, anchor = _only_layer(objective), jobs.anchor
        if layer is None:
            return "the model is no linear layer with cross-entropy of classes after it"
        if not unshifted(jobs.steps.solver):
            return NOT_UNSHIFTED
        if not jobs.steps.batches:
            return "there is nothing to do"
        if not anchor.is_cuda or objective.data.inputs.device != anchor.device:
            return "the model and the examples are not all on one cuda device"
        if anchor.dtype != torch.float32:
            return "the parameters are not float32"
        from fairlead.worlds.engines.softmax_triton import fits

        fitting = fits(layer.in_features, layer.out_features, anchor.device)
        return None if fitting else "the layer is too large for one processor"

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalReturns:
        from fairlead.worlds.engines.softmax_triton import run_on_gpu

        delta, loss = run_on_gpu(_work_of(objective, jobs))
        ran = self.ran(jobs.anchor, len(jobs), precision="float32")
        return LocalReturns(delta, loss, jobs.buffers.expand(len(jobs), -1), (ran,))


def _only_layer(objective: Objective) -> nn.Linear | None:
    """The linear layer that is the whole model, if cross-entropy with classes follows it."""
    layers = None if objective.draws_noise or objective.model.pipeline.steps else dense_layers(objective)
    targets = objective.data.targets
    classes = objective.loss is cross_entropy and targets.ndim == 1 and targets.dtype == torch.int64
    if layers is None or len(layers) != 1 or not classes:
        return None
    return layers[0] if isinstance(layers[0], nn.Linear) else None


def _work_of(objective: Objective, jobs: LocalJobs) -> LinearWork:
    inputs, layer, descent = objective.data.inputs, _only_layer(objective), sgd_only(jobs.steps.solver)
    assert layer is not None
    assert descent is not None
    return LinearWork(
        inputs=inputs.flatten(1),
        input_scale=255.0 if inputs.dtype == torch.uint8 else 1.0,
        targets=objective.data.targets,
        batches=flat_batches(jobs),
        lrs=jobs.steps.step_lrs,
        anchor=jobs.anchor,
        num_classes=layer.out_features,
        weight_decay=descent.weight_decay,
        mu=descent.mu,
    )
