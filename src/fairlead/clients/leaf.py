"""Client data in the JSON files of the LEAF benchmark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.clients.columns import Owners, owners_of
from fairlead.clients.data import require_shape, shaped
from fairlead.clients.files import existing_folder, read_text
from fairlead.clients.pool import Pool
from fairlead.clients.pooled import PooledSource
from fairlead.clients.tokenizers import character_ids, code_points
from fairlead.errors import ClashError, DataError, is_integer
from fairlead.models.convolutional import FedAvgCNN
from fairlead.models.dense import LogisticRegression
from fairlead.models.sequences import CharLSTM
from fairlead.task import Task


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
    shape: tuple[int, ...] | None = None
    text: bool = False

    references = ("caldas2018leaf",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_shape(self, self.shape)
        if self.text and self.shape is not None:
            raise ClashError(
                "LeafFolder.shape is for inputs of numbers, and text makes ids of texts: give one."
            )

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
            texts = np.concatenate([inputs, targets[:, None]], axis=1)
            ids = torch.from_numpy(character_ids(texts))
            return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        return shaped(self, self.shape, torch.from_numpy(inputs), self.path), torch.from_numpy(targets)


class _User(NamedTuple):
    """One user's examples."""

    name: str
    inputs: NDArray[Any]
    """(samples, length) float32, or the code points of characters."""
    targets: NDArray[np.int64]
    """(samples,) classes, or code points."""
    place: str
    """Name of the user in errors."""


def _read_users(file: Path, *, text: bool) -> list[_User]:
    try:
        content = json.loads(read_text(file))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{file} is not JSON: {error}.") from error
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
            f"{place} must have as many inputs and targets as 'num_samples' says, {count}, got {len(inputs)} "
            f"and {len(targets)}."
        )
    if count == 0:
        raise DataError(f"{place} has no sample.")
    for sample, value in enumerate(inputs):
        if not isinstance(value, str if text else list) or len(value) != len(inputs[0]):
            wanted = (
                f"{'a text' if text else 'a list of numbers'} of the length of sample 0, {len(inputs[0])}"
            )
            got = f"one of {len(value)}" if isinstance(value, str | list) else type(value).__name__
            hint = "; texts need text=True" if isinstance(value, str) and not text else ""
            raise DataError(f"{place}, sample {sample} must be {wanted}, got {got}{hint}.")
    for sample, value in enumerate(targets):
        fits = isinstance(value, str) and len(value) == 1 if text else is_integer(value, 0) and value < 2**31
        if not fits:
            wanted = "one character" if text else "a class, a whole number of at least 0"
            raise DataError(f"{place}, sample {sample} must have as target {wanted}, got {value!r}.")
    if text:
        return _User(
            name, np.array([code_points(value) for value in inputs]), code_points("".join(targets)), place
        )
    try:
        numbers = np.array(inputs, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{place} must have inputs that are numbers: {error}.") from error
    wrong = np.flatnonzero(~np.isfinite(numbers).all(axis=1)) if numbers.ndim == 2 else [0]
    if len(wrong):
        raise DataError(f"{place}, sample {wrong[0]} must be finite numbers.")
    return _User(name, numbers, np.array(targets, dtype=np.int64), place)
