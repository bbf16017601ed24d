"""Which examples a client uses at each local step, and what else is random in it, drawn before any work starts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlead.local_solver import LocalSolver
from fairlead.randomness import Key
from fairlead.worlds.engines.base import LocalSteps


class LocalDraw(NamedTuple):
    """All that decides the local steps of some clients, one number for each of them."""

    solver: LocalSolver
    key: Key
    round: int
    clients: tuple[int, ...]
    first_rows: tuple[int, ...]
    sizes: tuple[int, ...]
    num_steps: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    draws_noise: bool

    def steps(self) -> LocalSteps:
        """The batches, the keys of noise and the learning rates."""
        shuffle = self.key.fold("batches", self.round)
        each = zip(
            self.first_rows,
            self.sizes,
            self.num_steps,
            self.batch_sizes,
            map(shuffle.fold, self.clients),
            strict=True,
        )
        return LocalSteps(
            solver=self.solver,
            batches=[draw_batches(*one) for one in each],
            noise=self._noise(),
            step_lrs=self.solver.step_lrs(self.round, max(self.num_steps, default=0)),
        )

    def _noise(self) -> list[Tensor]:
        if not self.draws_noise:
            return [torch.zeros(max(self.num_steps, default=0) + 1, dtype=torch.int64)] * len(self.clients)
        noise = self.key.fold("noise", self.round)
        words = (
            noise.fold(client).words(np.arange(steps + 1))
            for client, steps in zip(self.clients, self.num_steps, strict=True)
        )
        return [torch.from_numpy(word.view(np.int64)) for word in words]


def draw_batches(first_row: int, size: int, num_steps: int, batch_size: int, key: Key) -> Tensor:
    """Row numbers (num_steps, batch_size), -1 where the last batch of an epoch is short.

    Every epoch is a new permutation of the client's rows, cut into batches with the partial one kept;
    a client that uses all its rows at every step keeps their order.
    """
    per_epoch = -(-size // batch_size)
    epochs = -(-num_steps // per_epoch)
    rows = np.full((epochs, per_epoch * batch_size), -1, dtype=np.int64)
    rows[:, :size] = np.arange(first_row, first_row + size)
    if batch_size < size:
        rows[:, :size] = key.generator().permuted(rows[:, :size], axis=1)
    return torch.from_numpy(rows.reshape(-1, batch_size)[:num_steps])
