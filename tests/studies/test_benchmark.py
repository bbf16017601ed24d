"""`fairlead benchmark`: ordinary experiments, fair tuning, runs that are kept, and the figures of `report`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.errors import FieldError
from fairlead.experiments import runner, workers
from fairlead.experiments.benchmark import settings_of, suite_named
from fairlead.experiments.study import StudyFolder
from fairlead.presets import METHODS

SUITE = """
title = "Four clients"
seeds = "0..1"
tune_seeds = 1
rungs = [2, 4]
keep = 3
budget = 6
others = ["server.lr=1,2"]
[spec]
evaluate_every = 2
per_client = true
algorithm = { preset = "fedavg", lr = 0.1, steps = 3, cohort_size = 3 }
[tasks.digits]
lr = "0.03,0.1,0.3"
half = 2
spec.clients = { type = "Digits", num_clients = 4 }
[tasks.absent]
lr = "0.1"
sources = [{ type = "MnistFolder", path = "MNIST/raw" }]
[kinds.data.spec]
[kinds.links.spec]
link = { type = "TwoGroupLink", boundary = "half", first = [0.3, 0.3], second = [0.0, 0.0] }
[methods]
fedavg = { tune = ["server.lr=1,2"] }
momentum = { preset = "scaffold:server.momentum=0.5" }
"""

MINE = '''
from typing import Unpack

import fairlead as fl
from fairlead.presets import ClientSide, method


@method()
def mine(*, mu: float = 0.1, **clients: Unpack[ClientSide]) -> fl.Algorithm:
    """FedProx under another name."""
    return fl.presets.fedprox(mu=mu, **clients)
'''


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished benchmark."""
    folder = tmp_path_factory.mktemp("benchmark")
    (folder / "tiny.toml").write_text(SUITE)
    call(folder, "--quiet")
    return folder


def call(folder: Path, *arguments: str, exit_code: int = 0) -> Result:
    words = ("--suite", str(folder / "tiny.toml"), "-o", str(folder / "runs"), "--jobs", "1", *arguments)
    result = CliRunner().invoke(app, ["benchmark", *words])
    assert result.exit_code == exit_code, result.output
    return result


def facts(folder: Path) -> Any:
    return json.loads((folder / "runs" / "benchmark.json").read_text())


def written(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in (folder / "runs").rglob("rounds.jsonl")}


def test_settings_are_pruned_by_the_rule(folder: Path) -> None:
    """By hand: of six settings the best two by the accuracy after round 2 go on; of these the better is chosen."""
    runs = StudyFolder(folder / "runs")
    for cell in ("digits/data", "digits/links"):
        found = next(each for each in facts(folder)["cells"] if each["cell"] == cell)
        tuning = next(each for each in found["tuning"] if each["method"] == "fedavg")
        early: dict[str, float] = {}
        late: dict[str, float] = {}
        for run in runs.runs():
            if run.labels["setting"] == cell and run.labels.get("tuned") == "fedavg":
                name = f"fedavg:lr={run.labels['lr']}:server.lr={run.labels['server.lr']}"
                records = fl.load_records(runs.store(run).path)
                for record in records:
                    scores = {1: early, 3: late}.get(record.round)
                    if scores is not None and record.evaluation is not None:
                        scores[name] = record.evaluation.metrics["accuracy"]
        assert len(early) == 6
        # Equals are taken in their planned order, as the sort is stable.
        assert sorted(late) == sorted(sorted(early, key=lambda name: -early[name])[:2])
        assert tuning["chosen"] == [max(late, key=lambda name: late[name])]
        problems = {name: each["problem"] for name, each in tuning["settings"].items()}
        assert [problems[name] for name in late] == ["", ""]
        assert {problems[name] for name in early.keys() - late.keys()} == {"pruned after 2 rounds"}
        by_lr = [max(early[name] for name in early if f":lr={lr}:" in name) for lr in (0.03, 0.1, 0.3)]
        assert tuning["spread"] == pytest.approx(max(by_lr) - min(by_lr), rel=1e-4)


def test_tuning_seeds_are_not_those_of_results(folder: Path) -> None:
    for cell in facts(folder)["cells"]:
        assert {seed for tuning in cell["tuning"] for seed in tuning["seeds"]} == {10000}
        assert {seed for method in cell["methods"] for seed in method["by_seed"]} == {"0", "1"}


