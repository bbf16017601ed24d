"""Every command, page and function gives the same figure, sign and verdict for the same runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.experiments.demo import demo_algorithms, demo_experiment
from fairlead.reports import render_page, summarize_runs
from fairlead.results.curves import FigureName

SPEC = """
rounds = 20
evaluate_every = 2
[clients]
type = "Digits"
num_clients = 4
[algorithm]
preset = "fedavg"
lr = 0.3
steps = 2
[link]
type = "BernoulliLink"
drop = 0.5
"""
FIGURES: tuple[FigureName, ...] = ("last-tenth", "last5", "final", "best")
METHODS = ("fedavg", "fedavg:lr=0.2")


def command(*words: str) -> Any:
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods over three seeds, compared; and the same two learning rates, swept."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "spec.toml").write_text(SPEC)
    compare(folder, "last-tenth")
    sweep(folder, "last-tenth")
    return folder


def compare(folder: Path, figure: FigureName, *more: str) -> Any:
    words = ("--methods", ",".join(METHODS), "--seeds", "0..2", "--jobs", "1", "-o", str(folder / "compared"))
    return command("compare", str(folder / "spec.toml"), *words, "--figure", figure, *more)


def sweep(folder: Path, figure: FigureName) -> Any:
    grid = (
        "--grid",
        "algorithm.lr=0.3,0.2",
        "--grid",
        "seed=0..2",
        "--jobs",
        "1",
        "-o",
        str(folder / "swept"),
    )
    return command("sweep", str(folder / "spec.toml"), *grid, "--figure", figure)


def from_rounds(rounds: Any, figure: FigureName) -> float:
    """The figure of a run by its definition, from a frame with a row per round."""
    known = [
        (done, value)
        for done, value in zip(rounds["round"] + 1, rounds["accuracy"], strict=True)
        if value == value
    ]
    last = {"last-tenth": 2, "last5": 5, "final": 1, "best": 20}[figure]
    values = [value for done, value in known if done > 20 - last]
    return max(values) if figure == "best" else math.fsum(values) / len(values)


@pytest.mark.parametrize("figure", FIGURES)
def test_everything_agrees_on_figure_sign_and_verdict(folder: Path, figure: FigureName) -> None:
    compared, reported = (
        compare(folder, figure),
        command("report", str(folder / "compared"), "--figure", figure),
    )
    swept, swept_report = sweep(folder, figure), command("report", str(folder / "swept"), "--figure", figure)
    assert {each["figure"] for each in (compared, reported, swept, swept_report)} == {figure}
    keys = (
        "value",
        "difference",
        "objective",
        "objective_difference",
        "misplaced_weight",
        "standing",
        "verdict",
    )
    facts = [[each[key] for key in keys] for each in compared["methods"]]
    assert facts == [[each[key] for key in keys] for each in reported["methods"]]
    by_rate = {each["algorithm.lr"]: [each[key] for key in keys] for each in swept["settings"]}
    assert [by_rate[0.3], by_rate[0.2]] == facts
    assert [[each[key] for key in keys] for each in swept_report["methods"]] == facts

    summary = summarize_runs([folder / "compared"], figure=figure)
    page = render_page([summary], "study")
    pytest.importorskip("pandas")
    frame = fl.load_frame(folder / "compared")
    for method, figures in zip(METHODS, summary.methods, strict=True):
        runs = [rounds for _, rounds in frame[frame["method"] == method].groupby("seed")]
        values = [from_rounds(rounds, figure) for rounds in runs]
        assert [run.value for run in figures.runs] == pytest.approx(values)
        assert figures.value is not None
        assert figures.value.mean == pytest.approx(sum(values) / 3)
        assert figures.value.shown("share")[0] in page
    assert summary.measure.described in page
    assert compared["methods"][1]["verdict"].removeprefix("no clear difference ") in page


@pytest.mark.parametrize("figure", FIGURES)
def test_the_python_function_agrees_with_the_command_at_one_seed(folder: Path, figure: FigureName) -> None:
    experiment = fl.load_experiment(folder / "spec.toml")
    algorithms = {
        method: fl.load_experiment(folder / "compared" / name / "seed-0" / "spec.toml").algorithm
        for method, name in zip(METHODS, ("fedavg", "fedavg,lr=0.2"), strict=True)
    }
    ours = fl.compare(experiment, algorithms, figure=figure)
    theirs = compare(folder, figure, "--seeds", "0")["methods"]
    assert [method.value for method in ours] == [method["value"]["mean"] for method in theirs]
    assert ours[0].difference is None
    assert ours[1].difference == theirs[1]["difference"]["mean"]
    assert [method.standing() for method in ours] == [method["verdict"] for method in theirs]


def test_a_run_says_what_the_comparison_says_of_it(folder: Path) -> None:
    """The headline of `run` has the figure of the same run in the comparison."""
    again = folder / "alone"
    shown = (
        CliRunner().invoke(app, ["run", str(folder / "spec.toml"), "--seed", "0", "-o", str(again)]).stdout
    )
    (figures,) = summarize_runs([folder / "compared" / "fedavg" / "seed-0"]).methods
    (alone,) = summarize_runs([again]).methods
    assert figures.value is not None
    assert alone.value == figures.value
    assert f"{figures.value.text('share')} accuracy over the last 10 % of rounds" in shown


def test_the_demonstration_has_the_figures_of_every_comparison() -> None:
    shown = command("demo", "--rounds", "3")
    methods = demo_algorithms(demo_experiment(3, 0))
    compared = fl.compare(demo_experiment(3, 0), methods)
    assert shown["figure"] == "last-tenth"
    assert shown["baseline"] == "fedavg"
    assert [each["value"]["mean"] for each in shown["methods"]] == [method.value for method in compared]
    assert [each["verdict"] for each in shown["methods"]] == [method.standing() for method in compared]


def test_the_headline_names_the_figure(folder: Path) -> None:
    named = {
        "last-tenth": "accuracy over the last 10 % of rounds",
        "last5": "accuracy over the last 5 rounds",
        "final": "accuracy after the last round",
        "best": "accuracy in the best round",
    }
    words = ("--methods", ",".join(METHODS), "--seeds", "0..2", "-o", str(folder / "compared"))
    for figure, phrase in named.items():
        commands = (["compare", str(folder / "spec.toml"), *words], ["report", str(folder / "compared")])
        shown = [CliRunner().invoke(app, [*each, "--figure", figure]).stdout for each in commands]
        headlines = [line for text in shown for line in text.splitlines() if f"{phrase}, 3 seeds" in line]
        assert len(headlines) == 2
        assert headlines[0] == headlines[1]


def test_a_report_has_the_baseline_of_the_latest_comparison(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC.replace("rounds = 20", "rounds = 2"))
    for methods in ("fedavg,fednova", "fednova,fedavg"):
        words = ("--methods", methods, "--seeds", "0", "--jobs", "1", "-o", str(tmp_path / "runs"))
        compared = command("compare", str(tmp_path / "spec.toml"), *words)["methods"]
        reported = command("report", str(tmp_path / "runs"))
        assert reported["baseline"] == methods.partition(",")[0]
        assert [each["difference"] for each in reported["methods"]] == [
            each["difference"] for each in compared
        ]
