"""The split that the data came with, and its IID twin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.clients.partitioners.base import Partitioner, Rows, deal_by_sizes
from fairlead.errors import FieldError
from fairlead.randomness import Key


@dataclass(frozen=True)
class NaturalIdPartitioner(Partitioner):
    """Leaves every example with the client that the data say it came from."""

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        return _known(self, natural)


@dataclass(frozen=True)
class ReshuffledPartitioner(Partitioner):
    """The IID twin of a natural split: pool all examples, shuffle, deal them in the same sizes (002)."""

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        sizes = np.bincount(_known(self, natural), minlength=num_clients)
        return deal_by_sizes(key.generator().permutation(len(labels)), sizes)


def _known(partitioner: Partitioner, natural: Rows | None) -> Rows:
    if natural is None:
        raise FieldError(
            f"{type(partitioner).__name__} needs data that name the client of each example, and these do "
            "not: choose another partitioner, or name the column that holds the clients."
        )
    return natural
