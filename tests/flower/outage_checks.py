"""Parts of a real federation die in the middle of a round, and training ends with the numbers it should.

Run by `make test-flower`: minutes, most of which Flower waits before it takes a silent node for dead.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_federation import METHODS, SIZES, simulated
from trial_app import Hold, is_finished, kill_server_app, rounds_in, wait_for, write_app

import fairlead as fl
from fairlead.experiments.run_folder import RunFolder, load_records
from fairlead.flower.local_trial import LocalFederation

_SERVER = """
import torch

torch.set_num_threads(1)

from fairlead.flower import RoundRules, make_server_app
from trial.small_federation import METHODS, build_model, experiment

app = make_server_app(
    experiment(METHODS["scaffold"], ROUNDS), build_model, rules=RoundRules(deadline=DEADLINE, poll=0.2)
)
"""

_SPEC = """
rounds = 2
evaluate_every = 0

[clients]
type = "Digits"
num_clients = 3

[algorithm]
preset = "fednova"
lr = 0.1
"""

_START = 900.0
"""Seconds for processes to start and a round to end on a busy machine."""


def _app(folder: Path, rounds: int, deadline: float) -> Path:
    source = _SERVER.replace("ROUNDS", str(rounds)).replace("DEADLINE", str(deadline))
    return write_app(folder / "app", source)


def _require_numbers_of_the_simulation(folder: Path, rounds: int) -> list[tuple[int, ...]]:
    """Every bit of the model is that of a simulation with the cohorts and arrivals of the records."""
    arrivals = [record.arrived for record in load_records(folder)]
    assert len(arrivals) == rounds
    twin = simulated(METHODS["scaffold"], link=fl.ScriptedLink(tuple(arrivals)))
    list(twin.train(rounds))
    newest = max((folder / "checkpoint").glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
    assert torch.equal(load_file(newest)["params"], twin.params)
    return arrivals


def test_server_app_and_super_link_are_killed(tmp_path: Path) -> None:
    """Each in the middle of a round: the run goes on from its folder, and nobody's update is lost or doubled."""
    rounds, folder, memory = 3, tmp_path / "run", tmp_path / "federation" / "memory"
    with LocalFederation(tmp_path / "federation", _app(tmp_path, rounds, 300.0), 3) as federation:
        federation.submit({"folder": str(folder)})
        wait_for(lambda: rounds_in(folder) >= 1, _START, "the first round")
        assert federation.link is not None
        with Hold(memory, 1) as held:
            held.wait(_START)
            kill_server_app(federation.link.pid)
        federation.submit({"folder": str(folder)})
        wait_for(lambda: rounds_in(folder) >= 2, _START, "the round after the ServerApp's death")
        with Hold(memory, 0) as held:
            held.wait(_START)
            os.killpg(federation.link.pid, signal.SIGKILL)
            federation.link.wait()
        federation.start_link()
        federation.submit({"folder": str(folder)})
        wait_for(lambda: is_finished(folder), _START, "the end after the SuperLink's death")
    everybody = tuple(range(len(SIZES)))
    assert _require_numbers_of_the_simulation(folder, rounds) == [everybody] * rounds
    assert [start.outcome for start in RunFolder(folder).provenance()][-1] == "finished"


def test_a_node_is_killed_and_comes_back(tmp_path: Path) -> None:
    """It dies at its work in round 1, misses what it misses, and counts again under a new node id."""
    rounds, client, folder = 4, 2, tmp_path / "run"
    with LocalFederation(tmp_path / "federation", _app(tmp_path, rounds, 120.0), 3) as federation:
        federation.submit({"folder": str(folder)})
        wait_for(lambda: rounds_in(folder) >= 1, _START, "the first round")
        with Hold(tmp_path / "federation" / "memory", client) as held:
            held.wait(_START)
            node = federation.nodes[client]
            os.killpg(node.pid, signal.SIGKILL)
            node.wait()
        federation.start_node(client)
        wait_for(lambda: is_finished(folder), 2 * _START, "the end of the run")
    arrivals = _require_numbers_of_the_simulation(folder, rounds)
    present = [client in arrived for arrived in arrivals]
    assert present[0]
    assert not present[1]
    assert present[-1]


def test_up_with_certificates_and_keys(tmp_path: Path) -> None:
    """`fairlead flower up --tls`: an app from `init`, three authenticated nodes, and nothing left behind."""
    (tmp_path / "spec.toml").write_text(_SPEC)
    for arguments in (
        ["init", str(tmp_path / "spec.toml"), str(tmp_path / "digits_app")],
        ["up", str(tmp_path / "digits_app"), "--tls", "--json", "-o", str(tmp_path / "run")],
    ):
        done = subprocess.run(
            [Path(sys.executable).with_name("fairlead"), "flower", *arguments],
            capture_output=True,
            text=True,
            timeout=2 * _START,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert [record.arrived for record in load_records(tmp_path / "run")] == [(0, 1, 2)] * 2
    assert json.loads(done.stdout)["chi_square"] == pytest.approx(0.0, abs=1e-12)
