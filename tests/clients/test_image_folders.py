"""MNIST's idx files and CIFAR's batches, written by the tests byte for byte as the originals are."""

from __future__ import annotations

import gzip
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.errors import DataError, FieldError

IDX_SOURCES = [(fl.MnistFolder, "MNIST"), (fl.FashionMnistFolder, "FashionMNIST")]
IdxFolder = type[fl.MnistFolder] | type[fl.FashionMnistFolder]


def idx_bytes(array: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """0, 0, 8 for bytes, the number of axes, each length as a big-endian 32-bit number, the bytes."""
    return (
        struct.pack(">BBBB", 0, 0, 8, array.ndim)
        + struct.pack(f">{array.ndim}i", *array.shape)
        + array.tobytes()
    )


def write_idx(folder: Path, *, packed: bool = False, mark: str = "-") -> dict[str, Any]:
    generator = np.random.default_rng(0)
    arrays = {
        f"train-images{mark}idx3-ubyte": generator.integers(0, 256, (6, 28, 28), dtype=np.uint8),
        f"train-labels{mark}idx1-ubyte": np.array([3, 1, 4, 1, 5, 9], dtype=np.uint8),
        f"t10k-images{mark}idx3-ubyte": generator.integers(0, 256, (2, 28, 28), dtype=np.uint8),
        f"t10k-labels{mark}idx1-ubyte": np.array([2, 6], dtype=np.uint8),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        content = idx_bytes(array)
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)
    return {name.replace(f"{mark}idx", "-idx"): array for name, array in arrays.items()}


class TestIdx:
    @pytest.mark.parametrize(("source", "name"), IDX_SOURCES)
    @pytest.mark.parametrize("packed", [False, True])
    @pytest.mark.parametrize("depth", [0, 1, 2])
    def test_pixels_and_labels(
        self, tmp_path: Path, source: IdxFolder, name: str, packed: bool, depth: int
    ) -> None:
        """Named by torchvision's root, by the folder of the data set, or by the folder of the files."""
        arrays = write_idx(tmp_path / name / "raw", packed=packed)
        pool = source(str([tmp_path, tmp_path / name, tmp_path / name / "raw"][depth])).pool()
        assert pool.inputs.dtype == torch.uint8
        assert pool.inputs.numpy().tolist() == arrays["train-images-idx3-ubyte"][:, None].tolist()
        assert pool.targets.tolist() == [3, 1, 4, 1, 5, 9]
        assert pool.test_inputs is not None
        assert pool.test_inputs.numpy().tolist() == arrays["t10k-images-idx3-ubyte"][:, None].tolist()
        assert pool.test_targets is not None
        assert pool.test_targets.tolist() == [2, 6]

    def test_the_other_spelling_of_the_names(self, tmp_path: Path) -> None:
        write_idx(tmp_path, mark=".")
        assert len(fl.MnistFolder(tmp_path).pool()) == 6  # type: ignore[arg-type]

    def test_clients(self, tmp_path: Path) -> None:
        write_idx(tmp_path)
        source = fl.MnistFolder(str(tmp_path), num_clients=3, partition=fl.IidPartitioner())
        data = source.load(fl.Key.from_seed(0))
        assert data.train.sizes.tolist() == [2, 2, 2]
        assert data.test is not None
        assert data.test.sizes.tolist() == [2]

    def test_a_missing_file(self, tmp_path: Path) -> None:
        write_idx(tmp_path)
        (tmp_path / "t10k-labels-idx1-ubyte").unlink()
        with pytest.raises(
            DataError, match="holds no file t10k-labels-idx1-ubyte, gzipped or not, nor do raw"
        ):
            fl.MnistFolder(str(tmp_path)).pool()
        with pytest.raises(DataError, match=r"absent does not exist\."):
            fl.MnistFolder(str(tmp_path / "absent")).pool()
        with pytest.raises(DataError, match=r"is a file, but a folder is needed\."):
            fl.MnistFolder(str(tmp_path / "train-labels-idx1-ubyte")).pool()

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("train-labels-idx1-ubyte", b"", "is not an idx file of bytes with 1 axes"),
            ("train-labels-idx1-ubyte", b"\0\0\x0d\x01\0\0\0\0", "it starts with 00 00 0d 01"),
            (
                "train-labels-idx1-ubyte",
                idx_bytes(np.zeros(6, np.uint8))[:-2],
                r"must hold 6 bytes after its header, as its shape \(6,\) says, got 4: it may be truncated",
            ),
            (
                "train-labels-idx1-ubyte",
                idx_bytes(np.zeros(5, np.uint8)),
                "has 6 train images but 5 train labels",
            ),
            (
                "t10k-labels-idx1-ubyte",
                idx_bytes(np.array([1, 10], np.uint8)),
                "t10k-labels, row 1: 10 is not a class from 0 to 9",
            ),
            (
                "t10k-images-idx3-ubyte",
                idx_bytes(np.zeros((2, 5, 5), np.uint8)),
                r"inputs of shape \(1, 28, 28\)",
            ),
        ],
    )
    def test_broken_files(self, tmp_path: Path, name: str, content: bytes, message: str) -> None:
        write_idx(tmp_path)
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            fl.MnistFolder(str(tmp_path)).pool()


