"""The role `ClientSource`: where a federation's data come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.component import Component
from fairlead.errors import is_number
from fairlead.randomness import Key
from fairlead.task import Task

LARGEST = 1e30
"""Most that a number of a synthetic problem may be: the examples that are made with it fit float32."""


def is_moderate(value: object) -> bool:
    """Whether a value is a number between −`LARGEST` and `LARGEST`."""
    return isinstance(value, int | float) and is_number(value) and abs(value) <= LARGEST


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Clients' training data and, where there is one, a test set."""

    train: ClientData
    test: ClientData | None = None
    """One client per natural owner, or a single one that stands for the whole population."""
    weights: Tensor | None = None
    """Objective weights, where the source defines them itself."""


class ClientSource(Component, ABC):
    """Describes client data in a spec; loads it when a run starts."""

    @abstractmethod
    def load(self, key: Key) -> FederatedData:
        """The data, drawn or dealt from the key where chance is involved."""

    @abstractmethod
    def default_task(self) -> Task:
        """What one would usually learn from these data."""
