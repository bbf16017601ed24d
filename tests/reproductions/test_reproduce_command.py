"""`fairlead reproduce` and `fairlead list reproductions`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.reproductions import REPRODUCTIONS
from fairlead.reproductions.outcome_files import load_outcome

KEPT = Path(__file__).parents[2] / "reproductions"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fairlead(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_a_result_is_shown_judged_and_kept() -> None:
    done = fairlead("reproduce", "wang2021_figure_4", "--out", "kept")
    assert done.exit_code == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "wang2021_figure_4: Wang 2021, Fig. 4" in lines
    assert any(line.startswith("yes  weight bias falls from α = 0 to α = 1: 4.01, 1.01") for line in lines)
    assert lines[-1].startswith("Verdict: holds")
    kept = load_outcome(Path("kept/wang2021_figure_4-small.json"))
    assert (kept.verdict, kept.seeds, kept.scale) == ("holds", (0,), "small")


def test_json_has_the_outcome_alone() -> None:
    done = fairlead("reproduce", "wang2021_figure_4", "--seeds", "0..1", "--json")
    outcome = json.loads(done.stdout)
    assert outcome["verdict"] == "holds"
    assert outcome["seeds"] == [0, 1]
    assert all(check["holds"] for check in outcome["checks"])
    assert Path("runs/reproductions/wang2021_figure_4-small.json").exists()


def test_trained_tables_leave_runs_and_resume() -> None:
    words = ("reproduce", "wang2021_figure_5", "--scale", "smoke", "--out", "kept", "--jobs", "1")
    part = fairlead(*words, "--only", "FedAvg,all asked")
    assert part.exit_code == 0
    runs = sorted(path.parent for path in Path("kept").rglob("summary.json"))
    assert [run.parts[-2:] for run in runs] == [("FedAvg", "seed-0")]
    before = (runs[0] / "rounds.jsonl").read_bytes()
    whole = fairlead(*words)
    assert "Verdict: not run" in whole.stdout
    assert "cannot test the claim" in whole.stdout
    assert len(list(Path("kept").rglob("summary.json"))) == 6
    assert (runs[0] / "rounds.jsonl").read_bytes() == before


def test_kept_runs_are_collected_and_judged_without_running() -> None:
    words = ("reproduce", "wang2021_figure_5", "--scale", "smoke")
    for method, folder in (("FedAvg", "a"), ("FedNova", "b")):
        piece = fairlead(
            *words, "--jobs", "1", "--only", f"{method},all asked", "--out", folder, "--set", "lanes=4"
        )
        assert piece.exit_code == 0
    assert not list(Path("a").rglob("checkpoint"))
    whole = fairlead(*words, "--collect", "a", "--collect", "b", "--out", "c", "--json")
    figures = {figure["row"]: figure["ours"] for figure in json.loads(whole.stdout)["figures"]}
    assert sorted(figures) == ["FedAvg", "FedNova"]
    assert sorted(path.name for path in Path("c").iterdir()) == [
        "wang2021_figure_5-smoke.json",
        "wang2021_figure_5-smoke.runs.jsonl.xz",
    ]
    refused = fairlead(*words, "--out", "a", "--set", "rounds=3")
    assert (refused.exit_code, "must change one of engine" in refused.stderr) == (2, True)
    at_once = fairlead("reproduce", "wang2021_figure_4", "--collect", "a")
    assert "computed at once: there are no runs to collect." in at_once.stdout


def test_the_released_method_has_a_line_of_its_own() -> None:
    """From the runs that are kept: what is printed and what was released are compared one after the other."""
    words = ("--scale", "full", "--collect", str(KEPT), "--out", "here")
    lines = fairlead("reproduce", "zeng2023_table_1", *words).stdout.splitlines()
    compared = [line for line in lines if " is the largest in " in line]
    assert [line[7:].split(" is the")[0] for line in compared] == 3 * ["FedAWARE"] + 3 * [
        "FedAWARE with unit rows"
    ]
    assert lines[-2].startswith("Verdict: does not hold")
    assert lines[-1].startswith("As the authors' code has it: ")


def test_missing_data_are_said_plainly() -> None:
    done = fairlead("reproduce", "zeng2023_table_1")
    assert done.exit_code == 0
    assert "Verdict: not run. CIFAR-10 is needed: say with --data which folder holds it." in done.stdout
    assert not Path("runs").exists()


def test_unknown_names_and_seeds_are_refused() -> None:
    unknown = fairlead("reproduce", "wang2021_figure_44")
    assert unknown.exit_code == 2
    assert "Did you mean 'wang2021_figure_4'" in unknown.stderr
    assert fairlead("reproduce", "wang2021_figure_4", "--seeds", "x").exit_code == 2
    assert "--only names parts of one reproduction" in fairlead("reproduce", "--only", "FedAvg").stderr


def test_the_list_has_every_entry_and_what_is_left_out() -> None:
    listed = json.loads(fairlead("list", "reproductions", "--json").stdout)
    assert [entry["name"] for entry in listed] == list(REPRODUCTIONS)
    assert listed[0]["reference"] == "wang2021fednova"
    shown = fairlead("list", "reproductions").stdout
    assert all(name in shown for name in REPRODUCTIONS)
    assert "Left out:" in shown
