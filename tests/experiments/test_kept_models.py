"""Models of runs: the last and the best one, after crashes too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import KilledError, experiment, kill_after
from torch import Tensor, nn

import fairlead as fl
from fairlead.experiments.kept_models import kept_model

BEST = replace(experiment(rounds=8), keep_best="accuracy")


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def accuracies(folder: Path) -> dict[int, float]:
    return {
        record.round + 1: record.evaluation.metrics["accuracy"]
        for record in fl.load_records(folder)
        if record.evaluation
    }


def test_the_last_and_the_best_model_are_those_of_their_rounds(tmp_path: Path) -> None:
    run = fl.run_experiment(BEST, tmp_path / "run")
    assert same(fl.load_model(tmp_path / "run"), run.federation.model())
    facts, found = kept_model(tmp_path / "run", "best").facts, accuracies(tmp_path / "run")
    best = max(found, key=lambda rounds: found[rounds])
    assert (facts.rounds, facts.metric, facts.value) == (best, "accuracy", found[best])
    again = BEST.build()
    for _ in again.train(best):
        pass
    assert same(fl.load_model(tmp_path / "run", "best"), again.model())


@pytest.mark.parametrize("rounds", [3, 5, 7])
def test_a_killed_run_keeps_the_same_bits(tmp_path: Path, rounds: int) -> None:
    fl.run_experiment(BEST, tmp_path / "whole")
    with pytest.raises(KilledError):
        fl.run_experiment(BEST, tmp_path / "killed", checkpoint_every=2, on_round=kill_after(rounds))
    fl.run_experiment(BEST, tmp_path / "killed", resume=True)
    for name in ("model.safetensors", "best.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_unfinished_run_has_the_model_of_its_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        fl.run_experiment(BEST, tmp_path, checkpoint_every=2, on_round=kill_after(5))
    again = BEST.build()
    for _ in again.train(4):
        pass
    assert kept_model(tmp_path).facts.rounds == 4
    assert same(fl.load_model(tmp_path), again.model())
    assert same(fl.load_model(tmp_path, module=again.model()), again.model())


def test_a_longer_run_replaces_its_model(tmp_path: Path) -> None:
    fl.run_experiment(BEST, tmp_path)
    with pytest.raises(KilledError):
        fl.run_experiment(replace(BEST, rounds=12), tmp_path, resume=True, on_round=kill_after(11))
    assert kept_model(tmp_path).facts.rounds == 10
    run = fl.run_experiment(replace(BEST, rounds=12), tmp_path, resume=True)
    assert same(fl.load_model(tmp_path), run.federation.model())


def test_a_finished_run_without_checkpoints_still_has_its_model(tmp_path: Path) -> None:
    planned = [fl.PlannedRun("a", {"method": "a"}, BEST)]
    fl.run_study(fl.StudyFolder(tmp_path), planned, jobs=1, keep_finished_checkpoints=False)
    assert not (tmp_path / "a" / "checkpoint").exists()
    assert kept_model(tmp_path / "a").facts.rounds == 8


def error(outputs: Tensor, targets: Tensor) -> Tensor:
    return 1 - fl.accuracy(outputs, targets)


error.higher_is_better = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("metric", ["loss", "test_kept_models:error"])
def test_the_best_loss_and_error_is_the_smallest(tmp_path: Path, metric: str) -> None:
    task = fl.Task(fl.LogisticRegression(), metrics=("accuracy", "test_kept_models:error"))
    name = metric.rpartition(":")[2]
    run = fl.run_experiment(replace(BEST, task=task, keep_best=name), tmp_path)
    values = [
        {"loss": record.evaluation.loss, **record.evaluation.metrics}[name]
        for record in run.federation.records
        if record.evaluation
    ]
    assert kept_model(tmp_path, "best").facts.value == min(values)


def test_parameters_with_two_names_are_kept_and_loaded(tmp_path: Path) -> None:
    run = fl.run_experiment(replace(BEST, task=fl.Task(fl.ImportedModel("test_kept_models:Tied"))), tmp_path)
    loaded = fl.load_model(tmp_path)
    assert isinstance(loaded, Tied)
    assert loaded.first is loaded.second
    assert same(loaded, run.federation.model())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second, self.last = self.first, nn.Linear(64, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.last(self.second(self.first(inputs.flatten(1)).relu()).relu())
        return out


def test_refusals_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(
        fl.errors.FieldError,
        match=r"keep_best must be one of 'loss', 'accuracy', 'personal_loss', .*got 'f1'",
    ):
        replace(BEST, keep_best="f1")
    with pytest.raises(fl.errors.ClashError, match="keep_best needs evaluations"):
        replace(BEST, evaluate_every=0)
    with pytest.raises(fl.errors.RunFolderError, match="is not the folder of a run"):
        fl.load_model(tmp_path)
    fl.run_experiment(experiment(rounds=1), tmp_path)
    with pytest.raises(fl.errors.RunFolderError, match="keeps no best model: its spec has no keep_best"):
        fl.load_model(tmp_path, "best")
    with pytest.raises(fl.errors.CheckpointError, match=r"other parameters than this Linear: .*weight"):
        fl.load_model(tmp_path, module=nn.Linear(3, 2))
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(fl.errors.CheckpointError, match="damaged"):
        fl.load_model(tmp_path)
