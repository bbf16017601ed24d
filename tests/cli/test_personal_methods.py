"""Commands on methods whose clients keep parameters or models of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from compare_calls import call, data

SPEC = """
rounds = 3
evaluate_every = 1
[clients]
type = "Digits"
num_clients = 6
partition = { type = "DirichletPartitioner", alpha = 0.3 }
[task]
model = { type = "MLP", hidden = [8] }
[algorithm]
preset = "fedper"
lr = 0.1
"""


@pytest.fixture(autouse=True)
def _spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)


def test_a_finished_method_without_personal_figures_is_not_called_unfinished() -> None:
    said = " ".join(call("--methods", "fedavg,fedper,fedrep", "--seeds", "0..1").output.split())
    assert "finished all its runs" not in said
    assert "fedavg has no personal accuracy, because no examples of clients are held out." in said
    assert "That of fedper and fedrep is on training data, which flatters. Set clients.holdout = 0.2" in said
    assert "fedper: not comparable, because fedavg has no personal accuracy." in said


def test_personal_figures_are_compared_without_an_objective_of_one_model() -> None:
    arguments = ("--methods", "fedavg,fedper,ditto:mu=0.1", "--seeds", "0..1", "--set", "clients.holdout=0.3")
    fedavg, fedper, ditto = data(*arguments)["methods"]
    assert fedper["value"] is not None
    assert fedper["difference"] is not None
    assert fedper["objective"] is None
    assert all(seed["objective"] is None for seed in fedper["seeds"].values())
    # Ditto leaves the global model as FedAvg makes it.
    assert ditto["objective"] == fedavg["objective"] is not None
    said = " ".join(call(*arguments).output.split())
    assert "By the objective" not in said
    assert "No run of fedper" not in said
    assert "has no objective" in call(*arguments, "--metric", "objective").output.replace("\n", " ")
