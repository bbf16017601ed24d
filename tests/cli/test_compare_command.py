"""`fairlead compare`, called in this process and as users start it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compare_calls import SPEC, call, data

import fairlead as fl
from fairlead.checkpoint.store import checkpointed_rounds


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)


def final_accuracy(folder: str) -> float:
    evaluation = fl.load_records(folder)[-1].evaluation
    assert evaluation is not None
    return evaluation.metrics["accuracy"]


def test_the_figures_are_those_of_the_runs() -> None:
    """Means and paired differences of three seeds, computed again from the folders."""
    found = data("--methods", "fedavg,fedavg:lr=0.001", "--seeds", "0..2", "-o", "runs/x")
    assert (found["folder"], found["metric"]) == ("runs/x", {"name": "accuracy", "smaller_is_better": False})
    first, second = found["methods"]
    ends = {
        name: [final_accuracy(f"runs/x/{name}/seed-{seed}") for seed in range(3)]
        for name in ("fedavg", "fedavg,lr=0.001")
    }
    assert first["method"] == "fedavg"
    assert first["final"]["mean"] == pytest.approx(sum(ends["fedavg"]) / 3)
    assert first["difference"] is None
    differences = [
        ours - theirs for ours, theirs in zip(ends["fedavg,lr=0.001"], ends["fedavg"], strict=True)
    ]
    mean = sum(differences) / 3
    spread = (sum((value - mean) ** 2 for value in differences) / 2) ** 0.5
    assert second["difference"]["mean"] == pytest.approx(mean)
    assert second["difference"]["half_width"] == pytest.approx(4.30265 * spread / 3**0.5, rel=1e-5)
    assert second["difference"]["excludes_zero"] == (abs(mean) > 4.30265 * spread / 3**0.5)
    summary = fl.RunFolder(Path("runs/x/fedavg/seed-1")).summary()
    assert summary is not None
    assert first["seeds"]["1"]["objective"] == summary.objective
    objectives = [[method["seeds"][seed]["objective"] for seed in "012"] for method in (first, second)]
    behind = [ours - theirs for theirs, ours in zip(*objectives, strict=True)]
    assert first["objective_difference"] is None
    assert second["objective_difference"]["mean"] == pytest.approx(sum(behind) / 3)
    assert second["objective_difference"]["count"] == 3


def test_the_text_says_which_is_better_and_whether_it_is_noise() -> None:
    result = call("--methods", "fedavg,fedavg:lr=0.0001,scaffold", "--seeds", "0,1,2", "--rounds", "20")
    lines = result.stdout.splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.startswith("method"))
    assert lines[place - 1].split() == ["accuracy", "beyond", "objective", "by"]
    head = "(last 10 %) difference noise objective difference misplaced chance chi-square time seeds"
    assert lines[place].split() == ["method", *head.split()]
    summaries = [
        fl.RunFolder(Path(f"runs/spec-compare-20-rounds/fedavg/seed-{seed}")).summary() for seed in range(3)
    ]
    chance = sum(summary.misplaced_by_chance for summary in summaries if summary) / 3
    assert lines[place + 1].startswith("fedavg ")
    assert f" {chance:.1%} " in lines[place + 1]
    assert sum(line.startswith("Intervals cover everything that a seed draws") for line in lines) == 1
    (worse,) = (line for line in lines if line.startswith("fedavg:lr=0.0001: worse −"))
    assert re.fullmatch(r"fedavg:lr=0.0001: worse −[\d.]+ ± [\d.]+ points.*\.", worse)
    assert any(" accuracy over the last 10 % of rounds, 3 seeds" in line for line in lines)
    assert any(line.startswith("scaffold ") and "none by design" in line for line in lines)
    assert "├" in result.stdout
    assert "▁" in result.stdout
    assert lines[-1].startswith("The runs are in runs/spec-compare-20-rounds; ")
    assert "9/9  scaffold, seed 2 finished" in result.stderr
    assert all(character.isprintable() or character == "\n" for character in result.output)


def test_one_seed_says_nothing_about_noise() -> None:
    result = call("--methods", "fedavg,fednova:lr=0.2", "--seeds", "3")
    verdict = r"^fednova:lr=0.2: [+−]?[\d.]+ points; one seed, so the noise is unknown\.$"
    assert re.search(verdict, result.stdout, flags=re.MULTILINE)
    assert "├" not in result.stdout


def test_the_same_command_again_runs_nothing_twice() -> None:
    call("--methods", "fedavg,fednova", "--seeds", "0..1", "-q")
    before = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("rounds.jsonl")}
    again = call("--methods", "fedavg,fednova,scaffold", "--seeds", "0..1")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert again.stderr.count("was done before") == 4
    assert again.stderr.count("finished in") == 2


def test_runs_of_earlier_commands_are_named() -> None:
    """The page shows a whole folder, so that a smaller comparison in it says what its table leaves out."""
    whole = call("--methods", "fedavg,fednova", "--seeds", "0..1", "-o", "runs/x").stdout
    part = call("--methods", "fedavg", "--seeds", "0", "-o", "runs/x").stdout
    assert "earlier commands" not in whole
    assert (
        "The folder also has 3 runs of earlier commands: the page includes them, this table does not." in part
    )


def test_a_failed_run_is_shown_with_its_reason_and_loses_nothing() -> None:
    result = call("--methods", "fedavg,fednova:lr=1e30", "--seeds", "0..1", exit_code=1)
    assert "fednova:lr=1e30, seed 1 failed: In round 1 the updates of clients" in result.stdout
    assert "0 of 2" in result.stdout
    assert "fednova:lr=1e30: no round was finished." in result.stdout
    assert "Only fedavg has finished all its runs, so no method is ranked first." in result.stdout
    found = data("--methods", "fedavg,fednova:lr=1e30", "--seeds", "0..1", exit_code=1)
    assert found["methods"][0]["final"]["count"] == 2
    assert found["methods"][1]["final"] is None
    assert set(found["methods"][1]["failures"]) == {"0", "1"}


def test_methods_that_learn_nothing_are_told() -> None:
    """With a rate of 100 losses stay finite, but far above those of the initial model."""
    cure = (
        "ended with a lower objective than its initial model: the learning rate may be too large, or the rounds "
        "too few."
    )
    arguments = ("--seeds", "0..1", "-o", "runs/x", "--methods")
    lines = call(*arguments, "fedavg:lr=100,fednova:lr=100").stdout.splitlines()
    assert any(f"No run of any method {cure}" in line for line in lines)
    lines = call(*arguments, "fedavg,fednova:lr=100").stdout.splitlines()
    assert any(f"No run of fednova:lr=100 {cure}" in line for line in lines)
    found = data(*arguments, "fedavg,fednova:lr=100")["methods"]
    assert [method["learnt"] for method in found] == [True, False]
    assert "No run of" not in call(*arguments, "fedavg,fednova").stdout


def test_methods_that_all_fail_are_told() -> None:
    lines = call(
        "--methods", "fedavg:lr=1e30,fednova:lr=1e30", "--seeds", "0", exit_code=1
    ).stdout.splitlines()
    assert "No run of any method finished: the reasons above say what to change." in lines
    mixed = call("--methods", "fedavg:lr=100,fednova:lr=1e30", "--seeds", "0", exit_code=1).stdout
    assert "No run of any method ended with a lower objective than its initial model" in mixed


def test_a_problem_without_metrics_is_compared_by_its_objective() -> None:
    Path("spec.toml").write_text(
        'rounds = 3\nevaluate_every = 0\n[clients]\ntype = "Quadratics"\nnum_clients = 3\n'
        '[algorithm]\npreset = "fedavg"\nlr = 0.1\nsteps = 2\n'
    )
    found = data("--methods", "fedavg,fednova", "--seeds", "0..1")
    assert found["metric"] == {"name": "objective", "smaller_is_better": True}
    assert found["methods"][0]["final"]["mean"] == pytest.approx(found["methods"][0]["objective"]["mean"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--methods fedavgg", "fairlead: Method fedavgg: 'fedavgg' is not a preset. Did you mean 'fedavg'?"),
        (
            "--methods fedavg --seeds a",
            "fairlead: --seeds must be different whole numbers from 0 to 9223372036854775807, such as 0..4 or 0,1,2, "
            "got 'a'.",
        ),
        (
            "--methods fedavg --seeds=",
            "fairlead: --seeds must be different whole numbers from 0 to 9223372036854775807, such as 0..4 or 0,1,2, "
            "got ''.",
        ),
        (
            "--methods fedavg --seeds 0,0",
            "fairlead: --seeds must be different whole numbers from 0 to 9223372036854775807, such as 0..4 or 0,1,2, "
            "got '0,0'.",
        ),
        (
            "--methods fedavg --seeds 99999999999999999999",
            "fairlead: --seeds must be different whole numbers from 0 to 9223372036854775807, such as 0..4 or 0,1,2, "
            "got '99999999999999999999'.",
        ),
        (
            "--methods fedavg --set seed=99999999999999999999",
            "fairlead: seed must be a whole number of at most 9223372036854775807, got 99999999999999999999.",
        ),
        (
            "--methods fedavg --seeds 5..2",
            "fairlead: --seeds must ascend, such as 1..3, to 10000 numbers at most, got '5..2'.",
        ),
        (
            "--methods fedavg --seeds 0 --metric acuracy",
            "fairlead: 'acuracy' is not a metric of these runs. Did you mean 'accuracy'?",
        ),
        ("--methods fedavg --set sed=1", "fairlead: sed is not a field of Experiment. Did you mean 'seed'?"),
        ("--methods fedavg --jobs 0", "fairlead: --jobs must be at least 1, got 0."),
        (
            "--methods fedavg --checkpoint-every 0",
            "fairlead: --checkpoint-every must be at least 1, got 0.",
        ),
        (
            "--methods fedavg --target 95",
            "fairlead: --target must be from 0 to 1 for accuracy, got 95: write 0.95 for 95 %.",
        ),
        (
            "--methods fedavg --target half",
            "fairlead: --target must be a number or a percentage, such as 0.5 or 50%, got 'half'.",
        ),
        (
            "--methods fedavg --target 150%",
            "fairlead: --target must be from 0% to 100%, got '150%'.",
        ),
        (
            "--methods fedavg --target -0.1",
            "fairlead: --target must be from 0 to 1 for accuracy, got -0.1.",
        ),
        (
            "--methods fedavg --metric objective --target 0.5",
            "fairlead: --target must be left out where runs are compared by objective, which only the final model "
            "has, got 0.5.",
        ),
        (
            "--methods fedavg --set evaluate_every=0 --target 0.5",
            "fairlead: --target must be left out where runs are compared by objective, which only the final model "
            "has, got 0.5.",
        ),
    ],
)
def test_refusals_are_one_sentence(arguments: str, message: str) -> None:
    assert call("-q", *arguments.split(), exit_code=2).stderr.strip() == message


def test_a_folder_with_other_runs_is_refused() -> None:
    call("--methods", "fedavg", "--seeds", "0", "-q")
    said = call("--methods", "fedavg", "--seeds", "0", "--set", "link.drop=0.5", "-q", exit_code=2).stderr
    assert said.startswith("fairlead: The run in runs/spec-compare/fedavg/seed-0 is another experiment")


def test_other_rounds_have_another_folder() -> None:
    """However they are asked for, and the same ones find their runs again."""
    arguments = ("--methods", "fedavg", "--seeds", "0")
    folders = [
        data(*arguments, *rounds)["folder"]
        for rounds in ([], ["--rounds", "1"], ["--rounds", "2"], ["--set", "rounds = 1"])
    ]
    assert folders == [
        "runs/spec-compare",
        "runs/spec-compare-1-round",
        "runs/spec-compare-2-rounds",
        "runs/spec-compare-1-round",
    ]
    assert [len(fl.load_records(f"{folder}/fedavg/seed-0")) for folder in folders] == [4, 1, 2, 1]


@pytest.mark.parametrize("method", ["fedavg", "fednova"])
@pytest.mark.parametrize("rounds", ["1", "3"])
def test_a_folder_with_runs_of_another_length_is_refused(method: str, rounds: str) -> None:
    """Shorter and longer ones, of the same method and of others, before anything is run."""
    call("--methods", "fedavg", "--seeds", "0", "--rounds", "2", "-o", "runs/x", "-q")
    said = call("--methods", method, "--seeds", "0", "--rounds", rounds, "-o", "runs/x", exit_code=2).stderr
    assert said.strip() == (
        f"fairlead: runs/x holds runs of 2 rounds, which cannot be compared with runs of {rounds}: choose another "
        "folder with --output."
    )
    assert [run.labels["method"] for run in fl.StudyFolder(Path("runs/x")).runs()] == ["fedavg"]


def test_a_second_interrupt_says_that_the_command_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes as KeyboardInterrupt, here in the middle of the second round."""
    evaluate = fl.Federation.evaluate

    def interrupted(self: fl.Federation, *, per_client: bool = False) -> fl.Evaluation:
        if self.state.round == 2:
            raise KeyboardInterrupt
        return evaluate(self, per_client=per_client)

    with monkeypatch.context() as patched:
        patched.setattr(fl.Federation, "evaluate", interrupted)
        result = call("--methods", "fedavg,fednova", "--seeds", "0", exit_code=130)
    assert "Stopped. Re-run the command to resume from the last checkpoints." in result.stderr
    assert len(fl.load_records("runs/spec-compare/fedavg/seed-0")) == 1
    call("--methods", "fedavg,fednova", "--seeds", "0", "-q")
    assert len(fl.load_records("runs/spec-compare/fednova/seed-0")) == 4


