"""The role `LinkModel`: whose updates reach the server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.component import Component, freeze_lists
from fairlead.errors import FieldError, field_error, require_number
from fairlead.randomness import Key


class LinkModel(Component, ABC):
    """Decides which updates arrive.

    Draws depend on the key, the round and the client alone: whether client 7 gets through in round 3
    is the same for every method, whoever else is asked.
    """

    @abstractmethod
    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor | None:
        """1 − q of the given clients (c,) float64, or None where no probability is defined."""

    @abstractmethod
    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        """Whether the update of each given client arrives in this round, (c,) bool."""


@dataclass(frozen=True)
class PerfectLink(LinkModel):
    """Every update arrives."""

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return torch.ones(len(clients), dtype=torch.float64)

    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return torch.ones(len(clients), dtype=torch.bool)


@dataclass(frozen=True)
class BernoulliLink(LinkModel):
    """Each update is lost with probability q_i, independently in every round (004 §2).

    `drop` is q: one number for all clients, or one per client.
    """

    drop: float | tuple[float, ...]

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        freeze_lists(self)
        values = self.drop if isinstance(self.drop, tuple) else (self.drop,)
        if not values or any(isinstance(q, bool) or not 0 <= q <= 1 for q in values):
            raise field_error(self, "drop", "probabilities from 0 to 1", self.drop)

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        if not isinstance(self.drop, tuple):
            return torch.full((len(clients),), 1.0 - self.drop, dtype=torch.float64)
        if len(clients) and int(clients.max()) >= len(self.drop):
            raise FieldError(
                f"BernoulliLink.drop must have one entry per client, got {len(self.drop)} for client "
                f"{int(clients.max())}."
            )
        return 1.0 - torch.tensor(self.drop, dtype=torch.float64)[clients]

    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return key.fold(round).uniform(clients) < self.arrival(clients, round, key)


@dataclass(frozen=True)
class UniformBernoulliLink(LinkModel):
    """Bernoulli links whose q_i are drawn once per client, uniformly from `low` to `high`."""

    low: float
    high: float

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        require_number(self, "low", at_least=0, at_most=1)
        require_number(self, "high", at_least=self.low, at_most=1)

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        draws = key.fold("quality").uniform(clients)
        return 1.0 - (self.low + (self.high - self.low) * draws)

    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return key.fold(round).uniform(clients) < self.arrival(clients, round, key)


@dataclass(frozen=True)
class ScriptedLink(LinkModel):
    """Replays given arrivals: one list of client ids per round, then again.

    No probability is defined, so methods that need 1 − q must estimate it.
    """

    arrivals: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        freeze_lists(self)
        if not self.arrivals:
            raise field_error(self, "arrivals", "at least one list of clients", self.arrivals)

    def arrival(self, clients: Tensor, round: int, key: Key) -> None:
        return None

    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        present = torch.tensor(self.arrivals[round % len(self.arrivals)], dtype=torch.int64)
        return torch.isin(clients, present)
