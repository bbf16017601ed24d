"""`fairlead report`, from real runs to files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from fabricated import Made, experiment_of, fabricate
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.experiments.study import PlannedRun, StudyFolder


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["report", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


def test_runs_that_diverged_have_a_page() -> None:
    """Losses up to 1e300 and beyond in float64: their squares, sums and axes overflow."""
    for seed in (0, 1):
        steep = fl.presets.fedavg(lr=1000.0, steps=3)
        run = fl.Experiment(
            fl.Quadratics(num_clients=3), steep, 33, seed=seed, dtype="float64", evaluate_every=1
        )
        fl.run_experiment(run, Path("runs") / str(seed))
    assert "diverged to infinity or NaN" in call("runs", "--figures", "figures").stdout


def test_a_report_of_real_runs() -> None:
    """Digits under unequal work: what the page says is what the records say."""
    for name, algorithm in {
        "fedavg": fl.presets.fedavg(lr=0.1, batch_size=32),
        "scaffold": fl.presets.scaffold(lr=0.1, batch_size=32),
    }.items():
        for seed in (0, 1):
            experiment = fl.Experiment(
                fl.Digits(4, fl.DirichletPartitioner(0.5)), algorithm, 3, seed=seed, evaluate_every=1,
                per_client=True, work=fl.FixedEpochs((1, 1, 1, 3)),
            )  # fmt: skip
            fl.run_experiment(experiment, Path("runs") / name / str(seed))
    facts = json.loads(call("runs", "--json").stdout)
    assert [method["method"] for method in facts["methods"]] == ["fedavg", "scaffold"]
    ends = []
    for seed in (0, 1):
        evaluation = fl.load_records(f"runs/fedavg/{seed}")[-1].evaluation
        assert evaluation is not None
        ends.append(evaluation.metrics["accuracy"])
    assert facts["methods"][0]["value"]["mean"] == pytest.approx(sum(ends) / 2)
    assert facts["methods"][0]["misplaced_weight"]["mean"] > 0.05
    assert facts["methods"][1]["misplaced_weight"]["mean"] == 0
    call("runs")
    page = Path("runs/report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("<details") == 4


def test_clients_are_called_as_their_data_call_them() -> None:
    lines = [f"{place % 3},{place % 2},{('Ulm', '<b>Rom')[place % 2]}" for place in range(12)]
    Path("patients.csv").write_text("\n".join(["age,ill,hospital", *lines]))
    source = fl.CsvTable("patients.csv", target="ill", client="hospital")
    experiment = fl.Experiment(source, fl.presets.fedavg(lr=0.1), rounds=2, evaluate_every=1, per_client=True)
    fl.run_experiment(experiment, "run")
    call("run")
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert '<th scope="row">Ulm</th>' in page
    assert "&lt;b&gt;Rom&#39;, seed 0: accuracy" in page
    assert "<b>Rom" not in page


def test_what_is_written_and_said() -> None:
    fabricate(Path("runs/fedavg-0"))
    fabricate(Path("runs/fednova-0"), Made("fednova", outcome="interrupted", planned=9))
    result = call(
        "runs", "-o", "out/page.html", "--tables", "tables", "--figures", "figures", "--format", "svg"
    )
    assert result.stdout.splitlines() == [
        "These runs are of 2 and 9 rounds, which cannot be compared, so no method is ranked first. Not every run "
        "finished: fednova (1 of 1 run did not finish). Methods with such runs are not ranked.",
        "2 runs of 2 methods are in out/page.html",
        "1 of them did not finish; the page says why.",
        "11 files of tables are in tables",
        "12 files of figures are in figures",
    ]
    assert Path("out/page.html").exists()
    assert {path.suffix for path in Path("figures").iterdir()} == {".svg"}


def test_files_in_one_folder_are_counted_by_what_they_are() -> None:
    fabricate(Path("runs/fedavg-0"))
    result = call("runs", "--tables", "out", "--figures", "out", "--format", "svg")
    numbers = [
        sum(path.suffix in kind for path in Path("out").iterdir()) for kind in ({".tex", ".csv"}, {".svg"})
    ]
    assert result.stdout.splitlines()[2:] == [
        f"{numbers[0]} files of tables are in out",
        f"{numbers[1]} files of figures are in out",
    ]


def test_json_writes_what_is_asked_for_alone() -> None:
    fabricate(Path("runs/fedavg-0"))
    assert json.loads(call("runs", "--json").stdout)["written"] == []
    assert not list(Path().rglob("*.html"))
    asked = json.loads(call("runs", "--json", "-o", "page.html", "--tables", "tables").stdout)["written"]
    assert asked[0] == "page.html"
    assert all(Path(each).is_file() for each in asked)
    assert {Path(each).parent.name for each in asked[1:]} == {"tables"}


def test_targets_may_be_percentages() -> None:
    fabricate(Path("runs/fedavg-0"))
    facts = json.loads(call("runs", "--target", "55%", "--target", "60 %", "--json").stdout)
    assert facts["targets"] == pytest.approx([0.55, 0.6])


def test_losses_to_reach_may_be_above_one() -> None:
    fabricate(Path("runs/fedavg-0"), Made(metric="margin"))
    assert json.loads(call("runs", "--target", "70", "--json").stdout)["targets"] == [70.0]


def test_programs_are_told_of_lost_runs_and_no_clear_difference() -> None:
    for seed in range(3):
        fabricate(Path(f"runs/fedavg-{seed}"), Made(seed=seed))
        outcome = "failed: NaN." if seed == 2 else "finished"
        fabricate(Path(f"runs/fednova-{seed}"), Made("fednova", seed, (0.5, 0.9), outcome))
    fedavg, fednova = json.loads(call("runs", "--json").stdout)["methods"]
    assert (fedavg["all_finished"], fednova["all_finished"]) == (True, False)
    assert fednova["difference"]["mean"] == pytest.approx(0.3)
    assert fednova["standing"] not in ("better", "worse")


def test_methods_that_a_study_has_not_begun_are_named() -> None:
    planned = [
        PlannedRun(f"{method}-0", {"method": method, "seed": 0}, experiment_of(Made(method)))
        for method in ("fedavg", "fednova")
    ]
    StudyFolder(Path("runs")).plan(planned)
    fabricate(Path("runs/fedavg-0"))
    absence = "No run of fednova has a readable round."
    assert call("runs").stdout == (
        f"fedavg: 60.0 % accuracy over the last 10 % of rounds, 1 seed. {absence}\n"
        "2 runs of 2 methods are in runs/report.html\n1 of them did not finish; the page says why.\n"
    )
    assert absence in Path("runs/report.html").read_text(encoding="utf-8")
    assert json.loads(call("runs", "--json").stdout)["absent"] == ["fednova"]


def test_several_folders_make_one_page_here() -> None:
    fabricate(Path("a/fedavg-0"))
    fabricate(Path("b/fednova-0"), Made("fednova"))
    call("a", "b", "--title", "Both")
    assert "<h1>Both</h1>" in Path("report.html").read_text(encoding="utf-8")


def test_a_page_is_renewed_and_is_no_obstacle_to_resuming() -> None:
    experiment = fl.Experiment(fl.Quadratics(num_clients=2), fl.presets.fedavg(lr=0.1), rounds=2)
    fl.run_experiment(experiment, "run")
    call("run")
    call("run")
    ended = fl.run_experiment(experiment, "run", resume=True)
    assert ended.outcome == "finished"


def test_targets_and_baseline_are_chosen() -> None:
    fabricate(Path("runs/fedavg-0"), Made(accuracy=(0.2, 0.6)))
    fabricate(Path("runs/fednova-0"), Made("fednova", accuracy=(0.6, 0.7)))
    facts = json.loads(
        call(
            *("runs", "--baseline", "fednova", "--target", "0.5", "--target", "0.65"),
            *("--json", "-o", "runs/report.html"),
        ).stdout
    )
    assert (facts["baseline"], facts["targets"]) == ("fednova", [0.5, 0.65])
    assert facts["methods"][0]["difference"]["mean"] == pytest.approx(-0.1)
    assert facts["methods"][1]["difference"] is None
    assert "Rounds to 65 %" in Path("runs/report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("absent", "absent does not exist."),
        ("runs --baseline fedavgg", "'fedavgg' is not a method of these runs. Did you mean 'fedavg'?"),
        ("runs -o runs", "runs cannot be written: Is a directory."),
        (
            "runs --target 0.5 --target 70",
            "--target must be from 0 to 1 for accuracy, got 70: write 0.7 for 70 %.",
        ),
        ("runs --target -0.1", "--target must be from 0 to 1 for accuracy, got -0.1."),
        (
            "runs --target half",
            "--target must be a number or a percentage, such as 0.5 or 50%, got 'half'.",
        ),
        ("runs --format pdf", "--format has no effect without --figures, the folder for them."),
        ("runs --figures f --format gif", "--format must be one or more of pdf, svg, png, got 'gif'."),
    ],
)
def test_refusals_are_one_sentence(command: str, message: str) -> None:
    fabricate(Path("runs/fedavg-0"))
    assert call(*command.split(), exit_code=2).stderr == f"fairlead: {message}\n"
