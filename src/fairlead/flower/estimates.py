"""What a server learns of its clients' links and capacity from the rounds it has seen."""

from __future__ import annotations

import torch
from torch import Tensor


class Estimates:
    """Arrival rates and capacities of N clients, counted from asked and arrived.

        1 − q̂_i = (arrived_i + 1)/(asked_i + 2)

    the mean of a uniform prior's posterior: 1/2 for a client never asked, and never 0. A client that last did
    fewer steps than asked is expected to stop there again.
    """

    def __init__(self, num_clients: int) -> None:
        self._asked = torch.zeros(num_clients, dtype=torch.float64)
        self._arrived = torch.zeros(num_clients, dtype=torch.float64)
        self._capacity = torch.full((num_clients,), torch.iinfo(torch.int64).max)

    @property
    def arrival(self) -> Tensor:
        """1 − q̂ (N,)."""
        return (self._arrived + 1) / (self._asked + 2)

    def expected_steps(self, planned: Tensor) -> Tensor:
        """Local steps (N,) that clients are expected to take of those planned."""
        return torch.minimum(planned, self._capacity)

    def count(self, asked: Tensor, arrived: Tensor) -> None:
        """Learn from a round who was asked and whose update came."""
        self._asked[asked] += 1
        self._arrived[arrived] += 1

    def note_work(self, clients: Tensor, planned: Tensor, done: Tensor) -> None:
        """Learn how many of the steps planned clients have done."""
        unbounded = torch.full_like(done, torch.iinfo(torch.int64).max)
        self._capacity[clients] = torch.where(done < planned, done, unbounded)
