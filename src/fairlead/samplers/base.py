"""The role `Sampler`: the cohort of a round, and the importance of each of its updates."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from torch import Tensor

from fairlead.client_table import PartState
from fairlead.component import MethodPart
from fairlead.errors import FieldError
from fairlead.randomness import Key
from fairlead.records import (
    Buffering,
    ClientUpdates,
    ClientWeights,
    Cohort,
    Conditions,
    NotKnown,
    Participation,
    Population,
)

Adjacency = Literal["zero-out", "replace-one"]
"""Which federations must look alike for privacy: those in which one client sends zeros instead of its updates, or
those in which one client has other data."""


class Sampler(MethodPart, ABC):
    """Draws a cohort, and may learn from the updates that arrive."""

    importance_by_weight: ClassVar[bool] = False
    """Whether importance is proportional to ω within every cohort."""
    balances_work: ClassVar[bool] = False
    """Whether draws already divide by the work that arrives, so that no aggregator may do it again."""
    adjacency: ClassVar[Adjacency | None] = None
    """For samplers that ask all clients with the same known chance: the adjacency of their privacy account."""
    varies_by_round: ClassVar[bool] = False
    """Whether draws depend on the number of the round."""

    @abstractmethod
    def init(self, population: Population) -> PartState:
        """State before the first round; raises for a population that it cannot sample from."""

    @property
    def needs_losses(self) -> bool:
        """Whether it asks clients for their loss before it draws, so that the world must be able to ask them."""
        return False

    def polled(self, state: PartState, conditions: Conditions, key: Key) -> Tensor | None:
        """The clients to ask for the loss of the global model, ascending; `draw` finds them in `conditions.poll`."""
        return None

    @abstractmethod
    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        """The cohort of a round, ascending by client."""

    def observe(
        self, state: PartState, conditions: Conditions, cohort: Cohort, updates: ClientUpdates
    ) -> PartState:
        """State after the round, also when nothing arrived, for samplers that learn from updates."""
        return state

    def follow(self, state: PartState, shares: ClientWeights) -> PartState:
        """State after the server weighted all clients, for samplers that draw by these weights."""
        return state

    @property
    def buffering(self) -> Buffering | None:
        """For asynchronous rounds, when they end; None if every round waits for its own clients."""
        return None

    @property
    def long_run(self) -> "Sampler":
        """The sampler that draws in all but the first rounds."""
        return self

    def participation(self, conditions: Conditions) -> Participation | NotKnown:
        """Mean importance and chance of being asked in a round, for predicted weights."""
        return NotKnown(f"{type(self).__name__} has no theory of its participation.")

    def possible_cohorts(self, conditions: Conditions, at_most: int) -> list[tuple[float, Cohort]] | None:
        """Every cohort with its probability; None where there are more than `at_most`, or where they are not known.

        It makes predicted weights exact for small federations.
        """
        return None


class MemorylessSampler(Sampler, ABC):
    """Family of samplers without state: a subclass implements `draw`."""

    def init(self, population: Population) -> PartState:
        self.check(population)
        return {}

    def check(self, population: Population) -> None:
        """Raise for a population that this sampler cannot sample from."""


def refuse_too_many(sampler: Sampler, drawn: int, population: Population, field: str = "cohort_size") -> None:
    """Raise if there are fewer clients of positive weight than a sampler is to draw without replacement."""
    available = int((population.weights > 0).sum())
    if drawn > available:
        raise FieldError(
            f"{type(sampler).__name__}.{field} must be at most {available}, the number of clients with positive "
            f"weight, got {drawn}."
        )
