"""The role `DirectionTransform`: changes the direction before or after the server optimizer."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from torch import Tensor

from fairlead.client_table import PartState
from fairlead.component import MethodPart
from fairlead.records import ClientUpdates, Conditions, Limit, Population, Transformed


class DirectionTransform(MethodPart, ABC):
    """Maps a direction to another one, with optional memory.

    `stage` names the direction: that of the aggregator ("aggregate"), or the step of the server optimizer
    ("step"), whose own state then stays that of the untransformed method.
    """

    stage: ClassVar[Literal["aggregate", "step"]]
    needs_descent: ClassVar[bool] = False
    """Whether it makes sense only for methods that descend from the current model at every round."""
    hides_weights: ClassVar[bool] = False
    """Whether it turns the step away from the aggregate, so that coefficients do not determine the weights."""

    def init(self, population: Population) -> PartState:
        """State before the first round."""
        return {}

    @abstractmethod
    def transform(
        self, direction: Tensor, updates: ClientUpdates, state: PartState, conditions: Conditions
    ) -> Transformed:
        """The new direction; `updates` are empty where the server follows remembered updates or noise alone."""

    def limit(self, weights: Tensor) -> Limit | None:
        """Where methods with this transform stop, if that does not depend on the clients' contributions."""
        if not self.hides_weights:
            return None
        return Limit(
            None, f"{type(self).__name__} changes the direction of steps, so their weights are not known."
        )
