"""Pooled data sets: one table of examples, dealt to clients by a partitioner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.clients.partitioners.base import Partitioner, Rows
from fairlead.clients.partitioners.natural import NaturalIdPartitioner
from fairlead.clients.source import ClientSource, FederatedData
from fairlead.errors import FieldError, require_integer, require_number
from fairlead.randomness import Key


@dataclass(frozen=True, eq=False)
class Pool:
    """All examples of a data set, before anybody owns them."""

    inputs: Tensor
    targets: Tensor
    natural: Tensor | None = None
    """(examples,) the client that each example came from, where the data say so: 0, 1, 2, ..."""
    test_inputs: Tensor | None = None
    test_targets: Tensor | None = None


@dataclass(frozen=True)
class PooledSource(ClientSource, ABC):
    """Family of data sets that are read as one pool and then dealt: asks only for `pool`.

    `partition` deals the examples to `num_clients` clients; without one, data that name their clients keep
    them, and other data are refused. `test_fraction` of the examples, the same ones for every seed, become
    the common test set where the data bring none of their own.
    """

    _: KW_ONLY
    num_clients: int | None = None
    partition: Partitioner | None = None
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        if self.num_clients is not None:
            require_integer(self, "num_clients", at_least=1)
        require_number(self, "test_fraction", at_least=0, below=1)

    @abstractmethod
    def pool(self) -> Pool:
        """Read the data."""

    def load(self, key: Key) -> FederatedData:
        pool = self.pool()
        train, test = self._train_and_test(pool)
        natural = None if pool.natural is None else _renumbered(pool.natural[train])
        num_clients = self._count_clients(natural)
        partition = self.partition or NaturalIdPartitioner()
        labels = _labels(pool.targets[train])
        owner = partition.deal(labels, num_clients, key.fold("partition"), natural)
        return FederatedData(
            train=ClientData.from_owners(
                pool.inputs[train], pool.targets[train], torch.from_numpy(owner), num_clients
            ),
            test=test,
        )

    def _train_and_test(self, pool: Pool) -> tuple[Tensor, ClientData | None]:
        count = len(pool.targets)
        if pool.test_inputs is not None and pool.test_targets is not None:
            return torch.arange(count), ClientData.from_lists([pool.test_inputs], [pool.test_targets])
        order = torch.from_numpy(Key.from_seed(0).fold("test").generator().permutation(count))
        num_test = round(self.test_fraction * count)
        if num_test == 0:
            return order, None
        held_out = order[:num_test]
        return order[num_test:], ClientData.from_lists([pool.inputs[held_out]], [pool.targets[held_out]])

    def _count_clients(self, natural: Rows | None) -> int:
        if self.num_clients is not None:
            return self.num_clients
        if natural is None:
            raise FieldError(f"{type(self).__name__}.num_clients is missing: the data name no clients.")
        return int(natural.max()) + 1


def _renumbered(natural: Tensor) -> Rows:
    """The clients that still have examples, as 0, 1, 2, ... in the order of their ids."""
    numbers: Rows = np.unique(natural.numpy(), return_inverse=True)[1].astype(np.int64)
    return numbers


def _labels(targets: Tensor) -> Rows:
    """A whole number per example to deal by: its class, or 0 where targets are not single classes."""
    if targets.is_floating_point() or targets.ndim > 1:
        return np.zeros(len(targets), dtype=np.int64)
    return targets.numpy()
