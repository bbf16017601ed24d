"""The commands, called in this process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.experiments.catalog import KINDS, entries
from fairlead.experiments.demo import DEMO_METHODS
from fairlead.experiments.run_folder import RunSummary
from fairlead.presets import METHODS
from fairlead.references import REFERENCES

SPEC = """
rounds = 3
evaluate_every = 2
[clients]
type = "Digits"
num_clients = 4
[algorithm]
preset = "fednova"
lr = 0.05
steps = 2
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)


def call(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == exit_code, result.output
    return result


def data(*arguments: str) -> Any:
    """What a command prints as JSON, refusing anything that is not strict JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(call(*arguments, "--json").stdout, parse_constant=refuse)


def refused(*arguments: str) -> str:
    """The one sentence with which a command refuses."""
    result = call(*arguments, exit_code=2)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("fairlead: ")
    return lines[0].removeprefix("fairlead: ")


def test_run_keeps_the_run_and_says_what_it_did() -> None:
    result = call("run", "spec.toml", "--set", "algorithm.server.lr=0.5", "--seed", "1", "-o", "runs/x")
    experiment = fl.RunFolder(Path("runs/x")).experiment()
    assert (experiment.seed, experiment.algorithm.server) == (1, fl.SGD(0.5))
    assert len(fl.load_records("runs/x")) == 3
    assert "3 rounds are in runs/x" in result.stdout
    assert "Final model: loss" in result.stdout
    assert "x: " in result.stdout
    assert "Over 3 rounds" in result.stdout
    assert "spec  round 2/3  arrived 4/4" in result.stderr
    assert "\x1b" not in result.output
    assert "\r" not in result.output


def test_run_says_that_nothing_was_learned() -> None:
    """Steps of the server that are a hundred times too long take the model to a larger loss than it began with."""
    told = call("run", "spec.toml", "--set", "algorithm.server.lr=100.0", "-o", "runs/x").stdout
    summary = fl.RunFolder(Path("runs/x")).summary()
    assert summary is not None
    assert not summary.learned
    assert (
        "No run of x ended with a lower objective than its initial model: the learning rate may be too"
        in told
    )
    assert "No run of" not in call("run", "spec.toml", "-o", "runs/y").stdout


def test_run_says_how_much_weight_chance_misplaces() -> None:
    """With lossy links and few rounds; without them nothing is left to chance."""
    lossy = ("--set", "link.type=BernoulliLink", "--set", "link.drop=0.5", "--rounds", "20")
    told = " ".join(call("run", "spec.toml", *lossy, "-o", "runs/x").stdout.split())
    summary = fl.RunFolder(Path("runs/x")).summary()
    assert summary is not None
    assert summary.misplaced_by_chance > 0.01
    assert f"Chance alone would misplace some {summary.misplaced_by_chance:.1%} in 20 rounds." in told
    assert "Chance" not in call("run", "spec.toml", "-o", "runs/y").stdout


def test_one_round_of_one_run_is_told_in_the_singular() -> None:
    assert "1 round is in runs/x\n" in call("run", "spec.toml", "--rounds", "1", "-o", "runs/x").stdout
    headline, last = call("report", "runs/x").stdout.splitlines()
    assert " accuracy over the last 10 % of rounds, 1 seed." in headline
    assert last == "1 run of 1 method is in runs/x/report.html"


def test_run_without_a_folder_takes_a_new_one_each_time() -> None:
    call("run", "spec.toml")
    call("run", "spec.toml", "--rounds", "1")
    assert [len(fl.load_records(f"runs/{name}")) for name in ("spec-0", "spec-0-2")] == [3, 1]


def test_run_quietly() -> None:
    result = call("run", "spec.toml", "--quiet", "-o", "runs/x")
    assert result.output == ""
    assert len(fl.load_records("runs/x")) == 3


def test_run_as_json() -> None:
    summary = data("run", "spec.toml", "-o", "runs/x")
    records = fl.load_records("runs/x")
    assert (summary["folder"], summary["outcome"], summary["rounds"]) == ("runs/x", "finished", 3)
    assert summary["train_loss"] == records[-1].train_loss
    assert records[-1].evaluation is not None
    assert summary["evaluation"]["metrics"] == dict(records[-1].evaluation.metrics)
    assert summary["misplaced_weight"] == pytest.approx(0, abs=1e-9)


def test_run_resumes() -> None:
    call("run", "spec.toml", "-o", "runs/x")
    call("run", "spec.toml", "-o", "runs/x", "--resume", "--rounds", "5")
    call("run", "spec.toml", "-o", "runs/y", "--rounds", "5")
    assert [r.arrived for r in fl.load_records("runs/x")] == [r.arrived for r in fl.load_records("runs/y")]
    losses = [[r.train_loss for r in fl.load_records(f"runs/{name}")] for name in "xy"]
    assert losses[0] == losses[1]


def test_resuming_nothing_is_said() -> None:
    started = call("run", "spec.toml", "-o", "runs/x", "--resume")
    assert started.stderr.splitlines()[0] == "runs/x holds no run to resume: starting a new one."
    again = call("run", "spec.toml", "-o", "runs/x", "--resume")
    assert again.stderr.splitlines() == [
        "The run in runs/x is already finished after 3 rounds. A larger --rounds extends it."
    ]
    longer = call("run", "spec.toml", "-o", "runs/x", "--resume", "--rounds", "4")
    assert "nothing" not in longer.stderr
    assert call("run", "spec.toml", "-o", "runs/x", "--resume", "--rounds", "4", "-q").output == ""


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("run absent.toml", "The spec absent.toml cannot be read: No such file or directory."),
        ("run spec.toml --set sed=3", "sed is not a field of Experiment. Did you mean 'seed'?"),
        ("run spec.toml --set lr=1", "lr is not a field of Experiment. Did you mean algorithm.lr?"),
        ("run spec.toml --set seed", "An override must be of the form path.to.field=value, got 'seed'."),
        (
            "run spec.toml --resume",
            "--resume needs the folder of the run: add -o FOLDER, or give the folder instead of the spec.",
        ),
        ("run spec.toml --rounds 0", "Experiment.rounds must be a whole number of at least 1, got 0."),
        (
            "run spec.toml --seed 99999999999999999999",
            "seed must be a whole number of at most 9223372036854775807, got 99999999999999999999.",
        ),
        ("run spec.toml --seed -1", "Experiment.seed must be a whole number of at least 0, got -1."),
        ("run spec.toml --checkpoint-every 0", "run_experiment.checkpoint_every must be at least 1, got 0."),
        (
            "run spec.toml --log tensorbord",
            "--log must be one of aim, mlflow, tensorboard, wandb, got 'tensorbord'.",
        ),
        ("flower up .", ". is no Flower app with a spec.toml: `fairlead flower init` writes one."),
        ("list sampler", "'sampler' is not a kind of parts. Did you mean 'samplers'?"),
        ("show Proximall", "'Proximall' is not a part, a preset or a setting. Did you mean 'Proximal'?"),
        ("cite Constant", "Constant has no paper to cite."),
        ("init spec.toml", "spec.toml already exists: choose another name."),
        ("init spec.toml/x.toml", "spec.toml cannot be written: File exists."),
    ],
)
def test_refusals_are_one_sentence(command: str, message: str) -> None:
    assert refused(*command.split()) == message


def test_a_log_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "mlflow", missing)
    said = refused("run", "spec.toml", "--log", "mlflow", "-q", "-o", "runs/x")
    assert said == "The log mlflow needs a package: install it with pip install 'mlflow-skinny>=2.16,<4'."
    assert not Path("runs").exists()


def test_a_folder_with_another_run_is_refused() -> None:
    call("run", "spec.toml", "-o", "runs/x")
    said = refused("run", "spec.toml", "-o", "runs/x")
    assert said == (
        "runs/x already holds a run of 3 rounds, which fairlead run runs/x resumes: "
        "choose another folder for a new run."
    )


def test_a_second_interrupt_says_how_to_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes as KeyboardInterrupt: in the second round, where there is one to resume from, or while loading."""

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    conclude = fl.RunFolder.conclude

    def interrupted_after(store: fl.RunFolder, summary: RunSummary) -> None:
        conclude(store, summary)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fl.Federation, "evaluate", interrupted)
        result = call("run", "spec.toml", "-o", "runs/x", exit_code=130)
    advice = "fairlead run runs/x"
    assert result.stderr.splitlines()[-1] == f"Stopped. Resume with: {advice}"
    call(*advice.split()[1:])
    assert len(fl.load_records("runs/x")) == 3
    with monkeypatch.context() as patched:
        # After the last round, with the summary written.
        patched.setattr(fl.RunFolder, "conclude", interrupted_after)
        result = call("run", "spec.toml", "-o", "runs/y", exit_code=130)
    assert result.stderr.splitlines()[-1] == "Stopped. The run is finished."
    monkeypatch.setattr(fl.Experiment, "load", interrupted)
    assert call("run", "spec.toml", exit_code=130).stderr == "Stopped. Nothing was done.\n"


