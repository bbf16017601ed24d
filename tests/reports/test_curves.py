"""Curves of runs and their bands over seeds, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fabricated import USUAL, Made, fabricate

from fairlead.results.curves import (
    AXES,
    BYTES,
    CHI_SQUARE,
    COMPUTE_TIME,
    ELUD,
    LOCAL_STEPS,
    OBJECTIVE,
    ROUNDS,
    VIRTUAL_TIME,
    Curve,
    band_of,
    bands,
    metric_quantity,
    quantities,
)
from fairlead.results.methods import group_runs
from fairlead.results.runs import ReportedRun, find_runs, read_run

STUDENT = {1: 12.706204736, 2: 4.302652730}


def reported(path: Path, made: Made = USUAL) -> ReportedRun:
    fabricate(path, made)
    return read_run(find_runs([path])[0])


def test_axes_add_up_what_rounds_took(tmp_path: Path) -> None:
    """Two clients with 1 and 3 steps, 150 bytes, 10 s of computing and 5 s by the clock in every round."""
    run = reported(tmp_path / "run")
    assert ROUNDS.read(run) == (1, 2)
    assert LOCAL_STEPS.read(run) == (4, 8)
    assert BYTES.read(run) == (150, 300)
    assert COMPUTE_TIME.read(run) == (10, 20)
    assert VIRTUAL_TIME.read(run) == (5, 10)


def test_a_run_without_a_clock_has_no_times(tmp_path: Path) -> None:
    run = reported(tmp_path / "run", Made(seconds=None))
    assert COMPUTE_TIME.read(run) is None
    assert VIRTUAL_TIME.read(run) is None


def test_metrics_are_read_where_the_model_was_evaluated(tmp_path: Path) -> None:
    run = reported(tmp_path / "run", Made(accuracy=(None, 0.5, None, 0.7)))
    curve = metric_quantity("accuracy", None).read(run)
    assert (curve.rounds, curve.values) == ((2, 4), (0.5, 0.7))


def test_the_objective_weighs_clients_losses(tmp_path: Path) -> None:
    """ω = (¼, ¾) and losses 1 and 2: ¼ + 1½."""
    assert OBJECTIVE.read(reported(tmp_path / "run")).values == pytest.approx((1.75, 1.75))


def test_chi_square_of_all_rounds_so_far(tmp_path: Path) -> None:
    """Equal coefficients and 1 against 3 steps make Ω = (¼, ¾) = ω; 3 against 1 make Ω = (¾, ¼)."""
    right = CHI_SQUARE.read(reported(tmp_path / "right"))
    wrong = CHI_SQUARE.read(reported(tmp_path / "wrong", Made(steps=(3, 1))))
    assert right.values == pytest.approx((1e-6, 1e-6))
    assert wrong.values == pytest.approx((0.25 / 0.75 + 0.25 / 0.25,) * 2)


def test_a_method_that_restores_the_weights_has_no_chi_square_to_draw(tmp_path: Path) -> None:
    assert len(CHI_SQUARE.read(reported(tmp_path / "run", Made("scaffold")))) == 0


def test_accuracy_comes_first_and_other_metrics_are_drawn_too(tmp_path: Path) -> None:
    runs = [
        reported(tmp_path / "a", Made(metric="zero_one_loss")),
        reported(tmp_path / "b", Made(metric="accuracy")),
    ]
    titles = [quantity.title for quantity in quantities(runs)]
    assert titles[:3] == ["Accuracy", "Zero one loss", "Test loss"]
    assert ELUD.read(runs[0]).values == (2.0, 3.0)


def test_curves_are_subtracted_where_both_were_measured() -> None:
    """Rounds 2 and 3 are common; two rounds before 3 and 4 are 1 and 2, and two rounds after 1 and 2 are 3 and 4."""
    curve, other = Curve((2, 3, 4), (5.0, 7.0, 9.0)), Curve((1, 2, 3), (1.0, 2.0, 4.0))
    assert curve.minus(other) == [3.0, 3.0]
    assert curve.minus(other, before=2) == [6.0, 7.0]
    assert other.minus(curve, before=-2) == [1.0 - 7.0, 2.0 - 9.0]
    assert curve.minus(other, before=9) == []


def test_a_band_at_common_positions_is_mean_and_interval() -> None:
    curves = [([1.0, 2.0], [0.1, 0.5]), ([1.0, 2.0], [0.3, 0.6]), ([1.0, 2.0], [0.2, 0.1])]
    band = band_of(curves)
    values = np.array([own for _, own in curves])
    reach = STUDENT[2] * values.std(0, ddof=1) / np.sqrt(3)
    assert band is not None
    assert band.low is not None
    assert band.high is not None
    assert band.x == (1.0, 2.0)
    assert band.y == pytest.approx(tuple(values.mean(0)))
    assert band.low == pytest.approx(tuple(values.mean(0) - reach))
    assert band.high == pytest.approx(tuple(values.mean(0) + reach))


def test_curves_at_other_positions_are_read_between_their_points() -> None:
    """Over the stretch from 2 to 6 that both cover, at every point of either."""
    curves = [([0.0, 4.0, 6.0], [0.0, 4.0, 4.0]), ([2.0, 5.0, 9.0], [1.0, 7.0, 7.0])]
    band = band_of(curves)
    positions = [2.0, 4.0, 5.0, 6.0]
    read = np.array([np.interp(positions, *curve) for curve in curves])
    assert band is not None
    assert list(band.x) == positions
    assert band.y == pytest.approx(tuple(read.mean(0)))
    assert band.high == pytest.approx(tuple(read.mean(0) + STUDENT[1] * read.std(0, ddof=1) / np.sqrt(2)))


def test_curves_that_have_no_stretch_in_common_make_no_band() -> None:
    assert band_of([([0.0, 1.0], [0.0, 0.0]), ([2.0, 3.0], [0.0, 0.0])]) is None


def test_curves_of_one_point_each_make_a_point_wherever_they_were_measured() -> None:
    """Means 4 of the positions 2, 3 and 7 and 0.2 of the values, whose s = 0.1 makes ± 4.30·0.1/√3."""
    band = band_of([([2.0], [0.1]), ([3.0], [0.3]), ([7.0], [0.2])])
    assert band is not None
    assert band.is_point
    assert band.x == (4.0,)
    assert band.y == pytest.approx((0.2,))
    assert band.high == pytest.approx((0.2 + STUDENT[2] * 0.1 / np.sqrt(3),))


def test_a_curve_of_one_point_beside_longer_ones_is_not_moved() -> None:
    assert band_of([([0.5], [0.1]), ([1.0, 2.0], [0.3, 0.4])]) is None


def test_one_curve_has_no_interval() -> None:
    band = band_of([([1.0, 2.0], [0.5, 0.6])])
    assert band is not None
    assert (band.low, band.high) == (None, None)


def test_long_curves_keep_their_ends_and_a_hundred_points() -> None:
    positions = [float(place) for place in range(1, 1001)]
    band = band_of([(positions, positions)])
    assert band is not None
    assert (len(band.x), band.x[0], band.x[-1]) == (100, 1.0, 1000.0)
    assert band.y == band.x


def test_bands_of_a_method_against_every_axis(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made(accuracy=(0.2, 0.4)))
    fabricate(tmp_path / "fedavg-1", Made(seed=1, accuracy=(0.4, 0.6)))
    (method,) = group_runs([read_run(found) for found in find_runs([tmp_path])]).methods
    found = bands(method, metric_quantity("accuracy", None), AXES)
    assert {key: band.x for key, band in found.items()} == {
        "rounds": (1, 2),
        "virtual": (5, 10),
        "compute": (10, 20),
        "steps": (4, 8),
        "bytes": (150, 300),
    }
    assert found["bytes"].y == pytest.approx((0.3, 0.5))