def test_ctrl_c_stops_all_processes_and_says_how_to_resume() -> None:
    """To the whole group, as a terminal sends it: workers must finish their rounds all the same."""
    command = [sys.executable, "-c", "from fairlead.cli import main; main()", "compare", "spec.toml"]
    arguments = ["--methods", "fedavg,fednova,scaffold", "--seeds", "0..1", "--jobs", "2"]
    endless = subprocess.Popen(
        [*command, *arguments, "--rounds", "100000", "--set", "evaluate_every=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120

    def running() -> list[Path]:
        return [path for path in Path("runs").rglob("rounds.jsonl") if path.stat().st_size > 2000]

    while len(running()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(endless.pid, signal.SIGINT)
    stdout, stderr = endless.communicate(timeout=60)
    assert endless.returncode == 130, stderr
    assert "Stopping after the current rounds" in stderr
    assert stdout.splitlines()[-1] == "Stopped with 0 of 6 runs finished. Re-run the command to resume."
    assert "Traceback" not in stderr
    for path in running():
        store = fl.RunFolder(path.parent)
        done = len(store.records())
        assert checkpointed_rounds(store.checkpoint)[0] == done
        assert [start.outcome for start in store.provenance()] == ["interrupted"]


def test_the_compare_table_stands_for_options_which_override_it() -> None:
    table = '[compare]\nmethods = ["fedavg", "fedavg:lr=0.001"]\nseeds = [0, 1]\ntarget = 0.3\n'
    Path("spec.toml").write_text(SPEC + table)
    found = data("-o", "runs/x")
    assert found["target"] == 0.3
    fast, slow = found["methods"]
    assert (fast["method"], slow["method"]) == ("fedavg", "fedavg:lr=0.001")
    for seed in ("0", "1"):
        accuracies = [
            record.evaluation.metrics["accuracy"]
            for record in fl.load_records(f"runs/x/fedavg/seed-{seed}")
            if record.evaluation is not None
        ]
        first = next((done for done, value in enumerate(accuracies, 1) if value >= 0.3), None)
        assert fast["rounds_to_target"][seed] == first
    assert slow["rounds_to_target"] == {"0": None, "1": None}
    shown = call("--seeds", "0", "--target", "0.01", "-o", "runs/x").stdout
    assert re.search(r"to 0\.01", shown)
    assert "fairlead report runs/x --target 0.01" in shown
    assert [each["method"] for each in data("--methods", "fedavg", "-o", "runs/x")["methods"]] == ["fedavg"]


def test_a_device_that_is_not_there_is_refused_once_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs that are done need none: what they found can be shown anywhere."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    words = ("--methods", "fedavg,fednova", "--seeds", "0..1", "-o", "runs/x")
    refused = call(*words, "--set", "device=cuda", exit_code=2)
    assert refused.stderr == (
        "fairlead: Experiment.device must be 'cpu' or a CUDA device of this machine, which has none, got 'cuda'.\n"
    )
    assert not Path("runs").exists()
    rounded = call(*words, "--set", "precision=tf32", exit_code=2)
    assert rounded.stderr == (
        "fairlead: SimulatedWorld.precision='tf32' needs an NVIDIA device: use 'full' or 'bfloat16'.\n"
    )
    assert not Path("runs").exists()
    call(*words)
    for spec in Path("runs/x").rglob("spec.toml"):
        spec.write_text(f'device = "cuda"\n{spec.read_text()}')
    assert len(data(*words, "--set", "device=cuda")["methods"]) == 2


def test_without_methods_the_cure_is_named() -> None:
    refused = call(exit_code=2)
    assert (
        "compare needs methods, because the algorithm of spec.toml is FedAvg itself: --methods fedavg,fednova"
        in refused.stderr
    )
