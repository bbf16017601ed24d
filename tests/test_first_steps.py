"""What a new user meets first: wrong kinds of arguments, listing names, getting the model out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.errors import DataError, FieldError


def test_wrong_kinds_of_parts_are_named() -> None:
    """Python users pass parts by hand: a wrong one is told at once, by field."""
    solver = fl.LocalSolver(fl.SGD(0.1))
    problem = fl.Quadratics(num_clients=2).problem(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(problem.task(), problem.data())
    wrong: Any = 5
    cases: dict[str, Callable[[], object]] = {
        r"Algorithm\.sampler must be a Sampler, got FedNova": lambda: fl.Algorithm(
            solver, cast("Any", fl.FedNova())
        ),
        r"LocalSolver\.optimizer must be an Optimizer, got 5": lambda: fl.LocalSolver(wrong),
        r"LocalSolver\.corrections must be a tuple, got Proximal": lambda: fl.LocalSolver(
            fl.SGD(0.1), corrections=cast("Any", fl.Proximal(1.0))
        ),
        r"Federation\.algorithm must be an Algorithm, got 'fednova'": lambda: fl.Federation(
            cast("Any", "fednova"), world
        ),
        r"SimulatedWorld\.link must be a LinkModel, got 5": lambda: fl.SimulatedWorld(
            problem.task(), problem.data(), link=wrong
        ),
        r"Task\.model must be a Model or a torch.nn.Module": lambda: fl.Task(cast("Any", torch.nn.Linear)),
        r"Task\.metrics must be a list of metrics, got 'accuracy'": lambda: fl.Task(
            fl.MLP(), metrics=cast("Any", "accuracy")
        ),
    }
    for message, build in cases.items():
        with pytest.raises(FieldError, match=message):
            build()


def test_names_of_the_package_can_be_listed() -> None:
    assert {"FedNova", "SimulatedWorld", "presets", "Digits"} <= set(dir(fl))
    assert "import_module" not in dir(fl)


def test_the_trained_model_can_be_taken_out() -> None:
    """Its outputs are those that evaluation sees, running statistics included, and it is a copy."""
    data = fl.Digits(num_clients=3).load(fl.Key.from_seed(0))
    assert data.test is not None
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 10)
    )
    run = fl.Federation(
        fl.presets.fedavg(lr=0.1), fl.SimulatedWorld(fl.Task(net), data.train, test=data.test)
    )
    list(run.train(2))
    model = run.model()
    with torch.no_grad():
        hits = (model(data.test.inputs).argmax(1) == data.test.targets).double().mean()
    assert float(hits) == pytest.approx(run.evaluate().metrics["accuracy"])
    with torch.no_grad():
        next(model.parameters()).zero_()
    assert run.evaluate().metrics["accuracy"] == pytest.approx(float(hits))


def test_data_print_short() -> None:
    data = fl.Digits(num_clients=3).load(fl.Key.from_seed(0))
    assert repr(data.train) == "ClientData(3 clients, 1438 examples of shape (8, 8))"
    assert repr(data.test) == "ClientData(1 client, 359 examples of shape (8, 8))"
    assert len(repr(data)) < 300


def test_a_target_among_the_features_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,site\n1,0,a\n2,1,b\n")
    table = fl.CsvTable(str(tmp_path / "t.csv"), target="y", client="site", features=("x", "y"))
    with pytest.raises(DataError, match="'y' both as target and as feature"):
        table.load(fl.Key.from_seed(0))


def test_dropping_rows_never_drops_a_client_silently(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,site\n1,0,a\n2,1,a\n,1,b\n")
    table = fl.CsvTable(str(tmp_path / "t.csv"), target="y", client="site", missing="drop")
    with pytest.raises(DataError, match=r"no complete row for 1 of 2 clients \('b'\)"):
        table.load(fl.Key.from_seed(0))


def test_models_beside_the_spec_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_network.py").write_text(
        "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    spec = tmp_path / "study.toml"
    spec.write_text(
        'rounds = 1\n[clients]\ntype = "Digits"\nnum_clients = 2\n'
        '[algorithm]\npreset = "fedavg"\nlr = 0.1\n'
        '[task.model]\ntype = "ImportedModel"\npath = "own_network:build"\n'
    )
    shown = CliRunner().invoke(app, ["run", str(spec), "-o", str(tmp_path / "run"), "--quiet"])
    assert shown.exit_code == 0, shown.output
