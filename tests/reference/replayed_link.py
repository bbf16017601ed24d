"""A link for tests: arrivals that are written down, and rates that a method may read beside them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.conditions.links import LinkModel
from fairlead.randomness import Key


@dataclass(frozen=True)
class _ReplayedLink(LinkModel):
    """Lets the listed clients through, round by round and then again; 1 − q is what `rates` says.

    The underscore keeps it out of the parts that specs and contract tests find.
    """

    arrivals: tuple[tuple[int, ...], ...]
    rates: tuple[float, ...]

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return torch.tensor(self.rates, dtype=torch.float64)[clients]

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return torch.isin(clients, torch.tensor(self.arrivals[round % len(self.arrivals)]))

    def closes(self, durations: Tensor, arrived: Tensor) -> float:
        return float(durations.max())


def replayed_link(arrivals: tuple[tuple[int, ...], ...], rates: tuple[float, ...]) -> LinkModel:
    """The link that replays `arrivals` and states `rates`."""
    return _ReplayedLink(arrivals, rates)
