"""`fairlead doctor` says what is there, what can be used, and the command for what is not."""

from __future__ import annotations

import json
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.cli.doctor import PURPOSES

DECLARED = [
    "numpy<3,>=1.26",
    "torch<3,>=2.4",
    'matplotlib<4,>=3.9; extra == "plots"',
    'no-such-package<2,>=1.5; extra == "flower"',
    "numpy<3,>=1.26; extra == 'flower'",
    'fairlead[plots]; extra == "test"',
    'pytest<10,>=8.3; extra == "test"',
]


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed("--json"))
    return found


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: DECLARED)


@pytest.mark.usefixtures("declared")
def test_extras_are_those_that_the_package_declares() -> None:
    found = facts()
    assert found["versions"]["fairlead"] == fl.__version__
    assert found["versions"]["numpy"] == metadata.version("numpy")
    assert set(found["extras"]) == {"flower", "plots", "test"}
    flower = found["extras"]["flower"]
    assert flower["missing"] == ["no-such-package"]
    assert not flower["usable"]
    assert flower["install"].endswith("-m pip install 'no-such-package<2,>=1.5'")
    assert flower["packages"]["no-such-package"] == {"wanted": "<2,>=1.5", "installed": None}
    assert found["extras"]["test"] == {
        "purpose": "working on fairlead",
        "usable": True,
        "packages": {"pytest": {"wanted": "<10,>=8.3", "installed": metadata.version("pytest")}},
        "missing": [],
        "install": "",
    }


@pytest.mark.usefixtures("declared")
def test_the_text_ends_with_what_to_do() -> None:
    *_, last = printed().splitlines()
    assert last == "For example, for flower, in fairlead's folder: pip install -e '.[flower]'"


def test_paths_say_what_they_take_and_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    paths = {(path["path"], path["backend"]): path for path in facts()["paths"]}
    assert paths["softmax kernel", "triton"]["missing"] == "no CUDA device"
    assert paths["loop", "torch"]["missing"] is None
    text = printed()
    assert "no: no CUDA device" in text
    assert all(path["path"] in text and path["takes"] for path in paths.values())


def test_the_declaration_of_this_package_is_read() -> None:
    found = facts()
    assert {"torch", "numpy", "safetensors", "rich", "typer", "tomli-w"} <= set(found["versions"])
    assert "missing" not in found["versions"].values()
    assert all(extra["purpose"] for extra in found["extras"].values())


def test_every_extra_has_a_purpose() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(PURPOSES) == set(project["optional-dependencies"])


def test_devices_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts()["devices"]
    assert found["cpu"]["usable"]
    assert "cores" in found["cpu"]["what"]
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert facts()["devices"]["cuda"] == {
        "usable": False,
        "what": "this torch is built for CPUs only: install a build for CUDA",
    }
    assert "cuda    no      this torch is built for CPUs only" in printed()


def test_a_gpu_that_fails_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        name, total_memory = "Old GPU", 8 * 2**30

    def fail(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("no kernel image is available\nlong explanation")

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties())
    monkeypatch.setattr(torch, "ones", fail)
    assert facts()["devices"]["cuda:0"] == {
        "usable": False,
        "what": "Old GPU, 8 GiB: no kernel image is available",
    }


def test_a_checkout_that_was_never_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", unknown)
    assert facts()["extras"] == {}
    assert "cpu" in printed()
