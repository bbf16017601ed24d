"""What a federation looks like before training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.diagnostics import overview, plot_overview
from fairlead.errors import FieldError


def small_world() -> fl.SimulatedWorld:
    """Three clients with 4, 2 and 1 examples of two classes."""
    data = fl.ClientData(torch.zeros(7, 3), torch.tensor([0, 0, 0, 1, 1, 1, 0]), torch.tensor([0, 4, 6, 7]))
    return fl.SimulatedWorld(
        fl.Task(fl.LogisticRegression()),
        data,
        work=fl.ScriptedWork(((1, 2, 3), (3, 2, 1))),
        link=fl.BernoulliLink((0.5, 0.0, 0.75)),
    )


def test_overview_counts_labels_and_averages_work_and_arrival() -> None:
    """Two rounds of the script average to two steps each; plain SGD has ‖a‖₁ = τ."""
    solver = fl.presets.fedavg(lr=0.1).solver
    found = overview(small_world(), solver, fl.Key.from_seed(0), rounds=2)
    assert found.sizes.tolist() == [4, 2, 1]
    assert found.label_counts is not None
    assert found.label_counts.tolist() == [[3, 1], [0, 2], [1, 0]]
    assert found.effective_steps is not None
    assert found.effective_steps.tolist() == [2, 2, 2]
    assert found.arrival is not None
    assert found.arrival.tolist() == [0.5, 1.0, 0.25]


def test_pull_is_the_surrogate_weight_over_the_weight() -> None:
    """ω = (4, 2, 1)/7 and strength 2·(0.5, 1, 0.25): Ω/ω = strength/Σω·strength, and Σω·pull = 1."""
    solver = fl.presets.fedavg(lr=0.1).solver
    found = overview(small_world(), solver, fl.Key.from_seed(0), rounds=2)
    mean = (4 * 1.0 + 2 * 2.0 + 1 * 0.5) / 7
    assert found.pull is not None
    assert found.pull.tolist() == pytest.approx([1.0 / mean, 2.0 / mean, 0.5 / mean])
    assert float(found.weights @ found.pull) == pytest.approx(1.0)


def test_unknown_conditions_leave_the_pull_unknown() -> None:
    problem = fl.Quadratics(num_clients=3).problem(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(problem.task(), problem.data(), link=fl.ScriptedLink(((0, 1),)))
    found = overview(world, fl.presets.fedavg(lr=0.1).solver, fl.Key.from_seed(0), rounds=1)
    assert found.arrival is None
    assert found.pull is None
    assert found.label_counts is None


def test_where_nothing_arrives_nobody_pulls() -> None:
    problem = fl.Quadratics(num_clients=3).problem(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(problem.task(), problem.data(), link=fl.BernoulliLink(1.0))
    found = overview(world, fl.presets.fedavg(lr=0.1).solver, fl.Key.from_seed(0), rounds=1)
    assert found.arrival is not None
    assert found.arrival.tolist() == [0.0] * 3
    assert found.pull is None


@pytest.mark.parametrize("num_clients", [5, 250])
def test_plots_are_written(num_clients: int, tmp_path: Path) -> None:
    data = fl.Digits(num_clients=num_clients).load(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), data.train)
    found = overview(world, fl.presets.fedavg(lr=0.1).solver, fl.Key.from_seed(0), rounds=1)
    plot_overview(found, tmp_path / "clients.svg")
    assert "<svg" in (tmp_path / "clients.svg").read_text()
    with pytest.raises(FieldError, match="cannot be written"):
        plot_overview(found, tmp_path / "clients.svg" / "more.svg")


def test_the_command_shows_a_row_per_client_and_quantiles_for_many(tmp_path: Path) -> None:
    spec = tmp_path / "study.toml"
    runner = CliRunner()
    assert runner.invoke(app, ["init", str(spec)]).exit_code == 0
    shown = runner.invoke(app, ["clients", str(spec)])
    assert shown.exit_code == 0
    assert len([line for line in shown.output.splitlines() if line[:1].isdigit()]) == 21
    many = runner.invoke(app, ["clients", str(spec), "--set", "clients.num_clients=100"])
    assert "median" in many.output
    plain = json.loads(runner.invoke(app, ["clients", str(spec), "--json"]).output)
    assert len(plain["examples"]) == len(plain["label_counts"]) == 20
    assert sum(plain["weight"]) == pytest.approx(1.0)
