"""Runs in Weights & Biases (offline) and in Aim, from the files that they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import fairlead as fl

READ_AIM = """
import json, sys
import aim
run = aim.Run(run_hash=sys.argv[1], system_tracking_interval=None)
(values,) = [each.values.sparse_numpy()[1].tolist() for each in run.metrics() if each.name == "accuracy"]
print(json.dumps([run["outcome"], sorted(values)]))
"""


def python(*words: str, folder: Path) -> str:
    source = str(Path(fl.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["wandb", "aim"])
def test_a_resumed_run_is_one_run_with_every_round(name: str, tmp_path: Path) -> None:
    if find_spec(name) is None:
        pytest.skip(f"needs {name}")
    command = ["-m", "fairlead"]
    python(*command, "init", "study.toml", folder=tmp_path)
    options = ["--log", name, "--quiet"]
    python(
        *command,
        "run",
        "study.toml",
        "-o",
        "run",
        "--rounds",
        "2",
        "--set",
        "evaluate_every=1",
        *options,
        folder=tmp_path,
    )
    python(*command, "run", "run", "--rounds", "3", *options, folder=tmp_path)
    records = fl.load_records(tmp_path / "run")
    accuracies = [record.evaluation.metrics["accuracy"] for record in records if record.evaluation]
    assert len(accuracies) == 3
    if name == "wandb":
        starts = sorted((tmp_path / "run" / "wandb").glob("offline-run-*"))
        kept = (tmp_path / "run" / "wandb_run_id").read_text().strip()
        assert [start.name.rpartition("-")[2] for start in starts] == [kept, kept]
        # Numbers are kept as text.
        files = b"".join(file.read_bytes() for start in starts for file in start.glob("*.wandb"))
        assert all(json.dumps(accuracy).encode() in files for accuracy in accuracies)
    else:
        kept = (tmp_path / "run" / "aim_run_hash").read_text().strip()
        outcome, values = json.loads(python("-c", READ_AIM, kept, folder=tmp_path).splitlines()[-1])
        assert outcome == "finished"
        assert values == pytest.approx(sorted(accuracies))
