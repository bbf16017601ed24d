"""Runs are kept as one line each, and files of one table add up."""

from __future__ import annotations

import json
import lzma
import math
from dataclasses import replace
from pathlib import Path

import pytest
from test_trained_tables import ENTRY, RUN

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.experiments.study import StudyFolder
from fairlead.experiments.workers import run_study
from fairlead.reproductions.reproduction import Request, listed_parts
from fairlead.reproductions.trained import TableRow
from fairlead.results.run_archive import archive_file, load_archive, merged, save_archive


def test_what_is_kept_reads_back(tmp_path: Path) -> None:
    file = archive_file(tmp_path / "new", "a_table-small")
    assert load_archive(file) == []
    save_archive(file, [RUN])
    (found,) = load_archive(file)
    assert math.isnan(found.curves["accuracy"][1])
    assert replace(found, curves=RUN.curves) == RUN
    file.write_bytes(lzma.compress(b"[]\n"))
    with pytest.raises(FieldError, match=r"holds no runs: give run folders or .runs"):
        load_archive(file)


def test_files_of_before_failures_were_kept_are_read(tmp_path: Path) -> None:
    file = archive_file(tmp_path, "a_table-small")
    save_archive(file, [RUN])
    facts = json.loads(lzma.decompress(file.read_bytes()))
    del facts["failure"]
    file.write_bytes(lzma.compress(json.dumps(facts).encode() + b"\n"))
    (found,) = load_archive(file)
    assert (found.place, found.failure) == (RUN.place, None)


def test_a_finished_run_stands_before_a_failed_one_and_a_later_one_before_a_former() -> None:
    failed, other = replace(RUN, failure="It broke."), replace(RUN, seconds=9.0)
    for runs, stands in (
        ([RUN, failed], RUN),
        ([failed, RUN], RUN),
        ([RUN, other], other),
        ([failed, replace(failed, rounds=1)], replace(failed, rounds=1)),
    ):
        assert merged(merged({}, runs[:1]), runs[1:]) == {RUN.place: stands}


def test_a_run_that_failed_is_told_from_one_that_was_never_made(tmp_path: Path) -> None:
    """Learning rates of 1e30 overflow float32 in the first round; what is known of it travels with what is kept."""
    rows = {**ENTRY.rows, "AWARE": TableRow("fedprox", {"mu": 0.1, "lr": 1e30})}
    columns = {**ENTRY.columns, "slow": replace(ENTRY.columns["slow"], rows=rows)}
    wild = replace(ENTRY, columns=columns)
    found = wild.reproduce(Request(tmp_path / "run", only=("slow",)))
    (failure,) = found.failures
    assert (failure.method, failure.setting, failure.seed, failure.rounds) == ("AWARE", "slow", 0, 0)
    assert failure.columns == ("slow: accuracy", "slow: e-LUDD")
    assert failure.reason.startswith("In round ")
    assert "not finite" in failure.reason
    (check,) = found.checks
    assert (found.verdict, check.state, check.failed) == (
        "open",
        "needs failed runs",
        ("AWARE (slow: accuracy)",),
    )
    assert found.reason == "1 of 1 comparisons needs a run that failed."
    assert check.numbers == "failed: AWARE (slow: accuracy)"
    kept = wild.reproduce(Request(tmp_path / "kept", collect=(tmp_path / "run",)))
    (tmp_path / "run").rename(tmp_path / "away")
    assert wild.reproduce(Request(tmp_path / "kept", collect=())).failures == kept.failures == found.failures
    ENTRY.reproduce(Request(tmp_path / "tame", only=("slow", "AWARE")))
    for folders in (("tame", "away"), ("away", "tame")):
        whole = ENTRY.reproduce(
            Request(tmp_path / "-".join(folders), collect=tuple(tmp_path / each for each in folders))
        )
        assert (whole.verdict, whole.failures) == ("holds", ())


def test_where_all_runs_failed_the_first_is_told(tmp_path: Path) -> None:
    failed = [replace(RUN, seed=seed, failure="It broke.", figures={}) for seed in (0, 1)]
    save_archive(archive_file(tmp_path, "a_table-small"), failed)
    outcome = ENTRY.reproduce(Request(tmp_path / "here", collect=(tmp_path,)))
    assert (outcome.verdict, outcome.reason) == (
        "not run",
        "No run has finished: FedAvg (slow), seed 0, failed after 2 rounds: It broke. 1 more failed.",
    )
    kept = load_archive(archive_file(tmp_path / "here", "a_table-small"))
    assert [run.failure for run in kept] == ["It broke.", "It broke."]


def test_an_outcome_has_the_versions_and_the_date_of_its_runs(tmp_path: Path) -> None:
    """Those of the runs, not of what collects them; a run that failed has no part in the figures."""
    runs = [
        replace(RUN, seed=seed, rounds=3, git_commit=commit, fairlead="0.0.9", figures={"accuracy": 1.0})
        for seed, commit in enumerate(("abc", "def-dirty", "abc", None))
    ]
    lost = replace(RUN, seed=9, rounds=1, git_commit="xyz", failure="It broke.", figures={})
    save_archive(archive_file(tmp_path, "a_table-small"), [*runs, lost])
    outcome = ENTRY.reproduce(Request(tmp_path, collect=()))
    assert (outcome.git_commit, outcome.fairlead, outcome.date) == (
        "abc; def-dirty; unknown",
        "0.0.9",
        "2026-01-01",
    )
    assert len(outcome.failures) == 1


