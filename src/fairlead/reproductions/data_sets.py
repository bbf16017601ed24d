"""Data sets in the data folder, and their loaders."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fairlead.clients.array_files import LeafFolder, NpzArrays
from fairlead.clients.images import CifarFolder, FashionMnistFolder, MnistFolder
from fairlead.clients.source import PooledSource
from fairlead.clients.tables import CsvTable
from fairlead.clients.tokenizers import HashedWords
from fairlead.errors import FairleadError
from fairlead.models.augmentation import HorizontalFlip, Normalize, RandomCrop


class NotRunError(FairleadError):
    """A reproduction cannot be run; the message gives the reason in one sentence."""


class DataSet(NamedTuple):
    """A data set by name, in any of several forms."""

    title: str
    readers: Mapping[str, Callable[[str], PooledSource]]
    """By path below the data folder, in the order of the search."""


_arrays = partial(NpzArrays, inputs="x_train", targets="y_train", test_inputs="x_test", test_targets="y_test")
_writers = partial(_arrays, client="writer_train", test_client="writer_test", shape=(1, 28, 28))
_news = partial(CsvTable, target="label", features="text", tokens=HashedWords(length=64), split="split")


def _femnist(path: str) -> LeafFolder:
    return LeafFolder(str(Path(path).parent), shape=(1, 28, 28))


DATA_SETS: dict[str, DataSet] = {
    "cifar10": DataSet("CIFAR-10", {"cifar-10-batches-py": CifarFolder}),
    "cifar100": DataSet("CIFAR-100", {"cifar-100-python": CifarFolder}),
    "cinic10": DataSet("CINIC-10", {"cinic10.npz": _arrays}),
    "mnist": DataSet("MNIST", {"MNIST/raw": MnistFolder, "mnist/mnist.npz.xz": _writers}),
    "fashion_mnist": DataSet("Fashion-MNIST", {"FashionMNIST/raw": FashionMnistFolder}),
    "mnist_writers": DataSet("MNIST with writers", {"mnist/mnist.npz.xz": _writers}),
    "femnist": DataSet("FEMNIST", {"femnist/train": _femnist, "femnist/femnist105.npz.xz": _writers}),
    "ag_news": DataSet("AG News", {"ag_news/ag_news.csv": _news, "ag_news/ag_news.csv.xz": _news}),
}
"""Data sets of the reproductions, by name."""


CIFAR10_AUGMENTED = (
    RandomCrop(padding=4),
    HorizontalFlip(),
    Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
)
"""How released code of several papers augments CIFAR-10."""


def require_data(names: Iterable[str], folder: Path | None) -> None:
    """Raise `NotRunError` if a data set is missing."""
    for name in names:
        source_of(name, folder)


def source_of(name: str, folder: Path | None) -> PooledSource:
    """A data set in the data folder; raises `NotRunError` if it is missing."""
    title, readers = DATA_SETS[name]
    if folder is None:
        raise NotRunError(f"{title} is needed: give its folder with --data.")
    for path, read in readers.items():
        if (folder / path).exists():
            return read(str(folder / path))
    raise NotRunError(f"{title} was not found in {folder}: {' or '.join(readers)} does not exist.")
