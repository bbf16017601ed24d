"""Which examples a client uses at each local step, drawn before any work starts."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fairlead.randomness import Key


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
