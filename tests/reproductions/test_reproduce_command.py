"""`fairlead reproduce` and `fairlead list reproductions`."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.reproductions import REPRODUCTIONS
from fairlead.reproductions.reproduction import load_outcome
from fairlead.reproductions.trained import TrainedTable
from fairlead.results.run_archive import ArchivedRun, archive_file, load_archive, save_archive

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
    assert lines[-2] == f"saved {Path('kept/wang2021_figure_4-small.json')}"
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


def test_a_device_that_is_not_there_is_refused_where_nothing_is_trained_too() -> None:
    refused = fairlead("reproduce", "wang2021_lemma_1", "--scale", "smoke", "--device", "foo")
    assert (refused.exit_code, "fairlead: --device must be 'cpu'" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("name", "words", "refused"),
    [
        ("wang2021_lemma_1", "--jobs 2", "--jobs has"),
        (
            "wang2021_lemma_1",
            "--precision tf32 --device cpu --data d",
            "--data, --device and --precision have",
        ),
        ("wang2024_theorem_3", "--set lanes=4 --checkpoint-every 10", "--set and --checkpoint-every have"),
        ("bias_table", "--only FedAvg", "--only has"),
        ("wang2024_figure_3", "--device cpu --data d --jobs 1", "--jobs has"),
        ("wang2021_figure_5", "--device cpu --jobs 1 --data d", "--data has"),
    ],
)
def test_options_without_effect_are_refused(name: str, words: str, refused: str) -> None:
    leave = "leave it out" if refused.endswith("has") else "leave them out"
    said = fairlead("reproduce", name, *words.split())
    assert (said.exit_code, said.stderr) == (
        2,
        f"fairlead: {refused} no effect on {name}: {leave}.\n",
    )


def test_options_are_for_those_that_heed_them_where_all_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed on the CPU whatever is asked for does not say that it was elsewhere."""
    monkeypatch.setattr("fairlead.worlds.device.usable_device", lambda owner, device: device)
    exact = {"wang2021_figure_4": REPRODUCTIONS["wang2021_figure_4"]}
    monkeypatch.setattr("fairlead.reproductions.REPRODUCTIONS", exact)
    done = fairlead("reproduce", "--jobs", "2", "--device", "cuda", "--precision", "tf32", "--json")
    (outcome,) = json.loads(done.stdout)
    assert (done.stderr, outcome["verdict"]) == ("", "holds")
    assert outcome["machine"].endswith("CPU cores, " + platform.machine())


@pytest.mark.full
def test_a_result_of_more_seeds_is_not_replaced() -> None:
    words = ("reproduce", "wang2021_lemma_1", "--scale", "smoke", "--out", "kept")
    assert fairlead(*words, "--seeds", "0..2").exit_code == 0
    (file,) = Path("kept").glob("*.json")
    before = file.read_bytes()
    fewer = fairlead(*words, "--seeds", "1")
    assert (fewer.exit_code, file.read_bytes()) == (0, before)
    assert "was not overwritten, because it also has seeds [0, 2]" in " ".join(fewer.stdout.split())
    assert fairlead(*words, "--seeds", "0..3").exit_code == 0
    assert file.read_bytes() != before


def test_trained_tables_leave_runs_and_resume() -> None:
    words = ("reproduce", "wang2021_figure_5", "--scale", "smoke", "--out", "kept", "--jobs", "1")
    part = fairlead(*words, "--only", "FedAvg,all asked")
    assert part.exit_code == 0
    runs = sorted(path.parent for path in Path("kept").rglob("summary.json"))
    assert [run.parts[-2:] for run in runs] == [("FedAvg", "seed-0")]
    before = (runs[0] / "rounds.jsonl").read_bytes()
    whole = fairlead(*words)
    assert "Verdict: not judged" in whole.stdout
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
    assert "It is a direct computation, without runs to collect." in at_once.stdout


