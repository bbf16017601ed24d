"""Pooled data sets: one table of examples, dealt to clients by a partitioner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.clients.feature_skew import FeatureSkew
from fairlead.clients.partitioners.base import Partitioner
from fairlead.clients.partitioners.natural import NaturalIdPartitioner
from fairlead.clients.pool import Pool
from fairlead.clients.source import ClientSource, FederatedData
from fairlead.clients.text import Tokenizer
from fairlead.component import freeze_lists
from fairlead.errors import FieldError, field_error, require_instance, require_integer, require_number
from fairlead.models.base import Model
from fairlead.models.dense import LogisticRegression
from fairlead.models.transformer import TextTransformer
from fairlead.randomness import Key
from fairlead.task import Task


@dataclass(frozen=True)
class PooledSource(ClientSource, ABC):
    """Family of data sets that are read as one pool and then dealt: asks only for `pool`.

    `partition` deals the examples to `num_clients` clients; without one, data that name their clients keep
    them, and other data are refused. `test_fraction` of the examples, the same ones for every seed, become
    the common test set where the data bring none of their own, but no client that the data name loses its last
    example to it. `feature_skew` then changes what each client sees, in this order; a common test set stays as
    it is, one divided among the clients changes with them.
    """

    _: KW_ONLY
    num_clients: int | None = None
    partition: Partitioner | None = None
    test_fraction: float = 0.2
    feature_skew: tuple[FeatureSkew, ...] = ()

    def __post_init__(self) -> None:
        freeze_lists(self)
        if self.num_clients is not None:
            require_integer(self, "num_clients", at_least=1)
        require_number(self, "test_fraction", at_least=0, below=1)
        if self.partition is not None:
            require_instance(self, "partition", self.partition, Partitioner)
        skews = self.feature_skew
        if not isinstance(skews, tuple) or not all(isinstance(skew, FeatureSkew) for skew in skews):
            raise field_error(self, "feature_skew", "a list of feature skews", skews)

    @abstractmethod
    def pool(self) -> Pool:
        """Read the data."""

    def load(self, key: Key) -> FederatedData:
        pool = self.pool()
        if self.num_clients is None and pool.natural is None:
            raise FieldError(f"{type(self).__name__}.num_clients is missing: the data name no clients.")
        rows, test = self._train_and_test(pool)
        train = pool.deal(self.partition, self.num_clients, key=key.fold("partition"), rows=rows)
        for place, skew in enumerate(self.feature_skew):
            own = key.fold("feature skew", place)
            train = skew.apply(train, own.fold("train"))
            if test is not None and test.num_clients == train.num_clients > 1:
                test = skew.apply(test, own.fold("test"))
        return FederatedData(train, test)

    def _train_and_test(self, pool: Pool) -> tuple[Tensor, ClientData | None]:
        """Which examples are trained on, and the test set."""
        everything = torch.arange(len(pool))
        by_client = isinstance(self.partition, NaturalIdPartitioner | None)
        test = pool.test_data(by_client=by_client)
        if test is not None:
            return everything, test
        order = torch.from_numpy(Key.from_seed(0).fold("test").generator().permutation(len(pool)))
        num_test = round(self.test_fraction * len(pool))
        is_tested = torch.arange(len(pool)) < num_test
        if pool.natural is not None:
            # The last example of each client in this order is tested only if all of its examples are.
            backwards = pool.natural[order].numpy()[::-1]
            is_tested[len(pool) - 1 - np.unique(backwards, return_index=True)[1]] = False
        rows, tested = order[~is_tested], order[is_tested]
        if len(tested) == 0:
            return rows, None
        if len(rows) == 0:
            raise FieldError(
                f"{type(self).__name__}.test_fraction must leave an example to train on, got "
                f"{self.test_fraction!r} of {len(pool)} examples."
            )
        return rows, ClientData.from_lists([pool.inputs[tested]], [pool.targets[tested]])


def linear_task(*, regression: bool) -> Task:
    """The plainest thing to learn from a table: one linear layer."""
    return _task(LogisticRegression(), regression=regression)


def text_task(tokens: Tokenizer, *, regression: bool) -> Task:
    """What is usually learnt from texts: a small transformer over their tokens."""
    return _task(TextTransformer(vocabulary=tokens.vocabulary, padding=0), regression=regression)


def _task(model: Model, *, regression: bool) -> Task:
    if regression:
        return Task(model, loss="squared_error", metrics=("mean_squared_error",))
    return Task(model)
