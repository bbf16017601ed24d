"""Published settings on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.settings import SETTINGS

SPEC = """
rounds = 2
evaluate_every = 0

[setting]
name = "fedacs_static"
alpha = 0.3

[clients]
type = "Digits"

[algorithm]
preset = "fedavg"
"""


@pytest.fixture(autouse=True)
def _spec_in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC, encoding="utf-8")


def call(command: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == exit_code, result.output
    return result


def test_the_list_names_every_setting_with_its_arguments() -> None:
    lines = call("list settings").stdout.splitlines()
    assert lines[0].split() == ["name", "arguments", "what", "it", "is"]
    assert {line.split()[0] for line in lines if not line.startswith(" ")} == {"name", *SETTINGS}
    assert any(line.split()[:2] == ["hybrid_plus", "alpha=0.1"] for line in lines)


def test_a_setting_shows_what_it_fills_in_and_takes() -> None:
    shown = call("show fedacs_static").stdout.splitlines()
    for cells in (
        ["rounds", "200"],
        ["clients.num_clients", "20"],
        ["work", "LadderEpochs(first=1,", "increment=2)"],
        ["algorithm.lr", "0.03"],
        ["alpha", "float", "0.1"],
    ):
        assert any(line.split() == cells for line in shown), cells
    facts = json.loads(call("show fedacs_static --json").stdout)
    assert [(each["name"], each["type"], each["default"]) for each in facts["parameters"]] == [
        ("alpha", "float", "0.1")
    ]


def test_what_no_data_set_of_others_needs_is_not_shown() -> None:
    shown = call("show fednova_quadratics_equal").stdout
    assert "clients.partition" not in shown
    assert "Quadratics(num_clients=30" in shown
    assert any(line.split() == ["algorithm.batch_size", "none"] for line in shown.splitlines())


@pytest.mark.parametrize(("name", "key"), [("Experiment", "setting"), ("Algorithm", "preset")])
def test_the_names_that_stand_for_fields_are_shown(name: str, key: str) -> None:
    last = call(f"show {name}").stdout.split("field ")[-1]
    assert f"\n{key} " in last
    assert "In a spec:" in last


def test_a_run_with_a_setting_keeps_what_it_stands_for() -> None:
    call("run spec.toml -q -o runs/x --set setting.alpha=0.5")
    experiment = fl.RunFolder(Path("runs/x")).experiment()
    setting = fl.settings.fedacs_static(alpha=0.5)
    assert experiment.clients == setting.deal(fl.Digits())
    assert experiment.work == setting.work
    call("run runs/x/spec.toml -q -o runs/again")
    assert [record.arrived for record in fl.load_records("runs/again")] == [
        record.arrived for record in fl.load_records("runs/x")
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "setting=hybrid-plus",
            "setting must be the name of a published setting, got 'hybrid-plus'. Did you mean",
        ),
        ("setting.alpha=low", "setting.alpha must be a number, got 'low'."),
        (
            "setting.alhpa=1",
            "setting.alhpa is not an argument of the setting fedacs_static. Did you mean 'alpha'?",
        ),
        ("seting=hybrid", "seting is not a field of Experiment. Did you mean 'setting'?"),
    ],
)
def test_refusals_are_one_sentence(change: str, message: str) -> None:
    result = call(f"clients spec.toml --set {change}", exit_code=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"fairlead: {message}")
