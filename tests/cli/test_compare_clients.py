"""How evenly methods serve clients: in the table of `compare`, in JSON, on the page and in files."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.results.comparison import summarize_runs

SPEC = """
rounds = 2
evaluate_every = 2

[clients]
type = "Digits"
num_clients = 5
holdout = 0.2
partition = { type = "DirichletPartitioner", alpha = 0.3 }

[algorithm]
preset = "fedavg"
lr = 0.1
"""


def invoked(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)
    return Path("runs")


COMPARE = ("compare", "spec.toml", "--methods", "fedavg,fednova", "--seeds", "0,1", "-o", "runs")


def test_dealt_clients(folder: Path) -> None:
    """Every seed deals new clients, so the table of clients is of the first seed; the rest averages over seeds."""
    said = invoked(*COMPARE)
    assert "Accuracy of the final model for every client, on its own held-out data:" in said
    assert "Every client, the one that fedavg serves worst first. Of seed 0, since" in said
    found = json.loads(invoked(*COMPARE, "--json"))["methods"]
    for row in found:
        by_seed = [np.array(values) for values in row["clients"]["by_seed"].values()]
        worst = [values.min() for values in by_seed]
        assert row["clients"]["worst_tenth"]["mean"] == pytest.approx(np.mean(worst))
        assert row["clients"]["variance"]["mean"] == pytest.approx(np.mean([v.var() for v in by_seed]))
        ginis = [np.abs(v[:, None] - v).mean() / (2 * v.mean()) for v in by_seed]
        assert row["clients"]["gini"]["mean"] == pytest.approx(np.mean(ginis))
    clients = summarize_runs([folder]).clients
    assert clients is not None
    own = found[0]["clients"]["by_seed"]["0"]
    assert {client: values["fedavg"] for client, values in clients.values.items()} == {
        str(client): value for client, value in enumerate(own)
    }
    assert [values["fedavg"] for values in clients.values.values()] == sorted(own)
    invoked("report", "runs", "--tables", "tables")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<h4>Every client</h4>" in page
    assert "Gini" in page
    with Path("tables/by-client.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 5
    assert [float(row["accuracy"]) for row in rows[:5]] == own


def test_named_clients_have_means_over_seeds(folder: Path) -> None:
    """The data name clients: `solo` has a single example, and so no figure."""
    rows = [f"{name},{x},{x % 2}" for name in ("Bonn", "Ulm") for x in range(20)]
    Path("visits.csv").write_text("\n".join(["place,x,ill", *rows, "solo,3,1"]))
    source = fl.CsvTable("visits.csv", "ill", "place", holdout=0.25)
    experiment = fl.Experiment(source, fl.presets.fedavg(lr=0.1), rounds=1, evaluate_every=1)
    finals = []
    for seed in (0, 1):
        run = fl.run_experiment(
            fl.from_toml(fl.Experiment, fl.to_toml(experiment), [f"seed={seed}"]), f"runs/{seed}"
        )
        evaluation = run.federation.records[-1].evaluation
        assert evaluation is not None
        finals.append(evaluation.client_metrics["accuracy"])
    clients = summarize_runs([folder]).clients
    assert clients is not None
    assert clients.seed is None
    assert all(math.isnan(final[2]) for final in finals)
    (label,) = clients.values["Bonn"]
    expected = {name: sum(final[i] for final in finals) / 2 for i, name in enumerate(("Bonn", "Ulm"))}
    assert {name: values[label] for name, values in clients.values.items()} == pytest.approx(expected)