def test_the_figures_are_those_of_report_and_compare(folder: Path) -> None:
    found = facts(folder)
    result = CliRunner().invoke(app, ["report", str(folder / "runs"), "--json"])
    reported = {each["setting"]: each for each in json.loads(result.stdout)["settings"]}
    for cell in found["cells"]:
        for own, other in zip(cell["methods"], reported[cell["cell"]]["methods"], strict=True):
            assert own["method"] == other["method"]
            assert own["standing"] == other["standing"]
            for key in ("value", "difference", "objective", "misplaced_weight"):
                for part in ("mean", "half_width") if own[key] is not None else ():
                    assert own[key][part] == pytest.approx(other[key][part], rel=1e-4)
            worst = other["clients"]["worst_tenth"]["mean"]
            assert own["worst_tenth"]["mean"] == pytest.approx(worst, rel=1e-4)
    # A cell is an ordinary spec: its runs can be compared without the benchmark.
    spec = folder / "cell.toml"
    spec.write_text(call(folder, "--spec", "digits/links").stdout)
    cell = next(each for each in found["cells"] if each["cell"] == "digits/links")
    (chosen,) = next(each["chosen"] for each in cell["tuning"] if each["method"] == "fedavg")
    words = ("--methods", chosen, "--seeds", "0,1", "--jobs", "1", "-o", str(folder / "alone"), "--json")
    alone = json.loads(CliRunner().invoke(app, ["compare", str(spec), *words]).stdout)
    assert alone["methods"][0]["value"]["mean"] == pytest.approx(
        cell["methods"][0]["value"]["mean"], rel=1e-4
    )


def test_ranks_and_counts_by_hand(folder: Path) -> None:
    found = facts(folder)
    for cell in found["cells"]:
        scores = {each["method"]: each["by_seed"] for each in cell["methods"]}
        for row in cell["methods"]:
            ranks = []
            for seed, own in row["by_seed"].items():
                others = [each[seed] for each in scores.values()]
                equal = sum(each == own for each in others)
                ranks.append(sum(each > own for each in others) + (equal + 1) / 2)
            assert row["rank"]["mean"] == pytest.approx(sum(ranks) / 2)
    for row in found["summary"]:
        own = [each for cell in found["cells"] for each in cell["methods"] if each["method"] == row["label"]]
        assert row["rank"]["mean"] == pytest.approx(sum(each["rank"]["mean"] for each in own) / 2)
        leads = [
            cell["cell"]
            for cell in found["cells"]
            if next(each for each in cell["methods"] if each["method"] == row["label"])["leads"]
        ]
        assert row["leads"] == leads


