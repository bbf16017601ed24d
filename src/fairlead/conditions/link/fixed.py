"""Links without chance: perfect or replayed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.component import freeze_lists
from fairlead.conditions.link.base import LinkModel
from fairlead.errors import field_error, is_client_lists
from fairlead.randomness import Key


@dataclass(frozen=True)
class PerfectLink(LinkModel):
    """Every update arrives."""

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return torch.ones(len(clients), dtype=torch.float64)

    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return torch.ones(len(clients), dtype=torch.bool)


@dataclass(frozen=True)
class ScriptedLink(LinkModel):
    """Replays given arrivals: one list of client ids per round, then again.

    No probability is defined, so methods that need 1 − q must estimate it.
    """

    arrivals: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        freeze_lists(self)
        if not is_client_lists(self.arrivals):
            raise field_error(self, "arrivals", "lists of client ids", self.arrivals)

    def arrival(self, clients: Tensor, round: int, key: Key) -> None:
        return None

    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        present = torch.tensor(self.arrivals[round % len(self.arrivals)], dtype=torch.int64)
        return torch.isin(clients, present)