def test_a_run_keeps_its_figures_curves_and_where_it_was_run(tmp_path: Path) -> None:
    ENTRY.reproduce(Request(tmp_path, only=("FedAvg", "slow"), seeds=(4,)))
    (kept,) = load_archive(archive_file(tmp_path, "a_table-small"))
    folder = fl.RunFolder(tmp_path / "a_table-small" / "slow" / "FedAvg" / "seed-4")
    records = folder.records()
    assert (kept.place, kept.rounds, kept.precision) == (("slow", "FedAvg", 4), 3, "full")
    assert kept.curves["accuracy"] == pytest.approx(
        [record.evaluation.metrics["accuracy"] for record in records if record.evaluation], rel=1e-4
    )
    assert kept.curves["steps"] == (12.0, 12.0, 12.0)
    assert kept.figures["e-LUDD"] == pytest.approx(sum(record.elud or 0 for record in records) / 3)
    assert kept.torch == folder.provenance()[0].torch


def test_pieces_of_different_machines_are_put_together(tmp_path: Path) -> None:
    """Two folders with a method each: neither can be judged alone, and no data or run is needed to join them."""
    for method in ("FedAvg", "AWARE"):
        alone = ENTRY.reproduce(Request(tmp_path / method, only=(method, "slow"), seeds=(0, 1)))
        assert alone.verdict == "open"
    here = Request(tmp_path / "here", collect=(tmp_path / "FedAvg", tmp_path / "AWARE"))
    whole = ENTRY.reproduce(here)
    assert (whole.verdict, whole.seeds) == ("holds", (0, 1))
    assert not (tmp_path / "here" / "a_table-small").exists()
    again = ENTRY.reproduce(replace(here, collect=()))
    assert again.figures == whole.figures
    elsewhere = replace(ENTRY, columns={"slow": replace(ENTRY.columns["slow"], data="cifar10")})
    assert elsewhere.reproduce(replace(here, collect=())).figures == whole.figures


def test_runs_of_another_length_or_table_do_not_count(tmp_path: Path) -> None:
    file = archive_file(tmp_path, "a_table-small")
    save_archive(file, [RUN, replace(RUN, method="other", rounds=3)])
    nothing = ENTRY.reproduce(Request(tmp_path, collect=()))
    assert (nothing.verdict, nothing.reason) == ("not run", "No run has finished yet.")
    assert len(load_archive(file)) == 2


def test_missing_seeds_are_said(tmp_path: Path) -> None:
    ENTRY.reproduce(Request(tmp_path, only=("slow",)))
    whole = ENTRY.reproduce(Request(tmp_path, only=("slow", "FedAvg"), seeds=(1,)))
    assert (whole.verdict, whole.reason) == ("holds", "Each comparison rests on 1 of 2 seeds.")


def test_how_runs_are_computed_may_be_chosen_and_nothing_else(tmp_path: Path) -> None:
    chosen = Request(tmp_path, computing=("lanes=2", "dtype=float64"))
    first = ENTRY.planned(chosen)[0].experiment
    assert (first.lanes, first.dtype) == (2, "float64")
    assert replace(first, lanes=16, dtype="float32") == ENTRY.planned(Request(tmp_path))[0].experiment
    with pytest.raises(
        FieldError, match=r"^Request\.computing \(--set\) must change one of engine, .*, got 'rounds=1'\.$"
    ):
        Request(tmp_path, computing=("rounds=1",))


def test_finished_runs_leave_no_checkpoint(tmp_path: Path) -> None:
    planned = ENTRY.planned(Request(tmp_path, only=("FedAvg", "slow")))
    run_study(StudyFolder(tmp_path / "kept"), planned, jobs=1)
    run_study(StudyFolder(tmp_path / "dropped"), planned, jobs=1, keep_finished_checkpoints=False)
    left = {path.parent.parts[-4] for path in tmp_path.rglob("checkpoint")}
    assert left == {"kept"}
    again = run_study(StudyFolder(tmp_path / "dropped"), planned, jobs=1)
    assert list(again.values()) == ["finished"]
    assert not list((tmp_path / "dropped").rglob("checkpoint"))


def test_names_with_commas_can_be_listed() -> None:
    known = ("FedNova", "FedNova, momentum", "FedNova, momentum and VR", "E = 2")
    assert listed_parts("FedNova, momentum,E = 2", known) == ("FedNova, momentum", "E = 2")
    assert listed_parts("FedNova,momentum and VR, FedNova", known) == ("FedNova, momentum and VR", "FedNova")
    assert listed_parts("momentum,FedNova", known) == ("momentum", "FedNova")
