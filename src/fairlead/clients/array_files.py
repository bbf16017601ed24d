"""Client data from files of arrays: NumPy's .npz and the JSON of the LEAF benchmark."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.clients.columns import Owners, owners_of, require_ids, require_known, whole_classes
from fairlead.clients.data import InputShape, as_tensor, shaped
from fairlead.clients.files import existing_file, existing_folder, opened, read_as, read_text, refuse_bomb
from fairlead.clients.pool import Pool
from fairlead.clients.source import PooledSource, table_task
from fairlead.clients.tokenizers import code_points, next_characters
from fairlead.component import Positive
from fairlead.errors import ClashError, DataError, field_error, is_integer, short
from fairlead.models.base import LogisticRegression
from fairlead.models.convolutional import FedAvgCNN
from fairlead.models.sequences import CharLSTM
from fairlead.task import Task


@dataclass(frozen=True, eq=False)
class _Arrays:
    """Arrays of a file by name."""

    file: str
    named: dict[str, NDArray[Any]]

    def label(self, name: str) -> str:
        return f"{self.file}, array {name!r}"

    def ids(self, name: str) -> NDArray[Any]:
        """Clients, one per example."""
        return require_ids(self.named[name], self.label(name))

    def tensor(self, name: str) -> Tensor:
        return as_tensor(self.named[name], self.label(name))


@dataclass(frozen=True)
class NpzArrays(PooledSource):
    """Arrays in a .npz file, one row per example; .npz.gz and .npz.xz are unpacked.

    `inputs`, `targets` and `client` name arrays of the file, as do `test_inputs`, `test_targets` and
    `test_client` where it holds a test set too. Inputs of type uint8 are pixels; other whole numbers are
    token ids, unless `scale` makes real numbers of them (inputs·scale). `shape` is that of one input, where
    it is not the array's own: (1, 28, 28) for gray images without a channel axis. Targets are classes, of which
    codes such as 1001 and 45000 are numbered in sorted order, or quantities with `regression`. `missing` fills the
    gaps of tables. Files that hold pickled objects are refused.
    """

    path: str
    inputs: str = "x"
    targets: str = "y"
    client: str | None = None
    _: KW_ONLY
    test_inputs: str | None = None
    test_targets: str | None = None
    test_client: str | None = None
    shape: InputShape | None = None
    scale: Positive | None = None
    regression: bool = False
    missing: Literal["refuse", "median", "mode"] = "refuse"
    """For inputs that are NaN: an error, or the median or mode of the training rows, as in `CsvTable`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.test_inputs is None) != (self.test_targets is None):
            raise field_error(
                self, "test_targets", "given together with test_inputs or not at all", self.test_targets
            )
        if self.test_client is not None and (self.client is None or self.test_inputs is None):
            raise field_error(
                self, "test_client", "given together with client and test_inputs", self.test_client
            )

    def pool(self) -> Pool:
        arrays = _read_npz(existing_file(self.path), self._used)
        pool = Pool(
            self._inputs(arrays, self.inputs),
            self._targets(arrays, self.targets),
            test_inputs=None if self.test_inputs is None else self._inputs(arrays, self.test_inputs),
            test_targets=None if self.test_targets is None else self._targets(arrays, self.test_targets),
            name=arrays.file,
            imputed=None if self.missing == "refuse" else self.missing,
        )
        if pool.targets.ndim == 1 and not self.regression:
            pool = _numbered(pool)
        if self.client is None:
            return pool
        ids = arrays.ids(self.client)
        if self.test_client is None:
            return pool.owned_by(owners_of([ids]))
        owners = owners_of([np.concatenate([ids, arrays.ids(self.test_client)])])
        numbers = torch.from_numpy(owners.numbers)
        return pool.owned_by_both(numbers[: len(ids)], numbers[len(ids) :], owners.names)

    @property
    def _used(self) -> dict[str, str]:
        """Arrays of the file that are used, by field."""
        fields = ("inputs", "targets", "client", "test_inputs", "test_targets", "test_client")
        return {field: name for field in fields if (name := getattr(self, field)) is not None}

    def default_task(self) -> Task:
        return table_task(None, regression=self.regression)

    def _inputs(self, arrays: _Arrays, name: str) -> Tensor:
        values = arrays.tensor(name)
        if self.scale is not None:
            values = values.to(torch.float32) * self.scale
        return shaped(self, self.shape, values, arrays.label(name))

    def _targets(self, arrays: _Arrays, name: str) -> Tensor:
        values = arrays.tensor(name)
        if self.regression:
            return values.to(torch.float32)
        if values.is_floating_point() and not bool((values == values.round()).all()):
            raise DataError(
                f"{arrays.label(name)} holds fractions, which are not classes; targets that are "
                "quantities need regression=True."
            )
        whole = values.to(torch.int64)
        # Numbers beyond 64 bits become others.
        wrong = (whole.to(values.dtype) != values) | ((whole < 0) & (values.ndim == 1))
        if bool(wrong.any()):
            row = int(wrong.reshape(len(wrong), -1).any(1).nonzero()[0])
            raise DataError(
                f"{arrays.label(name)}, row {row}: {short(values[row].tolist())} is not a class, which is a whole "
                "number of at least 0."
            )
        return whole