def python2_pickle(data: np.ndarray[Any, np.dtype[np.uint8]], labels: list[int]) -> bytes:
    """The opcodes with which Python 2 wrote the original batches: all its strings are bytes."""
    number = b"".join(b"K" + bytes([label]) for label in labels)
    raw = data.tobytes()
    return b"".join(
        [
            b"\x80\x02}(U\x06labels](" + number + b"e",
            b"U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R",
            b"(K\x01K" + bytes([len(data)]) + b"M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R",
            b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<I", len(raw)),
            raw + b"tbu.",
        ]
    )


def python3_pickle(data: np.ndarray[Any, np.dtype[np.uint8]], labels: list[int]) -> bytes:
    return pickle.dumps({"data": data, "labels": labels}, protocol=2)


def batch(seed: int, count: int = 4) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def write_cifar10(folder: Path, dump: Callable[..., bytes] = python2_pickle) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 6):
        (folder / f"data_batch_{number}").write_bytes(dump(batch(number), [number] * 4))
    (folder / "test_batch").write_bytes(dump(batch(6), [0, 1, 2, 9]))


class TestCifar:
    @pytest.mark.parametrize("dump", [python2_pickle, python3_pickle])
    @pytest.mark.parametrize("inside", [False, True])
    def test_ten_classes(self, tmp_path: Path, dump: Callable[..., bytes], inside: bool) -> None:
        """A row holds 1024 red, then 1024 green, then 1024 blue pixels, line by line."""
        write_cifar10(tmp_path / "cifar-10-batches-py", dump)
        pool = fl.CifarFolder(str(tmp_path / "cifar-10-batches-py" if inside else tmp_path)).pool()
        assert pool.inputs.shape == (20, 3, 32, 32)
        assert pool.inputs.dtype == torch.uint8
        assert int(pool.inputs[4, 1, 2, 3]) == batch(2)[0, 1024 + 2 * 32 + 3]
        assert pool.targets.tolist() == [number for number in range(1, 6) for _ in range(4)]
        assert pool.test_targets is not None
        assert pool.test_targets.tolist() == [0, 1, 2, 9]

    def test_a_hundred_classes(self, tmp_path: Path) -> None:
        folder = tmp_path / "cifar-100-python"
        folder.mkdir()
        for name, seed in (("train", 1), ("test", 2)):
            content = {b"data": batch(seed), b"fine_labels": [99, 0, 50, 3], b"coarse_labels": [19, 0, 10, 3]}
            (folder / name).write_bytes(pickle.dumps(content, protocol=4))
        assert fl.CifarFolder(str(tmp_path)).pool().targets.tolist() == [99, 0, 50, 3]
        assert fl.CifarFolder(str(folder), labels="coarse").pool().targets.tolist() == [19, 0, 10, 3]

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_code_in_a_pickle_never_runs(self, tmp_path: Path, protocol: int) -> None:
        mark = tmp_path / "mark"
        write_cifar10(tmp_path)
        (tmp_path / "data_batch_3").write_bytes(pickle.dumps(Dangerous(mark), protocol))
        with pytest.raises(
            DataError, match=r"data_batch_3 is refused: it asks for .*, which is not needed for data"
        ):
            fl.CifarFolder(str(tmp_path)).pool()
        assert not mark.exists()

    @pytest.mark.parametrize(
        "opcodes",
        [
            b"cos\nsystem\n(S'true'\ntR.",
            b"cbuiltins\neval\n(S'1'\ntR.",
            b"cnumpy\nload\n(S'x'\ntR.",
            b"c_codecs\ndecode\n(S'x'\ntR.",
            b"ccopyreg\n_reconstructor\n(tR.",
            b"(S'true'\nios\nsystem\n.",
            b"\x82\x01.",
            b"Ppersistent\n.",
            b"c_codecs\nencode\n(V1\nVzlib\ntR.",
        ],
    )
    def test_everything_but_arrays_is_refused(self, tmp_path: Path, opcodes: bytes) -> None:
        write_cifar10(tmp_path)
        (tmp_path / "data_batch_1").write_bytes(opcodes)
        with pytest.raises(DataError, match=r"data_batch_1 (is refused|cannot be read as a pickle)"):
            fl.CifarFolder(str(tmp_path)).pool()

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "cannot be read as a pickle: it may be truncated"),
            (python3_pickle(batch(0), [0, 1, 2, 3])[:-40], "is refused|it may be truncated"),
            (pickle.dumps([1, 2]), "is not a CIFAR batch: it must hold bytes 'data' of 3072 columns"),
            (pickle.dumps({"data": batch(0)}), "and a list 'labels' of whole numbers"),
            (pickle.dumps({"data": batch(0)[:, :9], "labels": [0] * 4}), "is not a CIFAR batch"),
            (pickle.dumps({"data": batch(0).astype(float), "labels": [0] * 4}), "is not a CIFAR batch"),
            (python3_pickle(batch(0), [0, 1, 2]), "has 4 images but 3 labels"),
            (python3_pickle(batch(0), [0, 1, 2, 10]), "row 3: 10 is not a class from 0 to 9"),
            (python3_pickle(batch(0), [0, -1, 2, 3]), "row 1: -1 is not a class from 0 to 9"),
        ],
    )
    def test_broken_batches(self, tmp_path: Path, content: bytes, message: str) -> None:
        write_cifar10(tmp_path)
        (tmp_path / "data_batch_2").write_bytes(content)
        with pytest.raises(DataError, match=message):
            fl.CifarFolder(str(tmp_path)).pool()

    def test_missing_files(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="holds neither data_batch_1"):
            fl.CifarFolder(str(tmp_path)).pool()
        write_cifar10(tmp_path)
        (tmp_path / "data_batch_4").unlink()
        with pytest.raises(DataError, match=r"data_batch_4 does not exist\."):
            fl.CifarFolder(str(tmp_path)).pool()
        with pytest.raises(FieldError, match=r"CifarFolder.labels must be one of 'fine', 'coarse'"):
            fl.CifarFolder(str(tmp_path), labels="medium")  # type: ignore[arg-type]


