"""Rounds in TensorBoard, read back with the real package."""

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


def test_tensorboard_shows_the_rounds_of_a_resumed_run_once() -> None:
    run("--log", "tensorboard")
    run("--log", "tensorboard", "--resume", "--rounds", "6")
    accumulator = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator("runs/x/tensorboard")
    events.Reload()
    assert {"train_loss", "elud", "arrived", "accuracy", "loss"} <= set(events.Tags()["scalars"])
    shown = [(event.step, event.value) for event in events.Scalars("accuracy")]
    assert shown == [(step, pytest.approx(value, rel=1e-6)) for step, value in accuracies()]
    assert [event.step for event in events.Scalars("train_loss")] == [1, 2, 3, 4, 5, 6]
