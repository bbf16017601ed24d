"""Which examples a client uses at each local step, and what else is random in it, drawn before any work starts."""

from collections.abc import Iterable, Sequence
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
        shuffle, noise = (self.key.fold(purpose, self.round) for purpose in ("batches", "noise"))
        each = zip(self.first_rows, self.sizes, self.num_steps, self.batch_sizes, strict=True)
        batches = [
            draw_batches(*one, shuffle.fold(client)) for client, one in zip(self.clients, each, strict=True)
        ]
        noise_keys = map(noise.fold, self.clients) if self.draws_noise else None
        return local_steps(self.solver, self.round, batches, noise_keys)


def local_steps(
    solver: LocalSolver, round: int, batches: Sequence[Tensor], noise: Iterable[Key] | None
) -> LocalSteps:
    """The local steps of clients with the given batches; `noise` has a key per client where the model draws any."""
    longest = max(map(len, batches), default=0)
    if noise is None:
        keys = [torch.zeros(longest + 1, dtype=torch.int64)] * len(batches)
    else:
        words = (key.words(np.arange(len(own) + 1)) for key, own in zip(noise, batches, strict=True))
        keys = [torch.from_numpy(word.view(np.int64)) for word in words]
    return LocalSteps(solver, batches, keys, solver.step_lrs(round, longest))


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