def test_collecting_says_what_is_taken_in_and_takes_nothing_else() -> None:
    table = "wang2021_figure_5-full"
    runs = load_archive(archive_file(KEPT, table))
    for folder, some in (("monday", runs[:4]), ("tuesday", [*runs[3:5], failed(runs[5])])):
        save_archive(archive_file(Path(folder), table), some)
    Path("empty").mkdir()
    words = (
        "reproduce",
        "wang2021_figure_5",
        "--scale",
        "full",
        "--collect",
        "monday",
        "--collect",
        "tuesday",
    )
    said = fairlead(*words, "--collect", "empty", "--out", "all").stdout.splitlines()
    assert said[:3] == [
        "wang2021_figure_5: 4 runs imported from monday, 4 new.",
        "wang2021_figure_5: 3 runs imported from tuesday, 2 new, 1 failed.",
        "wang2021_figure_5: empty has no run at this scale.",
    ]
    again = fairlead(*words, "--collect", str(KEPT), "--out", "all").stdout.splitlines()
    assert again[1] == "wang2021_figure_5: 3 runs imported from tuesday, none new, 1 failed."
    assert again[2] == f"wang2021_figure_5: {len(runs)} runs imported from {KEPT}, {len(runs) - 5} new."
    refused = fairlead(*words, "--seeds", "0..2", "--only", "FedAvg", "--jobs", "1")
    assert (refused.exit_code, refused.stderr) == (
        2,
        "fairlead: --collect starts no runs and judges all runs found: leave out --seeds, --only and "
        "--jobs.\n",
    )


TABLE_1 = "wang2021_table_1-full"


def table_1(*settings: str) -> list[ArchivedRun]:
    """Runs of Wang 2021 Table I with seed 0 and the published accuracies, since none of ours is kept."""
    entry = REPRODUCTIONS["wang2021_table_1"]
    assert isinstance(entry, TrainedTable)
    any_run = load_archive(archive_file(KEPT, "wang2021_figure_5-full"))[0]
    return [
        replace(
            any_run,
            method=cell.row,
            setting=cell.column,
            seed=0,
            rounds=entry.sizes["full"].rounds,
            figures={"": entry.published[cell].value},
        )
        for cell in entry.cells
        if cell.column in settings
    ]


def test_runs_that_failed_are_in_the_table_and_in_the_verdict() -> None:
    """FedNova has no figure left; FedAvg has that of seed 0."""
    table, runs = TABLE_1, {run.method: run for run in table_1("E = 2")}
    lost = [failed(replace(runs["FedAvg"], seed=1)), failed(runs["FedNova"])]
    save_archive(
        archive_file(Path("part"), table),
        [*(run for method, run in runs.items() if method != "FedNova"), *lost],
    )
    words = ("reproduce", "wang2021_table_1", "--scale", "full", "--collect", "part", "--out", "part")
    said = fairlead(*words).stdout
    rows = {line.split("  ")[0]: line for line in said.splitlines() if "[" in line}
    assert "failed [66.31 ± 0.86]" in rows["FedNova"]
    assert "(1 failed) [60.68 ± 1.05]" in rows["FedAvg"]
    assert "FedNova (E = 2), seed 0, failed after 7 rounds: It broke.\n" in said
    assert "  open 1 comparison needs a run that failed: FedNova (E = 2)\n" in said
    assert "1 needs a run that failed" in said.splitlines()[-1]
    outcome = load_outcome(Path("part/wang2021_table_1-full.json"))
    assert [(each.method, each.seed) for each in outcome.failures] == [("FedAvg", 1), ("FedNova", 0)]


def failed(run: ArchivedRun) -> ArchivedRun:
    """The same run, had it failed."""
    return replace(run, rounds=7, figures={}, failure="It broke.")


def judged_by(table: str, keep: Callable[[ArchivedRun], bool], *words: str, seed: int = 0) -> str:
    """What is said of a table by some of its kept runs at one seed."""
    kept = table_1("E = 2", "E ~ U(2, 5)") if table == TABLE_1 else load_archive(archive_file(KEPT, table))
    runs = [run for run in kept if run.seed == seed and keep(run)]
    save_archive(archive_file(Path("part"), table), runs)
    name, scale = table.rsplit("-", 1)
    done = fairlead("reproduce", name, "--scale", scale, "--collect", "part", "--out", "part", *words)
    assert done.exit_code == 0
    return done.stdout


