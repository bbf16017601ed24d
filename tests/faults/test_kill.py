"""`kill -9` at any moment, then resume: to the bit what an uninterrupted run gives."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_runs import FULL, METHODS, experiment, outcome
from limits import SEED

import fairlead as fl

MOMENTS = 10 if FULL else 1
"""For each of five methods."""
STUDIES = {
    "compare": ["--methods", "fedavg,scaffold", "--seeds", "0,1"],
    "sweep": ["--grid", "algorithm.server.lr=0.5,1.0", "--grid", "seed=0,1"],
}
KILLS = 40 if FULL else 1
"""Of each kind of study."""


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


def told(run: Path) -> tuple[list[str], str]:
    """Records and summary of a run without the seconds that it took."""
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    summary = json.loads((run / "summary.json").read_text())
    return [json.dumps({**line, "seconds": 0.0}) for line in lines], json.dumps({**summary, "seconds": 0.0})


@pytest.mark.parametrize("kind", STUDIES)
def test_killed_studies_go_on_to_the_bit(kind: str, tmp_path: Path, figure: Callable[[str], None]) -> None:
    """Workers end with their parent and say nothing: standard error stays open until the last one has ended."""
    (tmp_path / "spec.toml").write_text(fl.to_toml(experiment("SCAFFOLD", 300 if FULL else 60)))
    program = [sys.executable, "-c", "from fairlead.cli import main; main()"]

    def started(folder: str) -> subprocess.Popen[str]:
        command = [*program, kind, "spec.toml", *STUDIES[kind], "--jobs", "2", "-q", "-o", folder]
        return subprocess.Popen(command, cwd=tmp_path, stdout=-1, stderr=subprocess.STDOUT, text=True)

    begun = time.monotonic()
    whole = started("whole")
    assert (whole.communicate(timeout=600)[0], whole.returncode) == ("", 0)
    seconds = time.monotonic() - begun
    runs = sorted(path.parent.relative_to(tmp_path / "whole") for path in tmp_path.rglob("rounds.jsonl"))
    assert len(runs) == 4
    draw, killed, chains, slowest = random.Random(f"{SEED} {kind}"), 0, 0, 0.0
    while killed < KILLS or chains == 0:
        study = started(f"chain-{chains}")
        try:
            study.wait(draw.uniform(0.0, seconds) if killed < KILLS else 600)
        except subprocess.TimeoutExpired:
            study.kill()
            moment = time.monotonic()
            said = study.communicate(timeout=60)[0]
            killed, slowest = killed + 1, max(slowest, time.monotonic() - moment)
            assert said == "", f"after kill {killed}: {said}"
            continue
        assert (study.communicate()[0], study.returncode) == ("", 0)
        for run in runs:
            assert told(tmp_path / f"chain-{chains}" / run) == told(tmp_path / "whole" / run)
        chains += 1
    figure(
        f"{kind}: {killed} kills in {chains} studies, all to the same bits without a word; "
        f"the last worker ended at most {slowest:.2f} s after its parent"
    )