def _numbered(pool: Pool) -> Pool:
    """The same examples with classes that are codes numbered, those of training and test set together."""
    targets = [part for part in (pool.targets, pool.test_targets) if part is not None]
    classes = whole_classes(torch.cat(targets))
    train, *test = torch.split(classes.numbers, [len(part) for part in targets])
    return replace(pool, targets=train, test_targets=test[0] if test else None, class_names=classes.names)


def _read_npz(file: Path, used: Mapping[str, str]) -> _Arrays:
    """The arrays of a file that fields name, the only ones that are unpacked."""
    names = list(used.values())
    with (
        read_as(" as a .npz file", file, "it was not written by numpy.savez"),
        opened(file) as source,
        np.load(source, allow_pickle=False) as archive,
    ):
        for field, name in used.items():
            require_known(str(file), "array", name, archive.files, field)
        unpacked = sum(_unpacked_bytes(archive.zip, name) for name in set(names))
        refuse_bomb(file, unpacked, file.stat().st_size)
        return _Arrays(str(file), {name: _array(archive, name, file) for name in names})


def _array(archive: Any, name: str, file: Path) -> NDArray[Any]:
    try:
        array = np.asarray(archive[name])
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{file} cannot be read as a .npz file: it holds pickled objects, which could run code."
        ) from error
    if not array.dtype.itemsize:
        # A few bytes would say how many, and each takes time to look at.
        raise DataError(f"{file}, array {name!r} has values of no length.")
    return array


def _unpacked_bytes(archive: zipfile.ZipFile, name: str) -> int:
    """The unpacked size of an array according to the archive, which limits reading."""
    entries = archive.NameToInfo
    return (entries.get(f"{name}.npy") or entries[name]).file_size


class _User(NamedTuple):
    """One user's examples."""

    name: str
    inputs: NDArray[Any]
    """(samples, length) float32, or the code points of characters."""
    targets: NDArray[np.int64]
    """(samples,) classes, or code points."""
    place: str
    """Name of the user in errors."""


