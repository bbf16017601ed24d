"""`Pool`: all examples of a data set before anybody owns them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from fairlead.clients.columns import Columns, Names, client_numbers
from fairlead.clients.data import ClientData, offsets_of
from fairlead.clients.examples import ArrayLike, as_tensor, first_non_finite, stacked
from fairlead.clients.partitioners.base import Partitioner, Rows
from fairlead.clients.partitioners.natural import NaturalIdPartitioner
from fairlead.clients.text import Tokenizer
from fairlead.errors import ClashError, DataError, FieldError
from fairlead.randomness import Key


class Partitions(Protocol):
    """What a partitioner of flwr-datasets offers once its `dataset` is set."""

    @property
    def num_partitions(self) -> int: ...

    def load_partition(self, partition_id: int, /) -> Any: ...


@dataclass(frozen=True, eq=False, repr=False)
class Pool:
    """All examples of a data set before anybody owns them; `deal` makes them clients' data.

    Inputs of type uint8 are pixels 0 to 255: they stay bytes, and the model scales them to [0, 1]. Other
    whole numbers are token ids; all else is real numbers.

    >>> import fairlead as fl
    >>> pool = fl.Pool.from_arrays([[0.1], [0.2], [0.3]], [0, 1, 1], clients=["lab", "home", "lab"])
    >>> pool.deal().sizes.tolist()
    [1, 2]
    >>> pool.deal(fl.IidPartitioner(), num_clients=3).sizes.tolist()
    [1, 1, 1]
    """

    inputs: Tensor
    targets: Tensor
    natural: Tensor | None = None
    """(examples,) the client that each example came from, where the data say so: 0, 1, 2, ..."""
    test_inputs: Tensor | None = None
    test_targets: Tensor | None = None
    test_natural: Tensor | None = None
    """(test examples,) their clients in the numbers of `natural`, where all of them are among those."""
    name: str = "The data set"
    """What errors call the data."""

    def __post_init__(self) -> None:
        _require_examples(self.inputs, self.targets, self.natural, self.name)
        if self.test_inputs is None or self.test_targets is None:
            if self.test_inputs is not self.test_targets:
                raise DataError(f"{self.name} must have both test inputs and test targets, or neither.")
            return
        _require_examples(
            self.test_inputs, self.test_targets, self.test_natural, f"The test set of {self.name}"
        )
        for kind, train, test in (
            ("inputs", self.inputs, self.test_inputs),
            ("targets", self.targets, self.test_targets),
        ):
            if train.shape[1:] != test.shape[1:]:
                raise DataError(
                    f"The test set of {self.name} must have {kind} of shape {tuple(train.shape[1:])} as the "
                    f"training set, got {tuple(test.shape[1:])}."
                )

    @staticmethod
    def from_arrays(
        inputs: ArrayLike, targets: ArrayLike, clients: Sequence[Any] | Tensor | None = None
    ) -> Pool:
        """Tensors, NumPy arrays or lists, with the id or name of each example's client if there is one.

        Clients get the numbers 0, 1, 2, ... in the sorted order of their ids.
        """
        return Pool(as_tensor(inputs, "The inputs"), as_tensor(targets, "The targets"), _natural(clients))

    @staticmethod
    def from_dataset(dataset: Dataset[Any], clients: Sequence[Any] | Tensor | None = None) -> Pool:
        """A `torch.utils.data.Dataset` whose examples are (input, target), each read once, in order."""
        name = f"The {type(dataset).__name__}"
        if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
            inputs, targets = (as_tensor(part, name) for part in dataset.tensors)
            return Pool(inputs, targets, _natural(clients), name=name)
        try:
            count = len(dataset)  # type: ignore[arg-type]
        except TypeError as error:
            raise DataError(
                f"{name} cannot be dealt to clients, since it does not know its length."
            ) from error
        targets_read: list[Any] = []
        inputs = stacked(_inputs(dataset, count, targets_read, name), count, f"{name}, inputs")
        targets = stacked(targets_read, count, f"{name}, targets")
        return Pool(inputs, targets, _natural(clients), name=name)

    @staticmethod
    def from_table(
        table: Any,
        target: str,
        *,
        features: Names | None = None,
        client: Names | None = None,
        tokens: Tokenizer | None = None,
        regression: bool = False,
    ) -> Pool:
        """A pandas or Polars frame, a pyarrow table or a Hugging Face dataset, by the names of its columns.

        `features` are all columns but target and client unless named: numbers, or a single column of images
        or arrays; with `tokens`, texts. A target is a class (whole numbers as they are, names numbered in
        sorted order), or a quantity with `regression`. Several `client` columns together name a client.
        """
        columns = Columns.of(table, f"The {type(table).__name__}")
        return Pool.from_columns(columns, target, features, client, tokens, regression=regression)

    @staticmethod
    def from_partitions(
        partitions: Partitions,
        target: str,
        *,
        features: Names | None = None,
        tokens: Tokenizer | None = None,
        regression: bool = False,
    ) -> Pool:
        """The deal of a flwr-datasets partitioner as it is: one client per partition, in its order."""
        tables = [
            Columns.of(partitions.load_partition(part), f"Partition {part}")
            for part in range(partitions.num_partitions)
        ]
        for table in tables:
            if len(table) == 0:
                raise DataError(
                    f"{table.name} has no example, and every client needs one: ask the partitioner for fewer "
                    "or larger partitions."
                )
        owner = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        columns = replace(reduce(Columns.followed_by, tables), name=f"The {type(partitions).__name__}")
        pool = Pool.from_columns(columns, target, features, None, tokens, regression=regression)
        return replace(pool, natural=torch.from_numpy(owner))

    @staticmethod
    def from_columns(
        columns: Columns,
        target: str,
        features: Names | None,
        client: Names | None,
        tokens: Tokenizer | None,
        *,
        regression: bool,
    ) -> Pool:
        """The examples of a table, each of its rows one."""
        owners = names_of(client)
        columns.require((target, *owners))
        chosen = names_of(features) or tuple(name for name in columns.cells if name not in (target, *owners))
        columns.require(chosen)
        if target in chosen:
            raise DataError(
                f"{columns.name} has {target!r} as target and as feature: the model would read it off."
            )
        if len(columns) == 0 or not chosen:
            lacking = "row" if chosen else "column beside target and client for features"
            raise DataError(f"{columns.name} has no {lacking}.")
        return Pool(
            columns.inputs(chosen) if tokens is None else tokens.encode(columns.texts(chosen)),
            torch.from_numpy(columns.numbers(target)).to(torch.float32)
            if regression
            else columns.classes(target),
            columns.clients(owners) if owners else None,
            name=columns.name,
        )

    def __repr__(self) -> str:
        return f"Pool({len(self)} examples of shape {tuple(self.inputs.shape[1:])})"

    def __len__(self) -> int:
        return len(self.inputs)

    def hold_out(self, is_test: Tensor) -> Pool:
        """The same examples with those marked (examples,) as the test set."""
        natural = test_natural = None
        if self.natural is not None:
            natural, test_natural = numbers_of_both(self.natural[~is_test], self.natural[is_test])
        return Pool(
            self.inputs[~is_test],
            self.targets[~is_test],
            natural,
            self.inputs[is_test],
            self.targets[is_test],
            test_natural,
            self.name,
        )

    def deal(
        self,
        partition: Partitioner | None = None,
        num_clients: int | None = None,
        *,
        key: Key | None = None,
        rows: Tensor | None = None,
    ) -> ClientData:
        """Examples owned by clients: dealt to `num_clients` by a partitioner, or left with their own.

        `rows` deals only some of the examples; clients that have none of them do not count.
        """
        rows = torch.arange(len(self)) if rows is None else rows
        natural: Rows | None = None
        if self.natural is not None:
            natural = torch.unique(self.natural[rows], return_inverse=True)[1].numpy()
        if num_clients is None:
            if natural is None:
                raise FieldError(f"num_clients is missing: {self.name} names no clients.")
            num_clients = int(natural.max()) + 1
        partition = partition or NaturalIdPartitioner()
        labels = self._labels(rows, partition)
        owner = torch.from_numpy(partition.deal(labels, num_clients, key or Key.from_seed(0), natural))
        order = rows[torch.argsort(owner, stable=True)]
        offsets = offsets_of(torch.bincount(owner, minlength=num_clients))
        return ClientData(self.inputs[order], self.targets[order], offsets)

    def _labels(self, rows: Tensor, partition: Partitioner) -> Rows:
        """A whole number per example to deal by: its class, or 0 where targets are not single classes."""
        targets = self.targets[rows]
        if not targets.is_floating_point() and targets.ndim == 1:
            return targets.to(torch.int64).numpy()
        if partition.needs_classes:
            raise ClashError(
                f"{type(partition).__name__} deals examples by their class, and those of {self.name} have no "
                "single class: choose a partitioner of sizes, or of natural ids."
            )
        return np.zeros(len(targets), dtype=np.int64)

    def test_data(self, *, by_client: bool = False) -> ClientData | None:
        """The test set that the data came with, whole or divided among the natural clients."""
        if self.test_inputs is None or self.test_targets is None:
            return None
        if by_client and self.natural is not None and self.test_natural is not None:
            num_clients = int(self.natural.max()) + 1
            return ClientData.from_owners(self.test_inputs, self.test_targets, self.test_natural, num_clients)
        return ClientData.from_lists([self.test_inputs], [self.test_targets])


def names_of(columns: Names | None) -> tuple[str, ...]:
    """None, one or several names as a tuple of them."""
    return () if columns is None else (columns,) if isinstance(columns, str) else columns


def numbers_of_both(ids: Tensor, test_ids: Tensor) -> tuple[Tensor, Tensor | None]:
    """Training clients as 0, 1, 2, ..., and test clients by the same numbers where all of them train too."""
    known, numbers = torch.unique(ids, return_inverse=True)
    shared = bool(torch.isin(test_ids, known).all())
    return numbers, torch.searchsorted(known, test_ids) if shared else None


def _require_examples(inputs: Tensor, targets: Tensor, natural: Tensor | None, name: str) -> None:
    if len(inputs) == 0:
        raise DataError(f"{name} has no example.")
    if len(inputs) != len(targets):
        raise DataError(
            f"{name} must have one target per input, got {len(inputs)} inputs and {len(targets)} targets."
        )
    if natural is not None and len(natural) != len(inputs):
        raise DataError(
            f"{name} must name one client per example, got {len(natural)} for {len(inputs)} examples."
        )
    for kind, values in (("inputs", inputs), ("targets", targets)):
        row = first_non_finite(values)
        if row is not None:
            raise DataError(f"{name} must have finite {kind}, got NaN or infinity in row {row}.")


def _natural(clients: Sequence[Any] | Tensor | None) -> Tensor | None:
    if clients is None:
        return None
    ids = clients.numpy() if isinstance(clients, Tensor) else np.asarray(clients)
    if ids.ndim != 1:
        raise DataError(f"The clients must be one id or name per example, got an array of shape {ids.shape}.")
    return torch.from_numpy(client_numbers(ids))


def _inputs(dataset: Dataset[Any], count: int, targets: list[Any], name: str) -> Iterator[Any]:
    """Inputs one by one, their targets put aside, so that each example is made only once."""
    for place in range(count):
        example = dataset[place]
        if not isinstance(example, tuple | list) or len(example) != 2:
            raise DataError(
                f"{name}, example {place} must be a pair (input, target), got {type(example).__name__}."
            )
        targets.append(example[1])
        yield example[0]
