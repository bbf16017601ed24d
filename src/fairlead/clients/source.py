"""The role `ClientSource`, the origin of a federation's data, and the family of sources that split a pool."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import partial
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.clients.feature_skew import FeatureSkew
from fairlead.clients.partitioners import NaturalIdPartitioner, Partitioner, Rows, shuffled_within
from fairlead.clients.pool import Pool
from fairlead.clients.preprocessing import Agreement, Preprocessing
from fairlead.clients.tokenizers import Tokenizer
from fairlead.component import BelowOne, Component, PositiveCount
from fairlead.errors import DataError, FieldError, field_error
from fairlead.models.base import LogisticRegression, Model
from fairlead.models.sequences import TextTransformer
from fairlead.randomness import Key
from fairlead.task import Task


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Clients' training data and an optional test set."""

    train: ClientData
    test: ClientData | None = None
    """One client per natural owner, or a single one that stands for the whole population."""
    weights: Tensor | None = None
    """Objective weights, if the source defines them."""
    held_out: ClientData | None = None
    """Examples that each client holds out, for figures per client; the test set too where there is no other."""
    agreement: Agreement | None = None
    """The preprocessing of these data, if the clients agreed on one."""

    def preprocessed(self, wanted: Preprocessing) -> "FederatedData":
        """All examples as the clients agree to encode them, by sums over the training data."""
        agreed = wanted.agree_over(self.train)
        train, test, held_out = (
            None if part is None else agreed.applied(part, self.train.class_names)
            for part in (self.train, self.test, self.held_out)
        )
        assert train is not None
        return replace(self, train=train, test=test, held_out=held_out, agreement=agreed)


@contextmanager
def naming(source: "ClientSource") -> Iterator[None]:
    """Name the file of a source in errors about its data."""
    try:
        yield
    except DataError as error:
        path = vars(source).get("path")
        if path is None or path in str(error):
            raise
        raise DataError(f"{path}: {error}") from error


class ClientSource(Component, ABC):
    """Describes client data in a spec and loads them when a run starts."""

    @abstractmethod
    def load(self, key: Key | int) -> FederatedData:
        """The data; random draws use the key, or that of a seed."""

    @abstractmethod
    def default_task(self) -> Task:
        """The default task for these data."""


@dataclass(frozen=True)
class RealClients(ClientSource):
    """Stands in a spec for `num_clients` real clients, whose data stay where they are.

    Such a spec runs only on a real federation (`fairlead.flower`). To test its algorithm in a simulation, replace the
    clients by a source with data.
    """

    num_clients: PositiveCount

    def load(self, key: Key | int) -> NoReturn:
        raise DataError(
            "RealClients have no local data: run this spec on a real federation (fairlead flower up), or replace "
            "the clients by a source with data."
        )

    def default_task(self) -> NoReturn:
        raise DataError("RealClients have no default task: the app of a real federation defines its model.")


