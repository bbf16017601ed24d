"""The measure of a comparison, its sentences, and when a method is complete."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.records import Evaluation, RoundRecord
from fairlead.results.comparison import Summary, summarize
from fairlead.results.curves import FigureName
from fairlead.results.figures import measure_named
from fairlead.results.runs import ReportedRun, RunState
from fairlead.results.sentences import describe_standing, headline

EXPERIMENT = fl.Experiment(fl.Quadratics(3), fl.presets.fedavg(lr=0.1, steps=2), rounds=1, evaluate_every=0)


def test_rounds_have_no_objective(tmp_path: Path) -> None:
    """Their training loss is another figure, which may order methods otherwise."""
    fl.run_study(fl.StudyFolder(tmp_path), [fl.PlannedRun("run", {}, EXPERIMENT)], jobs=1)
    objective, train_loss = measure_named("objective"), measure_named("train_loss")
    assert objective.over_rounds is train_loss.quantity
    assert train_loss.over_rounds is train_loss.quantity
    assert objective.described == "objective of the final model"


@pytest.mark.parametrize("target", [0.0, 0.95, 1.0])
def test_targets_of_accuracy_are_shares(target: float) -> None:
    accuracy = measure_named("accuracy")
    accuracy.refuse_target(target, "--target")
    for wrong in (target + 1.5, target - 1.5, math.nan):
        with pytest.raises(FieldError, match="--target must be from 0 to 1 for accuracy, got"):
            accuracy.refuse_target(wrong, "--target")
        measure_named("loss").refuse_target(wrong, "--target")


@pytest.mark.parametrize("name", ["objective", "misplaced_weight", "chi_square"])
def test_figures_of_the_end_have_no_targets(name: str) -> None:
    with pytest.raises(FieldError, match=f"left out where runs are compared by {name}, which only the final"):
        measure_named(name).refuse_target(0.1, "--target")


def test_unknown_figures_are_refused() -> None:
    with pytest.raises(FieldError, match="figure must be one of last-tenth, last5, final, best, got 'last'"):
        measure_named("accuracy", "last")  # type: ignore[arg-type]


def summary_of(
    accuracies: dict[str, dict[int, float | None]], failed: tuple[tuple[str, int], ...] = ()
) -> Summary:
    """A comparison of methods with one round each; None: not evaluated."""
    record = RoundRecord(0, (0,), (1,), (0,), (1,), None, None, {}, 0.5, 1.0, 1.0, None, 0, 0)
    runs = []
    for method, by_seed in accuracies.items():
        for seed, value in by_seed.items():
            evaluation = None if value is None else Evaluation(1.0, {"accuracy": value})
            state: RunState = "failed" if (method, seed) in failed else "finished"
            runs.append(
                ReportedRun(
                    method,
                    Path(method),
                    {"method": method, "seed": seed},
                    seed=seed,
                    state=state,
                    records=(replace(record, evaluation=evaluation),),
                )
            )
    (summary,) = summarize(runs)
    return summary


def test_methods_with_runs_that_did_not_measure_the_metric_come_last() -> None:
    """0.9 of one seed does not beat 0.5 of two."""
    summary = summary_of({"none": {0: None, 1: None}, "partly": {0: 0.9, 1: None}, "whole": {0: 0.5, 1: 0.5}})
    assert [method.label for method in summary.best_first] == ["whole", "partly", "none"]
    assert [method.complete for method in summary.best_first] == [True, False, False]


def test_survivors_of_a_method_are_not_judged() -> None:
    fedavg: dict[int, float | None] = {0: 0.5, 1: 0.51, 2: 0.5}
    summary = summary_of({"fedavg": fedavg, "fednova": {0: 0.8, 1: 0.82, 2: 0.1}}, failed=(("fednova", 2),))
    rival = summary.methods[1]
    assert summary.standing(rival) == "unfinished"
    assert str(describe_standing(summary, rival)) == (
        "+30.5 ± 6.4 points on the seeds that both finished (1 of 3 runs failed)"
    )
    assert headline(summary).startswith(
        "Only fedavg has finished all its runs, so no method is ranked first."
    )


Losses = dict[int, tuple[float, ...]]
"""After each round, by seed."""


def by_loss(losses: dict[str, Losses], figure: FigureName = "final") -> Summary:
    """A comparison by the loss of finished runs, given after each round."""
    record = RoundRecord(0, (0,), (1,), (0,), (1,), None, None, {}, 0.5, 1.0, 1.0, None, 0, 0)
    runs = [
        ReportedRun(
            method,
            Path(method),
            {"method": method, "seed": seed},
            seed=seed,
            state="finished",
            records=tuple(
                replace(record, round=round, evaluation=Evaluation(loss, {}))
                for round, loss in enumerate(curve)
            ),
            detailed=True,
        )
        for method, by_seed in losses.items()
        for seed, curve in by_seed.items()
    ]
    (summary,) = summarize(runs, metric="loss", figure=figure)
    return summary


FINE: Losses = {0: (1.0, 0.5), 1: (1.0, 0.6)}


@pytest.mark.parametrize("loss", [math.inf, math.nan])
@pytest.mark.parametrize("figure", ["final", "last-tenth", "last5"])
def test_a_method_that_diverged_is_called_so(loss: float, figure: FigureName) -> None:
    summary = by_loss({"A": FINE, "B": {0: (1.0, 0.7), 1: (1.0, loss)}}, figure)
    _, rival = summary.methods
    assert [run.value is None for run in rival.runs] == [False, True]
    assert summary.standing(rival) == "diverged"
    assert str(describe_standing(summary, rival)) == "test loss diverged in 1 of 2 runs"
    assert headline(summary) == (
        "Only A has a finite test loss at the end of all its runs, so no method is ranked first. "
        "The test loss diverged to infinity or NaN: B (in 1 of 2 runs). Methods with such runs are not ranked."
    )


def test_methods_are_ranked_without_those_that_diverged() -> None:
    lost: Losses = {0: (1.0, math.inf), 1: (1.0, math.nan)}
    summary = by_loss({"A": lost, "B": FINE, "C": {0: (1.0, 0.9), 1: (1.0, 1.1)}})
    first = summary.best_first[0]
    assert (first.label, summary.ranking) == ("B", "baseline diverged")
    assert str(describe_standing(summary, first)) == "not comparable with A, which diverged"
    assert (
        str(describe_standing(summary, summary.methods[0])) == "baseline (test loss diverged in 2 of 2 runs)"
    )
    assert "It cannot be compared with A, which diverged." in headline(summary)


def test_nothing_is_compared_where_every_run_diverged() -> None:
    summary = by_loss({"A": {0: (1.0, math.inf)}})
    assert headline(summary) == (
        "There is nothing to compare. The test loss diverged to infinity or NaN: A (in 1 of 1 run)."
    )


def test_the_best_round_of_a_run_that_diverged_counts() -> None:
    summary = by_loss({"A": FINE, "B": {0: (0.2, math.inf), 1: (0.3, 0.4)}}, "best")
    assert [run.value for run in summary.methods[1].runs] == [0.2, 0.3]
    assert not summary.diverged


def test_an_archive_without_losses_did_not_diverge() -> None:
    """Its evaluations have NaN in their place."""
    summary = by_loss({"A": {0: (math.nan, math.nan)}})
    (run,) = summary.methods[0].runs
    assert run.diverged
    assert not replace(run, run=replace(run.run, detailed=False)).diverged
