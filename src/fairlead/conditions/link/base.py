"""The role `LinkModel`: whose updates reach the server."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from fairlead.conditions.base import Condition
from fairlead.randomness import Key


class LinkModel(Condition, ABC):
    """Decides which updates arrive."""

    @abstractmethod
    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor | None:
        """1 − q of the given clients (c,) float64, or None where no probability is defined."""

    @abstractmethod
    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        """Whether the update of each given client arrives in this round, (c,) bool."""


class IndependentLink(LinkModel, ABC):
    """Family of links that lose every update by a throw of its own: asks only for `arrival`."""

    @abstractmethod
    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        """1 − q of the given clients (c,) float64."""

    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return key.fold(round).uniform(clients) < self.arrival(clients, round, key)
