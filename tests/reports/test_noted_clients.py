"""A report needs no data of the clients: the run notes who they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fairlead as fl
from fairlead.errors import RunFolderError
from fairlead.reports import summarize_runs
from fairlead.results.runs import find_runs, read_run

ROWS = "hospital,age,ill\n" + "".join(
    f"{hospital},{age},{age % 2}\n" for hospital, count in (("Ulm", 6), ("Bern", 2)) for age in range(count)
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run whose data are gone."""
    data = tmp_path / "patients.csv"
    data.write_text(ROWS)
    clients = fl.CsvTable(str(data), "ill", client="hospital", test_fraction=0.0)
    experiment = fl.Experiment(clients, fl.presets.fedavg(lr=0.1, steps=2), 2, per_client=True)
    fl.run_experiment(experiment, tmp_path / "run")
    data.unlink()
    return tmp_path / "run"


def test_weights_and_names_are_read_from_the_folder(run: Path) -> None:
    """Six of eight patients are in Ulm, two in Bern."""
    found = read_run(find_runs([run])[0])
    assert found.weights is not None
    assert found.names is not None
    weights = dict(zip(found.names.tolist(), found.weights.tolist(), strict=True))
    assert weights == {"Ulm": 0.75, "Bern": 0.25}
    assert found.held_out is False


def test_the_report_tells_the_objective_that_was_asked_for(run: Path) -> None:
    (method,) = summarize_runs([run]).methods
    report = method.runs[0].consistency
    assert report is not None
    assert sorted(report.intended.tolist()) == [0.25, 0.75]


def test_a_run_without_these_facts_is_read_without_them(run: Path) -> None:
    (run / "clients.json").unlink()
    found = read_run(find_runs([run])[0])
    assert (found.state, found.weights, found.names, found.held_out) == ("finished", None, None, None)


def test_a_resumed_run_notes_them_again(run: Path) -> None:
    noted = json.loads((run / "clients.json").read_text())
    (run / "clients.json").unlink()
    (run.parent / "patients.csv").write_text(ROWS)
    fl.run_experiment(fl.load_experiment(run / "spec.toml", ["rounds=3"]), run, resume=True)
    assert json.loads((run / "clients.json").read_text()) == noted


def test_damage_is_told(run: Path) -> None:
    (run / "clients.json").write_text('{"weights": 3}')
    with pytest.raises(RunFolderError, match=r"clients\.json is damaged"):
        fl.RunFolder(run).clients()
    assert read_run(find_runs([run])[0]).state == "unreadable"
