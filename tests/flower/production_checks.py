"""Secure sums, figures and versions on a real SuperLink with real nodes: run by `make test-flower`."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest
import torch
from safetensors.torch import load_file
from small_federation import METHODS, SIZES, simulated
from trial_app import Hold, is_finished, rounds_in, wait_for, write_app

import fairlead as fl
from fairlead.experiments.run_folder import load_records
from fairlead.flower.local_trial import LocalFederation, free_port

_SERVER = """
from dataclasses import replace

import torch

torch.set_num_threads(1)

from fairlead.flower import RoundRules, make_server_app
from trial.small_federation import METHODS, build_model, experiment

app = make_server_app(
    experiment(replace(METHODS["CHOSEN"], secure_aggregation=True), ROUNDS),
    build_model,
    rules=RoundRules(deadline=120.0, poll=0.2),
    join_seconds=JOIN,
)
"""
_HOLD_AT_MASK = """

from fairlead.flower import secure_sums

_reply = secure_sums.reply_in_stage


def _held(stage, content, client, state, *, leverage):
    if stage == "mask":
        folder = Path(MEMORY)
        (folder / f"at-work-mask-{client}").touch()
        while (folder / f"hold-mask-{client}").exists():
            sleep(0.1)
    return _reply(stage, content, client, state, leverage=leverage)


secure_sums.reply_in_stage = _held
"""
_START = 900.0
"""Seconds for processes to start and a round to end on a busy machine."""


def _federation(folder: Path, method: str, rounds: int, join: float = 600.0) -> LocalFederation:
    source = _SERVER.replace("CHOSEN", method).replace("ROUNDS", str(rounds)).replace("JOIN", str(join))
    app, found = write_app(folder / "app", source), folder / "federation"
    with (app / "trial" / "client_app.py").open("a") as client:
        client.write(_HOLD_AT_MASK.replace("MEMORY", repr(str(found / "memory"))))
    return LocalFederation(found, app, len(SIZES))


def _require_numbers_of_the_simulation(folder: Path, method: str) -> list[tuple[int, ...]]:
    """The model is that of a simulation with the same arrivals, up to the last bits of float32."""
    arrivals = [record.arrived for record in load_records(folder)]
    twin = simulated(METHODS[method], link=fl.ScriptedLink(tuple(arrivals)))
    list(twin.train(len(arrivals)))
    newest = max((folder / "checkpoint").glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
    torch.testing.assert_close(load_file(newest)["params"], twin.params, atol=2e-6, rtol=0.0)
    return arrivals


def _figures(address: str) -> dict[str, float]:
    with urlopen(f"http://{address}/metrics") as response:
        lines = response.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_a_secure_run_gives_the_sums_and_its_figures(tmp_path: Path) -> None:
    """SCAFFOLD, whose clients keep memory besides: their state survives the four messages of each round."""
    folder, address = tmp_path / "run", f"127.0.0.1:{free_port()}"
    with _federation(tmp_path, "scaffold", 2) as federation:
        federation.submit({"folder": str(folder), "metrics-address": address})
        wait_for(lambda: rounds_in(folder) >= 1, _START, "the first round")
        with Hold(federation.memory, 0) as held:
            held.wait(_START)
            figures = _figures(address)
        wait_for(lambda: is_finished(folder), _START, "the end of the run")
    assert figures["fairlead_rounds_total"] == 1
    assert figures["fairlead_clients_connected"] == len(SIZES)
    assert figures['fairlead_client_arrived_total{client="1"}'] == 1
    assert _require_numbers_of_the_simulation(folder, "scaffold") == [(0, 1, 2)] * 2
    records = load_records(folder)
    assert all(record.update_norm is None for record in records)
    # The update in two sums and the change of controls in one, 8 bytes a number, and the loss.
    size = sum(parameter.numel() for parameter in simulated(METHODS["scaffold"]).model().parameters())
    assert [record.bytes_up for record in records] == [len(SIZES) * 8 * (3 * size + 1)] * 2


def test_a_node_dies_between_its_shares_and_its_masked_vector(tmp_path: Path) -> None:
    """The others have its pair masks in their vectors, and remove them by its shares; the run ends with a new node."""
    rounds, client, folder = 3, 2, tmp_path / "run"
    with _federation(tmp_path, "fednova", rounds) as federation:
        with Hold(federation.memory, f"mask-{client}") as held:
            federation.submit({"folder": str(folder)})
            held.wait(_START)
            node = federation.nodes[client]
            os.killpg(node.pid, signal.SIGKILL)
            node.wait()
            wait_for(lambda: rounds_in(folder) >= 1, _START, "the round of the dead node")
        federation.start_node(client)
        wait_for(lambda: is_finished(folder), 2 * _START, "the end of the run")
    arrivals = _require_numbers_of_the_simulation(folder, "fednova")
    assert arrivals[0] == (0, 1)
    first = load_records(folder)[0]
    assert first.asked == (0, 1, 2)
    assert [refusal.client for refusal in first.refused] == [client]


def test_a_node_of_another_version_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node imports a copy of fairlead with the next minor version."""
    package = Path(fl.__file__).parent
    shutil.copytree(package, tmp_path / "other" / "fairlead", ignore=shutil.ignore_patterns("__pycache__"))
    front = tmp_path / "other" / "fairlead" / "__init__.py"
    major, minor, _ = fl.__version__.split(".")
    other = f"{major}.{int(minor) + 1}.0"
    text, count = re.subn(r"(?m)^__version__\b.*$", f'__version__ = "{other}"', front.read_text())
    assert count == 1
    front.write_text(text)
    federation = _federation(tmp_path, "fednova", 1, join=30.0)
    federation.num_nodes = 2
    with federation:
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"), prepend=os.pathsep)
        federation.start_node(2)
        monkeypatch.undo()
        run = federation.submit({"folder": str(tmp_path / "run")})
        wait_for(lambda: federation.outcome(run) is not None, _START, "the end of the run")
        assert federation.outcome(run) == "finished:failed"
        log = federation.server_log(run)
    sentence = (
        f"it runs fairlead {other} and the server {fl.__version__}: install the same major and minor version."
    )
    assert sentence in log.error
    assert sum(sentence in line for line in log.warnings) == 1
