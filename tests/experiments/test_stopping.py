"""Early stopping: by patience and by target, the same after a crash, and finished for every reader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import KilledError, experiment, kill_after
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.records import Evaluation
from fairlead.stopping import BestSoFar


def after(values: list[float], sign: int = 1) -> BestSoFar:
    record = fl.Federation(*_small()).train(1)
    (first,) = list(record)
    evaluations = (Evaluation(value, {"accuracy": value}) for value in values)
    return BestSoFar("accuracy", sign).after(replace(first, evaluation=each) for each in evaluations)


def _small() -> tuple[fl.Algorithm, fl.World]:
    problem = fl.Quadratics(num_clients=2).problem(0)
    return fl.presets.fedavg(lr=0.1, steps=1), fl.SimulatedWorld(problem.task(), problem.data())


def test_patience_counts_evaluations_since_the_best() -> None:
    rule = fl.StopRule("accuracy", patience=2)
    assert not rule.is_met(after([0.1, 0.5, 0.4]))
    assert rule.is_met(after([0.1, 0.5, 0.4, 0.5]))
    assert not rule.is_met(after([0.1, 0.5, 0.4, 0.6]))
    assert not rule.is_met(after([0.4, 0.3, 0.2], sign=-1))
    assert rule.is_met(after([0.2, 0.3, float("nan")], sign=-1))


def test_a_target_is_reached_from_the_better_side() -> None:
    rule = fl.StopRule("accuracy", target=0.5)
    assert rule.is_met(after([0.1, 0.5]))
    assert not rule.is_met(after([0.1, 0.4]))
    assert not rule.is_met(after([0.9, 0.6], sign=-1))
    assert rule.is_met(after([0.9, 0.5], sign=-1))


def ruled(**options: float) -> fl.Experiment:
    rule = fl.StopRule("accuracy", **options)  # type: ignore[arg-type]
    return replace(experiment(rounds=30), evaluate_every=1, stop_when=rule)


def expected_end(values: list[float], target: float) -> int:
    return next(done for done, value in enumerate(values, start=1) if value >= target)


def test_a_run_ends_at_the_target_and_is_finished(tmp_path: Path) -> None:
    whole = [
        record.evaluation.metrics["accuracy"]
        for record in replace(ruled(target=0.3), stop_when=None).build().train()
        if record.evaluation
    ]
    target = sorted(whole)[len(whole) // 2]
    end = expected_end(whole, target)
    run = fl.run_experiment(ruled(target=target), tmp_path)
    assert run.outcome == "finished"
    assert run.summary is not None
    assert run.summary.rounds == len(run.federation.records) == end < 30
    assert len(list(ruled(target=target).build().train())) == end
    assert fl.RunFolder(tmp_path).is_done(ruled(target=target))
    content = (tmp_path / "rounds.jsonl").read_bytes()
    for rounds in (30, 40):
        again = fl.run_experiment(replace(ruled(target=target), rounds=rounds), tmp_path, resume=True)
        assert again.outcome == "finished"
        assert (tmp_path / "rounds.jsonl").read_bytes() == content


@pytest.mark.parametrize("killed", [2, 4])
def test_a_killed_run_ends_at_the_same_round(tmp_path: Path, killed: int) -> None:
    plan = replace(ruled(patience=1), keep_best="accuracy")
    whole = fl.run_experiment(plan, tmp_path / "whole")
    end = len(whole.federation.records)
    with pytest.raises(KilledError):
        fl.run_experiment(plan, tmp_path / "cut", checkpoint_every=1, on_round=kill_after(min(killed, end)))
    fl.run_experiment(plan, tmp_path / "cut", resume=True)
    for name in ("model.safetensors", "best.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert len(fl.load_records(tmp_path / "cut")) == end < 30


def test_methods_that_stop_at_different_rounds_are_compared() -> None:
    methods = {"slow": fl.presets.fedavg(lr=0.02), "fast": fl.presets.fedavg(lr=0.3)}
    plan = replace(ruled(target=0.75), link=fl.PerfectLink(), work=fl.EqualWork())
    found = fl.compare(plan, methods, seeds=range(2))
    lengths = {method.name: len(method.federation.records) for method in found}
    assert lengths["fast"] < lengths["slow"]
    assert found["fast"].difference is not None


def test_the_command_reads_the_rule_from_a_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    runner.invoke(app, ["init", "study.toml"])
    options = ["--rounds", "20", "--set", "evaluate_every=1", "-o", "run"]
    rule = 'stop_when={metric = "loss", target = 2.2, patience = 10}'
    done = runner.invoke(app, ["run", "study.toml", *options, "--set", rule])
    assert "stop_when ended the run before round 20: loss 2." in done.output
    assert "reached the target 2.2." in done.output, done.output
    again = runner.invoke(app, ["run", "run"])
    assert "already finished after" in again.output


def test_rules_that_cannot_work_are_refused() -> None:
    with pytest.raises(fl.errors.FieldError, match=r"stop_when needs patience or target\."):
        fl.StopRule("loss")
    with pytest.raises(fl.errors.FieldError, match=r"from 0 to 1 for accuracy, got 80: write 0\.8 for 80 %"):
        fl.StopRule("accuracy", target=80)
    with pytest.raises(fl.errors.FieldError) as caught:
        replace(experiment(), keep_best="f1_macro")
    assert str(caught.value).endswith("""Add it to the task: --set 'task.metrics=["accuracy","f1_macro"]'.""")
    with pytest.raises(
        fl.errors.FieldError,
        match=r"stop_when.metric must be one of 'loss', 'accuracy', 'personal_loss', .*got 'f1'",
    ):
        replace(experiment(), stop_when=fl.StopRule("f1", patience=1))
    with pytest.raises(fl.errors.ClashError, match="needs evaluations"):
        replace(experiment(), evaluate_every=0, stop_when=fl.StopRule("loss", patience=1))
