"""`fairlead compare`: metrics, and how soon a target is met."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compare_calls import SPEC, call, data
from rich.console import Console

import fairlead as fl
from fairlead.cli import console


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)


def test_the_curve_beside_an_objective_is_called_what_it_is() -> None:
    """Rounds do not measure the objective: their training loss is of the clients and models of the round."""
    arguments = ("--methods", "fedavg", "--seeds", "0", "-o", "runs/x")
    shown = call(*arguments, "--metric", "objective").stdout
    assert "Training loss over the rounds, mean over seeds:" in shown
    assert "objective over the rounds" not in shown
    assert next(line for line in shown.splitlines() if line.startswith("method ")).count("objective") == 0
    assert "\nTest loss over the rounds, mean over seeds:" in call(*arguments, "--metric", "loss").stdout


def test_what_methods_are_compared_by_is_shown_on_the_narrowest_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The objective is a column of figures too, which can be spared where the metric is another."""
    monkeypatch.setattr(console, "console", lambda: Console(width=38, force_terminal=True, color_system=None))
    arguments = ("--methods", "fedavg", "--seeds", "0", "-o", "runs/x")
    assert "No room for chi-square" in call(*arguments).stdout
    assert ", objective: widen" in call(*arguments).stdout
    shown = call(*arguments, "--metric", "objective").stdout
    assert ", objective: widen" not in shown
    summary = fl.RunFolder(Path("runs/x/fedavg/seed-0")).summary()
    assert summary is not None
    row = next(line for line in shown.splitlines() if line.startswith("fedavg "))
    assert row.split()[1] == f"{summary.objective:.3g}"


def test_the_advised_report_has_the_same_measure() -> None:
    arguments = ("--methods", "fedavg", "--seeds", "0", "-o", "runs/x", "--target", "0.9")
    by_loss = call(*arguments, "--metric", "loss").stdout
    assert "to 0.9" in by_loss
    assert by_loss.endswith("fairlead report runs/x --metric loss --target 0.9\n")
    by_best = call(*arguments[:-2], "--figure", "best").stdout
    assert by_best.endswith("fairlead report runs/x --figure best\n")
    assert call(*arguments).stdout.endswith("fairlead report runs/x --target 0.9\n")


TO_TARGETS = ("--methods", "fedavg", "--seeds", "0..2", "--rounds", "12")


def reached(target: str, exit_code: int = 0) -> str:
    """What the table has in the column of rounds to the target."""
    lines = call(*TO_TARGETS, "--target", target, exit_code=exit_code).stdout.splitlines()
    row = next(line for line in lines if line.startswith("fedavg "))
    return re.split(r"  +", row)[2]


def test_rounds_to_a_target_have_their_interval_where_every_seed_met_it() -> None:
    rounds = list(data(*TO_TARGETS, "--target", "0.3")["methods"][0]["rounds_to_target"].values())
    mean = sum(rounds) / 3
    margin = 4.30265 * (sum((each - mean) ** 2 for each in rounds) / 2) ** 0.5 / 3**0.5
    assert reached("0.3") == f"{mean:.1f} ± {margin:.1f}"
    assert reached("0.4") == "12 in 2 of 3"
    assert reached("1") == "never"


def test_a_seed_that_failed_did_not_meet_the_target() -> None:
    """Every seed meets 0.3 and has an interval; then the records of one are damaged, and it cannot go on."""
    assert " ± " in reached("0.3")
    folder = Path("runs/spec-compare-12-rounds/fedavg/seed-2")
    (folder / "summary.json").unlink()
    (folder / "rounds.jsonl").write_text("nonsense\n" * 12)
    assert re.fullmatch(r"[\d.]+ in 2 of 3", reached("0.3", exit_code=1))


def test_how_late_a_target_may_have_been_noticed_is_said() -> None:
    arguments = ("--methods", "fedavg", "--seeds", "0", "--set", "evaluate_every=3")
    told = "Evaluations are up to 3 rounds apart: a target may have been met up to 2 rounds before it was noticed."
    assert told in call(*arguments, "--target", "0.1").stdout.splitlines()
    assert "apart" not in call(*arguments).stdout
    assert "apart" not in call(*arguments, "--metric", "train_loss", "--target", "1").stdout


def test_a_target_may_be_a_percentage() -> None:
    assert data("--methods", "fedavg", "--seeds", "0", "--target", "30%")["target"] == 0.3


def test_the_target_of_the_compare_table_is_one_of_its_metric() -> None:
    table = '[compare]\nmethods = ["fedavg"]\nseeds = [0]\ntarget = 0.3\n'
    Path("spec.toml").write_text(SPEC + table)
    assert data("--metric", "accuracy", "-o", "runs/x")["target"] == 0.3
    assert data("--metric", "objective", "-o", "runs/x")["target"] is None
    assert data("--metric", "loss", "-o", "runs/x")["target"] is None
    assert data("--metric", "loss", "--target", "2", "-o", "runs/x")["target"] == 2
    refused = call("--set", "evaluate_every=0", exit_code=2).stderr
    assert refused.startswith(
        "fairlead: compare.target must be left out where runs are compared by objective"
    )
    Path("spec.toml").write_text(SPEC + table.replace("[0]", '"0,0"').replace("0.3", "30"))
    assert "compare.seeds must be different whole numbers from 0 to" in call(exit_code=2).stderr
    assert "compare.target must be from 0 to 1" in call("--seeds", "0", exit_code=2).stderr
