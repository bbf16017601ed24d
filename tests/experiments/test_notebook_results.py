"""Comparisons in Python and what notebooks show: tables, curves, figures and data frames."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import fairlead as fl
from fairlead.charts.display import Displayed
from fairlead.cli.progress import RoundProgress
from fairlead.experiments.study import StudyFolder
from fairlead.results.comparison import summarize_runs
from fairlead.results.estimates import paired_difference

METHODS = {
    "FedAvg": fl.presets.fedavg(lr=0.1, steps=2),
    "FedNova": fl.presets.fednova(lr=0.1, steps=2),
    "<b>": fl.presets.fedavg(lr=0.02, steps=2),
}
EXPERIMENT = fl.Experiment(
    fl.Digits(5, fl.DirichletPartitioner(0.5)),
    METHODS["FedAvg"],
    rounds=4,
    work=fl.RandomSteps(1, 9),
    evaluate_every=1,
    per_client=True,
)
SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def comparison() -> fl.ComparedMethods:
    return fl.compare(EXPERIMENT, METHODS, seeds=SEEDS)


def test_methods_are_compared_over_seeds_with_paired_intervals(comparison: fl.ComparedMethods) -> None:
    """Each value is the mean of separate comparisons at each seed."""
    single = [fl.compare(replace(EXPERIMENT, seed=seed), METHODS) for seed in SEEDS]
    for place, name in enumerate(METHODS):
        values = {seed: one[place].value for seed, one in zip(SEEDS, single, strict=True)}
        base = {seed: one[0].value for seed, one in zip(SEEDS, single, strict=True)}
        assert comparison[name].value == pytest.approx(sum(v or 0 for v in values.values()) / 3)
        assert len(comparison[name].federations) == 3
        if place:
            found = comparison[place].figures.difference
            expected = paired_difference(
                {seed: value for seed, value in values.items() if value is not None},
                {seed: value for seed, value in base.items() if value is not None},
            )
            assert found == expected
    assert comparison["FedNova"].objective == pytest.approx(sum(one[1].objective for one in single) / 3)


def test_a_folder_holds_the_runs_of_the_command_and_resumes(
    tmp_path: Path, comparison: fl.ComparedMethods
) -> None:
    fl.compare(EXPERIMENT, METHODS, seeds=SEEDS[:1], folder=tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("rounds.jsonl")}
    stored = fl.compare(EXPERIMENT, METHODS, seeds=SEEDS, folder=tmp_path)
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert [method.value for method in stored] == [method.value for method in comparison]
    assert [method.difference for method in stored] == [method.difference for method in comparison]
    assert [method.objective_verdict() for method in stored] == [
        method.objective_verdict() for method in comparison
    ]
    assert str(stored) == str(comparison)
    assert stored.folder == tmp_path
    reported = summarize_runs([tmp_path], baseline="FedAvg")
    assert [method.value for method in reported.methods] == [method.figures.value for method in stored]
    assert StudyFolder(tmp_path).runs()[0].labels == {"method": "FedAvg", "seed": 0}
    with pytest.raises(fl.errors.FieldError, match="keeps no federation in memory") as refused:
        _ = stored["FedNova"].federation
    (named,) = re.findall("'(.*)'", str(refused.value))
    assert named == str(tmp_path / "FedNova" / "seed-0")
    assert len(fl.load_records(named)) == EXPERIMENT.rounds
    with pytest.raises(fl.errors.RunFolderError, match="another experiment, with a different algorithm"):
        fl.compare(EXPERIMENT, {"FedAvg": METHODS["FedNova"]}, folder=tmp_path)


def test_presets_are_named_and_take_the_client_side() -> None:
    named = fl.compare(replace(EXPERIMENT, rounds=1), ["fedavg", "fednova", "fedprox:mu=0.5"])
    given = {
        "fedavg": fl.presets.fedavg(lr=0.1, steps=2),
        "fednova": fl.presets.fednova(lr=0.1, steps=2),
        "fedprox:mu=0.5": fl.presets.fedprox(lr=0.1, steps=2, mu=0.5),
    }
    assert [method.name for method in named] == list(given)
    assert [method.federation.algorithm for method in named] == list(given.values())
    taken = "optimizer SGD, lr 0.1, steps 2, batch_size 32, cohort_size all from the spec."
    assert f"fedavg, fednova and fedprox:mu=0.5 take {taken}" in str(named)
    with pytest.raises(fl.errors.FieldError, match="Every method must be listed once"):
        fl.compare(EXPERIMENT, ["fedavg", "fedavg"])
    with pytest.raises(fl.errors.FieldError, match="Did you mean 'fednova'"):
        fl.compare(EXPERIMENT, ["fednov"])


def test_an_own_algorithm_is_compared_with_named_presets() -> None:
    """As on the command line, where the spec's own algorithm is a row beside presets."""
    own = replace(METHODS["FedAvg"], server=fl.SGD(0.3))
    experiment = replace(EXPERIMENT, rounds=1, algorithm=own)
    found = fl.compare(experiment, {"mine": own, "plain": "fedavg"})
    assert [method.federation.algorithm for method in found] == [own, METHODS["FedAvg"]]
    assert "plain takes optimizer SGD, lr 0.1, steps 2" in str(found)
    for wrong in ([own], {"mine": 3}):
        with pytest.raises(fl.errors.FieldError, match=r"compare\.methods must be a list of presets"):
            fl.compare(experiment, wrong)  # type: ignore[arg-type]


