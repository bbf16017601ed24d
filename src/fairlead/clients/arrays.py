"""Client data from NumPy's .npz files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.clients.columns import owners_of, require_ids, whole_classes
from fairlead.clients.data import as_tensor, require_shape, shaped
from fairlead.clients.files import existing_file, is_packed, read_file, refuse_bomb
from fairlead.clients.pool import Pool
from fairlead.clients.pooled import PooledSource, table_task
from fairlead.errors import DataError, did_you_mean, field_error, require_number, short
from fairlead.task import Task


@dataclass(frozen=True)
class NpzArrays(PooledSource):
    """Arrays in a .npz file, one row per example; .npz.gz and .npz.xz are unpacked.

    `inputs`, `targets` and `client` name arrays of the file, as do `test_inputs`, `test_targets` and
    `test_client` where it holds a test set too. Inputs of type uint8 are pixels; other whole numbers are
    token ids, unless `scale` makes real numbers of them (inputs·scale). `shape` is that of one input, where
    it is not the array's own: (1, 28, 28) for gray images without a channel axis. Targets are classes, of which
    codes such as 1001 and 45000 are numbered in sorted order, or quantities with `regression`. Files that hold
    pickled objects are refused.
    """

    path: str
    inputs: str = "x"
    targets: str = "y"
    client: str | None = None
    _: KW_ONLY
    test_inputs: str | None = None
    test_targets: str | None = None
    test_client: str | None = None
    shape: tuple[int, ...] | None = None
    scale: float | None = None
    regression: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_shape(self, self.shape)
        require_number(self, "scale", above=0, optional=True)
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
        values = values.to(torch.int64)
        if bool((values < 0).any()) and values.ndim == 1:
            row = int((values < 0).nonzero()[0])
            raise DataError(
                f"{arrays.label(name)}, row {row}: {int(values[row])} is not a class, which is a whole "
                "number of at least 0."
            )
        return values


def _numbered(pool: Pool) -> Pool:
    """The same examples with classes that are codes numbered, those of training and test set together."""
    targets = [part for part in (pool.targets, pool.test_targets) if part is not None]
    classes = whole_classes(torch.cat(targets))
    train, *test = torch.split(classes.numbers, [len(part) for part in targets])
    return replace(pool, targets=train, test_targets=test[0] if test else None, class_names=classes.names)


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


def _read_npz(file: Path, used: Mapping[str, str]) -> _Arrays:
    """The arrays of a file that fields name, the only ones that are unpacked."""
    names = list(used.values())
    try:
        with (
            io.BytesIO(read_file(file)) if is_packed(file) else file.open("rb") as source,
            np.load(source, allow_pickle=False) as archive,
        ):
            for field, name in used.items():
                if name not in archive.files:
                    raise DataError(
                        f"{file} has no array {short(name)}, which {field} names."
                        + did_you_mean(name, archive.files)
                    )
            refuse_bomb(file, sum(_unpacked_bytes(archive.zip, name) for name in set(names)))
            return _Arrays(str(file), {name: np.asarray(archive[name]) for name in names})
    except (
        ValueError,
        OSError,
        EOFError,
        MemoryError,
        zipfile.BadZipFile,
        TypeError,
        AttributeError,
    ) as error:
        if isinstance(error, DataError):
            raise
        reason = (
            "it holds pickled objects, which could run code"
            if "allow_pickle" in str(error)
            else "it was not written by numpy.savez"
        )
        raise DataError(f"{file} cannot be read as a .npz file: {reason}.") from error


def _unpacked_bytes(archive: zipfile.ZipFile, name: str) -> int:
    """The unpacked size of an array according to the archive, which limits reading."""
    entries = archive.NameToInfo
    return (entries.get(f"{name}.npy") or entries[name]).file_size
