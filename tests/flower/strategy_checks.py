"""A plain Flower app on a real SuperLink, with `FlowerStrategy` in the place of Flower's own: `make test-flower`."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import torch
from safetensors.torch import load_file
from small_federation import SIZES, simulated
from test_strategy import STEPS, plain_app, plan, scripted_app
from trial_app import kill_server_app, rounds_in, wait_for, write_app

import fairlead as fl
from fairlead.experiments.run_folder import RunFolder
from fairlead.flower.local_trial import LocalFederation, free_port

ROUNDS = 2
_START = 900.0
"""Seconds for processes to start and a round to end on a busy machine."""
_CLIENT = f"""
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from trial.small_federation import SIZES, build_model, examples_of

STEPS = {STEPS}


{inspect.getsource(plain_app)}

app = plain_app()
"""
_SERVER = f"""
from pathlib import Path

import torch
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from safetensors.torch import save_file

import fairlead as fl
from fairlead.flower import FlowerStrategy
from fairlead.reply_checks import ReplyLimits
from trial.small_federation import build_model

app = ServerApp()


@app.main()
def main(grid, context):
    torch.manual_seed(fl.Key.from_seed(3).fold("init").torch_seed())
    arrays = ArrayRecord(build_model().state_dict())
    strategy = FlowerStrategy(fl.presets.fednova(lr=0.1, batch_size=None), {len(SIZES)}, OPTIONS)
    folder = Path(context.run_config["folder"])
    folder.mkdir(parents=True, exist_ok=True)

    def note(server_round, arrays):
        lines = [" ".join(map(str, record.arrived)) + "\\n" for record in strategy.records]
        (folder / "arrivals.txt").write_text("".join(lines))

    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=ROUNDS, evaluate_fn=note)
    file = Path(context.run_config["folder"]) / "result.safetensors"
    found = {{**result.arrays.to_torch_state_dict(), "surrogate": strategy.consistency().surrogate}}
    save_file(found, file.with_suffix(".part"))
    file.with_suffix(".part").rename(file)
"""


def _app(folder: Path, rounds: int, options: str = "") -> Path:
    app = write_app(folder, _SERVER.replace("ROUNDS", str(rounds)).replace("OPTIONS", options))
    (app / "trial" / "client_app.py").write_text(_CLIENT)
    return app


_SCRIPTED = f"""
from collections.abc import Mapping

import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp


{inspect.getsource(scripted_app).replace('"num-examples": 10', '"num-examples": 10 if steps < 10 else 9 * 10**8')}

