"""A report of the runs that a reproduction keeps: the same figures, and nothing that was not kept."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import get_args

import pytest
from click.testing import Result
from fabricated import Made, fabricate, records_of
from page_tree import page_of
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.errors import FieldError, RunFolderError
from fairlead.reports import summarize_runs, summarize_settings
from fairlead.reports.tables import report_tables
from fairlead.results.curves import AXES, LOCAL_STEPS, ROUNDS, FigureName, quantities
from fairlead.results.figures import RunFigures
from fairlead.results.run_archive import ArchivedRun, archive_file, curves_of, save_archive

KEPT = Path(__file__).parents[2] / "reproductions"

RUNS = [
    Made(method, seed, tuple(0.2 + 0.1 * place + lead + 0.02 * seed for place in range(4)))
    for method, lead in (("fedavg", 0.0), ("fednova", 0.1))
    for seed in (0, 1)
]


def kept(made: Made, setting: str = "slow", failure: str | None = None) -> ArchivedRun:
    records = records_of(made)
    return ArchivedRun(
        setting=setting,
        method=made.method,
        seed=made.seed,
        rounds=len(records),
        figures={},
        curves=curves_of(records),
        seconds=12.5,
        machine="a <machine>",
        precision="tf32",
        engine="LoopEngine()",
        torch="2.0",
        fairlead="0.1",
        git_commit=None,
        date="2026-01-01",
        failure=failure,
    )


def kept_in(folder: Path, *runs: ArchivedRun) -> Path:
    file = archive_file(folder, "a_table-small")
    save_archive(file, runs)
    return file


def call(*arguments: object, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["report", *map(str, arguments)])
    assert result.exit_code == exit_code, result.output
    return result


def test_the_target_kept_with_runs_is_judged_unless_another_is_given(tmp_path: Path) -> None:
    """Runs without one are judged by an accuracy that all of the baseline's meet."""
    file = kept_in(tmp_path, *(replace(kept(made), target=0.3) for made in RUNS))
    assert summarize_runs([file]).targets == (0.3,)
    assert summarize_runs([file], targets=[0.4]).targets == (0.4,)
    without = summarize_runs([kept_in(tmp_path, *map(kept, RUNS))]).targets
    assert without not in ((), (0.3,))


def test_figures_are_those_of_the_run_folders(tmp_path: Path) -> None:
    for made in RUNS:
        fabricate(tmp_path / "runs" / f"{made.method}-{made.seed}", made)
    folders = summarize_runs([tmp_path / "runs"], targets=[0.4])
    files = summarize_runs([kept_in(tmp_path, *map(kept, RUNS))], targets=[0.4])
    assert (files.setting, files.ranked) == ("slow", True)
    for ours, theirs in zip(files.methods, folders.methods, strict=True):
        assert ours.label == theirs.label
        for one, other in zip(ours.runs, theirs.runs, strict=True):
            for figure in get_args(FigureName):
                assert one.figure(figure) == pytest.approx(other.figure(figure), rel=1e-4), figure
            for name in ("seed", "eludd", "steps"):
                assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-4), name
            assert one.rounds_to(0.4) == other.rounds_to(0.4)
    assert files.methods[1].difference == pytest.approx(folders.methods[1].difference)


def test_curves_are_drawn_against_rounds_and_local_steps(tmp_path: Path) -> None:
    summary = summarize_runs([kept_in(tmp_path, *map(kept, RUNS))])
    run = summary.methods[0].runs[0].run
    drawn = {quantity.key for quantity in quantities([run]) if len(quantity.read(run))}
    assert drawn == {"accuracy", "loss", "train-loss", "elud"}
    assert [axis.key for axis in AXES if axis.read(run)] == ["rounds", "steps"]


def test_what_is_not_kept_is_left_out(tmp_path: Path) -> None:
    file = kept_in(tmp_path, *map(kept, RUNS))
    tables = {table.key: table for table in report_tables(summarize_runs([file]))}
    assert set(tables) == {"results", "targets", "cost"}
    assert [column.title for column in tables["cost"].columns] == ["Local steps"]
    assert "Wall time" not in tables["cost"].note
    assert "Objective" not in [column.title for column in tables["results"].columns]
    _, page = page_of(file)
    assert "Spec" not in [heading.words() for heading in page.all("h4")]
    (first, *_) = page.all("details")
    facts = {row.all("th")[0].words(): row.all("td")[0].words() for row in first.all("tr")}
    assert facts == {
        "machine": "a <machine>", "precision": "tf32", "engine": "LoopEngine()", "torch": "2.0",
        "fairlead": "0.1", "git commit": "–", "date": "2026-01-01", "seconds": "12.5",
    }  # fmt: skip


def test_runs_that_failed_are_told(tmp_path: Path) -> None:
    file = kept_in(tmp_path, *map(kept, RUNS[:3]), kept(RUNS[3], failure="It <burst>."))
    fedavg, fednova = summarize_runs([file]).methods
    assert fedavg.method.complete
    assert fednova.method.shortfall == "1 of 2 runs failed"
    assert [run.seed for run in fednova.runs] == [0]
    _, page = page_of(file)
    (reason,) = page.all("td", class_="reason")
    assert reason.words() == "Failed after 4 rounds: It <burst>."


