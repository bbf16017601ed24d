"""A part of a data set, for trying things out."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fairlead.clients.pool import Pool
from fairlead.clients.pooled import PooledSource
from fairlead.errors import require_instance, require_integer
from fairlead.randomness import Key
from fairlead.task import Task


@dataclass(frozen=True)
class Excerpt(PooledSource):
    """At most `num_examples` of a data set, the same ones for every seed, and at most `num_test` of its test set.

    They are drawn evenly, so that classes and natural clients keep their shares; a test set that the data do
    not bring is held out of the excerpt. How the examples are dealt is said here, and what `source` itself says
    about that has no effect.

    >>> from fairlead.clients import Digits, IidPartitioner
    >>> excerpt = Excerpt(Digits(), num_examples=100, num_clients=5, partition=IidPartitioner())
    >>> excerpt.load(Key.from_seed(0)).train.sizes.tolist()
    [16, 16, 16, 16, 16]
    """

    source: PooledSource
    num_examples: int
    _: KW_ONLY
    num_test: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        require_instance(self, "source", self.source, PooledSource)
        require_integer(self, "num_examples", at_least=1)
        require_integer(self, "num_test", at_least=1)

    def pool(self) -> Pool:
        pool = self.source.pool()
        chosen = _drawn(len(pool), self.num_examples)
        tested = _drawn(0 if pool.test_inputs is None else len(pool.test_inputs), self.num_test)
        some = replace(
            pool,
            inputs=pool.inputs[chosen],
            targets=pool.targets[chosen],
            natural=None,
            test_inputs=None if pool.test_inputs is None else pool.test_inputs[tested],
            test_targets=None if pool.test_targets is None else pool.test_targets[tested],
            test_natural=None,
            client_names=None,
        )
        if pool.natural is None:
            return some
        # Nobody's number, where the clients of the test set are not known.
        test_ids = torch.tensor([-1]) if pool.test_natural is None else pool.test_natural[tested]
        return some.owned_by_both(pool.natural[chosen], test_ids, pool.client_names)

    def default_task(self) -> Task:
        return self.source.default_task()


def _drawn(total: int, wanted: int) -> Tensor:
    """Rows of an excerpt, ascending."""
    order = torch.from_numpy(Key.from_seed(0).fold("excerpt").generator().permutation(total))
    return order[:wanted].sort().values