app = scripted_app({{0: (1.0, 0.5, 1), 1: (9.0, 0.1, 9), 2: (1.0, 0.5, 10)}})
"""


def _figure(address: str, name: str) -> float | None:
    """A figure of a running server; None while there is none."""
    with suppress(URLError), urlopen(f"http://{address}/metrics") as response:
        found = re.search(rf"^fairlead_{name} (\S+)$", response.read().decode(), flags=re.MULTILINE)
        return None if found is None else float(found[1])
    return None


def _arrivals(folder: Path) -> list[list[int]]:
    file = folder / "arrivals.txt"
    return [list(map(int, line.split())) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_node_dies_and_another_takes_its_place(tmp_path: Path) -> None:
    """It is killed after round 1 and restarted without a key when its client has missed a round.

    Flower declares it dead after a minute; rounds go on with the two others, and end with all three.
    """
    folder = tmp_path / "run"
    with LocalFederation(tmp_path / "federation", _app(tmp_path / "app", 8), len(SIZES)) as federation:
        run = federation.submit({"folder": str(folder)})
        wait_for(lambda: len(_arrivals(folder)) >= 1, _START, "the first round")
        node = federation.nodes[1]
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()
        wait_for(lambda: any(len(a) == 2 for a in _arrivals(folder)), _START, "a round without the node")
        federation.start_node(1)
        wait_for((folder / "result.safetensors").exists, _START, "the end of the run")
        log = federation.server_log(run)
    arrivals = _arrivals(folder)
    assert len(arrivals) == 8
    assert arrivals[0] == arrivals[-1] == [0, 1, 2]
    assert 2 in map(len, arrivals)
    assert any("failed: Flower's error" in line or "is at no node" in line for line in log.warnings)


def test_the_server_app_is_killed_and_the_run_resumes(tmp_path: Path) -> None:
    """With a folder the second ServerApp continues after the rounds of the first, with the same clients."""
    folder, rounds = tmp_path / "run", 4
    app = _app(tmp_path / "app", rounds, 'folder=context.run_config["folder"]')
    with LocalFederation(tmp_path / "federation", app, len(SIZES)) as federation:
        federation.submit({"folder": str(folder)})
        wait_for(lambda: len(_arrivals(folder)) >= 2, _START, "the second round")
        assert federation.link is not None
        kill_server_app(federation.link.pid)
        assert not (folder / "result.safetensors").exists()
        federation.submit({"folder": str(folder)})
        wait_for((folder / "result.safetensors").exists, _START, "the end of the run")
    found = load_file(folder / "result.safetensors")
    assert rounds_in(folder) == rounds
    twin = simulated(plan(fl.presets.fednova), work=fl.FixedSteps(STEPS))
    list(twin.train(rounds))
    found.pop("surrogate")
    exported = fl.export_model(folder, tmp_path / "exported.safetensors")
    assert exported.rounds == rounds
    for name, value in load_file(exported.file).items():
        assert torch.equal(value, found[name])
    assert [start.outcome for start in RunFolder(folder).provenance()] == ["running", "finished"]
    torch.testing.assert_close(found, dict(twin.model().state_dict()), atol=2e-6, rtol=0.0)


def test_too_few_nodes_end_the_run_with_a_reason(tmp_path: Path) -> None:
    app = _app(tmp_path / "app", 1, "join_seconds=15.0")
    with LocalFederation(tmp_path / "federation", app, len(SIZES) - 1) as federation:
        run = federation.submit({"folder": str(tmp_path / "run")})
        wait_for(lambda: federation.outcome(run) is not None, _START, "the end of the run")
        assert federation.outcome(run) == "finished:failed"
        log = federation.server_log(run)
    assert "Only 2 of 3 nodes were connected within 15 s: start the others" in log.error


def test_the_strategy_on_real_nodes(tmp_path: Path) -> None:
    """FedNova with 2, 5 and 3 steps, whose Ω is ω: the numbers of the simulation up to rounding.

    Nodes are numbered as Flower happens to, so that Ω is compared without regard to order. Prometheus reads the figures
    while the strategy runs.
    """
    address = f"127.0.0.1:{free_port()}"
    watching = f'folder=context.run_config["folder"], json_log=True, metrics_address="{address}"'
    app = _app(tmp_path / "app", ROUNDS, watching)
    file = tmp_path / "run" / "result.safetensors"
    with LocalFederation(tmp_path / "federation", app, len(SIZES)) as federation:
        federation.submit({"folder": str(file.parent)})
        wait_for(lambda: _figure(address, "rounds_total") == 1, _START, "the figures of the first round")
        assert _figure(address, "arrived_total") == len(SIZES)
        wait_for(file.exists, _START, "the end of the run")
    lines = [json.loads(line) for line in (file.parent / "log.jsonl").read_text().splitlines()]
    assert [(line["round"], line["arrived"]) for line in lines if "arrived" in line] == [(1, 3), (2, 3)]
    found = load_file(file)
    twin = simulated(plan(fl.presets.fednova), work=fl.FixedSteps(STEPS))
    list(twin.train(ROUNDS))
    surrogate = found.pop("surrogate")
    assert surrogate.sort().values.tolist() == pytest.approx([size / sum(SIZES) for size in sorted(SIZES)])
    torch.testing.assert_close(found, dict(twin.model().state_dict()), atol=2e-6, rtol=0.0)


@pytest.mark.parametrize("most", [1000, 1])
def test_running_statistics_and_refused_clients(most: int, tmp_path: Path) -> None:
    """The numbers of `test_running_statistics_are_averaged_and_never_extrapolated`, on real nodes.

    Client 2 claims 9·10⁸ examples and is refused. If none may have two examples, so are all three, and the run fails.
    """
    app, folder = _app(tmp_path / "app", 1, "fraction_evaluate=0.0, limits=LIMITS"), tmp_path / "run"
    server = app / "trial" / "server_app.py"
    start = '{"weight": torch.zeros(1), "running_var": torch.ones(1)}'
    text = server.read_text().replace("build_model().state_dict()", start)
    server.write_text(text.replace("LIMITS", f"ReplyLimits(max_examples={most})"))
    (app / "trial" / "client_app.py").write_text(_SCRIPTED)
    with LocalFederation(tmp_path / "federation", app, len(SIZES)) as federation:
        run = federation.submit({"folder": str(folder)})
        wait_for(lambda: federation.outcome(run) is not None, _START, "the end of the run")
        outcome, log = federation.outcome(run), federation.server_log(run)
    if most == 1:
        assert outcome == "finished:failed"
        assert "No update could be used in 1 rounds. Client 0 was refused in round 1: " in log.error
        assert "Round 1 used no update." in log.warnings
        return
    (line,) = (line for line in log.warnings if line.startswith("Round 1: "))
    assert "was refused in round 1: num_examples is 900000000 and must be from 1 to 1000." in line
    found = load_file(folder / "result.safetensors")
    assert found["weight"].item() == pytest.approx(5.0)
    assert found["running_var"].item() == pytest.approx(0.3)
