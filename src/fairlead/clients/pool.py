"""`Pool`: all examples of a data set before they belong to clients."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from fairlead.clients.columns import Columns, Names, Owners, owners_of, require_ids
from fairlead.clients.data import ArrayLike, ClientData, as_tensor, first_non_finite, stacked
from fairlead.clients.partitioners import NaturalIdPartitioner, Partitioner, Rows
from fairlead.clients.tokenizers import Tokenizer
from fairlead.errors import ClashError, DataError, FieldError, is_integer
from fairlead.randomness import Key
from fairlead.text import ClientNames, given_names

Ids = Sequence[Any] | NDArray[Any] | Tensor
"""One id or name per example."""
Imputed = Literal["median", "mode", "flag"]
Missing = Literal["refuse", "drop", Imputed]
"""Rows that lack a value in a used column are an error or dropped, or features are imputed from the training rows: by
the median, by the mode, or by the median with a flag, a further column that is 1 where the value was missing."""


_PARTITION = "(partition)"
"""Name of the column with the number of the partition; unlikely in tables."""


class Partitions(Protocol):
    """The interface of a partitioner of flwr-datasets whose `dataset` is set."""

    @property
    def num_partitions(self) -> int: ...

    def load_partition(self, partition_id: int, /) -> Any: ...


@dataclass(frozen=True, eq=False, repr=False)
class Pool:
    """All examples of a data set before they belong to clients; `deal` splits them among clients.

    Inputs of type uint8 are pixels 0 to 255: they stay bytes, and the model scales them to [0, 1]. Other
    whole numbers are token ids; all else is real numbers.

    >>> import fairlead as fl
    >>> pool = fl.Pool.from_arrays([[0.1], [0.2], [0.3]], [0, 1, 1], clients=["lab", "home", "lab"])
    >>> pool.deal().sizes.tolist(), pool.deal().names.tolist()
    ([1, 2], ['home', 'lab'])
    >>> pool.deal(fl.IidPartitioner(), num_clients=3).sizes.tolist()
    [1, 1, 1]
    """

    inputs: Tensor
    targets: Tensor
    natural: Tensor | None = None
    """(examples,) the client of each example, if the data name it: 0, 1, 2, ..."""
    test_inputs: Tensor | None = None
    test_targets: Tensor | None = None
    test_natural: Tensor | None = None
    """(test examples,) the same for the test set, if all of its clients also train."""
    name: str = "The data set"
    """Name of the data in errors."""
    client_names: ClientNames | None = None
    """(N,) names of the clients of `natural`."""
    num_dropped: int = 0
    """Rows dropped because a value was missing."""
    features: tuple[str, ...] = ()
    """Columns of the inputs, if they come from a table."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes 0, 1, 2, ..., if the data do not number them."""
    imputed: Imputed | None = None
    """How `filled` replaces missing values, which are NaN until then."""

    def __post_init__(self) -> None:
        gaps = self.imputed is not None
        _require_examples(self.inputs, self.targets, self.natural, self.name, gaps=gaps)
        owners = 0 if self.natural is None else int(self.natural.max()) + 1
        if self.client_names is not None and len(self.client_names) != owners:
            raise DataError(
                f"{self.name} must have a name for each client, got {len(self.client_names)} for {owners}."
            )
        if self.test_inputs is None or self.test_targets is None:
            if self.test_inputs is not self.test_targets:
                raise DataError(f"{self.name} must have both test inputs and test targets, or neither.")
            return
        _require_examples(
            self.test_inputs, self.test_targets, self.test_natural, f"The test set of {self.name}", gaps=gaps
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

    @classmethod
    def from_arrays(cls, inputs: ArrayLike, targets: ArrayLike, clients: Ids | None = None) -> Self:
        """Tensors, NumPy arrays or lists, with the id or name of each example's client if there is one.

        Clients get the numbers 0, 1, 2, ... in the sorted order of their ids, and keep them as names.
        """
        pool = cls(as_tensor(inputs, "The inputs"), as_tensor(targets, "The targets"))
        return pool.owned_by(_owners(clients))

    @classmethod
    def from_dataset(cls, dataset: Dataset[Any], clients: Ids | None = None) -> Self:
        """A `torch.utils.data.Dataset` whose examples are (input, target), each read once, in order."""
        name = f"The {type(dataset).__name__}"
        if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
            inputs, targets = (as_tensor(part, name) for part in dataset.tensors)
            return cls(inputs, targets, name=name).owned_by(_owners(clients))
        try:
            count = len(dataset)  # type: ignore[arg-type]
        except TypeError as error:
            raise DataError(f"{name} cannot be split among clients, because it has no length.") from error
        targets_read: list[Any] = []
        inputs = stacked(_inputs(dataset, count, targets_read, name), count, f"{name}, inputs")
        targets = stacked(targets_read, count, f"{name}, targets")
        return cls(inputs, targets, name=name).owned_by(_owners(clients))

    @classmethod
    def from_table(
        cls,
        table: Any,
        target: str,
        *,
        features: Names | None = None,
        client: Names | None = None,
        tokens: Tokenizer | None = None,
        regression: bool = False,
        missing: Missing = "refuse",
        test: Any = None,
    ) -> Self:
        """A pandas or Polars frame, a pyarrow table or a Hugging Face dataset, by the names of its columns.

        `features` are all columns but target and client unless named: numbers, or a single column of images
        or arrays; with `tokens`, texts. A target is a class (whole numbers as they are; names, and codes such
        as 1001 and 45000, numbered in sorted order), or a quantity with `regression`. Several `client` columns
        together name a client.
        `missing` = "drop" leaves out rows that lack a value and counts them in `num_dropped`; "median", "mode" and
        "flag" impute features from all rows but those of the test set. `test` is a table with the same columns, the
        test set.
        """
        columns, is_test = Columns.of(table, f"The {type(table).__name__}"), None
        if test is not None:
            tables = [columns, Columns.of(test, f"The {type(test).__name__} of the test set")]
            columns = Columns.stacked(tables, columns.name)
            is_test = np.repeat([False, True], [len(each) for each in tables])
        return cls.from_columns(
            columns, target, features, client, tokens, regression=regression, missing=missing, is_test=is_test
        ).filled()

    @classmethod
    def from_partitions(
        cls,
        partitions: Partitions,
        target: str,
        *,
        features: Names | None = None,
        tokens: Tokenizer | None = None,
        regression: bool = False,
        missing: Missing = "refuse",
        names: Sequence[str] | None = None,
    ) -> Self:
        """The partitions of a flwr-datasets partitioner, one client each, in their order.

        Clients have no names unless they are given.
        """
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
        columns = Columns.stacked(tables, f"The {type(partitions).__name__}")
        columns = replace(columns, cells={**columns.cells, _PARTITION: owner})
        pool = cls.from_columns(
            columns, target, features, _PARTITION, tokens, regression=regression, missing=missing
        ).filled()
        return replace(pool, client_names=given_names(names, len(tables)))

    @classmethod
    def from_columns(
        cls,
        columns: Columns,
        target: str,
        features: Names | None,
        client: Names | None,
        tokens: Tokenizer | None,
        *,
        regression: bool,
        missing: Missing = "refuse",
        is_test: NDArray[np.bool_] | None = None,
    ) -> Self:
        """The examples of a table, each of its rows one; those marked (rows,) are the test set."""
        owners = names_of(client)
        columns.require((target,), "target")
        columns.require(owners, "client")
        chosen = names_of(features) or tuple(name for name in columns.cells if name not in (target, *owners))
        columns.require(chosen, "features")
        if target in chosen:
            raise DataError(f"{columns.name} has {target!r} both as target and as feature.")
        if len(columns) == 0 or not chosen:
            lacking = "row" if chosen else "column beside target and client for features"
            raise DataError(f"{columns.name} has no {lacking}.")
        if missing not in get_args(Missing):
            raise FieldError(
                f"missing must be one of {', '.join(map(repr, get_args(Missing)))}, got {missing!r}."
            )
        imputed = None if missing in ("refuse", "drop") else cast("Imputed", missing)
        if imputed is not None and tokens is not None:
            raise ClashError(f"missing = {missing!r} imputes numbers, but tokens makes ids of texts.")
        kept = np.arange(len(columns))
        if missing == "drop":
            kept = columns.complete((target, *chosen), owners)
        else:
            columns.refuse_gaps(
                (target, *owners) if imputed else (target, *chosen, *owners), imputed=bool(imputed)
            )
        num_dropped = len(columns) - len(kept)
        columns = columns.rows(kept) if num_dropped else columns
        classes = None if regression else columns.classes(target)
        pool = cls(
            columns.inputs(chosen, gaps=imputed is not None)
            if tokens is None
            else tokens.encode(columns.texts(chosen)),
            torch.from_numpy(columns.numbers(target, target=True)).to(torch.float32)
            if classes is None
            else classes.numbers,
            name=columns.name,
            num_dropped=num_dropped,
            features=chosen,
            class_names=None if classes is None else classes.names,
            imputed=imputed,
        ).owned_by(columns.clients(owners) if owners else None)
        return pool if is_test is None else pool.hold_out(torch.from_numpy(is_test[kept]))

    def __repr__(self) -> str:
        dropped = f", {self.num_dropped} incomplete rows left out" if self.num_dropped else ""
        return f"Pool({len(self)} examples of shape {tuple(self.inputs.shape[1:])}{dropped})"

    def __len__(self) -> int:
        return len(self.inputs)

    def filled(self, rows: Tensor | None = None) -> Self:
        """The same examples without missing values, by statistics of the training examples, or of some `rows` of them.

        A flag is added for each feature with a gap, in training or test set.
        """
        if self.imputed is None or not self.inputs.is_floating_point():
            return replace(self, imputed=None)
        if self.inputs.ndim != 2:
            raise DataError(
                f"missing={self.imputed!r} fills one row of features per example, and inputs of {self.name} have the "
                f"shape {tuple(self.inputs.shape[1:])} each: leave `missing` out."
            )
        known = self.inputs if rows is None else self.inputs[rows]
        parts = [part for part in (self.inputs, self.test_inputs) if part is not None]
        lacking = torch.stack([part.isnan().any(0) for part in parts]).any(0).nonzero().flatten().tolist()
        made, features = [part.clone() for part in parts], list(self.features)
        for column in lacking:
            values = known[:, column][~known[:, column].isnan()].numpy()
            if not len(values):
                name = self.features[column] if self.features else column
                raise DataError(
                    f"{self.name} has no value in the column {name!r} among the rows for training: leave it out of "
                    "the features."
                )
            distinct, counts = np.unique(values, return_counts=True)
            value = float(distinct[counts.argmax()] if self.imputed == "mode" else np.median(values))
            for part, inputs in zip(parts, made, strict=True):
                inputs[part[:, column].isnan(), column] = value
        if self.imputed == "flag":
            made = [
                torch.cat([inputs, part[:, lacking].isnan().to(part.dtype)], 1)
                for part, inputs in zip(parts, made, strict=True)
            ]
            features += [f"{self.features[column]} is missing" for column in lacking]
        inputs, *test = made
        return replace(
            self, inputs=inputs, test_inputs=test[0] if test else None, features=tuple(features), imputed=None
        )

    def owned_by(self, owners: Owners | None) -> Self:
        """The same examples with the clients that they came from."""
        if owners is None:
            return self
        return replace(self, natural=torch.from_numpy(owners.numbers), client_names=owners.names)

    def hold_out(self, is_test: Tensor) -> Self:
        """The same examples with those marked (examples,) as the test set."""
        if bool(is_test.all()):
            raise DataError(f"{self.name} has no row for training.")
        if not bool(is_test.any()):
            return self
        own = None if self.natural is None else self.natural[is_test]
        return self.selected(~is_test, self.inputs[is_test], self.targets[is_test], own)

    def selected(
        self, rows: Tensor, test_inputs: Tensor | None, test_targets: Tensor | None, test_ids: Tensor | None
    ) -> Self:
        """The examples in `rows`, numbers or a mask, and the given test set with its clients, if they are known."""
        pool = replace(
            self,
            inputs=self.inputs[rows],
            targets=self.targets[rows],
            natural=None,
            test_inputs=test_inputs,
            test_targets=test_targets,
            test_natural=None,
            client_names=None,
        )
        if self.natural is None:
            return pool
        # Nobody's number, where the clients of the test set are not known.
        test_ids = torch.tensor([-1]) if test_ids is None else test_ids
        return pool.owned_by_both(self.natural[rows], test_ids, self.client_names)

    def owned_by_both(self, ids: Tensor, test_ids: Tensor, names: ClientNames | None) -> Self:
        """The same examples with the clients of training and test set, by their places in `names`.

        Those that train get the numbers 0, 1, 2, ...; test clients are known only where all of them train.
        """
        known, numbers = torch.unique(ids, return_inverse=True)
        shared = bool(torch.isin(test_ids, known).all())
        return replace(
            self,
            natural=numbers,
            test_natural=torch.searchsorted(known, test_ids) if shared else None,
            client_names=None if names is None else names[known.numpy()],
        )

    def deal(
        self, partition: Partitioner | None = None, num_clients: int | None = None, *, key: Key | None = None
    ) -> ClientData:
        """Examples of clients: split among `num_clients` by a partitioner, or kept by the clients of the data.

        Clients of the data keep their names; clients made by a partitioner have none.
        """
        natural = None if self.natural is None else self.natural.numpy()
        if num_clients is None:
            if natural is None:
                raise FieldError(f"num_clients is missing: {self.name} names no clients.")
            num_clients = int(natural.max()) + 1
        if not is_integer(num_clients, 1):
            raise FieldError(f"num_clients must be a whole number of at least 1, got {num_clients!r}.")
        partition = partition or NaturalIdPartitioner()
        labels = self._labels(partition)
        owner = torch.from_numpy(partition.deal(labels, num_clients, key or Key.from_seed(0), natural))
        data = ClientData.from_owners(self.inputs, self.targets, owner, num_clients)
        names = self.client_names if isinstance(partition, NaturalIdPartitioner) else None
        return replace(
            data,
            names=names,
            num_dropped=self.num_dropped,
            features=self.features,
            class_names=self.class_names,
        )

    def _labels(self, partition: Partitioner) -> Rows:
        """The class of each example, or 0 if targets are not single classes."""
        targets = self.targets
        if not targets.is_floating_point() and targets.ndim == 1:
            return targets.to(torch.int64).numpy()
        if partition.needs_classes:
            raise ClashError(
                f"{type(partition).__name__} splits examples by class, but the targets of {self.name} are not single "
                "classes: choose a partitioner by size or by natural id."
            )
        return np.zeros(len(targets), dtype=np.int64)

    def test_data(self, *, by_client: bool = False) -> ClientData | None:
        """The test set of the data, whole or divided among the natural clients."""
        if self.test_inputs is None or self.test_targets is None:
            return None
        if by_client and self.natural is not None and self.test_natural is not None:
            num_clients = int(self.natural.max()) + 1
            data = ClientData.from_owners(self.test_inputs, self.test_targets, self.test_natural, num_clients)
            return replace(data, names=self.client_names)
        return ClientData.from_lists([self.test_inputs], [self.test_targets])


def names_of(columns: Names | None) -> tuple[str, ...]:
    """None, one or several names as a tuple of them."""
    return () if columns is None else (columns,) if isinstance(columns, str) else columns


def _require_examples(
    inputs: Tensor, targets: Tensor, natural: Tensor | None, name: str, *, gaps: bool
) -> None:
    if len(inputs) == 0:
        raise DataError(f"{name} has no example.")
    if not inputs.numel() or not targets.numel():
        raise DataError(f"{name} must have at least one number in each input and in each target.")
    if len(inputs) != len(targets):
        raise DataError(
            f"{name} must have one target per input, got {len(inputs)} inputs and {len(targets)} targets."
        )
    if natural is not None and len(natural) != len(inputs):
        raise DataError(
            f"{name} must name one client per example, got {len(natural)} for {len(inputs)} examples."
        )
    for kind, values in (("inputs", inputs), ("targets", targets)):
        row = None if gaps and kind == "inputs" else first_non_finite(values)
        if row is not None:
            raise DataError(f"{name} must have finite {kind}, got NaN or infinity in row {row}.")


def _owners(clients: Ids | None) -> Owners | None:
    if clients is None:
        return None
    ids = clients.numpy() if isinstance(clients, Tensor) else np.asarray(clients)
    return owners_of([require_ids(ids, "The clients")])


def _inputs(dataset: Dataset[Any], count: int, targets: list[Any], name: str) -> Iterator[Any]:
    """Inputs one by one; their targets are collected, so that each example is read once."""
    for place in range(count):
        example = dataset[place]
        if not isinstance(example, tuple | list) or len(example) != 2:
            raise DataError(
                f"{name}, example {place} must be a pair (input, target), got {type(example).__name__}."
            )
        targets.append(example[1])
        yield example[0]
