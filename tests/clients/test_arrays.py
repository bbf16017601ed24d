"""Arrays in .npz files that the tests write."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.errors import DataError, FieldError


def write(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


IMAGES = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)


def test_clients_and_pixels(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", x=IMAGES, y=np.array([1, 0, 1], np.uint8), writer=np.array([7, 3, 7]))
    pool = fl.NpzArrays(path, client="writer", shape=(1, 2, 2)).pool()
    assert pool.inputs.dtype == torch.uint8
    assert pool.inputs.tolist() == IMAGES[:, None].tolist()
    assert pool.targets.dtype == torch.int64
    assert pool.natural is not None
    assert pool.natural.tolist() == [1, 0, 1]


def test_packed_files(tmp_path: Path) -> None:
    content = Path(write(tmp_path / "a.npz", x=IMAGES, y=[0, 1, 2])).read_bytes()
    (tmp_path / "b.npz.gz").write_bytes(gzip.compress(content))
    (tmp_path / "c.npz.xz").write_bytes(lzma.compress(content))
    for name in ("b.npz.gz", "c.npz.xz"):
        assert fl.NpzArrays(str(tmp_path / name)).pool().targets.tolist() == [0, 1, 2]


def test_classes_may_be_whole_numbers_of_any_type(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", x=IMAGES, y=np.array([0.0, 2.0, 1.0]))
    targets = fl.NpzArrays(path).pool().targets
    assert targets.dtype == torch.int64
    assert targets.tolist() == [0, 2, 1]


def test_a_test_set_by_client(tmp_path: Path) -> None:
    arrays = {"a": IMAGES, "b": [0, 1, 1], "who": ["q", "p", "q"]}
    tests = {"c": IMAGES[:2], "d": [1, 0], "them": ["q", "q"], "others": ["q", "r"]}
    path = write(tmp_path / "a.npz", **arrays, **tests)
    source = fl.NpzArrays(path, "a", "b", "who", test_inputs="c", test_targets="d", test_client="them")
    data = source.load(fl.Key.from_seed(0))
    assert data.train.sizes.tolist() == [1, 2]
    assert data.test is not None
    assert data.test.sizes.tolist() == [0, 2]
    source = fl.NpzArrays(path, "a", "b", "who", test_inputs="c", test_targets="d", test_client="others")
    data = source.load(fl.Key.from_seed(0))
    assert data.test is not None
    assert data.test.sizes.tolist() == [2]


def test_scaled_integers_and_quantities(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", x=np.array([[100], [-50]], np.int16), y=[0.5, 1.5])
    pool = fl.NpzArrays(path, scale=0.01, regression=True).pool()
    torch.testing.assert_close(pool.inputs, torch.tensor([[1.0], [-0.5]]))
    assert pool.targets.tolist() == [0.5, 1.5]
    assert fl.NpzArrays(path, regression=True).pool().inputs.dtype == torch.int64


class Dangerous:
    """Would leave a file behind if it were unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = write(tmp_path / "a.npz", x=np.array([Dangerous(mark)], dtype=object), y=[0])
    with pytest.raises(DataError, match=r"a.npz cannot be read as a .npz file: it holds pickled objects"):
        fl.NpzArrays(path).pool()
    assert not mark.exists()


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"x": IMAGES, "labels": [0, 1, 2]}, {}, "has no array 'y'"),
        ({"x": IMAGES, "y": [0, 1]}, {}, "one target per input, got 3 inputs and 2 targets"),
        ({"x": IMAGES, "y": [0, -1, 2]}, {}, "array 'y', row 1: -1 is not a class"),
        ({"x": IMAGES, "y": [0.5, 1, 2]}, {}, "array 'y' holds fractions.*regression=True"),
        ({"x": IMAGES, "y": ["a", "b", "c"]}, {}, "array 'y' must be numbers, got text"),
        ({"x": np.array([[np.nan]]), "y": [0]}, {}, "must have finite inputs, got NaN or infinity in row 0"),
        ({"x": IMAGES, "y": [0, 1, 2]}, {"client": "who"}, "has no array 'who'"),
        (
            {"x": IMAGES, "y": [0, 1, 2], "who": [1, 2]},
            {"client": "who"},
            "one client per example, got 2 for 3",
        ),
        ({"x": 1.0, "y": [0]}, {}, "array 'x' must have one row per example, got a single number"),
        ({"x": IMAGES[:0], "y": np.zeros(0, int)}, {}, "has no example"),
    ],
)
def test_broken_arrays(tmp_path: Path, arrays: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        fl.NpzArrays(write(tmp_path / "a.npz", **arrays), **options).pool()


def test_broken_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent.npz does not exist\."):
        fl.NpzArrays(str(tmp_path / "absent.npz")).pool()
    for content in (b"", b"PK\x03\x04 cut short", b"text"):
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"a.npz cannot be read as a .npz file: "):
            fl.NpzArrays(str(tmp_path / "a.npz")).pool()
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"single.npy cannot be read as a .npz file: it was not written"):
        fl.NpzArrays(str(tmp_path / "single.npy")).pool()


