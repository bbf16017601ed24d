"""The wheel holds the library and nothing else, and asks for the light core alone."""

from __future__ import annotations

import re
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

import fairlead

ROOT = Path(__file__).parents[1]
CORE = {"click", "jinja2", "numpy", "rich", "safetensors", "tomli-w", "torch", "typer"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """Built with the backend itself: no network, no environment of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    code = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return ZipFile(folder / done.stdout.strip().splitlines()[-1])


def test_the_wheel_holds_the_package_whole_and_nothing_else(wheel: ZipFile) -> None:
    source = ROOT / "src"
    package = {
        path.relative_to(source).as_posix()
        for path in (source / "fairlead").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = set(wheel.namelist())
    information = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert names - information == package
    assert {Path(name).name for name in information} == {
        "METADATA",
        "WHEEL",
        "entry_points.txt",
        "LICENSE",
        "NOTICE",
        "RECORD",
    }
    assert "fairlead/py.typed" in names


def test_the_wheel_is_small(wheel: ZipFile) -> None:
    """The embedded digits are the largest file; anything beyond a megabyte would be data that crept in."""
    largest = max(wheel.infolist(), key=lambda entry: entry.file_size)
    assert largest.file_size < 200_000, largest.filename
    assert sum(entry.compress_size for entry in wheel.infolist()) < 1_000_000


def test_installing_brings_the_light_core_alone(wheel: ZipFile) -> None:
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(wheel.read(path).decode())
    assert metadata["Version"] == fairlead.__version__
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert {re.split(r"[<>=!~ ;\[]", line)[0] for line in needed} == CORE


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {fairlead.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_commands_are_there(wheel: ZipFile) -> None:
    (path,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "fairlead = fairlead.cli:main" in wheel.read(path).decode()
