"""What people see while a run or a study goes on: on a terminal, and in a file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.cli.progress import describe_round, duration
from fairlead.experiments.tracking import RoundFigures
from fairlead.records import Evaluation

SPEC = """
rounds = 40
evaluate_every = 5
[clients]
type = "Digits"
num_clients = 4
[algorithm]
preset = "fedavg"
lr = 0.1
steps = 2
[work]
type = "FixedSteps"
steps = [1, 1, 1, 9]
"""
COMMAND = [sys.executable, "-c", "from fairlead.cli import main; main()"]


def on_a_terminal(folder: Path, *arguments: str) -> str:
    """What a command writes to a terminal of 100 columns, control codes included."""
    terminal, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            # Linux says so when the other side of a terminal has been closed.
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    assert process.wait() == 0, shown.decode()
    return shown.decode()


def test_a_run_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", on_a_terminal(tmp_path, "run", "spec.toml", "-o", "run"))
    assert "spec ━" in shown
    assert re.search(r"arrived 4/4  train loss [\d.]+  loss [\d.]+  accuracy [\d.]+\s", shown)
    assert "e-LUD" not in shown
    assert "40/40" in shown
    assert "Accuracy over the rounds:" in shown
    assert "40 rounds are in run" in shown


@pytest.mark.full
def test_a_study_on_a_terminal_ends_with_its_table(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    arguments = ("compare", "spec.toml", "--methods", "fedavg,fednova", "--seeds", "0..1", "--jobs", "1")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", on_a_terminal(tmp_path, *arguments))
    assert re.search(r"runs +━+ +4/4", shown)
    assert re.search(r"fednova, seed 1 ━", shown)
    assert "The runs are in runs/spec-compare" in shown


def test_a_file_gets_lines(tmp_path: Path) -> None:
    """One for each evaluation, every fifth round, and no others."""
    (tmp_path / "spec.toml").write_text(SPEC)
    done = subprocess.run(
        [*COMMAND, "run", "spec.toml", "-o", "run"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    rounds = [line for line in done.stderr.splitlines() if line.startswith("spec  round ")]
    told = [int(re.findall(r"round (\d+)/40", line)[0]) for line in rounds]
    assert told == list(range(5, 41, 5))
    words = (
        r"spec  round \d+/40  arrived 4/4  train loss [\d.]+  loss [\d.]+  accuracy [\d.]+(  \S+( s)? left)?"
    )
    assert all(re.fullmatch(words, line) for line in rounds), rounds
    assert all(character.isprintable() or character == "\n" for character in done.stdout + done.stderr)


def test_a_round_in_words() -> None:
    evaluation = Evaluation(0.25, {"accuracy": 0.5})
    full = RoundFigures(3, 2, 4, 1.23456, evaluation, evaluated=True)
    assert describe_round(full, evaluation) == "arrived 2/4  train loss 1.235  loss 0.25  accuracy 0.5"
    empty = RoundFigures(3, 0, 4, None, None, evaluated=False)
    assert describe_round(empty, None) == "arrived 0/4"


@pytest.mark.parametrize(
    ("seconds", "said"), [(4.24, "4.2 s"), (59.6, "60 s"), (187.2, "3:07"), (3765.0, "1:02:45")]
)
def test_times_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said