@dataclass(frozen=True)
class LeafFolder(PooledSource):
    """Users of a LEAF data set as clients, from the .json files of its `train` and `test` folders.

    Inputs are lists of numbers with class targets, as in FEMNIST, whose 784 pixels in [0, 1] `shape` =
    (1, 28, 28) makes images. With `text` they are texts of one length with the character that follows each,
    as in Shakespeare: a text becomes the ids of its characters, 0, 1, 2, ... in the sorted order of all that
    occur, and its target the next character at each of its places, (length,) both. Users keep their part of
    the test set where every tested user also trains. Without those two folders, all .json files of `path`
    are for training.
    """

    path: str
    shape: InputShape | None = None
    text: bool = False

    references = ("caldas2018leaf",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text and self.shape is not None:
            raise ClashError("Give LeafFolder.shape (numeric inputs) or text=True, not both.")

    def pool(self) -> Pool:
        root = existing_folder(self.path)
        has_folders = (root / "train").is_dir()
        train = self._read(root / "train" if has_folders else root)
        test = self._read(root / "test") if has_folders and (root / "test").is_dir() else []
        inputs, targets = self._examples([*train, *test])
        users = owners_of([np.array([user.name for user in (*train, *test)], dtype=object)])
        counts = [len(user.targets) for user in (*train, *test)]
        owners = Owners(np.repeat(users.numbers, counts), users.names)
        pool = Pool(inputs, targets, name=str(root)).owned_by(owners)
        return pool.hold_out(torch.arange(len(pool)) >= sum(counts[: len(train)]))

    def default_task(self) -> Task:
        if self.text:
            return Task(CharLSTM(pooling="none"))
        is_image = self.shape is not None and len(self.shape) == 3
        return Task(FedAvgCNN() if is_image else LogisticRegression())

    def _read(self, folder: Path) -> list[_User]:
        """Users of all files of a folder, sorted by file."""
        users: dict[str, _User] = {}
        for file in sorted(folder.glob("*.json")):
            for user in _read_users(file, text=self.text):
                if user.name in users:
                    raise DataError(f"{user.place} appears a second time, after {users[user.name].place}.")
                users[user.name] = user
        if not users:
            raise DataError(f"{folder} holds no user: it needs LEAF's .json files.")
        return list(users.values())

    def _examples(self, users: Sequence[_User]) -> tuple[Tensor, Tensor]:
        sizes = {user.inputs.shape[1:]: user.place for user in users}
        if len(sizes) > 1:
            (first, one), (second, other) = list(sizes.items())[:2]
            raise DataError(f"{other} has inputs of length {second[0]}, but {one} has length {first[0]}.")
        inputs = np.concatenate([user.inputs for user in users])
        targets = np.concatenate([user.targets for user in users])
        if self.text:
            return next_characters(np.concatenate([inputs, targets[:, None]], axis=1))
        return shaped(self, self.shape, torch.from_numpy(inputs), self.path), torch.from_numpy(targets)


def _read_users(file: Path, *, text: bool) -> list[_User]:
    with read_as(" as JSON", file):
        content = json.loads(read_text(file))
    kinds = {"users": list, "num_samples": list, "user_data": dict}
    if not isinstance(content, dict) or not all(isinstance(content.get(k), kinds[k]) for k in kinds):
        raise DataError(
            f"{file} is not a LEAF file: it must hold 'users' and 'num_samples', two lists, and a table "
            "'user_data'."
        )
    counts, data = content["num_samples"], content["user_data"]
    names = [str(user) for user in content["users"]]
    if len(names) != len(counts) or set(names) != set(data):
        raise DataError(f"{file} must name the same users in 'users', 'num_samples' and 'user_data'.")
    if len(set(names)) != len(names):
        raise DataError(f"{file} names a user twice in 'users'.")
    return [
        _read_user(name, count, data[name], f"{file}, user {name!r}", text=text)
        for name, count in zip(names, counts, strict=True)
    ]


def _read_user(name: str, count: int, data: Any, place: str, *, text: bool) -> _User:
    if not isinstance(data, dict) or not all(isinstance(data.get(key), list) for key in "xy"):
        raise DataError(f"{place} must have lists 'x' and 'y'.")
    inputs, targets = data["x"], data["y"]
    if not len(inputs) == len(targets) == count:
        raise DataError(
            f"{place} must have as many inputs and targets as 'num_samples' says, {short(count)}, got {len(inputs)} "
            f"and {len(targets)}."
        )
    if count == 0:
        raise DataError(f"{place} has no sample.")
    for sample, value in enumerate(inputs):
        if not isinstance(value, str if text else list) or len(value) != len(inputs[0]):
            wanted = "a text" if text else "a list of numbers"
            length = f" of the length of sample 0, {len(inputs[0])}" if sample else ""
            got = f"one of {len(value)}" if isinstance(value, str | list) else type(value).__name__
            hint = "; texts need text=True" if isinstance(value, str) and not text else ""
            raise DataError(f"{place}, sample {sample} must be {wanted}{length}, got {got}{hint}.")
    for sample, value in enumerate(targets):
        fits = isinstance(value, str) and len(value) == 1 if text else is_integer(value, 0) and value < 2**31
        if not fits:
            wanted = "one character" if text else "a class, a whole number of at least 0"
            raise DataError(f"{place}, the target of sample {sample} must be {wanted}, got {short(value)}.")
    if text:
        return _User(
            name, np.array([code_points(value) for value in inputs]), code_points("".join(targets)), place
        )
    with read_as(" as numbers", place), np.errstate(over="ignore"):
        numbers = np.array(inputs, dtype=np.float32)
    wrong = np.flatnonzero(~np.isfinite(numbers).all(axis=1)) if numbers.ndim == 2 else [0]
    if len(wrong):
        raise DataError(f"{place}, sample {wrong[0]} must be finite numbers.")
    return _User(name, numbers, np.array(targets, dtype=np.int64), place)
