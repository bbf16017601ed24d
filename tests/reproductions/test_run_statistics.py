"""Figures of a run against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from fairlead.records import Evaluation, RoundRecord
from fairlead.reproductions import trained as statistics
from fairlead.results.run_archive import ArchivedRun, curves_of


def record(round: int, accuracy: float | None = None, elud: float | None = None) -> RoundRecord:
    evaluation = None if accuracy is None else Evaluation(1 - accuracy, {"accuracy": accuracy})
    return RoundRecord(
        round=round,
        asked=(0, 1, 2),
        multiplicity=(1, 1, 1),
        arrived=(0, 1, 2),
        num_steps=(1, 2, 3),
        effective_steps=None,
        coefficients=None,
        remembered={},
        train_loss=None,
        direction_norm=0.0,
        step_norm=0.0,
        elud=elud,
        bytes_down=0,
        bytes_up=0,
        evaluation=evaluation,
    )


ACCURACIES = [0.1, 0.5, 0.3, 0.6, 0.2, 0.4, 0.4, 0.4, 0.5, 0.3, 0.2, 0.4]
RUN = curves_of([record(round, accuracy) for round, accuracy in enumerate(ACCURACIES)])


def test_accuracies_at_the_end() -> None:
    """Of twelve rounds the last tenth is two: (0.2 + 0.4)/2; the last five: (0.4 + 0.5 + 0.3 + 0.2 + 0.4)/5."""
    assert statistics.top_accuracy(RUN, None) == pytest.approx(60)
    assert statistics.last_tenth_accuracy(RUN, None) == pytest.approx(30)
    assert statistics.last_five_accuracy(RUN, None) == pytest.approx(36)
    assert statistics.final_accuracy(RUN, None) == pytest.approx(40)


def test_rounds_and_steps_until_a_target() -> None:
    """0.5 is first met in the second round, after 2·(1 + 2 + 3) steps."""
    assert statistics.rounds_to_target(RUN, 0.5) == 2
    assert statistics.steps_to_target(RUN, 0.5) == pytest.approx(0.012)
    assert statistics.rounds_to_target(RUN, 0.61) == math.inf
    assert statistics.steps_to_target(RUN, 0.61) == math.inf
    assert statistics.rounds_to_target(RUN, None) is None


def archived(seed: int, accuracy: tuple[float, ...], target: float | None) -> ArchivedRun:
    return ArchivedRun(
        setting="MNIST",
        method="FedAvg",
        seed=seed,
        rounds=len(accuracy),
        figures={},
        curves={"accuracy": accuracy},
        seconds=1.0,
        machine="",
        precision="full",
        engine="",
        torch="",
        fairlead="",
        git_commit=None,
        date="",
        target=target,
    )


def test_rounds_to_a_target_on_the_mean_curve() -> None:
    """Both runs reach 0.7 by a spike, in rounds 2 and 3, of 2.5 on average; their mean does so in round 4."""
    curves = (0.1, 0.7, 0.2, 0.8), (0.1, 0.2, 0.9, 0.6)
    runs = [archived(seed, curve, 0.7) for seed, curve in enumerate(curves)]
    assert statistics.rounds_on_mean_curve(runs) == 4
    assert statistics.rounds_on_mean_curve(runs[:1]) == 2
    assert statistics.rounds_on_mean_curve([archived(0, curves[0], 0.9)]) == math.inf
    assert statistics.rounds_on_mean_curve([archived(0, curves[0], None)]) is None
    assert statistics.rounds_on_mean_curve([]) is None


def test_diversity_leaves_out_canceled_and_empty_rounds() -> None:
    run = [record(0, elud=2.0), record(1, elud=math.inf), record(2), record(3, elud=4.0)]
    assert statistics.mean_elud(curves_of(run), None) == 3.0
    assert statistics.mean_elud(curves_of([record(0)]), None) is None


def test_late_loss_is_of_the_second_half() -> None:
    """Losses are 1 − accuracy: of the last six rounds 1 − (0.4 + 0.4 + 0.5 + 0.3 + 0.2 + 0.4)/6 = 1 − 2.2/6."""
    assert statistics.late_loss(RUN, None) == pytest.approx(1 - 2.2 / 6)
