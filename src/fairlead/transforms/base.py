"""The role `DirectionTransform`: changes the direction before or after the server optimizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from torch import Tensor

from fairlead.client_table import PartState
from fairlead.component import Component
from fairlead.records import ClientUpdates, Conditions, Limit, Population, Transformed


class DirectionTransform(Component, ABC):
    """Maps a direction to another one, with optional memory.

    `stage` says which direction: what the aggregator proposes ("aggregate"), or the step that the server
    optimizer makes of it ("step"), whose own state then stays that of the untransformed method.
    """

    stage: ClassVar[Literal["aggregate", "step"]]
    needs_descent: ClassVar[bool] = False
    """Whether it makes sense only for methods that descend from the current model at every round."""
    needs_single_updates: ClassVar[bool] = False
    """Whether it looks at what single clients sent: secure aggregation, which shows sums alone, then rules it out."""
    hides_weights: ClassVar[bool] = False
    """Whether it turns the step away from the aggregate, so that coefficients do not tell the weights."""

    def init(self, population: Population) -> PartState:
        """State before the first round."""
        return {}

    @abstractmethod
    def transform(
        self, direction: Tensor, updates: ClientUpdates, state: PartState, conditions: Conditions
    ) -> Transformed:
        """The new direction; never called in a round in which nothing arrived."""

    def limit(self, weights: Tensor) -> Limit | None:
        """Where methods with this transform stop, if that does not depend on the clients' contributions."""
        if not self.hides_weights:
            return None
        return Limit(None, f"{type(self).__name__} turns steps away from the clients' mean.")
