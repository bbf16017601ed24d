"""Parts of a real federation die in the middle of a round, and training ends with the numbers it should.

Run by `make test-flower`: minutes, most of which Flower waits before it takes a silent node for dead.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_federation import METHODS, SIZES, simulated
from trial_app import Hold, is_finished, kill_server_app, processes_of, rounds_in, wait_for, write_app

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
    """It dies at its work in round 2, misses what it misses, and counts again under a new node id.

    Meanwhile a second node claims to be client 0.
    """
    rounds, client, folder = 4, 2, tmp_path / "run"
    with LocalFederation(tmp_path / "federation", _app(tmp_path, rounds, 120.0), 3) as federation:
        run = federation.submit({"folder": str(folder)})
        wait_for(lambda: rounds_in(folder) >= 1, _START, "the first round")
        first = federation.nodes[0]
        federation.start_node(0)
        with Hold(tmp_path / "federation" / "memory", client) as held:
            held.wait(_START)
            node = federation.nodes[client]
            os.killpg(node.pid, signal.SIGKILL)
            node.wait()
        federation.start_node(client)
        wait_for(lambda: is_finished(folder), 2 * _START, "the end of the run")
        log = federation.server_log(run)
    first.wait()
    assert sum("repeats the id of client 0, which is at node" in line for line in log.warnings) == 1
    (refusal,) = load_records(folder)[1].refused
    assert refusal.sentence.startswith(f"Client {client} failed: Flower's error ")
    assert f"Round 2/{rounds}: {refusal.sentence}" in log.warnings
    arrivals = _require_numbers_of_the_simulation(folder, rounds)
    present = [client in arrived for arrived in arrivals]
    assert present[0]
    assert not present[1]
    assert present[-1]


def test_a_missed_deadline_is_in_the_record_and_in_the_log(tmp_path: Path) -> None:
    """Client 1 is held at work until a round has ended without it; the run then goes on with all three."""
    folder = tmp_path / "run"

    def missed() -> list[tuple[int, str]]:
        """Rounds that client 1 missed, from the first one in which it is held, and why."""
        late = load_records(folder)[1:]
        return [(r.round, each.sentence) for r in late for each in r.refused if each.client == 1]

    with LocalFederation(tmp_path / "federation", _app(tmp_path, 4, 120.0), 3) as federation:
        run = federation.submit({"folder": str(folder)})
        wait_for(lambda: rounds_in(folder) >= 1, _START, "the first round")
        with Hold(tmp_path / "federation" / "memory", 1):
            wait_for(lambda: bool(missed()), _START, "the deadline")
        wait_for(lambda: is_finished(folder), _START, "the end of the run")
        log = federation.server_log(run)
    round, sentence = missed()[0]
    assert sentence == "Client 1 did not answer within the deadline of 120 s."
    assert f"Round {round + 1}/4: {sentence}" in log.warnings
    _require_numbers_of_the_simulation(folder, 4)


_BUFFERED = """
import torch

torch.set_num_threads(1)

import fairlead as fl
from fairlead.flower import RoundRules, make_server_app
from trial.small_federation import build_model, experiment

