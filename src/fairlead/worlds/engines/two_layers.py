"""Whether kernels take the local steps of a network with one hidden layer."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from fairlead.local_solver import LocalSolver
from fairlead.task import cross_entropy
from fairlead.worlds.engines.base import Objective
from fairlead.worlds.engines.dense import RELU, Affine, dense_stack
from fairlead.worlds.engines.plain_descent import plain_descent

if TYPE_CHECKING:
    from fairlead.worlds.engines.two_layers_triton import TwoLayerDescent


def two_layer_descent(objective: Objective, solver: LocalSolver) -> TwoLayerDescent | None:
    """Steps of several clients by Triton, or None where its kernels do not apply.

    They are for two linear layers with biases and ReLU between them, cross-entropy with classes, and SGD in float32
    without momentum and clipping, with no correction but `Proximal`; for data that lie on the GPU as numbers or bytes.
    """
    descent, layers = plain_descent(solver), _two_layers(objective)
    inputs, targets = objective.data.inputs, objective.data.targets
    if descent is None or layers is None or not inputs.is_cuda or find_spec("triton") is None:
        return None
    in_order = inputs.is_contiguous() and targets.is_contiguous()
    if not in_order or inputs.dtype not in (torch.float32, torch.uint8):
        return None
    from fairlead.worlds.engines.two_layers_triton import MOST_CLASSES, TwoLayerDescent

    if layers[1].outputs > MOST_CLASSES:
        return None
    return TwoLayerDescent(*layers, inputs.flatten(1), targets, descent)


def _two_layers(objective: Objective) -> tuple[Affine, Affine] | None:
    """The layers of the model, if it is of that kind and computes in float32 on its inputs as they are."""
    precise = next(objective.model.module.parameters()).dtype == torch.float32
    if not precise or objective.model.pipeline.steps or objective.loss is not cross_entropy:
        return None
    match dense_stack(objective):
        case (Affine(bias=slice()) as below, between, Affine(bias=slice()) as above) if between is RELU:
            return below, above
    return None
