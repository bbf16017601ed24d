"""The command line as users start it: light, interruptible, readable in a pipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fairlead as fl
from fairlead.checkpoint.store import checkpointed_rounds

SPEC = """
rounds = 100000
evaluate_every = 0
[clients]
type = "Quadratics"
num_clients = 4
[algorithm]
preset = "scaffold"
lr = 0.05
steps = 2
[link]
type = "BernoulliLink"
drop = 0.3
"""


def python(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, timeout=120)


@pytest.mark.parametrize(
    "statement",
    [
        "import fairlead",
        "import fairlead.cli",
        "from fairlead.cli import app; app(['--help'], standalone_mode=False)",
        "from fairlead.cli import app; app(['flower', 'up', '--help'], standalone_mode=False)",
        "from fairlead.cli import app\n"
        "for command in app.registered_commands:\n"
        "    app([command.name or command.callback.__name__, '--help'], standalone_mode=False)",
        "from fairlead.cli import app; app(['--version'], standalone_mode=False)",
    ],
)
def test_torch_is_loaded_only_when_needed(statement: str) -> None:
    result = python("-c", f"{statement}\nimport sys\nassert 'torch' not in sys.modules, 'torch is loaded'")
    assert result.returncode == 0, result.stderr


def fairlead(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python("-c", "from fairlead.cli import main; main()", *arguments, cwd=cwd)


def test_errors_are_one_sentence_on_standard_error(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text("rounds = \n")
    result = fairlead("run", "spec.toml", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == "fairlead: spec.toml, line 1: invalid value.\n"


def test_output_in_a_pipe_has_no_control_characters(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    result = fairlead("run", "spec.toml", "--rounds", "20", "-o", "run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert all(character.isprintable() or character == "\n" for character in result.stdout + result.stderr)
    assert "spec  round 20/20" in result.stderr
    assert "20 rounds are in run" in result.stdout


def test_ctrl_c_leaves_a_run_that_goes_on_exactly(tmp_path: Path) -> None:
    """Interrupt a long run, follow the advice that it prints, and compare with one never stopped."""
    (tmp_path / "spec.toml").write_text(SPEC)
    command = [sys.executable, "-c", "from fairlead.cli import main; main()"]
    run = subprocess.Popen(
        [*command, "run", "spec.toml", "-o", "run"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    rounds, deadline = tmp_path / "run" / "rounds.jsonl", time.monotonic() + 60
    while not (rounds.exists() and rounds.stat().st_size > 2000) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(run.pid, signal.SIGINT)
    stdout, stderr = run.communicate(timeout=60)
    assert run.returncode == 130, stderr
    assert "Stopping after this round" in stderr
    done = len(fl.load_records(tmp_path / "run"))
    advice = "fairlead run run"
    assert stdout.strip() == f"Stopped after {done} rounds. Resume with: {advice}"
    assert checkpointed_rounds(tmp_path / "run" / "checkpoint")[0] == done

    total = str(done + 15)
    resumed = fairlead(*advice.split()[1:], "--rounds", total, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    whole = fairlead("run", "spec.toml", "--rounds", total, "-o", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert fl.load_records(tmp_path / "run") == fl.load_records(tmp_path / "whole")


@pytest.mark.parametrize(
    ("sign", "count", "pause"),
    [("study/runs.json", 1, 1.5), ("study/*/provenance.json", 2, 0.0)],
    ids=["starting", "training"],
)
def test_workers_end_with_a_killed_parent(sign: str, count: int, pause: float, tmp_path: Path) -> None:
    """Their round would take minutes. Standard error stays open until the last of them has ended.

    A starting worker has read the message by which Python starts it, and imports torch. Before that Python itself
    prints a traceback.
    """
    (tmp_path / "spec.toml").write_text(SPEC.replace("steps = 2", "steps = 1000000"))
    command = ["sweep", "spec.toml", "--grid", "seed=0,1", "--jobs", "2", "-o", "study", "-q"]
    sweep = subprocess.Popen(
        [sys.executable, "-c", "from fairlead.cli import main; main()", *command],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob(sign))) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(pause)
    sweep.kill()
    assert sweep.communicate(timeout=60)[1] == ""


def test_errors_of_the_system_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    for arguments in (["diagnose", "y" * 5000], ["flower", "weights", "y" * 5000], ["init", "y" * 5000]):
        result = fairlead(*arguments, cwd=tmp_path)
        assert result.returncode == 2
        assert result.stderr.startswith("fairlead: yyyy")
        assert result.stderr.endswith("... cannot be used: File name too long.\n")
        assert len(result.stderr) < 500


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
def test_names_and_charts_that_the_output_cannot_hold(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    program = [sys.executable, "-c", "from fairlead.cli import main; main()"]
    run = subprocess.run(
        [*program, "run", "spec.toml", "--rounds", "3", "-o", "\udcff"],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        timeout=120,
    )
    assert (run.returncode, b"Traceback" in run.stderr) == (0, False), run.stderr
    assert b"3 rounds are in \\udcff" in run.stdout


def test_models_in_the_working_directory_are_found(tmp_path: Path) -> None:
    """A console script has its own folder on Python's path, not the one that it is called in."""
    (tmp_path / "own_models.py").write_text(
        "from torch.nn import Flatten, Linear, Sequential\n\n"
        "def net():\n    return Sequential(Flatten(), Linear(64, 10))\n"
    )
    spec = SPEC.replace("100000", "1").replace("Quadratics", "Digits")
    model = '[task.model]\ntype = "ImportedModel"\npath = "own_models:net"\n'
    (tmp_path / "spec.toml").write_text(spec + model)
    script = "import sys; from fairlead.cli import main; sys.argv[1:] = ['run', 'spec.toml', '-q']; main()"
    done = python("-P", "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
