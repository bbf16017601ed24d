"""The app in examples/flower_app runs: a server and three clients, here in one process."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest
from direct_grid import DirectGrid
from flwr.app import Context, RecordDict

from fairlead.experiments.run_folder import load_records

APP = Path(__file__).parents[2] / "examples" / "flower_app"


def test_flower_takes_the_name_of_the_example() -> None:
    """Letters, digits and hyphens, 32 at most: a SuperLink refuses any other app."""
    project = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,31}", project["name"])


def test_the_example_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(APP))
    clients = dict.fromkeys(range(3), importlib.import_module("flower_app.client_app").app)
    context = Context(1, 1, {}, RecordDict(), {"folder": str(tmp_path / "run"), "bind-keys": False})
    importlib.import_module("flower_app.server_app").app(DirectGrid(clients, tmp_path / "memory"), context)
    for name in [name for name in sys.modules if name.split(".")[0] == "flower_app"]:
        del sys.modules[name]
    first, *_, last = load_records(tmp_path / "run")
    assert last.arrived == (0, 1, 2)
    assert first.train_loss is not None
    assert last.train_loss is not None
    assert last.train_loss < first.train_loss
    assert last.evaluation is not None
    assert last.evaluation.metrics["accuracy"] > 0.85
