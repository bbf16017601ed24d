"""Rounds in MLflow, read back with the real package."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app

SPEC = """
rounds = 4
evaluate_every = 2
[clients]
type = "Digits"
num_clients = 4
[algorithm]
preset = "fednova"
lr = 0.1
steps = 2
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)
    # MLflow advises against files for large stores; here they are a server that needs no process.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())


def run(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, ["run", "spec.toml", "-q", "-o", "runs/x", *arguments])
    assert result.exit_code == exit_code, result.output
    return result.stderr


def accuracies() -> list[tuple[int, float]]:
    """By the number of rounds done, from the run's own records."""
    return [
        (record.round + 1, record.evaluation.metrics["accuracy"])
        for record in fl.load_records("runs/x")
        if record.evaluation
    ]


def test_mlflow_has_the_spec_and_the_rounds_of_a_resumed_run() -> None:
    run("--log", "mlflow")
    run("--log", "mlflow", "--resume", "--rounds", "6")
    client = import_module("mlflow").MlflowClient()
    experiment = client.get_experiment_by_name("fairlead")
    (kept,) = client.search_runs([experiment.experiment_id])
    assert kept.info.status == "FINISHED"
    assert kept.data.params["clients.num_clients"] == "4"
    assert kept.data.params["algorithm.aggregator.type"] == "FedNova"
    history = client.get_metric_history(kept.info.run_id, "accuracy")
    assert [(metric.step, metric.value) for metric in history] == accuracies()


def test_a_run_that_fails_is_so_in_mlflow() -> None:
    run("--log", "mlflow", "--set", "algorithm.lr=1e30", exit_code=2)
    client = import_module("mlflow").MlflowClient()
    (kept,) = client.search_runs([client.get_experiment_by_name("fairlead").experiment_id])
    assert kept.info.status == "FAILED"
