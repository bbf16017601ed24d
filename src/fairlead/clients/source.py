"""The role `ClientSource`: where a federation's data come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NoReturn

from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.component import Component
from fairlead.errors import DataError, is_number, require_integer
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


@dataclass(frozen=True)
class RealClients(ClientSource):
    """Stands in a spec for `num_clients` real clients, whose data stay where they are.

    Such a spec runs on a real federation alone (`fairlead.flower`); to try its algorithm out first, put data in
    the place of the clients.
    """

    num_clients: int

    def __post_init__(self) -> None:
        require_integer(self, "num_clients", at_least=1)

    def load(self, key: Key) -> NoReturn:
        raise DataError(
            "RealClients have no data here: run this spec on a real federation (fairlead flower up), or give it "
            "clients whose data can be loaded."
        )

    def default_task(self) -> NoReturn:
        raise DataError("RealClients have no usual task: the model of a real federation is that of its app.")