def test_divergence_is_one_sentence_with_its_cure() -> None:
    result = call("run", "spec.toml", "--set", "algorithm.lr=1e30", "-q", "-o", "runs/x", exit_code=2)
    assert result.stderr.startswith("fairlead: In round ")
    assert "lower the clients' learning rate" in result.stderr


def test_errors_nobody_foresaw_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: fl.Experiment) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(fl.Experiment, "load", fail)
    result = CliRunner().invoke(app, ["run", "spec.toml", "-o", "runs/x"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_list_names_every_kind() -> None:
    printed = call("list").stdout
    for kind in KINDS:
        assert kind in printed
    assert set(data("list")) == set(KINDS)
    assert "FedNova" in data("list")["aggregators"]


@pytest.mark.parametrize("kind", KINDS)
def test_list_shows_everything_of_a_kind(kind: str) -> None:
    names = [entry.name for entry in entries(kind)]
    printed = call("list", kind).stdout
    assert all(name in printed for name in names)
    assert [each["name"] for each in data("list", kind)] == names


def test_list_methods_says_what_each_corrects() -> None:
    printed = call("list", "methods").stdout.splitlines()
    assert printed[0].split() == ["method", "corrects", "reference", "what", "it", "is"]
    scaffold = next(line for line in printed if line.startswith("scaffold"))
    assert "work, links, drift" in scaffold
    assert "karimireddy2020scaffold" in scaffold
    fedavg = next(line for line in printed if line.startswith("fedavg "))
    assert "nothing" in fedavg
    methods = {each["name"]: each for each in data("list", "methods")}
    assert list(methods) == list(METHODS)
    assert methods["fednova"]["corrects"] == ["work"]


def test_show_a_part_and_a_preset() -> None:
    part = call("show", "SGD").stdout
    assert "SGD (optimizers)" in part
    assert "v ← ρ v + (1 − δ) g" in part
    assert "Factor on `lr` by round." in part
    assert "required" in part
    preset = call("show", "fedprox").stdout
    assert "li2020fedprox" in preset
    assert "Corrects: nothing." in preset
    assert "Proximal" in preset
    assert "WeightedMean" in preset
    facts = data("show", "fedprox")
    # Not giving a batch size means 32, and none the whole data.
    assert {p["name"]: p["default"] for p in facts["parameters"]}["batch_size"] == "optional"
    assert {p["name"] for p in facts["parameters"] if p["required"]} == {"mu", "lr"}
    assert facts["references"] == ["li2020fedprox"]


@pytest.mark.parametrize("name", ["fednova", "FedNova", "wang2021fednova"])
def test_cite_prints_bibtex(name: str) -> None:
    assert call("cite", name).stdout.strip() == REFERENCES["wang2021fednova"].bibtex()
    assert data("cite", name)[0]["key"] == "wang2021fednova"


def test_init_writes_a_spec_that_runs() -> None:
    assert call("init").stdout.strip() == "Wrote fairlead.toml. Run it with: fairlead run fairlead.toml"
    text = Path("fairlead.toml").read_text()
    assert "fairlead run fairlead.toml" in text
    assert "THIS_FILE" not in text
    call("init", "new folder/my spec.toml")
    assert "fairlead run 'new folder/my spec.toml'" in Path("new folder/my spec.toml").read_text()
    call("run", "fairlead.toml", "--rounds", "2", "-q", "-o", "runs/first")
    assert len(fl.load_records("runs/first")) == 2


def test_demo_compares_and_explains() -> None:
    result = call("demo", "--rounds", "2")
    for name in DEMO_METHODS:
        assert result.stdout.count(f"\n{name} ") >= 2
        assert f"{name}  round 2/2" in result.stderr
    assert "misplaced weight" in result.stdout
    assert "\x1b" not in result.output
    facts = data("demo", "--rounds", "1", "--seed", "1")
    assert (facts["seed"], facts["rounds"]) == (1, 1)
    assert [each["method"] for each in facts["methods"]] == list(DEMO_METHODS)
    assert {"value", "objective", "misplaced_weight", "chi_square", "objective_verdict"} <= set(
        facts["methods"][0]
    )


def test_version_and_help() -> None:
    assert call("--version").stdout.strip() == fl.__version__
    printed = call("--help").stdout
    for command in ("run", "compare", "sweep", "demo", "list", "show", "cite", "init", "doctor"):
        assert command in printed