def compared(output: str) -> list[str]:
    """The lines about comparisons, with the numbers of those that were judged left out."""
    lines = [line for line in output.splitlines() if line[2:6] in ("yes ", "no  ", "open")]
    return [line[2:].rpartition(": ")[0] if " against " in line else line[2:] for line in lines]


def test_the_method_as_published_is_judged_under_that_name() -> None:
    """The printed and the published method are compared one after the other."""
    lost = ("FedAWARE as published", "Hybrid")
    said = judged_by(
        "zeng2023_table_1-full",
        lambda run: (run.method, run.setting) != lost and run.setting != "Hybrid+",
        seed=37,
    )
    assert compared(said) == [
        "no   FedAWARE is the largest in Statistical",
        "no   FedAWARE is the largest in Hybrid",
        "open 1 comparison lacks runs of FedAWARE (Hybrid+); FedAvg (Hybrid+); FedAvgM (Hybrid+); "
        "FedProx (Hybrid+) and 4 more",
        "yes  as published: FedAWARE as published is the largest in Statistical",
        "open as published: 2 comparisons lack runs of FedAWARE as published (Hybrid); "
        "FedAWARE as published (Hybrid+); FedAvg (Hybrid+); FedAvgM (Hybrid+) and 5 more",
    ]
    *_, printed, published = said.splitlines()
    assert printed.startswith("Verdict: does not hold, but one seed cannot tell it from noise (")
    assert printed.endswith("). 2 of 3 comparisons fail, 1 lacks runs.")
    assert published == "As published: open. 2 of 3 comparisons lack runs, 1 holds."


def test_comparisons_that_lack_runs_share_a_line() -> None:
    """Of ten figures that are missing four are named; the verdict has the counts alone, and JSON everything."""
    chosen = (("FedAvg", "E = 2"), ("FedNova", "E = 2"))

    def judge(*words: str) -> str:
        return judged_by(TABLE_1, lambda run: (run.method, run.setting) in chosen, *words)

    said = judge()
    assert compared(said) == [
        "yes  FedAvg (E = 2) is below FedNova (E = 2)",
        "open 5 comparisons lack runs of FedAvg, momentum (E = 2); FedNova, momentum (E = 2); "
        "FedAvg, proximal (E = 2); FedNova, proximal (E = 2) and 6 more",
    ]
    assert said.splitlines()[-1].startswith("Verdict: open (")
    assert said.splitlines()[-1].endswith("). 5 of 6 comparisons lack runs, 1 holds.")
    checks = json.loads(judge("--json"))["checks"]
    assert [check["holds"] for check in checks] == [True] + 5 * [None]
    assert checks[-1]["statement"].startswith("FedAvg, proximal (E ~ U(2, 5)) is below")
    assert checks[-1]["missing"] == ["FedAvg, proximal (E ~ U(2, 5))", "FedNova, proximal (E ~ U(2, 5))"]


def test_a_folder_to_collect_from_that_is_not_there_is_refused() -> None:
    refused = fairlead("reproduce", "wang2021_table_1", "--collect", "nope")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--collect must name a folder, got nope." in refused.stderr


def test_runs_at_another_scale_are_pointed_to() -> None:
    save_archive(archive_file(Path("full"), TABLE_1), table_1("E = 2"))
    done = fairlead("reproduce", "wang2021_table_1", "--collect", "full")
    assert done.stdout.splitlines()[-1] == (
        "Verdict: not run. No run at scale small has finished; there are runs at scale full: add --scale full."
    )
    Path("empty").mkdir()
    none = fairlead("reproduce", "wang2021_table_1", "--collect", "empty")
    assert none.stdout.splitlines()[-1] == "Verdict: not run. No run was found in empty."


