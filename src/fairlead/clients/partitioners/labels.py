"""Label skew by shards and by classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairlead.clients.partitioners.base import Partitioner, Rows, refuse_no_clients
from fairlead.errors import FieldError, require_choice, require_integer
from fairlead.randomness import Key


@dataclass(frozen=True)
class ShardPartitioner(Partitioner):
    """Sorts the examples by label, cuts them into equal shards and deals each client some of them.

    `num_shards_per_partition` = 2 with 100 clients is the 200-shard setting of Zeng 2023 and of McMahan et al.
    (2017): most clients see two labels.
    """

    num_shards_per_partition: int = 2

    references = ("mcmahan2017fedavg",)
    needs_classes = True

    def __post_init__(self) -> None:
        require_integer(self, "num_shards_per_partition", at_least=1)

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        refuse_no_clients(self, num_clients)
        num_shards = num_clients * self.num_shards_per_partition
        if num_shards > len(labels):
            raise FieldError(
                f"ShardPartitioner cannot cut {len(labels)} examples into {num_shards} shards, "
                f"{self.num_shards_per_partition} for each of {num_clients} clients (num_shards_per_partition): "
                f"ask for a num_clients of at most {len(labels) // self.num_shards_per_partition}, or for fewer "
                "shards."
            )
        generator = key.generator()
        shuffled = generator.permutation(len(labels))
        by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
        client_of_shard = generator.permutation(np.arange(num_shards) % num_clients)
        shard = np.arange(len(labels)) * num_shards // len(labels)
        owner = np.empty(len(labels), dtype=np.int64)
        owner[by_label] = client_of_shard[shard]
        return owner


@dataclass(frozen=True)
class PathologicalPartitioner(Partitioner):
    """Gives each client examples of a fixed number of classes, each class shared equally by its clients.

    `class_assignment_mode`: "random" classes for each client, "deterministic" (client i starts at class i)
    or "first-deterministic" (its first class so, the others random), as flwr-datasets has them. A class
    that no client was assigned goes to the client with the fewest examples, so that none is lost.
    """

    num_classes_per_partition: int
    class_assignment_mode: Literal["random", "deterministic", "first-deterministic"] = "random"

    needs_classes = True

    def __post_init__(self) -> None:
        require_integer(self, "num_classes_per_partition", at_least=1)
        require_choice(self, "class_assignment_mode", ("random", "deterministic", "first-deterministic"))

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        refuse_no_clients(self, num_clients)
        generator = key.generator()
        kinds, kind_of = np.unique(labels, return_inverse=True)
        if self.num_classes_per_partition > len(kinds):
            raise FieldError(
                f"PathologicalPartitioner.num_classes_per_partition must be at most {len(kinds)}, the number "
                f"of classes, got {self.num_classes_per_partition}."
            )
        assigned = self._assign(num_clients, len(kinds), generator)
        owner = np.empty(len(labels), dtype=np.int64)
        sizes = np.zeros(num_clients, dtype=np.int64)
        # Classes that nobody holds come last, when it is known who has the fewest examples.
        for kind in np.argsort(assigned.sum(0) == 0, kind="stable"):
            rows = generator.permutation(np.flatnonzero(kind_of == kind))
            holders = np.flatnonzero(assigned[:, kind])
            if len(holders) == 0:
                holders = np.array([int(np.argmin(sizes))])
            owner[rows] = holders[np.arange(len(rows)) % len(holders)]
            sizes += np.bincount(owner[rows], minlength=num_clients)
        return owner

    def _assign(self, num_clients: int, num_kinds: int, generator: np.random.Generator) -> np.ndarray:
        """Which client holds which class, (clients, classes) bool."""
        assigned = np.zeros((num_clients, num_kinds), dtype=bool)
        clients, count = np.arange(num_clients), self.num_classes_per_partition
        if self.class_assignment_mode == "deterministic":
            for step in range(count):
                assigned[clients, (clients + step) % num_kinds] = True
            return assigned
        preference = generator.random((num_clients, num_kinds))
        if self.class_assignment_mode == "first-deterministic":
            preference[clients, clients % num_kinds] = 2.0
        chosen = np.argpartition(-preference, count - 1, axis=1)[:, :count]
        assigned[clients[:, None], chosen] = True
        return assigned
