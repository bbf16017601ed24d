"""Data sets in a user's folder, and the public loaders that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fairlead.clients.arrays import NpzArrays
from fairlead.clients.images import CifarFolder, FashionMnistFolder, MnistFolder
from fairlead.clients.leaf import LeafFolder
from fairlead.clients.pooled import PooledSource
from fairlead.clients.tables import CsvTable
from fairlead.clients.tokenizers import HashedWords
from fairlead.reproductions.reproduction import NotRunError


@dataclass(frozen=True)
class Place:
    """Where a data set may lie below the user's folder, and how it is then read."""

    path: str
    read: Callable[[str], PooledSource]


@dataclass(frozen=True)
class DataSet:
    """A data set by name, in any of several forms."""

    title: str
    places: tuple[Place, ...]
    """In the order in which they are looked for."""

    def find(self, folder: Path) -> PooledSource | None:
        """The data set in a folder; None if it is not there."""
        for place in self.places:
            if (folder / place.path).exists():
                return place.read(str(folder / place.path))
        return None


def _arrays(path: str, *, client: str | None = None, shape: tuple[int, ...] | None = None) -> NpzArrays:
    return NpzArrays(
        path,
        "x_train",
        "y_train",
        None if client is None else f"{client}_train",
        test_inputs="x_test",
        test_targets="y_test",
        test_client=None if client is None else f"{client}_test",
        shape=shape,
    )


def _writers(path: str) -> NpzArrays:
    return _arrays(path, client="writer", shape=(1, 28, 28))


def _news(path: str) -> CsvTable:
    return CsvTable(path, "label", features="text", tokens=HashedWords(length=64), split="split")


DATA_SETS: dict[str, DataSet] = {
    "cifar10": DataSet("CIFAR-10", (Place("cifar-10-batches-py", CifarFolder),)),
    "cifar100": DataSet("CIFAR-100", (Place("cifar-100-python", CifarFolder),)),
    "cinic10": DataSet("CINIC-10", (Place("cinic10.npz", _arrays),)),
    "mnist": DataSet("MNIST", (Place("MNIST/raw", MnistFolder), Place("mnist/mnist.npz.xz", _writers))),
    "fashion_mnist": DataSet("Fashion-MNIST", (Place("FashionMNIST/raw", FashionMnistFolder),)),
    "mnist_writers": DataSet("MNIST with writers", (Place("mnist/mnist.npz.xz", _writers),)),
    "femnist": DataSet(
        "FEMNIST",
        (
            Place("femnist/train", lambda path: LeafFolder(str(Path(path).parent), shape=(1, 28, 28))),
            Place("femnist/femnist105.npz.xz", _writers),
        ),
    ),
    "ag_news": DataSet(
        "AG News", (Place("ag_news/ag_news.csv", _news), Place("ag_news/ag_news.csv.xz", _news))
    ),
}
"""What reproductions may need, by name."""


def require_data(names: Iterable[str], folder: Path | None) -> None:
    """Raise `NotRunError` if a data set is not there."""
    for name in names:
        source_of(name, folder)


def source_of(name: str, folder: Path | None) -> PooledSource:
    """A data set in the user's folder; raises `NotRunError` if it is not there."""
    wanted = DATA_SETS[name]
    if folder is None:
        raise NotRunError(f"{wanted.title} is needed: say with --data which folder holds it.")
    source = wanted.find(folder)
    if source is None:
        looked_for = " or ".join(place.path for place in wanted.places)
        raise NotRunError(f"{wanted.title} is not in {folder}: there is no {looked_for}.")
    return source
