"""Clients that exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from fairlead.clients.source import ClientSource
from fairlead.errors import DataError, require_integer
from fairlead.randomness import Key


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
