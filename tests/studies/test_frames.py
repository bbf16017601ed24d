"""Runs as frames of pandas and Polars."""

from __future__ import annotations

import builtins
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fairlead as fl
from fairlead.errors import FieldError, RunFolderError
from fairlead.results.run_archive import ArchivedRun, archive_file, curves_of, save_archive

EXPERIMENT = fl.Experiment(
    fl.Digits(4), fl.presets.fedavg(lr=0.1, steps=2), rounds=4, link=fl.BernoulliLink(0.5), evaluate_every=2
)


def test_a_run_is_a_frame_with_a_row_per_round(tmp_path: Path) -> None:
    run = fl.run_experiment(EXPERIMENT, tmp_path / "run")
    frame, records = fl.load_frame(tmp_path / "run"), run.federation.records
    assert list(frame["round"]) == [0, 1, 2, 3]
    assert list(frame["arrived"]) == [len(record.arrived) for record in records]
    assert list(frame["local_steps"]) == [sum(record.num_steps) for record in records]
    assert list(frame["train_loss"]) == [record.train_loss for record in records]
    assert set(frame["seed"]) == {0}
    assert frame["finished"].all()
    assert set(frame["run"]) == {str(tmp_path / "run")}
    assert frame["accuracy"].isna().tolist() == [True, False, True, False]
    assert records[-1].evaluation is not None
    assert frame["accuracy"].iloc[-1] == records[-1].evaluation.metrics["accuracy"]


def test_runs_that_were_cut_off_are_marked(tmp_path: Path) -> None:
    for name in ("whole", "cut"):
        fl.run_experiment(replace(EXPERIMENT, rounds=2), tmp_path / name)
    (tmp_path / "cut" / "summary.json").unlink()
    frame = fl.load_frame(tmp_path)
    assert frame["finished"].tolist() == [False, False, True, True]
    assert frame["run"].tolist() == [str(tmp_path / name) for name in ("cut", "cut", "whole", "whole")]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_runs_of_a_study_without_rounds_are_rows_that_did_not_finish(tmp_path: Path, library: Any) -> None:
    """One diverges in its first round, one was planned and never begun."""
    planned = [
        fl.PlannedRun(name, {"method": name, "seed": 7}, replace(EXPERIMENT, algorithm=algorithm, seed=7))
        for name, algorithm in {
            "burst": fl.presets.fedavg(lr=1e30, steps=2),
            "whole": EXPERIMENT.algorithm,
            "yet": EXPERIMENT.algorithm,
        }.items()
    ]
    study = fl.StudyFolder(tmp_path)
    study.plan(planned)
    outcomes = fl.run_study(study, planned[:2], jobs=1)
    assert outcomes["burst"].startswith("failed: In round 1")
    frame = fl.load_frame(tmp_path, library=library)
    assert list(frame["method"]) == ["burst", "whole", "whole", "whole", "whole", "yet"]
    assert list(frame["finished"]) == [False, True, True, True, True, False]
    assert list(frame["seed"]) == [7] * 6
    missing = frame["round"].isna() if library == "pandas" else frame["round"].is_null()
    assert list(missing) == [True, False, False, False, False, True]


def test_polars_has_the_same_numbers(tmp_path: Path) -> None:
    fl.run_experiment(EXPERIMENT, tmp_path)
    by_pandas, by_polars = fl.load_frame(tmp_path), fl.load_frame(tmp_path, library="polars")
    assert list(by_pandas.columns) == by_polars.columns
    assert by_polars["train_loss"].to_list() == by_pandas["train_loss"].tolist()
    assert by_polars["accuracy"].is_null().to_list() == by_pandas["accuracy"].isna().tolist()


def test_many_runs_are_told_apart_by_their_labels(tmp_path: Path) -> None:
    """A study, and beside it a run of its own, in one frame."""
    planned = [
        fl.PlannedRun(
            f"{name}-{seed}",
            {"method": name, "seed": seed},
            replace(EXPERIMENT, algorithm=algorithm, seed=seed, rounds=2),
        )
        for name, algorithm in {
            "avg": EXPERIMENT.algorithm,
            "aware": fl.presets.fedaware(lr=0.1, steps=2),
        }.items()
        for seed in (3, 4)
    ]
    fl.run_study(fl.StudyFolder(tmp_path / "study"), planned, jobs=1)
    fl.run_experiment(replace(EXPERIMENT, rounds=1, seed=9), tmp_path / "alone")
    frame = fl.load_frame(tmp_path / "study", tmp_path / "alone")
    counts = frame.groupby(["method", "seed"]).size().to_dict()
    assert counts == {("avg", 3): 2, ("avg", 4): 2, ("aware", 3): 2, ("aware", 4): 2}
    assert frame[frame["method"].isna()]["seed"].tolist() == [9]
    facts = [name for name in frame.columns if name.startswith("facts.")]
    assert facts
    assert frame[frame["method"] == "avg"][facts].isna().all().all()
    assert len(fl.load_frame(tmp_path, library="polars")) == len(frame) == 9


