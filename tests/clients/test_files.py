"""Files that would unpack to far more than they are, and paths that lead nowhere."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairlead as fl
from fairlead.clients import files
from fairlead.errors import DataError, FieldError

ZEROS = b"x,y\n" + b"0" * 400_000
"""Packed, all formats make less than a five-hundredth of it."""


@pytest.fixture(autouse=True)
def _little_is_always_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of 100 kB in the place of a GiB."""
    monkeypatch.setattr(files, "_ALWAYS_UNPACKED", 100_000)


@pytest.mark.parametrize(
    ("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
class TestPackedFiles:
    def test_a_bomb_is_refused(self, tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]) -> None:
        file = tmp_path / f"t.csv{ending}"
        file.write_bytes(pack(ZEROS))
        assert file.stat().st_size < len(ZEROS) / 500
        with pytest.raises(
            DataError, match=r"t.csv\.\w+ is refused: its \d+ bytes would unpack to more than"
        ):
            fl.CsvTable(str(file), "y").pool()

    def test_data_that_pack_well_are_read(
        self, tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]
    ) -> None:
        """A random digit in each row of 19 characters: 760 kB, of which packing leaves 17 kB or more."""
        numbers = np.random.default_rng(0).integers(0, 10, 40_000)
        text = "x,y\n" + "".join(f"{number},0,{'0' * 14}\n" for number in numbers)
        file = tmp_path / f"t.csv{ending}"
        file.write_bytes(pack(text.replace("x,y", "x,y,z").encode()))
        pool = fl.CsvTable(str(file), "y", features="x").pool()
        assert pool.inputs.flatten().tolist() == numbers.tolist()


class TestArchives:
    def test_only_arrays_in_use_are_unpacked(self, tmp_path: Path) -> None:
        """A third array is broken: reading it would fail."""
        np.savez(tmp_path / "a.npz", x=np.zeros((2, 1)), y=[0, 1])
        with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
            archive.writestr("z.npy", b"\x93NUMPY cut short")
            archive.writestr("readme", b"no array")
        assert len(fl.NpzArrays(str(tmp_path / "a.npz")).pool()) == 2
        with pytest.raises(DataError, match=r"cannot be read as a .npz file: it was not written"):
            fl.NpzArrays(str(tmp_path / "a.npz"), "z").pool()
        with pytest.raises(DataError, match=r"array 'readme' must be one id or name per example"):
            fl.NpzArrays(str(tmp_path / "a.npz"), client="readme").pool()

    def test_a_bomb_is_refused_before_it_is_unpacked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        np.savez_compressed(tmp_path / "a.npz", x=np.zeros((1000, 100)), y=np.arange(1000))

        def unpack(*_: object) -> None:
            raise AssertionError("an array was unpacked")

        monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", unpack)
        with pytest.raises(DataError, match=r"a.npz is refused: its \d+ bytes would unpack to more than 200"):
            fl.NpzArrays(str(tmp_path / "a.npz")).pool()

    def test_a_header_that_claims_more_than_there_is(self, tmp_path: Path) -> None:
        """80 TB announced, nothing there."""
        header = io.BytesIO()
        claims = {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
        np.lib.format.write_array_header_1_0(header, claims)
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            for name in ("x.npy", "y.npy"):
                archive.writestr(name, header.getvalue())
        with pytest.raises(DataError, match=r"a.npz cannot be read as a .npz file"):
            fl.NpzArrays(str(tmp_path / "a.npz")).pool()


def test_a_relative_path_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for source in (
        fl.CsvTable("data/t.csv", "y"),
        fl.NpzArrays("data/t.csv"),
        fl.MnistFolder("data/t.csv"),
    ):
        with pytest.raises(
            DataError,
            match=rf"^The path data/t.csv does not exist in the working directory {tmp_path}\.$",
        ):
            source.pool()


@pytest.mark.parametrize("path", [None, 3, b"t.csv"])
@pytest.mark.parametrize(
    "make",
    [
        lambda path: fl.CsvTable(path, "y"),
        lambda path: fl.CsvText(path, "text"),
        fl.NpzArrays,
        fl.MnistFolder,
        fl.FashionMnistFolder,
        fl.CifarFolder,
        fl.LeafFolder,
        fl.HuggingFaceData,
    ],
)
def test_what_is_no_path(make: Callable[[Any], fl.ClientSource], path: Any) -> None:
    with pytest.raises(FieldError, match=rf"^\w+\.path must be a path, got {path!r}\.$"):
        make(path)
