"""Norm clipping of the aggregated direction."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fairlead.client_table import PartState
from fairlead.errors import require_number
from fairlead.records import ClientUpdates, Conditions, Transformed
from fairlead.transforms.base import DirectionTransform


@dataclass(frozen=True)
class Clip(DirectionTransform):
    """Shortens the direction to a given norm: d ← d·min(1, bound/‖d‖).

    Reduces to no change while ‖d‖ ≤ `bound`. The record has the factor.
    """

    bound: float

    stage: ClassVar[Literal["aggregate", "step"]] = "aggregate"

    def __post_init__(self) -> None:
        require_number(self, "bound", above=0)

    def transform(
        self, direction: Tensor, updates: ClientUpdates, state: PartState, conditions: Conditions
    ) -> Transformed:
        # In float64, since an infinite norm would shorten a long direction to zero.
        norm = torch.linalg.vector_norm(direction, dtype=torch.float64)
        factor = self.bound / norm.clamp(min=self.bound)
        return Transformed(direction * factor.to(direction), state, {"clip_factor": float(factor)})