def test_the_page_stands_alone_and_has_every_cell(folder: Path) -> None:
    page = (folder / "runs" / "benchmark.html").read_text(encoding="utf-8")
    assert "Over all settings" in page
    assert page.count("Rank and tuning: digits/") >= 2
    assert "absent is left out" in page
    assert "Successive halving" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_command_again_trains_nothing_and_an_interrupted_one_goes_on(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = written(folder)
    call(folder, "--quiet")
    assert written(folder) == before
    (tmp_path / "tiny.toml").write_text(SUITE)
    run, count = runner.run_experiment, 0

    def stopped(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == 14:
            options["stop"].set()
        return run(*arguments, **options)

    # The second rung is interrupted in its first run.
    monkeypatch.setattr(workers, "run_experiment", stopped)
    only = ("--cells", "*/links")
    call(tmp_path, "--quiet", *only, exit_code=130)
    monkeypatch.setattr(workers, "run_experiment", run)
    assert not (tmp_path / "runs" / "benchmark.json").exists()
    call(tmp_path, "--quiet", *only)
    cell = next(each for each in facts(folder)["cells"] if each["cell"] == "digits/links")
    (again,) = facts(tmp_path)["cells"]
    assert [each["by_seed"] for each in again["methods"]] == [each["by_seed"] for each in cell["methods"]]
    assert again["tuning"] == cell["tuning"]


def test_an_own_method_reuses_the_runs_of_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = folder / "my_methods.py"
    module.write_text(MINE)
    monkeypatch.chdir(folder)
    before = written(folder)
    words = ["--suite", "tiny.toml", "-o", "runs", "--jobs", "1", "--quiet", "--tune", "mu=0.1,1"]
    try:
        result = CliRunner().invoke(
            app, ["--import", "my_methods", "benchmark", *words, "--methods", "fedavg,momentum,mine"]
        )
        assert result.exit_code == 0, result.output
    finally:
        METHODS.pop("mine", None)
    after = written(folder)
    assert {file: after[file] for file in before} == before
    new = {file.relative_to(folder / "runs").parts[1] for file in after.keys() - before.keys()}
    assert new == {"data", "links"}
    assert all("mine" in str(file) for file in after.keys() - before.keys())
    assert [row["method"] for row in facts(folder)["cells"][0]["methods"]] == ["fedavg", "momentum", "mine"]
    call(folder, "--quiet")
    assert [row["method"] for row in facts(folder)["cells"][0]["methods"]] == ["fedavg", "momentum"]


def test_kept_results_join_cells_and_methods_of_other_runs(folder: Path, tmp_path: Path) -> None:
    """Three runs, as on three machines, give the result of one, with the methods of each."""
    whole = facts(folder)
    parts = [("data", "fedavg,momentum"), ("links", "fedavg"), ("links", "fedavg,momentum")]
    joined: list[str] = []
    for number, (kind, methods) in enumerate(parts):
        machine = tmp_path / str(number)
        machine.mkdir()
        (machine / "tiny.toml").write_text(SUITE)
        call(machine, "--quiet", "--cells", f"*/{kind}", "--methods", methods, *joined)
        joined = ["--kept", str(machine / "runs" / "benchmark.json")]
        if methods == "fedavg":
            # The cell with both methods alone counts for ranks over cells.
            assert [row["rank"]["count"] for row in facts(machine)["summary"]] == [1, 1]
    assert facts(machine) == whole
    # So does a copy of the runs alone, without their index: settings that were pruned are pruned again.
    shutil.copytree(folder / "runs" / "digits", tmp_path / "copy" / "runs" / "digits")
    (tmp_path / "copy" / "tiny.toml").write_text(SUITE)
    call(tmp_path / "copy", "--quiet")
    assert facts(tmp_path / "copy")["cells"] == whole["cells"]
    # Another method meets the kept ones without their runs.
    kept = tmp_path / "whole.json"
    shutil.copy(machine / "runs" / "benchmark.json", kept)
    shutil.rmtree(machine / "runs")
    words = ("--cells", "*/links", "--methods", "fedavg,fedprox:mu=0.1", "--kept", str(kept))
    assert "Counts are out of 1 cell." in call(machine, *words).output
    found = facts(machine)
    (cell,) = (each for each in found["cells"] if each["cell"] == "digits/links")
    scores = {row["method"]: row["by_seed"] for row in cell["methods"]}
    assert list(scores) == ["fedavg", "momentum", "fedprox:mu=0.1"]
    for row in cell["methods"]:
        ahead = [
            sum(each[seed] > own for each in scores.values())
            + (sum(each[seed] == own for each in scores.values()) + 1) / 2
            for seed, own in row["by_seed"].items()
        ]
        assert row["rank"]["mean"] == pytest.approx(sum(ahead) / 2)
    assert set(found["tuning"]["methods"]) == {"fedavg", "momentum", "fedprox:mu=0.1"}
    assert {row["label"]: row["rank"]["count"] for row in found["summary"]} == dict.fromkeys(scores, 1)
    assert found["cells"][0] == whole["cells"][0]
    # Of one cell with momentum and one with FedProx, none has all methods.
    kept.write_text(json.dumps({**whole, "cells": whole["cells"][:1]}))
    output = call(machine, *words).output
    assert "No cell has all methods, so there are no mean ranks and no counts." in output
    assert "Counts are out of" not in output
    assert all(row["rank"] is None for row in facts(machine)["summary"])


def test_kept_methods_are_judged_against_the_baseline_of_this_run(folder: Path, tmp_path: Path) -> None:
    whole = facts(folder)
    cell = next(each for each in whole["cells"] if each["cell"] == "digits/links")
    first, momentum = cell["methods"]
    own = dict(first["by_seed"])
    first["by_seed"] = {"0": 0.1, "1": 0.1}
    momentum |= {"by_seed": {"0": own["0"] - 0.2, "1": own["1"] - 0.21}, "standing": "better"}
    momentum |= {"better": True, "worse": False, "behind": False, "lost": False}
    cell["targets"] = [0.01]
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(whole))
    call(folder, "--quiet", "--cells", "*/links", "--methods", "fedavg", "--kept", str(kept))
    cell = next(each for each in facts(folder)["cells"] if each["cell"] == "digits/links")
    first, row = cell["methods"]
    assert (first["by_seed"], first["standing"]) == (own, "baseline")
    assert row["by_seed"] == pytest.approx(momentum["by_seed"])
    # By hand: s = 0.01/√2, and Student's t with one degree of freedom is 12.706.
    assert row["difference"]["mean"] == pytest.approx(-0.205, rel=1e-4)
    assert row["difference"]["half_width"] == pytest.approx(12.706 * 0.005, rel=1e-3)
    verdict = [row[key] for key in ("standing", "better", "worse", "behind", "leads")]
    assert verdict == ["worse", False, True, True, False]
    assert [each["rank"]["mean"] for each in cell["methods"]] == [1, 2]
    assert first["leads"]
    assert cell["targets"] != [0.01]
    assert set(row["to_target"].values()) == {None}
    call(folder, "--quiet")


def test_a_cell_without_any_value_has_no_ranks(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.toml").write_text(SUITE)
    run = runner.run_experiment

    def fail(_: Any) -> None:
        raise FieldError("It fails before its first evaluation.")

    def failing(experiment: Any, *arguments: Any, **options: Any) -> Any:
        if experiment.seed < 10000 and isinstance(experiment.link, fl.TwoGroupLink):
            options["on_round"] = fail
        return run(experiment, *arguments, **options)

    monkeypatch.setattr(workers, "run_experiment", failing)
    for part in ("data", "links/tuning"):
        shutil.copytree(folder / "runs" / "digits" / part, tmp_path / "runs" / "digits" / part)
    call(tmp_path, exit_code=1)
    data, links = facts(tmp_path)["cells"]
    assert [row["leads"] for row in data["methods"]].count(True) > 0
    verdicts = [(row["rank"], row["leads"], row["lost"], row["by_seed"]) for row in links["methods"]]
    assert verdicts == [(None, False, True, {})] * 2
    ranks = {row["method"]: row["rank"]["mean"] for row in data["methods"]}
    for row in facts(tmp_path)["summary"]:
        assert row["rank"]["mean"] == pytest.approx((ranks[row["label"]] + 2) / 2)
    # Nor has it when it is joined with itself.
    kept = tmp_path / "kept.json"
    shutil.copy(tmp_path / "runs" / "benchmark.json", kept)
    call(tmp_path, "--quiet", "--kept", str(kept), exit_code=1)
    assert facts(tmp_path)["cells"] == json.loads(kept.read_text())["cells"]


@pytest.mark.parametrize(
    ("line", "instead", "sentence"),
    [
        ('seeds = "0..1"', 'seeds = "0..2"', "has other seeds: [0, 1] instead of [0, 1, 2]."),
        ("tune_seeds = 1", "tune_seeds = 2", "has other tuning seeds: 1 instead of 2."),
        ("rungs = [2, 4]", "rungs = [2, 6]", "has other tuning rungs: [2, 4] instead of [2, 6]."),
        ("steps = 3", "steps = 4", "has other experiment of digits/data:"),
        ("[0.3, 0.3]", "[0.3, 0.4]", "has other experiment of digits/links:"),
        (
            '"0.03,0.1,0.3"',
            '"0.1,0.3"',
            "has other learning_rates of digits/data: 0.03,0.1,0.3 instead of 0.1,0.3.",
        ),
        ('{ tune = ["server.lr=1,2"] }', '{ tune = ["server.lr=1,3"] }', "has other settings of fedavg:"),
    ],
)
def test_kept_results_of_other_terms_are_refused(
    line: str, instead: str, sentence: str, folder: Path, tmp_path: Path
) -> None:
    assert line in SUITE
    (tmp_path / "tiny.toml").write_text(SUITE.replace(line, instead))
    kept = folder / "runs" / "benchmark.json"
    output = call(tmp_path, "--kept", str(kept), exit_code=2).output.replace("\n", " ")
    assert f"--kept {kept} {sentence}" in output
    assert not (tmp_path / "runs").exists()


def test_a_kept_result_of_another_baseline_is_refused(folder: Path) -> None:
    kept = str(folder / "runs" / "benchmark.json")
    output = call(folder, "--methods", "momentum", "--kept", kept, exit_code=2).output.replace("\n", " ")
    assert "has other baseline: fedavg instead of momentum." in output


def without(*path: str | int) -> Callable[[Any], None]:
    def drop(found: Any) -> None:
        for key in path[:-1]:
            found = found[key]
        del found[path[-1]]

    return drop


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.clear(),
        lambda found: found.update(tuning=[1]),
        lambda found: found.update(cells=[]),
        lambda found: found.update(cells=[{}]),
        lambda found: found.update(cells=["digits/data"]),
        lambda found: found["cells"][0]["methods"][1]["by_seed"].update({"0": "high"}),
        without("baseline"),
        without("tuning", "seeds"),
        without("cells", 0, "experiment"),
        without("cells", 0, "metric"),
        without("cells", 0, "share"),
        without("cells", 0, "methods", 0),
        *(
            without("cells", 0, "methods", 1, key)
            for key in ("by_seed", "leads", "lost", "standing", "to_target")
        ),
        without("cells", 0, "tuning", 0, "method"),
    ],
)
def test_a_kept_file_of_another_form_is_refused_by_name(
    change: Callable[[Any], None], folder: Path, tmp_path: Path
) -> None:
    found = facts(folder)
    change(found)
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(found))
    output = call(folder, "--kept", str(bad), exit_code=2).output.replace("\n", " ")
    assert f"fairlead: {bad} is damaged: it " in output


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_a_kept_file_that_is_no_table_is_refused_by_name(text: str, folder: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    assert f"{bad} is damaged" in call(folder, "--kept", str(bad), exit_code=2).output.replace("\n", " ")


def test_a_method_may_not_try_more_than_the_others(folder: Path) -> None:
    suite = suite_named(str(folder / "tiny.toml"))
    (cell,), _ = suite.cells("digits/data")
    with pytest.raises(
        FieldError, match=r"fedprox has 9 settings in digits/data, but every method may try 6"
    ):
        settings_of(cell, suite.entrants("fedprox", ["mu=0.1,1,10"]), 6)


def test_bad_requests_name_what_is_allowed(folder: Path) -> None:
    output = call(folder, "--cells", "digit/*", exit_code=2).output
    assert "No cell fits 'digit/*': give a task and a kind, such as '*/links'." in output
    output = call(folder, "--methods", "fedavg", "--tune", "lr=3", exit_code=2).output
    assert "--tune needs a method in --methods that the suite does not have." in output
    output = call(folder, "--cells", "absent/*", exit_code=2).output
    assert "absent is left out: it needs the folder of its data, --data FOLDER." in output
    result = CliRunner().invoke(app, ["benchmark", "--suite", "quik"])
    assert "--suite must be quick, full or a TOML file, got 'quik'" in result.output


@pytest.mark.parametrize(
    ("line", "instead", "sentence"),
    [
        ("rungs = [2, 4]", "rungs = [4, 2]", "Suite.rungs must be ascending, got (4, 2)."),
        ("keep = 3", "keep = 0", "Suite.keep must be a whole number of at least 2, got 0."),
        ("budget = 6", "", "budget is missing: Suite needs it."),
        ('lr = "0.03,0.1,0.3"', "", "tasks.digits.lr is missing: SuiteTask needs it."),
        ("half = 2", "", "tasks.digits.half is missing: the link of links has boundary = 'half'."),
        ("half = 2", 'kinds = ["link"]', "tasks.digits.kinds.link is not a kind of the suite. Did you mean"),
        ("{ tune =", "{ tunes =", "methods.fedavg.tunes is not a field of SuiteMethod. Did you mean 'tune'?"),
        ("[kinds.data.spec]", "[kinds.data]\nspec = 3", "kinds.data.spec must be a table, got 3."),
    ],
)
def test_a_suite_that_cannot_be_run_is_refused_with_its_field(
    line: str, instead: str, sentence: str, tmp_path: Path
) -> None:
    assert line in SUITE
    (tmp_path / "tiny.toml").write_text(SUITE.replace(line, instead, 1))
    assert sentence in call(tmp_path, "--list", exit_code=2).output.replace("\n", " ")


@pytest.mark.parametrize("name", ["quick", "full"])
def test_every_method_of_a_suite_of_the_package_has_its_budget(name: str, tmp_path: Path) -> None:
    suite = suite_named(name)
    tables = suite.tasks.values()
    for source in (each for table in tables for each in table.sources):
        place = tmp_path / source["path"]
        place.mkdir(parents=True, exist_ok=True)
    cells, absent = suite.cells(data=tmp_path)
    assert absent == []
    kinds = suite.kinds
    assert {cell.name for cell in cells} == {
        f"{task}/{kind}" for task, own in suite.tasks.items() for kind in own.kinds or kinds
    }
    assert all(rung % cells[0].experiment.evaluate_every == 0 for rung in suite.rungs)
    for cell in (cells[0], cells[-1]):
        settings = settings_of(cell, suite.entrants(None), suite.budget)
        counts = {each.name: 0 for each in suite.entrants(None)}
        for setting in settings.values():
            counts[str(setting.tuned["tuned"])] += 1
        tuned = {name for name, method in suite.methods.items() if method.tune}
        assert {counts[name] for name in tuned} == {suite.budget}
        # The others need the learning rate of the clients alone.
        assert {counts[name] for name in counts.keys() - tuned} == {len(cell.lr.split(","))}
