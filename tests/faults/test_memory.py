"""Runs larger than the machine: refused before their first round with the estimate and remedies, or kept on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import fairlead as fl
from fairlead import client_table
from fairlead.errors import MemoryBudgetError
from fairlead.memory import run_budget

pytestmark = pytest.mark.full

MEMORY = 1024 * int(Path("/proc/meminfo").read_text().split()[1])
"""What this machine has in all."""
WIDTH = MEMORY // (75 * 1000)
"""Hidden units for 75 times as many parameters, of which 1,000 rows of 4 bytes take four times the memory."""

DIGITS = """
rounds = 100_000
evaluate_every = 0
engine = "loop"
[clients]
type = "Digits"
num_clients = 1000
[clients.partition]
type = "IidPartitioner"
"""
LARGE_MODEL = f"""
[task.model]
type = "MLP"
hidden = [{WIDTH}]
"""

TOO_LARGE = {
    "a population": """
rounds = 10
[clients]
type = "Quadratics"
num_clients = 4_000_000_000
[algorithm]
preset = "fedavg"
lr = 0.1
cohort_size = 10
""",
    "a model": f"""
{DIGITS}
[task.model]
type = "MLP"
hidden = [1_000_000, 1_000_000]
[algorithm]
preset = "fedavg"
lr = 0.1
""",
    "memory of clients": f"""
{DIGITS}{LARGE_MODEL}
[algorithm]
preset = "scaffold"
lr = 0.1
steps = 1
cohort_size = 2
""",
    "memory of the server": f"""
{DIGITS}{LARGE_MODEL}
[algorithm]
preset = "fedvarp"
lr = 0.1
steps = 1
cohort_size = 2
""",
    "a block of updates": f"""
{DIGITS}{LARGE_MODEL}
[algorithm]
preset = "fedavg"
lr = 0.1
steps = 1
""",
}
"""Specs that ask for more than the machine has, each in its own way."""


@pytest.mark.parametrize("what", TOO_LARGE)
def test_specs_larger_than_the_machine_end_in_one_sentence(
    what: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """For real, as a command: it neither runs a round nor takes half of the memory, and nothing kills it."""
    (tmp_path / "spec.toml").write_text(TOO_LARGE[what])
    command = [sys.executable, "-c", "from fairlead.cli import main; main()", "run", "spec.toml", "-o", "run"]
    with (tmp_path / "stderr").open("w") as stderr:
        child = subprocess.Popen(command, cwd=tmp_path, stdout=stderr, stderr=stderr)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    said = (tmp_path / "stderr").read_text()
    assert child.returncode == 2, said
    (sentence,) = said.splitlines()
    assert sentence.startswith("fairlead: ")
    assert "GiB" in sentence
    assert "left" in sentence
    assert not (tmp_path / "run" / "rounds.jsonl").exists() or not fl.load_records(tmp_path / "run")
    assert usage.ru_maxrss * 1024 < MEMORY / 2
    figure(f"{what}: refused at {usage.ru_maxrss / 2**20:.2f} GiB: {sentence}")


class Method(NamedTuple):
    algorithm: fl.Algorithm
    table: str


METHODS = {
    "SCAFFOLD": Method(fl.presets.scaffold(lr=0.1, steps=1, cohort_size=10), "memory/control"),
    "FedVARP": Method(fl.presets.fedvarp(lr=0.1, steps=1, cohort_size=10), "aggregator/last"),
    "FedAWARE": Method(fl.presets.fedaware(lr=0.1, steps=1, cohort_size=10), "aggregator/averages"),
}


def world(tables_in: Path | None = None) -> fl.SimulatedWorld:
    """100 clients with 64·128 + 128 + 128·10 + 10 = 9,610 parameters."""
    data = fl.Digits(100, fl.IidPartitioner()).load(fl.Key.from_seed(0))
    return fl.SimulatedWorld(fl.Task(fl.MLP((128,))), data.train, tables_in=tables_in)


def leave(size: int, patch: pytest.MonkeyPatch) -> None:
    """Let the library believe that so much memory is left."""
    for module in (run_budget, client_table):
        patch.setattr(module, "available_bytes", lambda device: size)


@pytest.mark.parametrize("method", METHODS)
def test_the_estimate_follows_from_the_rounds_asked_for(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10 of 100 clients a round, 100·(1 − 0.9^50) = 99.5 are expected in 50 rounds: 100 rows, 3.8 MB.

    In one round they are 10 rows, 0.4 MB, beside 10 updates and at most 30 rows on their way, 1.5 MB, and 16 vectors
    of 0.04 MB.
    """
    algorithm, table = METHODS[method]
    leave(3_000_000, monkeypatch)
    run = fl.Federation(algorithm, world())
    with pytest.raises(
        MemoryBudgetError, match=rf"\(0\.0 GiB for {table}, 100 rows x 9610 numbers; .*tables_in"
    ):
        run.train(50)
    assert run.records == []
    assert len(list(run.train(1))) == 1


@pytest.mark.parametrize("method", METHODS)
def test_tables_are_kept_in_files_as_asked(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers, although memory is said to be too small for the tables; no file is left afterwards."""
    algorithm, _ = METHODS[method]
    usual = fl.Federation(algorithm, world())
    list(usual.train(5))
    leave(2_500_000, monkeypatch)
    spilled = fl.Federation(algorithm, world(tmp_path / "tables"))
    assert list(spilled.train(5)) == usual.records
    assert torch.equal(spilled.params, usual.params)
    assert sum(file.stat().st_size for file in (tmp_path / "tables").iterdir()) >= 20 * 9610 * 4
    spilled.save(tmp_path / "checkpoint")
    resumed = fl.Federation(algorithm, world(tmp_path / "others"))
    resumed.resume(tmp_path / "checkpoint")
    monkeypatch.undo()
    assert list(resumed.train(3)) == list(usual.train(3))
    del spilled, resumed
    assert list((tmp_path / "tables").iterdir()) == list((tmp_path / "others").iterdir()) == []


def test_tables_larger_than_the_disk_are_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """10 rows of 9,610 numbers in one round, where 300,000 bytes are free."""
    run = fl.Federation(METHODS["SCAFFOLD"].algorithm, world(tmp_path))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=300_000))
    with pytest.raises(
        MemoryBudgetError, match=r"memory/control, 10 rows x 9610 .*: keep the tables in another"
    ):
        run.train(1)
