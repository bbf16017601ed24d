"""The comparison with peers: what it needs of fairlead, and that it can tell a wrong update from a right one."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from benchmarks.peers.__main__ import main
from benchmarks.peers.comparison import Outcome, Spread, compare, disagreeing, ratios
from benchmarks.peers.fairlead_system import FairleadSystem
from benchmarks.peers.problem import Problem
from benchmarks.peers.stand_ins import stand_ins
from benchmarks.peers.workloads import WORKLOADS

import fairlead as fl

CPU = torch.device("cpu")


def few_examples(folder: str | None) -> fl.FederatedData:
    return fl.SyntheticLogistic(max_examples=60, test_fraction=0.0).load(fl.Key.from_seed(0))


SMALL = replace(WORKLOADS["logistic"], data=few_examples)


@pytest.mark.full
def test_fairlead_alone_gives_a_table_and_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WORKLOADS, "logistic", SMALL)
    options = ["--workload", "logistic", "--systems", "fairlead", "--rounds", "1", "--repeats", "1"]
    assert main([*options, "--threads", "1", "--out", str(tmp_path)]) == 0
    assert "| fairlead |" in capsys.readouterr().out
    data = json.loads((tmp_path / "peers-logistic-cpu-float32.json").read_text())
    assert data["parameters"] == 610
    assert data["systems"]["fairlead"]["problem"] is None
    assert len(data["systems"]["fairlead"]["seconds"]) == 1


def test_fairlead_trains_on_the_orders_that_peers_are_given() -> None:
    """A plain loop over the orders, as every peer runs it, ends where fairlead does: in float64, to rounding."""
    problem = Problem.build(SMALL, 1, "float64", CPU)
    models = []
    for client in problem.cohorts[0]:
        module = problem.new_module()
        optimizer = torch.optim.SGD(module.parameters(), lr=problem.workload.lr)
        for number in range(problem.workload.epochs):
            inputs, targets = problem.epoch(0, client, number)
            for rows in torch.split(torch.arange(len(inputs)), problem.workload.batch_size):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(module(inputs[rows]), targets[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        models.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach())
    expected = torch.stack(models).mean(0)
    torch.testing.assert_close(FairleadSystem(problem).run(1).params, expected, rtol=0, atol=1e-12)


def test_a_missing_peer_is_reported_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'fedlab'")

    monkeypatch.setattr("benchmarks.peers.comparison.find_system", missing)
    problem = Problem.build(SMALL, 1, "float32", CPU)
    outcome = compare(problem, ["fedlab"], 1, lambda line: None)["fedlab"]
    assert outcome.problem == "not installed (No module named 'fedlab'): pip install fedlab==1.3.0"


def test_updates_that_differ_are_named() -> None:
    outcomes = {
        "fairlead": Outcome(deviation=0.0),
        "close": Outcome(deviation=1e-6),
        "far": Outcome(deviation=0.1),
        "lost": Outcome(deviation=float("nan")),
    }
    assert disagreeing(outcomes, "float32") == ["far", "lost"]


def test_ratios_are_taken_pass_by_pass() -> None:
    """Two passes, the second of which met a machine twice as slow: 3 and 4 times, not a ratio of medians."""
    outcomes = {"fairlead": Outcome(seconds=[1.0, 2.0]), "peer": Outcome(seconds=[3.0, 8.0])}
    assert ratios(outcomes) == {"peer": Spread(3.5, 3.0, 4.0)}


def test_stand_ins_replace_listed_packages_only_while_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.stand_ins.NEVER_CALLED", ("listed_package",))
    with stand_ins() as used:
        base = import_module("listed_package.part").Anything
        assert issubclass(type("Derived", (base,), {}), base)
        with pytest.raises(ImportError):
            import_module("another_package")
    assert used == {"listed_package"}
    with pytest.raises(ImportError):
        import_module("listed_package.part")