class Dangerous:
    """Would leave a file behind if it were unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.mark), "w")


def test_the_mark_would_appear(tmp_path: Path) -> None:
    """The attack of the tests above is real: Python's own unpickler runs it."""
    pickle.loads(pickle.dumps(Dangerous(tmp_path / "mark"))).close()
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_bytes_train_as_the_scaled_floats_do(tmp_path: Path, engine: Any) -> None:
    """Pixels kept as bytes and scaled in the batch give the numbers of x/255 in float64."""
    write_idx(tmp_path)
    source = fl.MnistFolder(str(tmp_path), num_clients=2, partition=fl.IidPartitioner())
    data = source.load(fl.Key.from_seed(0))
    scaled = fl.ClientData(data.train.inputs.to(torch.float64) / 255, data.train.targets, data.train.offsets)
    algorithm = fl.presets.fedavg(lr=0.1, epochs=1, batch_size=2)
    params = []
    for clients in (data.train, scaled):
        world = fl.SimulatedWorld(
            fl.Task(fl.MLP(hidden=(4,))), clients, test=data.test, engine=engine, dtype=torch.float64
        )
        run = fl.Federation(algorithm, world)
        records = list(run.train(2, evaluate_every=1))
        assert records[-1].evaluation is not None
        params.append(run.params)
    torch.testing.assert_close(params[0], params[1], rtol=0, atol=1e-12)
