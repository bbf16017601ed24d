"""The figures of runs and methods, by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from fabricated import Made, fabricate

from fairlead.reports.tables import report_tables
from fairlead.results import curves
from fairlead.results.comparison import Summary, summarize_runs
from fairlead.results.methods import MethodRuns, Study
from fairlead.results.runs import ReportedRun
from fairlead.results.sentences import recommendation

RISING = tuple(place / 20 for place in range(20))
"""Accuracy 0 to 0.95 over 20 rounds."""


def one(tmp_path: Path, made: Made, **options: float) -> Summary:
    fabricate(tmp_path / f"{made.method}-{made.seed}", made)
    return summarize_runs([tmp_path], targets=list(options.values()))


def test_ends_of_a_run(tmp_path: Path) -> None:
    """The last 10 % of 20 rounds are two, the last five are five."""
    figures = one(tmp_path, Made(accuracy=(*RISING[:-1], 0.5))).methods[0].runs[0]
    assert figures.figure("final") == 0.5
    assert figures.figure("best") == 0.9
    assert figures.figure("last-tenth") == pytest.approx((0.9 + 0.5) / 2)
    assert figures.figure("last5") == pytest.approx((0.75 + 0.8 + 0.85 + 0.9 + 0.5) / 5)


def test_what_a_target_took(tmp_path: Path) -> None:
    """0.43 is first met after round 10 (accuracy 0.45): 40 steps, 100 s of computing, 50 s by the clock."""
    summary = one(tmp_path, Made(accuracy=RISING), first=0.43, second=0.99)
    run, (met, never) = summary.methods[0].runs[0], summary.targets
    costs = {curves.ROUNDS: 10, curves.LOCAL_STEPS: 40, curves.COMPUTE_TIME: 100, curves.VIRTUAL_TIME: 50}
    assert {axis: run.cost_of(met, axis) for axis in costs} == costs
    assert (run.rounds_to(met), run.rounds_to(never)) == (10, None)
    assert [run.cost_of(never, axis) for axis in costs] == [None] * 4


def test_totals_and_clients(tmp_path: Path) -> None:
    figures = one(tmp_path, Made(client_accuracy=(0.5, 1.0))).methods[0].runs[0]
    assert (figures.bytes_down, figures.bytes_up, figures.steps) == (200, 100, 8)
    assert (figures.total(curves.COMPUTE_TIME), figures.total(curves.VIRTUAL_TIME), figures.seconds) == (
        20,
        10,
        1.0,
    )
    assert figures.client_mean == 0.75
    assert figures.client_worst == 0.5
    assert figures.client_spread == pytest.approx(np.std([0.5, 1.0]))
    assert figures.eludd == pytest.approx((2 + 3) / 2)
    assert figures.objective == 0.125


def test_wall_time_leaves_the_start_of_the_process_out(tmp_path: Path) -> None:
    """Four rounds of which the middle one takes 0.25 s, whatever the first one waited for."""
    made = Made(accuracy=(0.1, 0.2, 0.3, 0.4), wall=(60.0, 0.25, 0.25, 0.25))
    summary = one(tmp_path, made)
    assert summary.methods[0].runs[0].seconds == 1.0
    cost = next(table for table in report_tables(summary) if table.key == "cost")
    assert "Wall time is the median time of a round times the number of rounds" in cost.note


def test_consistency_is_measured_from_the_records(tmp_path: Path) -> None:
    """1 against 3 steps averaged equally make Ω = (¼, ¾); asked was the same. The other way round, not."""
    fabricate(tmp_path / "right" / "0", Made(steps=(1, 3)))
    fabricate(tmp_path / "wrong" / "0", Made(steps=(3, 1)))
    right, wrong = (method.runs[0] for method in summarize_runs([tmp_path]).methods)
    assert right.misplaced == pytest.approx(0)
    assert wrong.misplaced == pytest.approx(0.5)
    assert wrong.chi_square == pytest.approx(0.25 / 0.75 + 0.25 / 0.25)


def test_methods_are_compared_seed_by_seed(tmp_path: Path) -> None:
    """Differences over seeds 0 and 1, which both have, are 0.1 and 0.2: their mean 0.15 ± 12.706·0.0707/√2."""
    ends = {
        ("fedavg", 0): 0.5,
        ("fedavg", 1): 0.8,
        ("fednova", 0): 0.6,
        ("fednova", 1): 1.0,
        ("fednova", 2): 0.1,
    }
    for (method, seed), end in ends.items():
        fabricate(tmp_path / f"{method}-{seed}", Made(method, seed, accuracy=(0.0, end)))
    fedavg, fednova = summarize_runs([tmp_path]).methods
    assert fedavg.difference is None
    difference = fednova.difference
    assert difference is not None
    assert difference.half_width is not None
    assert difference.count == 2
    assert difference.mean == pytest.approx(0.15)
    assert difference.half_width == pytest.approx(12.706204736 * np.std([0.1, 0.2], ddof=1) / math.sqrt(2))
    assert difference.excludes_zero is False


def test_without_a_target_that_of_the_weakest_run_of_the_baseline_is_taken(tmp_path: Path) -> None:
    """The baseline ends at 0.678 and 0.623: 62 % is met by both."""
    for seed, end in enumerate((0.678, 0.623)):
        fabricate(tmp_path / f"fedavg-{seed}", Made(seed=seed, accuracy=(0.1, end)))
    summary = summarize_runs([tmp_path])
    assert summary.targets == (0.62,)
    assert all(run.rounds_to(0.62) is not None for run in summary.methods[0].runs)


def test_runs_are_judged_by_their_first_metric_unless_another_is_named(tmp_path: Path) -> None:
    """The loss of a fabricated run is 1 − its metric; the target is rounded up to 0.33, which every run meets."""
    measure = one(tmp_path, Made(metric="margin", accuracy=(0.5, 0.675))).measure
    assert (measure.name, measure.higher) == ("margin", True)
    assert not summarize_runs([tmp_path], minimize=True).measure.higher
    summary = summarize_runs([tmp_path], metric="loss")
    assert (summary.measure.name, summary.measure.higher) == ("test loss", False)
    assert summary.targets == pytest.approx((0.33,))
    figures = summary.methods[0].runs[0]
    assert figures.figure("best") == pytest.approx(0.325)
    assert figures.clients == (1.0, 2.0)
    assert figures.client_worst == 2.0
    assert figures.rounds_to(summary.targets[0]) is not None


def test_unfinished_runs_are_in_no_mean(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made(accuracy=(0.1, 0.5)))
    fabricate(tmp_path / "fedavg-1", Made(seed=1, accuracy=(0.9,), outcome="failed: NaN", planned=2))
    found = summarize_runs([tmp_path]).methods[0].over_seeds(lambda run: run.figure("last-tenth"))
    assert found is not None
    assert (found.mean, found.count) == (0.5, 1)


def test_a_run_that_was_never_evaluated_has_costs_only(tmp_path: Path) -> None:
    figures = one(tmp_path, Made(accuracy=(None, None))).methods[0].runs[0]
    assert (figures.figure("final"), figures.figure("last-tenth"), figures.clients) == (None, None, ())
    assert figures.bytes_up == 100


def test_control_variates_restore_the_weights_by_design(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made("fedavg"))
    fabricate(tmp_path / "scaffold-0", Made("scaffold"))
    fedavg, scaffold = summarize_runs([tmp_path]).methods
    assert (fedavg.by_design(), scaffold.by_design()) == (False, True)


def test_a_run_with_a_summary_is_finished_even_if_it_was_killed_before_it_could_note_that(
    tmp_path: Path,
) -> None:
    fabricate(tmp_path / "fedavg-0", Made())
    noted = tmp_path / "fedavg-0" / "provenance.json"
    noted.write_text(noted.read_text().replace('"finished"', '"running"'))
    assert summarize_runs([tmp_path]).methods[0].method.complete


def test_runs_of_unequal_length_are_not_compared(tmp_path: Path) -> None:
    """Two of 20 rounds against all of them: a figure so far, and no difference."""
    fabricate(tmp_path / "fedavg-0", Made("fedavg", accuracy=RISING))
    fabricate(tmp_path / "fednova-0", Made("fednova", accuracy=RISING[:2], planned=20, outcome="interrupted"))
    fedavg, fednova = summarize_runs([tmp_path], baseline="fedavg").methods
    assert (fedavg.label, fednova.label) == ("fedavg", "fednova")
    assert fednova.value is not None
    assert fednova.difference is None


@pytest.mark.parametrize(
    ("accuracies", "objective", "sentence"),
    [
        (
            (0.6, 0.61),
            0.5,
            "use fednova: over 2 seeds its accuracy over the last 10 % of rounds is 10.5 ± 6.4 points higher.",
        ),
        (
            (0.5, 0.7),
            0.25,
            "use fednova: over 2 seeds its objective is 0.255 ± 0.064 lower, and its accuracy over the last 10 % of "
            "rounds is not worse.",
        ),
        ((0.5, 0.7), 0.5, "keep fedavg: over 2 seeds no other method is better in accuracy "),
    ],
)
def test_the_advice_of_a_trial_states_the_gain(
    tmp_path: Path, accuracies: tuple[float, float], objective: float, sentence: str
) -> None:
    """Gains of 0.1 and 0.11, and of 0 and 0.2: 12.706·std/√2 is 0.064 and 1.27. The objective gains 0.25 and 0.26."""
    for seed, accuracy in enumerate(accuracies):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.5,), objective=0.5))
        fabricate(
            tmp_path / f"fednova-{seed}",
            Made("fednova", seed, (accuracy,), objective=objective - 0.01 * seed),
        )
    assert recommendation(summarize_runs([tmp_path])).sentence.startswith(sentence)


def test_all_methods_are_named_with_what_they_took_from_the_spec(tmp_path: Path) -> None:
    labels = [f"fedprox:mu={place}" for place in range(7)]
    runs = {label: (ReportedRun(label, tmp_path, from_spec={"lr": 0.1}),) for label in labels}
    study = Study(tuple(MethodRuns(label, own) for label, own in runs.items()), (), ())
    assert study.from_spec == f"{', '.join(labels[:-1])} and {labels[-1]} take lr 0.1 from the spec."