def test_a_file_given_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = kept_in(tmp_path, *map(kept, RUNS))
    monkeypatch.chdir(tmp_path)
    summary = summarize_runs([file, str(file), file.name])
    assert (len(summary.study.runs), summary.setting) == (len(RUNS), "slow")


def test_rounds_that_were_not_evaluated_have_no_point(tmp_path: Path) -> None:
    file = kept_in(tmp_path, kept(Made(accuracy=(None, 0.5, None, 0.6))))
    summary = summarize_runs([file])
    curve = summary.measure.quantity.read(summary.methods[0].runs[0].run)
    assert (curve.rounds, curve.values) == ((2, 4), (0.5, 0.6))


def outcome(name: str) -> dict[tuple[str, str], float]:
    facts = json.loads((KEPT / f"{name}.json").read_bytes())
    return {(figure["row"], figure["column"]): figure["ours"] for figure in facts["figures"]}


@pytest.mark.parametrize(
    ("name", "read", "statistic"),
    [
        ("zeng2023_table_1-full", lambda run: run.figure("best"), ""),
        ("weng2025_table_1_mnist-small", lambda run: run.figure("last5"), ": accuracy"),
    ],
)
def test_published_runs_have_the_figures_of_their_outcome(
    name: str, read: Callable[[RunFigures], float | None], statistic: str
) -> None:
    """Every statistic of a paper that the report has too; outcomes are in percent, of runs that finished."""
    expected = {place: ours for place, ours in outcome(name).items() if place[1].endswith(statistic)}
    found = {}
    for summary in summarize_settings([archive_file(KEPT, name)]):
        for method in summary.methods:
            mean = method.over_seeds(read)
            if mean is not None and any(run.finished for run in method.method.runs):
                found[method.label, f"{summary.setting}{statistic}"] = 100 * mean.mean
    assert found == pytest.approx(expected, rel=1e-4)


def test_what_a_target_took_is_that_of_the_outcome() -> None:
    """Weng 2025 Table 1 on MNIST at small scale, in a reading in which every run met 70 %."""
    name, setting = "weng2025_table_1_mnist-small", "MNIST, calibrated once"
    summaries = summarize_settings([archive_file(KEPT, name)], targets=[0.7])
    (summary,) = (each for each in summaries if each.setting == setting)
    found = {}
    for method in summary.methods:
        rounds, steps = (
            [cost for run in method.runs if (cost := run.cost_of(0.7, axis)) is not None]
            for axis in (ROUNDS, LOCAL_STEPS)
        )
        found[method.label, f"{setting}: rounds"] = fmean(rounds)
        found[method.label, f"{setting}: thousand local steps"] = fmean(steps) / 1000
    expected = {place: ours for place, ours in outcome(name).items() if place in found}
    assert expected.keys() == found.keys()
    assert found == pytest.approx(expected)


def test_the_command_takes_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    other = [kept(made, setting="fast") for made in RUNS]
    file = kept_in(tmp_path / "kept", *map(kept, RUNS), *other)
    *leads, last = call(file).stdout.splitlines()
    assert [lead.partition(": ")[0] for lead in leads] == ["slow", "fast"]
    assert last == "8 runs of 2 methods in 2 settings are in report.html"
    page = Path("report.html").read_text(encoding="utf-8")
    assert "<h1>a_table-small</h1>" in page
    facts = json.loads(call(file, "--json").stdout)
    assert [each["setting"] for each in facts["settings"]] == ["slow", "fast"]
    assert [method["method"] for method in facts["settings"][0]["methods"]] == ["fedavg", "fednova"]
    call(file, "--figures", "figures", "--format", "svg", "-o", "page.html")
    assert {"accuracy-rounds-slow.svg", "accuracy-rounds-fast.svg"} < {
        each.name for each in Path("figures").iterdir()
    }


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "empty.runs.jsonl.xz").write_bytes(lzma.compress(b""))
    with pytest.raises(FieldError, match=r"notes\.txt holds no runs: give run folders or .runs"):
        summarize_settings([tmp_path / "notes.txt"])
    with pytest.raises(FieldError, match=r"empty\.runs\.jsonl\.xz holds no run\."):
        summarize_settings([tmp_path / "empty.runs.jsonl.xz"])
    file = kept_in(tmp_path, kept(RUNS[0]), kept(RUNS[3], setting=""))
    with pytest.raises(FieldError, match=r"^Run fednova, seed 1 in .*a_table.* has no setting\.$"):
        summarize_settings([file, fabricate(tmp_path / "run")])


def test_a_folder_of_kept_files_points_to_them(tmp_path: Path) -> None:
    file = kept_in(tmp_path, kept(RUNS[0]))
    with pytest.raises(RunFolderError) as refused:
        summarize_runs([tmp_path])
    assert str(refused.value) == (
        f"{tmp_path} is not the folder of a run, and there is none below it. "
        f"It has archives of runs: name them, such as {file}."
    )
