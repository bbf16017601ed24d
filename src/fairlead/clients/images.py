"""Images of public data sets: the embedded digits, and the folders in which torchvision leaves the others."""

import io
import math
import pickle
from abc import ABC
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.clients.files import absent, existing_folder, read_as, read_file
from fairlead.clients.partitioners import IidPartitioner, Partitioner
from fairlead.clients.pool import Pool
from fairlead.clients.source import PooledSource
from fairlead.component import PositiveCount
from fairlead.errors import DataError, short
from fairlead.models.base import MLP
from fairlead.models.convolutional import FedAvgCNN, FiveLayerCNN
from fairlead.task import Task


@dataclass(frozen=True)
class Digits(PooledSource):
    """Handwritten digits in 10 classes (Alpaydin and Kaynak 1998, CC BY 4.0), embedded in the package.

    1,797 images of 8 x 8 pixels with 17 gray levels, scaled to [0, 1].
    """

    num_clients: PositiveCount | None = 20
    partition: Partitioner | None = IidPartitioner()

    references = ("alpaydin1998digits",)

    def pool(self) -> Pool:
        with (
            files("fairlead.clients").joinpath("digits.npz").open("rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            inputs = torch.from_numpy(arrays["images"]).to(torch.float32) / 16
            targets = torch.from_numpy(arrays["labels"]).to(torch.int64)
        return Pool(inputs, targets)

    def default_task(self) -> Task:
        return Task(MLP(hidden=(32,)))


class _IdxFolder(PooledSource, ABC):
    """Family of data sets in four idx files of gray images of 28 x 28 pixels, gzipped or not."""

    path: str
    folder: ClassVar[str]
    """Name of torchvision's folder for the data set."""

    def pool(self) -> Pool:
        root = existing_folder(self.path)
        parts: list[Tensor] = []
        for stem in ("train", "t10k"):
            images, labels = self._read(root, f"{stem}-images", 3), self._read(root, f"{stem}-labels", 1)
            _require_labels(labels, 10, f"{root}, {stem}-labels")
            if len(images) != len(labels):
                raise DataError(f"{root} has {len(images)} {stem} images but {len(labels)} {stem} labels.")
            parts += [torch.from_numpy(images[:, None]), torch.from_numpy(labels.astype(np.int64))]
        return Pool(parts[0], parts[1], test_inputs=parts[2], test_targets=parts[3], name=str(root))

    def _read(self, root: Path, stem: str, ndim: int) -> NDArray[np.uint8]:
        """The array of a file in one of the folders where torchvision may have left it."""
        kind = f"idx{ndim}-ubyte"
        names = [f"{stem}{mark}{kind}{packed}" for packed in ("", ".gz") for mark in ("-", ".")]
        for folder in (root, root / "raw", root / self.folder / "raw"):
            for file in (folder / name for name in names):
                if file.is_file():
                    return _read_idx(file, ndim)
        raise DataError(
            f"{root} holds no file {names[0]}, gzipped or not, nor do raw and {self.folder}/raw in it."
        )

    def default_task(self) -> Task:
        return Task(FedAvgCNN())


@dataclass(frozen=True)
class MnistFolder(_IdxFolder):
    """MNIST's four idx files, gzipped or not: 60,000 and 10,000 gray digits of 28 x 28 pixels.

    `path` is the folder that holds them, or one above it: torchvision's root, `MNIST` or `MNIST/raw`.
    """

    path: str

    references = ("lecun1998mnist",)
    folder = "MNIST"


@dataclass(frozen=True)
class FashionMnistFolder(_IdxFolder):
    """Fashion-MNIST's four idx files, gzipped or not: 60,000 and 10,000 gray garments of 28 x 28 pixels.

    `path` is the folder that holds them, or one above it: torchvision's root, `FashionMNIST` or its `raw`.
    """

    path: str

    references = ("xiao2017fashion",)
    folder = "FashionMNIST"


@dataclass(frozen=True)
class CifarFolder(PooledSource):
    """CIFAR-10 or CIFAR-100 as "python version" batches: color images of 32 x 32 pixels.

    `path` is `cifar-10-batches-py` or `cifar-100-python`, or the folder above if it holds one of them;
    `labels` chooses between the 100 "fine" and the 20 "coarse" classes of CIFAR-100. Batches are pickles:
    they are read without running any code, and refused if they ask for some.
    """

    path: str
    labels: Literal["fine", "coarse"] = "fine"

    references = ("krizhevsky2009cifar",)

    def pool(self) -> Pool:
        root = existing_folder(self.path)
        for folder in (root, root / "cifar-10-batches-py", root / "cifar-100-python"):
            if (folder / "data_batch_1").is_file():
                train = [folder / f"data_batch_{number}" for number in range(1, 6)]
                return _cifar_pool(root, train, [folder / "test_batch"], b"labels", 10)
            if (folder / "train").is_file():
                field, classes = (b"fine_labels", 100) if self.labels == "fine" else (b"coarse_labels", 20)
                return _cifar_pool(root, [folder / "train"], [folder / "test"], field, classes)
        raise DataError(
            f"{root} holds neither data_batch_1 (CIFAR-10) nor train (CIFAR-100), nor does "
            "cifar-10-batches-py or cifar-100-python in it."
        )

    def default_task(self) -> Task:
        return Task(FiveLayerCNN())


def _read_idx(file: Path, ndim: int) -> NDArray[np.uint8]:
    """An array of bytes in the idx format: 0, 0, 8, the number of axes, their lengths, the bytes."""
    content = read_file(file)
    if content[:4] != bytes((0, 0, 8, ndim)) or len(content) < 4 + 4 * ndim:
        raise DataError(
            f"{file} is not an idx file of bytes with {ndim} axes: it starts with {content[:4].hex(' ')}."
        )
    shape = tuple(np.frombuffer(content, ">u4", ndim, 4).tolist())
    size = math.prod(shape)
    if len(content) != 4 + 4 * ndim + size:
        raise DataError(
            f"{file} must hold {size} bytes after its header, as its shape {shape} says, got "
            f"{len(content) - 4 - 4 * ndim}: it may be truncated."
        )
    return np.frombuffer(content, np.uint8, offset=4 + 4 * ndim).reshape(shape).copy()


def _cifar_pool(root: Path, train: list[Path], test: list[Path], field: bytes, classes: int) -> Pool:
    parts: list[Tensor] = []
    for half in (train, test):
        batches = [_read_cifar(file, field, classes) for file in half]
        parts += [torch.cat([images for images, _ in batches]), torch.cat([labels for _, labels in batches])]
    return Pool(parts[0], parts[1], test_inputs=parts[2], test_targets=parts[3], name=str(root))


def _read_cifar(file: Path, field: bytes, classes: int) -> tuple[Tensor, Tensor]:
    """Images (n, 3, 32, 32) and labels (n,) of one batch."""
    if not file.is_file():
        raise absent(file)
    batch = _unpickled(file)
    named = {_as_bytes(key): value for key, value in batch.items()} if isinstance(batch, dict) else {}
    stated, labels = named.get(b"data"), named.get(field)
    images = stated.bytes_in_rows(3072) if isinstance(stated, _StatedArray) else None
    if images is None or not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
        raise DataError(
            f"{file} is not a CIFAR batch: it must hold bytes 'data' of 3072 columns and a list "
            f"{field.decode()!r} of whole numbers."
        )
    if len(images) != len(labels):
        raise DataError(f"{file} has {len(images)} images but {len(labels)} labels.")
    _require_labels(np.array(labels, dtype=object), classes, str(file))
    return torch.from_numpy(images.copy().reshape(-1, 3, 32, 32)), torch.tensor(labels, dtype=torch.int64)


def _require_labels(labels: NDArray[Any], classes: int, name: str) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        label = short(labels.tolist()[wrong[0]])
        raise DataError(f"{name}, row {wrong[0]}: {label} is not a class from 0 to {classes - 1}.")


def _as_bytes(key: Any) -> Any:
    return key.encode(errors="surrogatepass") if isinstance(key, str) else key


class _Stated:
    """The recorded state of a pickled object; nothing is executed."""

    arguments: tuple[object, ...]
    state: Any = None

    def __new__(cls, *arguments: object) -> Self:
        # Some pickles make objects without a call of __init__.
        made = super().__new__(cls)
        made.arguments = arguments
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _StatedType(_Stated):
    """The type of an array, by the name that it was given."""


class _StatedArray(_Stated):
    """An array, whose shape, type and bytes are checked before NumPy makes it."""

    def bytes_in_rows(self, width: int) -> NDArray[np.uint8] | None:
        """An (n, width) array of bytes, or None if it is none."""
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            return None
        _, shape, dtype, by_columns, content = self.state
        if not isinstance(dtype, _StatedType) or dtype.arguments[:1] not in (("u1",), (b"u1",)):
            return None
        if not isinstance(content, bytes) or shape != (len(content) // width, width) or len(content) % width:
            return None
        return np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_columns else "C")


class _Latin1(bytes):
    """The call by which Python 3 pickles make the bytes of an array; other encodings are refused."""

    def __new__(cls, text: str, encoding: str) -> Self:
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"it encodes text as {encoding}")
        return super().__new__(cls, text.encode("latin1"))

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it gives bytes a state")


class _Table(dict[Any, Any]):
    """A table with texts for keys: the hash of tuples that share their parts could take forever."""

    def __setitem__(self, key: object, value: object) -> None:
        if not isinstance(key, str | bytes):
            raise pickle.UnpicklingError(f"it has a key of type {type(key).__name__}")
        super().__setitem__(key, value)


def _start_table(unpickler: Any) -> None:
    unpickler.append(_Table())


def _start_marked_table(unpickler: Any) -> None:
    if unpickler.pop_mark():
        raise pickle.UnpicklingError("it fills a table before it makes one")
    _start_table(unpickler)


_REFUSED_STEPS = pickle.EMPTY_SET + pickle.ADDITEMS + pickle.FROZENSET + pickle.BYTEARRAY8
"""Steps that data do not need: sets, which hash their members, and buffers of any length."""
_STEPS = pickle._Unpickler.dispatch


class _ArrayUnpickler(pickle._Unpickler):
    """Makes only lists, tuples, tables and records of arrays.

    In Python, not in C, where no step can be replaced and a number in the memo allocates memory up to it.
    """

    dispatch = {
        **{code: step for code, step in _STEPS.items() if code not in _REFUSED_STEPS},
        pickle.EMPTY_DICT[0]: _start_table,
        pickle.DICT[0]: _start_marked_table,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _Latin1
        if (module, name) == ("numpy", "dtype"):
            return _StatedType
        if (module, name) == ("numpy", "ndarray"):
            return _StatedArray
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _StatedArray
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not needed for data")


def _unpickled(file: Path) -> Any:
    content = read_file(file)
    with read_as(" as a pickle", file, "it may be truncated"):
        try:
            return _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        except pickle.UnpicklingError as error:
            raise DataError(f"{file} is refused: {error}.") from error
