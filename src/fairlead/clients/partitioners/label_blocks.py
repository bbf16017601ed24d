"""Two blocks of clients, one with balanced labels and one without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.clients.partitioners.base import Partitioner, Rows, refuse_no_clients
from fairlead.clients.partitioners.dirichlet import InnerDirichletPartitioner
from fairlead.errors import FieldError, require_instance, require_integer
from fairlead.randomness import Key


@dataclass(frozen=True)
class LabelBlocksPartitioner(Partitioner):
    """The first clients get all labels in the pool's own proportions, the others are dealt unequally.

    `num_balanced` clients, half of them unless given, share a fraction num_balanced/N of every label
    equally; what is left is dealt to the others by the partitioner `unbalanced`. With 20 clients this is the
    setting of Zeng 2025 Fig. 6, which shows how the two blocks' updates drift apart.

    Differs from the paper, which does not say how unbalanced the second block is: here equal sizes with a
    mixture of labels drawn from Dirichlet(0.1) for each client.
    """

    num_balanced: int | None = None
    unbalanced: Partitioner = InnerDirichletPartitioner(alpha=0.1)

    references = ("zeng2025fedaware",)
    needs_classes = True

    def __post_init__(self) -> None:
        if self.num_balanced is not None:
            require_integer(self, "num_balanced", at_least=0)
        require_instance(self, "unbalanced", self.unbalanced, Partitioner)

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        refuse_no_clients(self, num_clients)
        num_balanced = num_clients // 2 if self.num_balanced is None else self.num_balanced
        if num_balanced > num_clients:
            raise FieldError(
                f"LabelBlocksPartitioner.num_balanced must be at most {num_clients}, the number of clients, "
                f"got {num_balanced}."
            )
        generator = key.generator()
        shuffled = generator.permutation(len(labels))
        by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
        # Every N consecutive examples of the sorted row hold one for each client of the first block.
        place = np.arange(len(labels)) % num_clients
        owner = np.empty(len(labels), dtype=np.int64)
        owner[by_label] = place
        rest = np.flatnonzero(owner >= num_balanced)
        if num_balanced < num_clients:
            own = None if natural is None else natural[rest]
            owner[rest] = num_balanced + self.unbalanced.deal(
                labels[rest], num_clients - num_balanced, key.fold("unbalanced"), own
            )
        return owner