def test_a_compared_method_is_shown_in_one_line(comparison: fl.ComparedMethods) -> None:
    method = comparison["FedNova"]
    assert repr(method) == f"<ComparedMethod FedNova: {method.standing()}>"
    assert repr(method.summary) == "<Summary of FedAvg, FedNova, <b> by accuracy>"


def test_bars_are_shown_on_request(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    experiment = replace(EXPERIMENT, rounds=1)
    fl.compare(experiment, {"FedAvg": METHODS["FedAvg"]})
    assert capsys.readouterr().err == ""
    fl.compare(experiment, {"FedAvg": METHODS["FedAvg"]}, progress=True)
    assert "FedAvg" in capsys.readouterr().err
    fl.compare(experiment, {"FedAvg": METHODS["FedAvg"]}, progress=True, folder=tmp_path)
    assert "FedAvg" in capsys.readouterr().err


def test_wrong_arguments_are_refused_before_anything_runs(tmp_path: Path) -> None:
    wrong = (
        ({"seeds": ()}, "compare.seeds must be different whole numbers"),
        (
            {"seeds": 2},
            "compare.seeds must be different whole numbers, at least one, such as [0, 1] or range(5), got 2.",
        ),
        ({"metric": "f1_macro"}, "not a metric of these runs. Add it to the task: --set 'task.metrics=["),
        ({"seeds": (1, 1)}, "compare.seeds must be different whole numbers"),
        ({"metric": "f1"}, "'f1' is not a metric"),
        ({"target": 90.0}, "compare.target must be from 0 to 1"),
        ({"folder": tmp_path / "new", "on_round": print}, "on_round must be left out"),
    )
    for arguments, message in wrong:
        with pytest.raises(fl.errors.FieldError, match=re.escape(message)):
            fl.compare(EXPERIMENT, METHODS, **arguments)
    assert not (tmp_path / "new").exists()
    wrong_type: Any = "study.toml"
    with pytest.raises(fl.errors.FieldError, match=r"got 'study.toml': load_experiment reads a spec\."):
        fl.compare(wrong_type, METHODS)
    with pytest.raises(
        fl.errors.FieldError, match=r"Experiment.algorithm must be an Algorithm, .* got 'study"
    ):
        replace(EXPERIMENT, algorithm=wrong_type)
    with pytest.raises(
        fl.errors.FieldError, match=r"rounds must be a whole number of at least 0, got 'study"
    ):
        EXPERIMENT.build().train(wrong_type)


@pytest.fixture(scope="module")
def shown(comparison: fl.ComparedMethods) -> dict[str, Displayed]:
    return {
        "ComparedMethods": comparison,
        "Federation": comparison[0].federation,
        "ConsistencyReport": comparison[0].consistency,
        "Experiment": EXPERIMENT,
        "Diagnosis": fl.diagnose(EXPERIMENT, rounds=5, quick=True),
    }


KINDS = ("ComparedMethods", "Federation", "ConsistencyReport", "Experiment", "Diagnosis")


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_has_a_short_repr_and_a_table_in_html(shown: dict[str, Displayed], kind: str) -> None:
    assert len(repr(shown[kind])) < 120
    assert repr(shown[kind]).startswith(f"<{kind}")
    html = shown[kind]._repr_html_()
    assert "<table>" in html
    # Everything is closed and escaped.
    tree = ElementTree.fromstring(html.replace("&nbsp;", " "))
    assert tree.tag == "div"
    assert "<b>:" not in html
    assert all(cell.text for cell in tree.findall(".//th"))
    curves = tree.findall(".//path[@class='line']")
    assert bool(curves) == (kind in ("ComparedMethods", "Federation", "ConsistencyReport"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_has_a_figure(shown: dict[str, Displayed], kind: str) -> None:
    pytest.importorskip("matplotlib")
    figure = shown[kind].plot()
    assert any(axes.has_data() for axes in figure.axes)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_result_is_a_data_frame(shown: dict[str, Displayed], kind: str, library: str) -> None:
    pytest.importorskip(library)
    frame = shown[kind].to_frame(library)  # type: ignore[arg-type]
    rows = {"ComparedMethods": 9, "Federation": 4, "ConsistencyReport": 5, "Experiment": 5}
    assert len(frame) == rows.get(kind, len(frame)) > 0


def test_a_figure_is_an_image_in_notebooks_that_have_not_loaded_pyplot(
    comparison: fl.ComparedMethods,
) -> None:
    """IPython asks an object for its image where no formatter is registered for its type."""
    pytest.importorskip("matplotlib")
    figure: Any = comparison.plot()
    assert figure._repr_png_().startswith(b"\x89PNG\r\n")


def test_notebooks_have_bars_that_are_drawn_once_more_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich draws into a widget there, which keeps the last drawing."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("fairlead.cli.progress.find_spec", lambda name: name == "ipywidgets")
    progress, drawn = RoundProgress(), list[list[float]]()
    monkeypatch.setattr(
        "rich.live.Live.refresh", lambda live: drawn.append([task.completed for task in progress._bars.tasks])
    )
    with progress:
        progress.begin("fedavg", total=2)
        drawn.clear()
        progress._bars.update(progress._task, completed=2)
    assert drawn[-1] == [2]


def test_runs_of_a_gpu_are_read_with_theory_on_a_machine_without_one(tmp_path: Path) -> None:
    experiment, methods = replace(EXPERIMENT, rounds=2), {"FedAvg": METHODS["FedAvg"]}
    here = fl.compare(experiment, methods, seeds=[0], folder=tmp_path)["FedAvg"].consistency
    spec = tmp_path / "FedAvg" / "seed-0" / "spec.toml"
    spec.write_text('device = "cuda:7"\nprecision = "tf32"\n' + spec.read_text())
    there = replace(experiment, device="cuda:7", precision="tf32")
    found = fl.compare(there, methods, seeds=[0], folder=tmp_path)["FedAvg"]
    assert found.consistency.predicted_total_variation == here.predicted_total_variation is not None
    assert "FedAvg" in found.objective_verdict()


def test_the_frame_of_a_comparison_has_its_figures(comparison: fl.ComparedMethods) -> None:
    pytest.importorskip("pandas")
    means = comparison.to_frame().groupby("method")["accuracy"].mean()
    assert {name: means[name] for name in METHODS} == pytest.approx(
        {method.name: method.value for method in comparison}
    )


def test_a_federation_before_its_first_round_says_so() -> None:
    fresh = EXPERIMENT.build()
    assert repr(fresh) == "<Federation of 5 clients after 0 rounds, seed 0>"
    assert "<svg" not in fresh._repr_html_()
    with pytest.raises(fl.errors.FieldError, match="nothing to plot yet"):
        fresh.plot()
