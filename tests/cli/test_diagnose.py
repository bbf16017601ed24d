"""`fairlead diagnose`, called in this process."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.experiments.study import PlannedRun, StudyFolder

SPEC = """
rounds = 6
evaluate_every = 0
[clients]
type = "Digits"
num_clients = 12
[clients.partition]
type = "DirichletPartitioner"
alpha = 0.3
[algorithm]
preset = "fedavg"
lr = 0.05
steps = 2
[task.model]
type = "LogisticRegression"
[work]
type = "FixedSteps"
steps = [1, 2, 3, 9, 1, 2, 3, 9, 1, 2, 3, 9]
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)


def call(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["diagnose", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


def data(*arguments: str) -> Any:
    """What the command prints as JSON, refusing anything that is not strict JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(call(*arguments, "--json").stdout, parse_constant=refuse)


def refused(*arguments: str) -> str:
    """The one sentence with which the command refuses."""
    result = call(*arguments, exit_code=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("fairlead: ")


def test_text_and_json_are_the_same_diagnosis() -> None:
    text, plain = call("spec.toml").stdout, data("spec.toml")
    assert text.startswith("Diagnosis of spec.toml: 12 clients, 20 rounds\n")
    assert all(finding["statement"] in text for finding in plain["findings"])
    assert plain["advice"]["preset"] == "scaffold"
    assert plain["advice"]["reason"] in text
    assert "fl.presets.scaffold(lr=0.05, steps=2)" in text
    assert plain["figures"] == []
    assert {"sizes", "labels", "work", "links"} <= {finding["kind"] for finding in plain["findings"]}
    assert "\x1b" not in text


LOSSY = ("--set", "link.type=UniformBernoulliLink", "--set", "link.low=0", "--set", "link.high=0.6")


def compared(command: str) -> list[str]:
    """The methods of an advised comparison, after a round of each."""
    program, *arguments = shlex.split(command)
    assert program == "fairlead"
    result = CliRunner().invoke(app, [*arguments, "--rounds", "1", "--seeds", "0", "--jobs", "1", "--json"])
    assert result.exit_code == 0, result.output
    return [method["method"] for method in json.loads(result.stdout)["methods"]]


@pytest.mark.parametrize(
    ("changes", "methods"),
    [
        ((), ["spec", "scaffold"]),
        (LOSSY, ["spec", "scaffold"]),
        (
            ("--set", "algorithm.preset=fedprox", "--set", "algorithm.mu=0.1", "--set", "algorithm.lr=0.02"),
            ["spec", "scaffold"],
        ),
    ],
)
def test_the_advised_command_runs_as_printed(changes: tuple[str, ...], methods: list[str]) -> None:
    command = data("spec.toml", *changes)["advice"]["command"]
    assert f"- To try it: {command}\n" in call("spec.toml", *changes).stdout
    assert compared(command) == methods


def test_the_advice_for_a_run_can_be_tried_on_its_own_spec() -> None:
    fl.run_experiment(fl.load_experiment("spec.toml"), "run")
    assert compared(data("run")["advice"]["command"]) == ["spec", "scaffold"]


def test_the_advised_preset_is_the_same_in_a_spec_and_in_python() -> None:
    advice = data("spec.toml", *LOSSY)["advice"]
    head, tail = SPEC.split("[algorithm]")
    Path("advised.toml").write_text(f"{head}{advice['toml']}[task.model]{tail.split('[task.model]')[1]}")
    called = eval(advice["python"], {"fl": fl, "dataclasses": dataclasses})
    assert fl.load_experiment("advised.toml").algorithm == called
    assert called == fl.presets.scaffold(lr=0.05, steps=2)
    text = call("spec.toml", *LOSSY).stdout
    assert f"- In Python: {advice['python']}\n" in text
    assert all(f"    {line}\n" in text for line in advice["toml"].splitlines())


def test_a_trial_compares_the_candidates_and_recommends_by_the_result() -> None:
    found = data("spec.toml", "--quick", "--try", "--jobs", "1", "--set", "rounds=4", "-o", "trial")
    trial = found["trial"]
    methods = {method["method"]: method for method in trial["methods"]}
    assert list(methods) == ["spec", "scaffold", "fednova", "feddyn:alpha=0.01"]
    assert (trial["folder"], trial["rounds"], trial["baseline"]) == ("trial", 4, "spec")
    assert all(list(method["seeds"]) == ["0", "1", "2"] for method in methods.values())
    better = [name for name, method in methods.items() if method["standing"] == "better"]
    assert trial["recommended"] in (better or methods)
    assert trial["reason"].startswith(("use ", "keep "))
    written = {path: path.stat().st_mtime_ns for path in Path("trial").glob("*/*/rounds.jsonl")}
    assert len(written) == 12
    told = call("spec.toml", "--quick", "--try", "--jobs", "1", "--set", "rounds=4", "-o", "trial")
    assert all(path.stat().st_mtime_ns == time for path, time in written.items())
    assert f"After the trial: {trial['reason']}" in told.stdout


def test_a_trial_tries_the_spec_of_a_run_and_refuses_records() -> None:
    fl.run_experiment(fl.load_experiment("spec.toml", ["rounds=5"]), "run")
    assert data("run", "--try", "--jobs", "1", "-o", "trial")["trial"]["rounds"] == 5
    Path("records.jsonl").write_text("")
    assert refused("records.jsonl", "--try").startswith("--try needs a spec or the folder of a simulated run")
    assert refused("spec.toml", "-o", "x") == "--output is the folder of --try, which is missing."


def test_equal_clients_need_nothing_but_fedavg() -> None:
    advice = data("spec.toml", "--quick", "--set", "clients.partition.type=IidPartitioner")["advice"]
    assert (advice["preset"], advice["decision"]) == ("fedavg", "keep")
    assert "plain averaging is enough" in advice["reason"]


def test_a_folder_of_several_runs_names_them() -> None:
    for seed in (0, 1):
        fl.run_experiment(fl.load_experiment("spec.toml", seed=seed), f"study/fedavg/seed-{seed}")
    sentence = (
        "study is not the folder of a run: it has no spec.toml or no rounds.jsonl; it contains the runs "
        "study/fedavg/seed-0 and study/fedavg/seed-1."
    )
    assert refused("study") == sentence
    for command in (["export", "study", "-o", "model.safetensors"], ["run", "study"]):
        result = CliRunner().invoke(app, command)
        assert (result.exit_code, " ".join(result.stderr.split())) == (2, f"fairlead: {sentence}")
    with pytest.raises(fl.errors.RunFolderError, match=re.escape(sentence)):
        fl.load_model("study")
    with pytest.raises(fl.errors.RunFolderError, match="absent is not the folder of a run"):
        fl.load_model("absent")


def test_a_study_names_its_started_runs_in_their_order() -> None:
    experiment = fl.load_experiment("spec.toml")
    names = ("second", "first", "waiting")
    StudyFolder(Path("study")).plan([PlannedRun(name, {"method": name}, experiment) for name in names])
    for name in names[:2]:
        fl.run_experiment(experiment, f"study/{name}")
    assert refused("study").endswith("; it contains the runs study/second and study/first.")


def test_infinite_numbers_are_strict_json() -> None:
    plain = data(
        "spec.toml", "--quick", "--set", "link.type=BernoulliLink", "--set", f"link.drop={[0.0] * 11 + [1.0]}"
    )
    (foreseen,) = (finding for finding in plain["findings"] if finding["kind"] == "foreseen")
    assert foreseen["evidence"]["chi_square"] == "inf"
    assert plain["advice"]["decision"] == "undecided"


def test_overrides_seed_and_rounds_change_the_probe() -> None:
    plain = data("spec.toml", "--set", "algorithm.preset=fednova", "--seed", "3", "--rounds", "6", "--quick")
    assert (plain["rounds"], plain["advice"]["decision"]) == (6, "keep")


def test_a_comparison_is_a_table() -> None:
    text = call("spec.toml", "--quick", "--against", "fedavg, scaffold,fedaware").stdout
    assert re.search(r"^preset +misplaced weight +chi-square +steps per round$", text, flags=re.MULTILINE)
    assert re.search(r"^scaffold +0% +0$", text, flags=re.MULTILINE)
    assert "fedaware: FedAWARE minimizes no weighted sum" in text


def test_figures_are_drawn() -> None:
    plain = data("spec.toml", "--figures", "pictures", "--format", "png")
    assert plain["figures"] == [
        f"pictures/{name}.png" for name in ("weights", "cosines", "consensus", "diversity")
    ]
    assert all(Path(path).exists() for path in plain["figures"])


def test_the_folder_of_a_run_and_logged_records() -> None:
    fl.run_experiment(fl.load_experiment("spec.toml"), "run")
    assert data("run")["rounds"] == 6
    records = fl.load_records("run")
    with Path("logged.jsonl").open("w") as file:
        for record in records:
            line = {"round": record.round, "asked": record.asked, "arrived": record.arrived}
            file.write(json.dumps({**line, "num_steps": record.num_steps}) + "\n")
    plain = data("logged.jsonl")
    assert (plain["source"], plain["clients"], plain["rounds"]) == ("logged.jsonl", 12, 6)
    assert [finding["kind"] for finding in plain["findings"]].count("assumption") == 3


def test_a_run_whose_data_are_gone_is_judged_by_its_records() -> None:
    """The same figures as with the data, but eight rounds do not tell the links, which the spec would have told."""
    rows = [f"{town},{age},{age % 2}" for town, count in (("Ulm", 8), ("Bern", 4)) for age in range(count)]
    Path("patients.csv").write_text("\n".join(["town,age,ill", *rows]) + "\n")
    clients = fl.CsvTable("patients.csv", "ill", client="town", test_fraction=0.0)
    work = fl.FixedSteps((1, 4))
    fl.run_experiment(fl.Experiment(clients, fl.presets.fedavg(lr=0.1), 8, work=work), "run")
    at_hand = {finding["kind"]: finding for finding in data("run")["findings"]}
    Path("patients.csv").unlink()
    gone = data("run")
    findings = {finding["kind"]: finding for finding in gone["findings"]}
    assert at_hand.keys() - findings.keys() == {"sizes", "labels"}
    for kind in ("measured", "clients", "diversity"):
        assert findings[kind]["statement"] == at_hand[kind]["statement"]
        assert findings[kind]["evidence"] == at_hand[kind]["evidence"]
    gaining, losing = (findings["clients"]["evidence"][side].keys() for side in ("gain", "lose"))
    assert gaining | losing == {"client 'Ulm'", "client 'Bern'"}
    assert (at_hand["links"]["confidence"], findings["links"]["confidence"]) == ("high", "none")
    assert findings["consensus"]["statement"].startswith(
        "Consensus: not tested, because the clients' data cannot be read here ("
    )
    assert "patients.csv" in findings["consensus"]["statement"]
    assert gone["advice"]["command"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("absent.toml", "The spec absent.toml cannot be read: No such file or directory."),
        ("absent.jsonl", "The records absent.jsonl cannot be read: No such file or directory."),
        ("empty.jsonl", "empty.jsonl holds no records."),
        ("t.csv", "diagnose takes a spec (.toml), a run folder or records (.jsonl), got t.csv."),
        ("cut.jsonl", "Line 2 of cut.jsonl is damaged or incomplete."),
        ("stranger.jsonl", "Line 1 of stranger.jsonl: client 4 arrived but was not asked."),
        ("folder", "folder is not the folder of a run: it has no spec.toml or no rounds.jsonl."),
        ("spec.toml --format gif", "--format must be one of svg, png, pdf, got 'gif'."),
        ("spec.toml --against fednowa", "'fednowa' is not a preset. Did you mean 'fednova'?"),
        ("spec.toml --set sed=3", "sed is not a field of Experiment. Did you mean 'seed'?"),
        (
            "cut.jsonl --seed 3",
            "--set, --seed and --device only apply to a spec file; a finished run cannot be changed.",
        ),
        (
            "one.jsonl --rounds 3",
            "--rounds only applies to a spec; a finished run is diagnosed from all its rounds.",
        ),
    ],
)
def test_refusals_are_one_sentence(arguments: str, message: str) -> None:
    for name in ("empty.jsonl", "t.csv"):
        Path(name).write_text("")
    line = '{"round": 0, "asked": [0, 1], "arrived": [0], "num_steps": [2]}\n'
    Path("one.jsonl").write_text(line)
    Path("cut.jsonl").write_text(line + line[:20])
    Path("stranger.jsonl").write_text(line.replace('"arrived": [0]', '"arrived": [4]'))
    Path("folder").mkdir()
    assert refused(*arguments.split()) == message


@pytest.mark.parametrize("rounds", ["0", "-1"])
def test_a_probe_has_at_least_one_round(rounds: str) -> None:
    assert "'--rounds'" in call("spec.toml", "--rounds", rounds, exit_code=2).stderr
    with pytest.raises(fl.errors.FieldError, match=rf"^diagnose needs rounds of at least 1, got {rounds}\.$"):
        fl.diagnose("spec.toml", rounds=int(rounds))
