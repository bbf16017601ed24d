"""The split that the data came with, and its IID twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.clients.partitioners.base import Partitioner, Rows, deal_by_sizes
from fairlead.errors import FieldError
from fairlead.randomness import Key


@dataclass(frozen=True)
class NaturalIdPartitioner(Partitioner):
    """Leaves every example with the client that the data say it came from."""

    exemptions: ClassVar[Mapping[str, str]] = {"different keys": "the data decide"}

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        return _known(self, natural, num_clients)


@dataclass(frozen=True)
class ReshuffledPartitioner(Partitioner):
    """The IID twin of a natural split: pool all examples, shuffle, deal them in the same sizes (Wang 2024)."""

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        sizes = np.bincount(_known(self, natural, num_clients), minlength=num_clients)
        return deal_by_sizes(key.generator().permutation(len(labels)), sizes)


def _known(partitioner: Partitioner, natural: Rows | None, num_clients: int) -> Rows:
    if natural is None:
        raise FieldError(
            f"{type(partitioner).__name__} needs data that name the client of each example, and these do "
            "not: choose another partitioner, or name the column that holds the clients."
        )
    named = int(natural.max()) + 1
    if named != num_clients:
        raise FieldError(
            f"{type(partitioner).__name__} keeps the {named} clients that the data name, but num_clients is "
            f"{num_clients}: leave it out, or choose another partitioner."
        )
    return natural
