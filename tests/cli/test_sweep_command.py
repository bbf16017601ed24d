"""`fairlead sweep`, called in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.experiments.workers import run_study

SPEC = """
rounds = 3
evaluate_every = 3
[clients]
type = "Digits"
num_clients = 4
[algorithm]
preset = "fedavg"
lr = 0.1
steps = 3
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)


def call(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["sweep", "spec.toml", "--jobs", "1", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


def data(*arguments: str) -> Any:
    return json.loads(call(*arguments, "--json").stdout)


def test_the_best_setting_comes_first() -> None:
    """By the mean over seeds, computed again from the folders, for a metric to maximise and one to minimize."""
    arguments = ("--grid", "algorithm.lr=0.0001,0.3,0.01", "--grid", "seed=0..1")
    found = data(*arguments)
    means = []
    for lr in ("0.0001", "0.3", "0.01"):
        ends = []
        for seed in (0, 1):
            evaluation = fl.load_records(f"runs/spec-sweep/algorithm.lr={lr},seed={seed}")[-1].evaluation
            assert evaluation is not None
            ends.append(evaluation.metrics["accuracy"])
        means.append((sum(ends) / 2, float(lr)))
    ranked = [(each["final"]["mean"], each["algorithm.lr"]) for each in found["settings"]]
    assert [lr for _, lr in ranked] == [lr for _, lr in sorted(means, reverse=True)]
    assert [mean for mean, _ in ranked] == pytest.approx(sorted((mean for mean, _ in means), reverse=True))
    losses = [each["final"]["mean"] for each in data(*arguments, "--metric", "loss")["settings"]]
    assert losses == sorted(losses)
    least = [each["final"]["mean"] for each in data(*arguments, "--minimize")["settings"]]
    assert least == sorted(least)


def test_the_text_gives_the_command_for_the_best() -> None:
    result = call("--grid", "algorithm.lr=0.0001,0.3", "--set", "algorithm.batch_size=8", "-o", "runs/x")
    assert "algorithm.lr=0.3 comes first with " in result.stdout
    advice = "fairlead run spec.toml --set algorithm.batch_size=8 --set algorithm.lr=0.3"
    assert f"Run it with: {advice}" in result.stdout
    rerun = CliRunner().invoke(app, [*advice.split()[1:], "-q", "-o", "runs/best"])
    assert rerun.exit_code == 0
    assert fl.load_records("runs/best") == fl.load_records("runs/x/algorithm.lr=0.3")


def test_a_random_search_goes_on_with_more_draws() -> None:
    ranges = ("--range", "algorithm.lr=log:1e-3..1", "-o", "runs/x")
    call("--random", "2", *ranges, "-q")
    more = call("--random", "3", *ranges)
    assert more.stderr.count("was done before") == 2
    assert more.stderr.count("finished in") == 1
    assert len(fl.StudyFolder(Path("runs/x")).runs()) == 3


def test_a_long_sweep_shows_its_best_only() -> None:
    result = call("--grid", "seed=0", "--grid", "algorithm.clip=1..22", "--rounds", "1")
    assert "and 2 more settings, in runs/spec-sweep-1-round" in result.stdout


def test_rounds_that_are_swept_may_differ() -> None:
    call("--grid", "rounds=1", "-q")
    call("--grid", "rounds=2,3", "-q")
    lengths = {run.folder: run.outcome for run in fl.StudyFolder(Path("runs/spec-sweep")).runs()}
    assert lengths == {"rounds=1": "finished", "rounds=2": "finished", "rounds=3": "finished"}


def test_failures_are_told() -> None:
    result = call("--grid", "algorithm.lr=0.1,1e30", exit_code=1)
    assert "algorithm.lr=1e+30, seed 0 failed: In round 1" in result.stdout
    assert "No run of algorithm.lr=1e+30 finished: the reasons above say what to change." in result.stdout
    assert "Only algorithm.lr=0.1 has finished all its runs, so no method is ranked first." in result.stdout
    assert "Run it with: fairlead run spec.toml --set algorithm.lr=0.1" in result.stdout


def call_with_outcomes(changed: Mapping[str, str], *arguments: str, exit_code: int) -> str:
    """The output of a sweep of two learning rates whose runs in these folders ended in another way."""

    def changing(*positional: Any, **named: Any) -> dict[str, str]:
        outcomes = run_study(*positional, **named)
        for folder, outcome in changed.items():
            store = fl.RunFolder(Path("runs/x") / folder)
            store.note(replace(store.provenance()[-1], outcome=outcome), renew=True)
            store.summary_file.rename(store.path / "set aside")
        return {**outcomes, **changed}

    grid = ("--grid", "algorithm.lr=0.0001,0.3", "--grid", "seed=0..2", "-o", "runs/x")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fairlead.cli.show_study.run_study", changing)
        shown = call(*grid, *arguments, exit_code=exit_code).stdout
    for folder in changed:
        store = fl.RunFolder(Path("runs/x") / folder)
        store.note(replace(store.provenance()[-1], outcome="finished"), renew=True)
        (store.path / "set aside").rename(store.summary_file)
    return shown


FAILED = {"algorithm.lr=0.3,seed=1": "failed: In round 1 it diverged."}
INTERRUPTED = {"algorithm.lr=0.3,seed=2": "interrupted"}


def test_a_setting_that_lacks_runs_is_never_the_best() -> None:
    """0.3 leads by far, with all seeds; with one of three it comes last."""
    assert "algorithm.lr=0.3 comes first with " in call_with_outcomes({}, exit_code=0)
    shown = call_with_outcomes(FAILED | INTERRUPTED, exit_code=130)
    assert "Only algorithm.lr=0.0001 has finished all its runs" in shown
    assert "algorithm.lr=0.3 (1 of 3 runs failed and 1 did not finish)" in shown
    found = json.loads(call_with_outcomes(FAILED, "--json", exit_code=1))
    assert [each["algorithm.lr"] for each in found["settings"]] == [0.0001, 0.3]
    assert found["settings"][0]["final"]["mean"] < found["settings"][1]["final"]["mean"]


def test_no_setting_is_the_best_if_all_lack_runs() -> None:
    shown = call_with_outcomes(FAILED | {"algorithm.lr=0.0001,seed=0": "failed: It diverged."}, exit_code=1)
    assert "No method has finished all its runs, so no method is ranked first." in shown
    assert "Run it with" not in shown


def test_a_lead_that_may_be_noise_is_called_so() -> None:
    assert "points above algorithm.lr=0.0001: more than the noise over seeds." in call_with_outcomes(
        {}, exit_code=0
    )
    close = call("--grid", "algorithm.lr=0.1,0.3,0.29", "--grid", "seed=0..2", "-o", "runs/close").stdout
    assert re.search(r"Against algorithm.lr=0.\d+, the next: .* points, within the noise over seeds\.", close)
    alone = call("--grid", "algorithm.lr=0.0001,0.3", "-o", "runs/alone").stdout
    assert "points above algorithm.lr=0.0001. With only one seed, the noise is unknown." in alone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "A sweep needs values: --grid seed=0..4, or --random 10 --range algorithm.lr=0.01..1."),
        ("--grid sed=1", "sed is not a field of Experiment. Did you mean 'seed'?"),
        ("--random 3", "--random N needs --range PATH=RANGE, and --range needs --random N."),
        (
            "--grid seed=0,99999999999999999999",
            "seed must be a whole number of at most 9223372036854775807, got 99999999999999999999.",
        ),
        ("--grid seed=0 --jobs 0", "--jobs must be at least 1, got 0."),
    ],
)
def test_refusals_are_one_sentence(arguments: str, message: str) -> None:
    assert call(*arguments.split(), exit_code=2).stderr.strip() == f"fairlead: {message}"
