"""Tuning in comparisons: one grid for all methods, seeds of its own, a record, and failures that stay alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compare_calls import SPEC, call, data
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.errors import FieldError
from fairlead.experiments.study import StudyFolder
from fairlead.results.comparison import TriedSetting, Tuning
from fairlead.results.estimates import estimate
from fairlead.results.figures import measure_named

TUNE = ("--methods", "fedavg,fednova", "--seeds", "0,1", "--tune", "lr=0.001,0.1,0.2", "-o", "runs")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)


def test_every_method_is_tried_on_one_grid_and_on_other_seeds_and_compared_at_its_best() -> None:
    found = data(*TUNE)
    assert [tuning["method"] for tuning in found["tuning"]] == ["fedavg", "fednova"]
    for tuning, row in zip(found["tuning"], found["methods"], strict=True):
        assert tuning["seeds"] == [10000, 10001]
        assert [each["values"] for each in tuning["settings"]] == [{"lr": lr} for lr in (0.001, 0.1, 0.2)]
        best = max(tuning["settings"], key=lambda each: each["value"]["mean"])
        assert tuning["chosen"] == row["method"] == best["name"]
        assert [each["chosen"] for each in tuning["settings"]].count(True) == 1
        assert sorted(row["seeds"]) == ["0", "1"]
    runs = StudyFolder(Path("runs")).runs()
    assert len([run for run in runs if "tuned" in run.labels]) == 2 * 3 * 2
    assert len(runs) == 2 * 3 * 2 + 2 * 2


def test_a_score_is_that_of_the_same_setting_run_alone() -> None:
    setting = data(*TUNE)["tuning"][1]["settings"][1]
    alone = data("--methods", "fednova:lr=0.1", "--seeds", "10000,10001", "-o", "alone")
    assert setting["value"] == alone["methods"][0]["value"]


def test_the_command_again_runs_nothing_twice_and_says_the_same() -> None:
    first = data(*TUNE)
    before = {file: file.stat().st_mtime_ns for file in Path("runs").rglob("rounds.jsonl")}
    assert data(*TUNE) == first
    assert {file: file.stat().st_mtime_ns for file in Path("runs").rglob("rounds.jsonl")} == before


def test_terminal_report_and_page_have_the_record_and_warn_at_an_edge() -> None:
    text = call("--methods", "fedavg", "--seeds", "0", "--tune", "lr=0.001,0.1", "-o", "runs").output
    sentence = (
        "fedavg: lr=0.1 chosen of 2 settings on 2 tuning seeds. lr=0.1 is the largest value tried: extend the grid, "
        "since a better one may lie beyond."
    )
    assert sentence in " ".join(text.split())
    report = CliRunner().invoke(app, ["report", "runs"])
    assert sentence in " ".join(report.output.split())
    page = Path("runs/report.html").read_text()
    assert sentence in page
    assert "<td>lr=0.001</td>" in page


def test_an_argument_that_changes_nothing_is_at_no_edge() -> None:
    """Each client has its own epochs in every round, so those of the algorithm are not read."""
    given = (
        "--methods",
        "fedavg",
        "--seeds",
        "0",
        "--set",
        "work={type='RandomEpochs', low=1, high=2}",
        "-o",
        "idle",
    )
    tuning = data(*given, "--tune", "lr=0.001,0.1", "--tune", "epochs=1,2")["tuning"][0]
    assert tuning["at_edge"] == ["lr=0.1 is the largest value tried"]


def test_a_value_between_others_is_at_no_edge_where_some_are_equal() -> None:
    """0.01 gives 0.9 as 0.1 does, which is chosen; 1.0 gives 0.5. Of 0.1 and 1.0 alone, 0.1 is the smallest."""
    measure = measure_named("accuracy", "final")

    def edges(results: dict[float, float]) -> list[str]:
        settings = [
            TriedSetting(f"lr={lr}", {"lr": lr}, estimate([value]), "", lr == 0.1)
            for lr, value in results.items()
        ]
        return Tuning("fedavg", measure, [0], settings, ["lr=0.1"], None).edges

    assert edges({0.01: 0.9, 0.1: 0.9, 1.0: 0.5}) == []
    assert edges({0.1: 0.9, 1.0: 0.5}) == ["lr=0.1 is the smallest value tried"]
    assert edges({0.1: 0.9, 1.0: 0.9}) == []


def test_seeds_of_results_are_never_tuning_seeds() -> None:
    found = data("--methods", "fedavg", "--seeds", "10000", "--tune", "lr=0.1,0.2", "--tune-seeds", "1")
    assert found["tuning"][0]["seeds"] == [10001]


def test_a_method_whose_settings_all_fail_is_reported_and_leaves_the_others() -> None:
    # The server step overflows within the four rounds.
    methods = "fedavg,fedavg:server.lr=1e30"
    found = data("--methods", methods, "--seeds", "0", "--tune", "lr=0.1,0.2", "-o", "runs", exit_code=1)
    assert [row["method"].split(":")[0] for row in found["methods"]] == ["fedavg"]
    sound, lost = found["tuning"]
    assert sound["chosen"] is not None
    assert lost["chosen"] is None
    assert all(each["problem"] for each in lost["settings"])
    text = call(
        "--methods", methods, "--seeds", "0", "--tune", "lr=0.1,0.2", "-o", "runs", exit_code=1
    ).output
    assert "fedavg:server.lr=1e30 is not compared, because none of 2 settings" in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--tune mu=0.1,1", "Method fedavg:mu=0.1: mu is not an argument of the preset fedavg."),
        ("--tune lr=0.1,0.1", "The grid of lr must be a list of different values"),
        ("--tune lr=0.1 --tune lr=0.2", "Every name must be tuned once, got 'lr' 2 times."),
        ("--tune lr", "A field and its values must have a form such as lr=0.01,0.1"),
        (
            "--methods fedavg:lr=0.1 --tune lr=0.2",
            "Every value must be given or tuned once, got 'lr' 2 times.",
        ),
    ],
)
def test_refusals(arguments: str, message: str) -> None:
    words = arguments if "--methods" in arguments else f"--methods fedavg,fednova {arguments}"
    result = call(*words.split(), exit_code=2)
    assert message in " ".join(result.output.split())


def test_python_tunes_algorithms_and_presets_in_memory_and_in_a_folder() -> None:
    experiment = fl.load_experiment("spec.toml")
    methods = {"A": fl.presets.fedavg(lr=0.5, steps=3), "B": fl.presets.fednova(lr=0.5, steps=3)}
    found = fl.compare(experiment, methods, seeds=[0], tune={"lr": [0.001, 0.1]}, tune_seeds=1)
    assert [method.name for method in found] == ["A:lr=0.1", "B:lr=0.1"]
    assert found["A"] is found[0]
    assert found[0].federation.algorithm == fl.presets.fedavg(lr=0.1, steps=3)
    options: dict[str, Any] = {"seeds": [0], "tune": {"lr": [0.001, 0.1]}, "tune_seeds": 1}
    in_memory = fl.compare(experiment, ["fedavg"], **options)
    kept = fl.compare(experiment, ["fedavg"], folder="runs", **options)
    assert in_memory.summary.tunings[0].settings == kept.summary.tunings[0].settings
    assert "chosen of 2 settings" in str(kept)
    with pytest.raises(FieldError, match="is not compared, because none of 2 settings on 1 tuning seed"):
        fl.compare(experiment, ["fedavg:server.lr=1e30"], **options)


def test_rows_of_exactly_equal_results_are_called_equal() -> None:
    """With one local step the proximal term of FedProx is zero."""
    facts = data("--methods", "fedavg:steps=1,fedprox:mu=0.1:steps=1", "--seeds", "0", "-o", "runs")
    assert facts["methods"][1]["standing"] == "equal"
    assert facts["methods"][1]["verdict"] == "equal in accuracy on one seed"
