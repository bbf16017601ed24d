"""What the metric of a comparison can be asked, and when a result is complete."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.experiments.summary import RunSummary
from fairlead.results.estimates import estimate
from fairlead.results.study_results import Metric, Result, best_first

SUMMARY = RunSummary(
    rounds=1,
    seconds=1.0,
    train_loss=0.5,
    evaluation=None,
    objective=0.7,
    misplaced_weight=0.0,
    misplaced_by_chance=0.0,
    chi_square=0.0,
    predicted_chi_square=0.0,
    by_design=False,
    notice=None,
)
TRAIN_LOSS = Metric("train_loss", smaller_is_better=True)


def test_rounds_have_no_objective(tmp_path: Path) -> None:
    """Their training loss is another figure, which may order methods otherwise."""
    experiment = fl.Experiment(
        fl.Quadratics(3), fl.presets.fedavg(lr=0.1, steps=2), rounds=1, evaluate_every=0
    )
    fl.run_study(fl.StudyFolder(tmp_path), [fl.PlannedRun("run", {}, experiment)], jobs=1)
    (record,) = fl.load_records(tmp_path / "run")
    objective = Metric("objective", smaller_is_better=True)
    assert record.train_loss is not None
    assert TRAIN_LOSS.in_round(record) == record.train_loss
    assert objective.in_round(record) is None
    assert objective.over_rounds == TRAIN_LOSS
    assert TRAIN_LOSS.over_rounds == TRAIN_LOSS


@pytest.mark.parametrize("target", [0.0, 0.95, 1.0])
def test_targets_of_accuracy_are_shares(target: float) -> None:
    accuracy = Metric("accuracy", smaller_is_better=False)
    accuracy.refuse_target(target, "--target")
    for wrong in (target + 1.5, target - 1.5, math.nan):
        with pytest.raises(FieldError, match="--target must be from 0 to 1 for accuracy, got"):
            accuracy.refuse_target(wrong, "--target")
        Metric("loss", smaller_is_better=True).refuse_target(wrong, "--target")


@pytest.mark.parametrize("name", ["objective", "misplaced_weight", "chi_square"])
def test_figures_of_the_end_have_no_targets(name: str) -> None:
    with pytest.raises(
        FieldError, match=f"left out where runs are compared by {name}, which is known at their"
    ):
        Metric(name, smaller_is_better=True).refuse_target(0.1, "--target")


def test_results_with_runs_that_did_not_measure_the_metric_come_last() -> None:
    """A last round in which nothing arrived has no training loss: 0.1 of one seed does not beat 0.5 of two."""
    whole = Result({"lr": 1}, {0: SUMMARY, 1: SUMMARY}, {}, estimate([0.5, 0.5]), None)
    lost = replace(SUMMARY, train_loss=None)
    partly = Result({"lr": 2}, {0: replace(SUMMARY, train_loss=0.1), 1: lost}, {}, estimate([0.1]), None)
    unmeasured = Result({"lr": 3}, {0: lost, 1: lost}, {}, None, None)
    assert [each.is_complete for each in (whole, partly, unmeasured)] == [True, False, False]
    assert best_first([unmeasured, partly, whole], TRAIN_LOSS) == [whole, partly, unmeasured]
