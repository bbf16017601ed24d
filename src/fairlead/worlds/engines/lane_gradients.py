"""Which way the gradients of several clients are computed."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from fairlead.worlds.engines.base import LaneGradient, Objective
from fairlead.worlds.engines.branches import BranchGradient
from fairlead.worlds.engines.dense import dense_gradient
from fairlead.worlds.engines.stacked import StackedGradient

Backend = Literal["stacked", "branches"]
"""Whether lanes share batched products, or each has a forward and backward pass of its own."""


def lane_gradient(
    backend: Backend, objective: Objective, buffers: Tensor, *, compiled: bool = False
) -> LaneGradient:
    """The gradient of several clients by the given way; in closed form where the model allows."""
    if backend == "branches":
        return BranchGradient(objective, buffers, compiled=compiled)
    return dense_gradient(objective) or StackedGradient(objective, buffers)