algorithm = fl.presets.fedbuff(lr=0.1, steps=3, batch_size=5, buffer_size=2)
app = make_server_app(experiment(algorithm, 12), build_model, rules=RoundRules(deadline=300.0, poll=0.2))
"""


def test_a_buffered_run_goes_on_without_a_slow_client(tmp_path: Path) -> None:
    """Three steps pass while client 2 works; its update then counts with its age, and nobody waited for it."""
    folder, app = tmp_path / "run", write_app(tmp_path / "app", _BUFFERED)
    with LocalFederation(tmp_path / "federation", app, 3) as federation:
        federation.submit({"folder": str(folder)})
        wait_for(lambda: rounds_in(folder) >= 1, _START, "the first step")
        with Hold(tmp_path / "federation" / "memory", 2) as held:
            held.wait(_START)
            begun = rounds_in(folder)
            wait_for(lambda: rounds_in(folder) >= begun + 3, _START, "three steps without client 2")
        wait_for(lambda: is_finished(folder), _START, "the end of the run")
    assert processes_of(tmp_path / "federation") == []
    records = load_records(folder)
    assert all(len(record.arrived) == 2 and not record.refused for record in records)
    assert {record.facts["in_flight"] for record in records} == {1.0}
    assert max(record.late.get(2, 0) for record in records) >= 2


def _fairlead(*arguments: str, scratch: Path) -> subprocess.Popen[str]:
    """A command of `fairlead flower`, whose processes can be found by the folder of their files."""
    scratch.mkdir(exist_ok=True)
    return subprocess.Popen(
        [Path(sys.executable).with_name("fairlead"), "flower", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    )


def _digits_app(folder: Path, line: str = "") -> Path:
    """An app from `init` whose `get_data` begins with a line of code."""
    (folder / "spec.toml").write_text(_SPEC)
    written = _fairlead("init", str(folder / "spec.toml"), str(folder / "digits_app"), scratch=folder / "t")
    said, _ = written.communicate()
    assert written.returncode == 0, said
    task = folder / "digits_app" / "digits_app" / "task.py"
    begin = '"""Inputs and targets of the client `client_of(context)`, the one at this node."""'
    assert begin in task.read_text()
    task.write_text(task.read_text().replace(begin, f"{begin}\n    {line}"))
    return folder / "digits_app"


def test_a_terminated_up_leaves_no_process(tmp_path: Path) -> None:
    """SIGTERM in the middle of a round, as by a supervisor or `timeout`."""
    app, scratch = _digits_app(tmp_path, "import time; time.sleep(5)"), tmp_path / "scratch"
    up = _fairlead("up", str(app), "-o", str(tmp_path / "run"), scratch=scratch)
    wait_for(lambda: rounds_in(tmp_path / "run") >= 1, _START, "the first round")
    assert len(processes_of(scratch)) >= 8
    up.terminate()
    said, _ = up.communicate(timeout=_START)
    assert up.returncode == 130, said
    assert f"The run in {tmp_path / 'run'} resumes when you re-run the command." in " ".join(said.split())
    wait_for(lambda: not processes_of(scratch), 30, "the end of all processes")
    assert list(scratch.iterdir()) == []


_MISSING_DATA = "open(f'patients-{client_of(context)}.csv') if client_of(context) == 1 else None"


@pytest.mark.parametrize(
    ("of_clients", "of_the_server", "sentence"),
    [
        (_MISSING_DATA, "", "Clients [1] have not introduced themselves: Node"),
        ("", "def build_model(): raise RuntimeError('No weights.')", "RuntimeError: No weights."),
    ],
)
def test_up_says_why_a_run_failed(of_clients: str, of_the_server: str, sentence: str, tmp_path: Path) -> None:
    """A client without its data, and a server that cannot build the model: each within a minute or two."""
    app = _digits_app(tmp_path, of_clients)
    server = app / "digits_app" / "server_app.py"
    server.write_text(server.read_text().replace("\napp =", f"\n{of_the_server}\napp ="))
    up = _fairlead("up", str(app), "-o", str(tmp_path / "run"), scratch=tmp_path / "scratch")
    said, _ = up.communicate(timeout=_START)
    assert up.returncode == 2
    assert sentence in " ".join(said.split())
    assert ("patients-1.csv" in said) == bool(of_clients)
    assert processes_of(tmp_path / "scratch") == []


_TABLE = """
rounds = 2

[clients]
type = "CsvTable"
path = "PATH"
target = "ill"
client = "hospital"
holdout = 0.25
standardize = true

[algorithm]
preset = "fednova"
lr = 0.1
"""

_OWN_DATA = """import numpy as np

    rows = np.random.default_rng(client_of(context)).normal(size=(PART, 2)) * 10 + 50
    return rows, (rows[:, 0] > 50).astype(int)"""


def test_up_with_certificates_keys_and_data_that_only_clients_have(tmp_path: Path) -> None:
    """The table of the spec is gone once `get_data` reads another source, and a report shows a simulation beside it."""
    spec, table, app, run = (tmp_path / name for name in ("spec.toml", "table.csv", "table_app", "real/run"))
    rows = "\n".join(f"{row % 3},{row % 2},{row},{row % 5}" for row in range(60))
    table.write_text(f"hospital,ill,age,weight\n{rows}\n")
    spec.write_text(_TABLE.replace("PATH", str(table)))

    def fairlead(*words: str | Path, status: int = 0) -> str:
        command = [Path(sys.executable).with_name("fairlead"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _START, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else " ".join(done.stderr.split())

    fairlead("run", spec, "-o", tmp_path / "simulated" / "run")
    fairlead("flower", "init", spec, app)
    table.unlink()
    task = app / "table_app" / "task.py"
    before, load, test = re.split(r"    data = fl\.[^\0]*?\n    return .*", task.read_text())
    task.write_text(
        before + load.join(f"    {_OWN_DATA.replace('PART', part)}" for part in ("40", "9")) + test
    )
    weights = json.loads(fairlead("flower", "up", app, "--tls", "--json", "-o", run))
    assert weights["chi_square"] == pytest.approx(0.0, abs=1e-12)
    records = load_records(run)
    assert [record.arrived for record in records] == [(0, 1, 2)] * 2
    assert records[-1].evaluation is not None
    agreed = fl.load_agreement(run)
    assert agreed.mean == pytest.approx((50.0, 50.0), abs=5.0)
    fairlead("report", run.parent, tmp_path / "simulated", "-o", tmp_path / "report.html")
    fairlead("export", run, "-o", tmp_path / "model.safetensors")
    card = (tmp_path / "model.safetensors.md").read_text()
    assert "The last model, after 2 rounds.\n" in card
    assert "at nodes of Flower" in card
    assert "Preprocess examples as the clients agreed" in card
    page = (tmp_path / "report.html").read_text()
    assert "clients=real" in page
    assert "clients=simulated" in page
    refused = fairlead("flower", "up", app, "-o", tmp_path / "simulated" / "run", status=2)
    assert "choose another folder" in refused