def kept(method: str, curves: dict[str, tuple[float, ...]], failure: str | None = None) -> ArchivedRun:
    rounds = len(next(iter(curves.values())))
    return ArchivedRun(
        "slow", method, 3, rounds, {}, curves, 1.0, "a machine", "full", "loop", "2.0", "0.1", None, "2026-01-01",
        failure,
    )  # fmt: skip


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_runs_that_a_reproduction_keeps_are_a_frame_with_a_row_per_round(
    tmp_path: Path, library: Any
) -> None:
    file = archive_file(tmp_path, "a_table-small")
    whole = kept("FedAvg", {"accuracy": (0.5, math.nan), "steps": (6.0, 8.0)})
    cut = kept("FedYogi", {"loss": (math.inf,)}, failure="It broke.")
    save_archive(file, [whole, cut])
    frame = fl.load_frame(file, library=library)
    assert list(frame.columns) == [
        "run", "finished", "setting", "method", "seed", "round", "accuracy", "local_steps", "loss",
    ]  # fmt: skip
    rows = frame.to_dict("records") if library == "pandas" else frame.to_dicts()
    names = [f"{file}: slow, {method}, seed 3" for method in ("FedAvg", "FedYogi")]
    assert [row["run"] for row in rows] == [names[0], names[0], names[1]]
    assert [(row["method"], row["seed"], row["round"], row["finished"]) for row in rows] == [
        ("FedAvg", 3, 0, True), ("FedAvg", 3, 1, True), ("FedYogi", 3, 0, False),
    ]  # fmt: skip
    missing = frame["accuracy"].isna() if library == "pandas" else frame["accuracy"].is_null()
    assert list(missing) == [False, True, True]
    assert (rows[0]["accuracy"], rows[1]["local_steps"], rows[2]["loss"]) == (0.5, 8.0, math.inf)


def test_a_kept_run_that_failed_in_its_first_round_is_a_row(tmp_path: Path) -> None:
    file = archive_file(tmp_path, "a_table-small")
    save_archive(
        file, [kept("FedAvg", {"accuracy": (0.5,)}), kept("FedYogi", {"accuracy": ()}, failure="It broke.")]
    )
    frame = fl.load_frame(file)
    assert frame["method"].tolist() == ["FedAvg", "FedYogi"]
    assert frame["finished"].tolist() == [True, False]
    assert frame["round"].isna().tolist() == [False, True]


def test_what_is_given_twice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = archive_file(tmp_path, "a_table-small")
    save_archive(file, [kept("FedAvg", {"accuracy": (0.5, 0.6)})])
    fl.run_experiment(replace(EXPERIMENT, rounds=1), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert len(fl.load_frame(file, file.name, "run", tmp_path / "run")) == 3


def test_a_kept_run_has_the_columns_of_its_folder(tmp_path: Path) -> None:
    run = fl.run_experiment(EXPERIMENT, tmp_path / "run")
    file = archive_file(tmp_path, "a_table-small")
    save_archive(file, [kept("FedAvg", curves_of(run.federation.records))])
    folder, frame = fl.load_frame(tmp_path / "run"), fl.load_frame(file)
    updates = ["elud", "consensus", "update_norm", "coherence"]
    shared = ["round", "accuracy", "loss", "train_loss", *updates, "arrived", "local_steps"]
    assert set(shared) == set(frame.columns) - {"run", "finished", "setting", "method", "seed"}
    for name in shared:
        numbers = zip(folder[name], frame[name], strict=True)
        assert all(ours == pytest.approx(theirs, rel=1e-4, nan_ok=True) for theirs, ours in numbers), name


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunFolderError, match="is not the folder of a run, and there is none below it"):
        fl.load_frame(tmp_path)
    with pytest.raises(FieldError, match=r"load_frame takes folders or files, as in .*, got \['a', 'b'\]"):
        fl.load_frame(["a", "b"])  # type: ignore[arg-type]
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(FieldError, match=r"notes\.txt holds no runs: give run folders or .runs"):
        fl.load_frame(tmp_path / "notes.txt")
    with pytest.raises(FieldError, match="library must be 'pandas' or 'polars', got 'arrow'"):
        fl.load_frame(tmp_path, library="arrow")  # type: ignore[arg-type]
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "polars":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr("fairlead.errors.import_module", without)
    with pytest.raises(FieldError, match="load_frame needs polars: install it with pip install polars"):
        fl.load_frame(tmp_path, library="polars")
