"""The role `ClientSource`: the origin of a federation's data."""

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
"""Largest number in a synthetic problem, so that its examples fit float32."""


def is_moderate(value: object) -> bool:
    """Whether a value is a number between −`LARGEST` and `LARGEST`."""
    return isinstance(value, int | float) and is_number(value) and abs(value) <= LARGEST


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Clients' training data and an optional test set."""

    train: ClientData
    test: ClientData | None = None
    """One client per natural owner, or a single one that stands for the whole population."""
    weights: Tensor | None = None
    """Objective weights, if the source defines them."""


class ClientSource(Component, ABC):
    """Describes client data in a spec and loads them when a run starts."""

    @abstractmethod
    def load(self, key: Key) -> FederatedData:
        """The data; random draws use the key."""

    @abstractmethod
    def default_task(self) -> Task:
        """The default task for these data."""


@dataclass(frozen=True)
class RealClients(ClientSource):
    """Stands in a spec for `num_clients` real clients, whose data stay where they are.

    Such a spec runs only on a real federation (`fairlead.flower`). To test its algorithm in a simulation, replace the
    clients by a source with data.
    """

    num_clients: int

    def __post_init__(self) -> None:
        require_integer(self, "num_clients", at_least=1)

    def load(self, key: Key) -> NoReturn:
        raise DataError(
            "RealClients have no local data: run this spec on a real federation (fairlead flower up), or replace "
            "the clients by a source with data."
        )

    def default_task(self) -> NoReturn:
        raise DataError("RealClients have no default task: the app of a real federation defines its model.")