def test_the_table_says_what_its_figures_are_and_the_verdict_what_noise_leaves_of_it() -> None:
    """Three seeds of a loss whose differences are all within their intervals; ± of the mean is the interval's."""
    said = fairlead("reproduce", "wang2021_figure_5", "--scale", "full", "--collect", str(KEPT)).stdout
    assert (
        "Ours: mean over 3 seeds ± half the 95 % interval. Figures: mean loss of the second half of the rounds."
        in said.splitlines()
    )
    losses = [
        run.figures[""]
        for run in load_archive(archive_file(KEPT, "wang2021_figure_5-full"))
        if (run.method, run.setting) == ("FedAvg", "all asked")
    ]
    assert f"{mean(losses):.2f} ± {4.30265 * stdev(losses) / 3**0.5:.2f} " in said
    assert said.splitlines()[-1].startswith("Verdict: holds, within the noise over seeds (")


def test_numbers_of_a_column_have_the_same_decimals() -> None:
    """MNIST by one seed: 67.0 and 90.0 keep their zeros, and so do published figures; rounds are whole."""
    said = fairlead("reproduce", "zeng2023_figure_8", "--scale", "small", "--collect", str(KEPT)).stdout
    (row,) = (line for line in said.splitlines() if line.startswith("FedAWARE as published"))
    assert row.split("published", 1)[1].split() == (
        ["90.60", "[96.60", "±", "0.09]", "90.50", "[96.96", "±", "0.04]", "90.00", "[96.71", "±", "0.14]"]
    )
    assert "zeng2023_figure_8-small.runs.jsonl.xz --figure best" in said
    rounds = judged_by("weng2025_table_1_cifar10-full", lambda run: run.setting == "CIFAR-10")
    assert re.search(r"^FedAvg +53 \[143\]", rounds, re.MULTILINE)


def test_figures_of_fewer_seeds_are_marked() -> None:
    runs = load_archive(archive_file(KEPT, "wang2021_figure_5-full"))
    Path("some").mkdir()
    save_archive(
        archive_file(Path("some"), "wang2021_figure_5-full"),
        [run for run in runs if run.method == "FedAvg" or run.seed == 0],
    )
    lines = fairlead(
        "reproduce", "wang2021_figure_5", "--scale", "full", "--collect", "some"
    ).stdout.splitlines()
    (fedavg,), (fednova,) = (
        [line for line in lines if line.startswith(name)] for name in ("FedAvg ", "FedNova ")
    )
    assert "seed" not in fedavg
    assert fednova.count("(1 seed)") == 3


def test_one_seed_cannot_tell_noise_and_published_figures_keep_their_own() -> None:
    one = judged_by("wang2021_figure_5-full", lambda run: True)
    assert one.splitlines()[-1].startswith("Verdict: holds, but one seed cannot tell it from noise (")
    assert "Ours: 1 seed. Figures: " in one
    aimed = judged_by("weng2025_table_1_mnist-full", lambda run: True)
    assert "the target accuracy is 70%." in aimed
    printed = judged_by(TABLE_1, lambda run: True)
    assert (
        "Ours: 1 seed; published in brackets: as the authors print it, with their own ±. "
        "Figures: accuracy after the last round, in percent (Wang 2021)." in printed.splitlines()
    )


def test_missing_data_are_said_plainly() -> None:
    done = fairlead("reproduce", "zeng2023_table_1")
    assert done.exit_code == 1
    assert "Verdict: not run. CIFAR-10 is needed: give its folder with --data." in done.stdout
    assert not Path("runs").exists()


def test_unknown_names_and_seeds_are_refused() -> None:
    unknown = fairlead("reproduce", "wang2021_figure_44")
    assert unknown.exit_code == 2
    assert "Did you mean 'wang2021_figure_4'" in unknown.stderr
    assert fairlead("reproduce", "wang2021_figure_4", "--seeds", "x").exit_code == 2
    assert "--only needs the name of a reproduction" in fairlead("reproduce", "--only", "FedAvg").stderr


def test_the_list_has_every_entry_and_what_is_left_out() -> None:
    listed = json.loads(fairlead("list", "reproductions", "--json").stdout)
    assert [entry["name"] for entry in listed] == list(REPRODUCTIONS)
    assert listed[0]["reference"] == "wang2021fednova"
    shown = fairlead("list", "reproductions").stdout
    assert all(name in shown for name in REPRODUCTIONS)
    assert "Left out:" in shown
