"""Commands on methods whose clients keep parameters or models of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from compare_calls import call, data
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.experiments.kept_models import kept_model
from fairlead.experiments.spec import load_experiment

SPEC = """
rounds = 3
evaluate_every = 1
[clients]
type = "Digits"
num_clients = 6
partition = { type = "DirichletPartitioner", alpha = 0.3 }
[task]
model = { type = "MLP", hidden = [8] }
[algorithm]
preset = "fedper"
lr = 0.1
"""


@pytest.fixture(autouse=True)
def _spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)


def test_a_finished_method_without_personal_figures_is_not_called_unfinished() -> None:
    said = " ".join(call("--methods", "fedavg,fedper,fedrep", "--seeds", "0..1").output.split())
    assert "finished all its runs" not in said
    assert "fedavg has no personal accuracy, because no examples of clients are held out." in said
    assert "That of fedper and fedrep is on training data, which flatters. Set clients.holdout = 0.2" in said
    assert "fedper: not comparable, because fedavg has no personal accuracy." in said


def test_personal_figures_are_compared_without_an_objective_of_one_model() -> None:
    arguments = ("--methods", "fedavg,fedper,ditto:mu=0.1", "--seeds", "0..1", "--set", "clients.holdout=0.3")
    fedavg, fedper, ditto = data(*arguments)["methods"]
    assert fedper["value"] is not None
    assert fedper["difference"] is not None
    assert fedper["objective"] is None
    assert all(seed["objective"] is None for seed in fedper["seeds"].values())
    # Ditto leaves the global model as FedAvg makes it.
    assert ditto["objective"] == fedavg["objective"] is not None
    said = " ".join(call(*arguments).output.split())
    assert "By the objective" not in said
    assert "No run of fedper" not in said
    assert "has no objective" in call(*arguments, "--metric", "objective").output.replace("\n", " ")


@pytest.mark.parametrize("folder", [None, "runs/spec-compare"])
def test_python_compares_by_the_figure_of_the_command(folder: str | None) -> None:
    """Personal accuracy, as soon as one method has any, and not that of the first method alone."""
    listed, held_out = ["fedavg", "fedper"], "clients.holdout=0.3"
    rows = data("--methods", ",".join(listed), "--seeds", "0..1", "--set", held_out)["methods"]
    found = fl.compare(load_experiment("spec.toml", [held_out]), listed, seeds=range(2), folder=folder)
    assert found.summary.measure.metric == "personal_accuracy"
    assert [each.value for each in found] == pytest.approx([row["value"]["mean"] for row in rows])
    assert found["fedper"].difference == pytest.approx(rows[1]["difference"]["mean"])


def test_an_exported_model_that_no_client_uses_says_so() -> None:
    run = fl.run_experiment(load_experiment("spec.toml"), "run")
    caveat = "Clients keep parameters of their own (head); this is not the model that a client uses."
    said = CliRunner().invoke(app, ["export", "run", "-o", "model.pt"]).output
    assert caveat in " ".join(said.split())
    facts = json.loads(CliRunner().invoke(app, ["export", "run", "-o", "model.pt", "--json"]).stdout)
    assert facts["caveat"] == caveat
    assert caveat in Path(facts["card"]).read_text()
    with pytest.warns(UserWarning, match="not the model that a client uses"):
        loaded = fl.load_model("run")
    shared, own = run.federation.model().state_dict(), run.federation.personal_model(0).state_dict()
    assert all(torch.equal(value, shared[name]) for name, value in loaded.state_dict().items())
    assert not all(torch.equal(value, shared[name]) for name, value in own.items())


def test_a_model_that_clients_use_has_no_caveat(recwarn: pytest.WarningsRecorder) -> None:
    fl.run_experiment(load_experiment("spec.toml", ["algorithm.preset=fedavg"]), "run")
    fl.load_model("run")
    assert not recwarn.list
    made = fl.export_model("run", "model.pt")
    assert made.caveat == ""
    assert "Clients keep" not in made.card.read_text()


@pytest.mark.parametrize("algorithm", [fl.presets.fedper(lr=0.1), fl.presets.ditto(lr=0.1, mu=0.1)])
def test_a_diagnosis_gives_personal_methods_no_advice_on_weights(algorithm: fl.Algorithm) -> None:
    experiment = replace(load_experiment("spec.toml"), algorithm=algorithm)
    advice = fl.diagnose(experiment, rounds=10, quick=True).advice
    assert (advice.decision, advice.preset) == ("undecided", None)
    assert advice.reason.startswith(
        "The method gives each client a model of its own, so no advice on weights"
    )
    assert 'preset = "fedavg" and clients.holdout = 0.2' in advice.reason
    # That question has an answer.
    plain = load_experiment("spec.toml", ["algorithm.preset=fedavg", "clients.holdout=0.2"])
    assert fl.diagnose(plain, rounds=10, quick=True).finding("personal") is not None


@pytest.mark.parametrize(("preset", "argument"), [("fedprox", "mu"), ("feddyn", "alpha"), ("ditto", "mu")])
def test_a_preset_names_the_argument_that_it_lacks(preset: str, argument: str) -> None:
    with pytest.raises(fl.errors.FieldError) as caught:
        getattr(fl.presets, preset)(lr=0.1)
    assert str(caught.value) == f"{preset} needs {argument}: write {preset}({argument}=0.1)."


def test_personal_figures_choose_the_best_model_and_end_a_run() -> None:
    rule = fl.StopRule("personal_loss", target=2.0)
    own = replace(load_experiment("spec.toml"), rounds=20, keep_best="personal_accuracy", stop_when=rule)
    run = fl.run_experiment(own, "run")
    found = [record.evaluation.metrics for record in run.federation.records if record.evaluation]
    assert 1 < len(found) < 20
    assert found[-1]["personal_loss"] <= 2.0 < found[-2]["personal_loss"]
    facts = kept_model("run", "best").facts
    assert facts.value == max(each["personal_accuracy"] for each in found)
    plain = replace(own, algorithm=fl.presets.fedavg(lr=0.1), keep_best=None, stop_when=None)
    with pytest.raises(fl.errors.FieldError, match="keep_best must be one of 'loss', 'accuracy', got"):
        replace(plain, keep_best="personal_accuracy")
    shared = replace(plain, rounds=2, per_client=True, keep_best="personal_accuracy")
    fl.run_experiment(shared, "shared")
    assert kept_model("shared", "best").facts.metric == "personal_accuracy"