def test_settings_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match=r"NpzArrays.scale must be a finite number above 0, got 0"):
        fl.NpzArrays("a.npz", scale=0)
    with pytest.raises(FieldError, match="test_targets must be given together with test_inputs"):
        fl.NpzArrays("a.npz", test_inputs="x")
    useless = "test_client must be given together with client and test_inputs, got 't'"
    with pytest.raises(FieldError, match=useless):
        fl.NpzArrays("a.npz", client="c", test_client="t")
    with pytest.raises(FieldError, match=useless):
        fl.NpzArrays("a.npz", test_inputs="x", test_targets="y", test_client="t")
    for shape in ((-1, -4), ("a",), 4):
        with pytest.raises(FieldError, match=r"NpzArrays.shape must be whole numbers of at least 1, got"):
            fl.NpzArrays("a.npz", shape=shape)  # type: ignore[arg-type]
    path = write(tmp_path / "a.npz", x=IMAGES, y=[0, 1, 2])
    with pytest.raises(FieldError, match=r"NpzArrays.shape must be one of 4 numbers as each input of"):
        fl.NpzArrays(path, shape=(1, 28, 28)).pool()


@pytest.mark.parametrize(("missing", "value"), [("median", 3.0), ("mode", 2.0)])
def test_gaps_are_filled_from_the_training_rows(tmp_path: Path, missing: Any, value: float) -> None:
    """Known values of the first column: 2, 2, 4, 6; its test value of 100 does not count."""
    inputs = np.array([[2.0, 1.0], [2.0, 1.0], [4.0, 1.0], [6.0, 1.0], [np.nan, 5.0]])
    test = np.array([[100.0, 1.0], [np.nan, 1.0]])
    path = write(tmp_path / "a.npz", x=inputs, y=[0, 1, 0, 1, 0], c=[0, 0, 1, 1, 1], u=test, v=[0, 1])
    source = fl.NpzArrays(path, client="c", test_inputs="u", test_targets="v", missing=missing)
    data = source.load(0)
    assert sorted(data.train.inputs[:, 0].tolist()) == sorted([2.0, 2.0, 4.0, 6.0, value])
    assert data.test is not None
    assert data.test.inputs[:, 0].tolist() == [100.0, value]


def test_gaps_of_images_are_not_filled(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", x=np.full((4, 2, 2), np.nan), y=[0, 1, 0, 1], c=[0, 0, 1, 1])
    with pytest.raises(
        DataError, match=r"missing='median' fills one row of features per example, and inputs of"
    ):
        fl.NpzArrays(path, client="c", missing="median").load(0)


def test_a_column_without_a_value_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", x=[[1.0, np.nan], [2.0, np.nan]], y=[0, 1], c=[0, 1])
    with pytest.raises(DataError, match="has no value in the column 1 among the rows for training"):
        fl.NpzArrays(path, client="c", missing="median", holdout=0.0, test_fraction=0.0).load(0)