@dataclass(frozen=True)
class PooledSource(ClientSource, ABC):
    """Family of data sets that are read as one pool and then split: a subclass implements `pool`.

    `partition` splits the examples among `num_clients` clients. Without it, clients named by the data keep their
    examples, and data without clients are refused. If the data have no test set, the seed draws one:
    `test_fraction` of the examples, in which each client named by the data has its share up to one example, but
    never its last example. A test set with named clients stays with them if the partition keeps their examples;
    otherwise all clients share it. With `holdout`, each client also holds out that share of the examples it was
    dealt (`ClientData.hold_out`): every evaluation measures each client on them, and they are the test set where the
    data have none, instead of a `test_fraction`. `feature_skew` then changes the inputs of each client, in the given
    order. It changes held-out examples and a test set divided among the clients too, but not a shared one.
    """

    _: KW_ONLY
    num_clients: PositiveCount | None = None
    partition: Partitioner | None = None
    test_fraction: BelowOne = 0.2
    holdout: BelowOne = 0.0
    feature_skew: tuple[FeatureSkew, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep_paths()

    def _keep_paths(self) -> None:
        """Make `path` and `test_path` the text that a spec holds, refused unless text or a path of Python's."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "path" or (field.name == "test_path" and value is not None):
                path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
                if not isinstance(path, str):
                    raise field_error(self, field.name, "a path", value)
                object.__setattr__(self, field.name, path)

    @abstractmethod
    def pool(self) -> Pool:
        """Read the data."""

    def load(self, key: Key | int) -> FederatedData:
        pool, key = self.pool(), Key.of(key)
        self._refuse_nobody(pool)
        if pool.test_inputs is None and not self.holdout:
            pool = self._hold_out(pool, key.fold("test"))
        deal = partial(
            Pool.deal, partition=self.partition, num_clients=self.num_clients, key=key.fold("partition")
        )
        rows = None
        if pool.imputed is not None and self.holdout:
            # Which examples train depends on the deal, so their places are dealt first.
            places = torch.arange(len(pool))[:, None]
            numbered = replace(pool, inputs=places, test_inputs=None, test_targets=None, test_natural=None)
            rows = deal(numbered).hold_out(self.holdout, key.fold("holdout"))[0].inputs.flatten()
        pool = pool.filled(rows)
        train = deal(pool)
        test = pool.test_data(by_client=isinstance(self.partition, NaturalIdPartitioner | None))
        held_out = None
        if self.holdout:
            train, held_out = train.hold_out(self.holdout, key.fold("holdout"))
        for place, skew in enumerate(self.feature_skew):
            own = key.fold("feature skew", place)
            train = skew.apply(train, own.fold("train"))
            if test is not None and test.num_clients == train.num_clients > 1:
                test = skew.apply(test, own.fold("test"))
            if held_out is not None:
                held_out = skew.apply(held_out, own.fold("holdout"))
        return FederatedData(train, held_out if test is None else test, held_out=held_out)

    def _refuse_nobody(self, pool: Pool) -> None:
        """Raise if neither the data nor the fields say who owns the examples."""
        dealing = {"num_clients": "10", "partition": "fl.IidPartitioner()"}
        missing = [f"{name}={value}" for name, value in dealing.items() if getattr(self, name) is None]
        if pool.natural is None and missing:
            raise FieldError(
                "The data name no clients: give the client of each example, or deal the examples, for example by "
                f"fl.{type(self).__name__}(..., {', '.join(missing)})."
            )

    def _hold_out(self, pool: Pool, key: Key) -> Pool:
        """The same examples with some of them as test set."""
        count = round(self.test_fraction * len(pool))
        if pool.natural is None and count == len(pool):
            raise FieldError(
                f"{type(self).__name__}.test_fraction must leave an example to train on, got "
                f"{self.test_fraction!r} of {len(pool)} examples."
            )
        owner = np.zeros(len(pool), dtype=np.int64) if pool.natural is None else pool.natural.numpy()
        return pool.hold_out(torch.from_numpy(_drawn(owner, count, key)))


def _drawn(owner: Rows, count: int, key: Key) -> NDArray[np.bool_]:
    """Which of n examples are among `count`, all equally likely, but for a last one that its client keeps.

    Clients stand in a row, their examples shuffled, and n/count steps from a random place lead to each next
    example: every client gives its share up to one.
    """
    generator = key.generator()
    row = shuffled_within(owner, generator)
    start = int(generator.integers(len(owner)))
    is_drawn = np.zeros(len(owner), dtype=bool)
    is_drawn[row[(np.arange(count) * len(owner) + start) // max(count, 1)]] = True
    lasts = row[np.flatnonzero(np.diff(owner[row], append=-1))]
    kept = np.bincount(owner, weights=~is_drawn)
    is_drawn[lasts[kept[owner[lasts]] == 0]] = False
    return is_drawn


def table_task(tokens: Tokenizer | None, *, regression: bool) -> Task:
    """The default task of a table: one linear layer over numbers, a small transformer over texts."""
    model: Model = LogisticRegression()
    if tokens is not None:
        model = TextTransformer(vocabulary=tokens.vocabulary, padding=tokens.padding)
    if regression:
        return Task(model, loss="squared_error", metrics=("mean_squared_error",))
    return Task(model)


@dataclass(frozen=True)
class Excerpt(PooledSource):
    """At most `num_examples` of a data set, the same ones for every seed, and at most `num_test` of its test set.

    They are drawn uniformly, so that classes and natural clients keep their shares on average. If the data have no
    test set, one is held out of the excerpt. The excerpt's own fields define the split; those of `source` have no
    effect.

    >>> from fairlead import Digits, IidPartitioner
    >>> excerpt = Excerpt(Digits(), num_examples=100, num_clients=5, partition=IidPartitioner())
    >>> excerpt.load(Key.from_seed(0)).train.sizes.tolist()
    [16, 16, 16, 16, 16]
    """

    source: PooledSource
    num_examples: PositiveCount
    _: KW_ONLY
    num_test: PositiveCount = 1000

    def pool(self) -> Pool:
        pool = self.source.pool()
        chosen = _evenly_drawn(len(pool), self.num_examples)
        tested = _evenly_drawn(0 if pool.test_inputs is None else len(pool.test_inputs), self.num_test)
        test_inputs, test_targets, test_natural = (
            None if part is None else part[tested]
            for part in (pool.test_inputs, pool.test_targets, pool.test_natural)
        )
        return pool.selected(chosen, test_inputs, test_targets, test_natural)

    def default_task(self) -> Task:
        return self.source.default_task()


def _evenly_drawn(total: int, wanted: int) -> Tensor:
    """Rows of an excerpt, ascending."""
    order = torch.from_numpy(Key.from_seed(0).fold("excerpt").generator().permutation(total))
    return order[:wanted].sort().values
