"""`kill -9` at any moment, then resume: to the bit what an uninterrupted run gives."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_runs import FULL, METHODS, outcome

MOMENTS = 10 if FULL else 1
"""For each of five methods."""


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_goes_on_to_the_bit(method: str, tmp_path: Path, figure: Callable[[str], None]) -> None:
    """Model, memory, records, summary and report page, all compared byte by byte."""
    seed = list(METHODS).index(method)
    program = str(Path(__file__).with_name("killed_runs.py"))
    command = [sys.executable, program, method, str(tmp_path / "runs"), str(seed), str(MOMENTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    moments = json.loads(done.stdout.splitlines()[-1])
    expected = outcome(tmp_path / "runs" / "whole" / "run", tmp_path)
    for number, moment in enumerate(moments):
        found = outcome(tmp_path / "runs" / str(number) / "run", tmp_path)
        differing = [name for name in expected if found[name] != expected[name]]
        assert differing == [], f"{method} killed {moment}"
    assert len(moments) == MOMENTS
    figure(f"{method}: {MOMENTS}/{MOMENTS} killed runs bit-identical; killed {'; '.join(moments)}")
