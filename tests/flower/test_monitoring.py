"""What operators see of a running server: figures for Prometheus, trackers, and nodes of other versions."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from direct_grid import DirectGrid
from flwr.app import Context, Message, MessageType, RecordDict, UserConfig
from small_federation import QUICK, build_model, client_apps, experiment, round_of
from test_strategy import STEPS, plan, trained
from trial_app import wait_for

import fairlead as fl
from fairlead.errors import FairleadError, FieldError
from fairlead.experiments.run_folder import load_records
from fairlead.flower import FlowerStrategy, make_server_app
from fairlead.flower.server import consistency_of, run_on_grid

ALGORITHM = fl.presets.fedavg(lr=0.1, epochs=2, batch_size=5)
_LINE = re.compile(r'(\w+)(?:\{(\w+)="((?:[^"\\]|\\.)*)"\})? (\S+)')


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read(text: str) -> dict[tuple[str, str], float]:
    """Samples by name and value of the label; every line must be a comment or a sample of a declared metric."""
    kinds, found = dict[str, str](), dict[tuple[str, str], float]()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds
            assert (kind == "counter") == name.endswith("_total")
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            sample = _LINE.fullmatch(line)
            assert sample is not None, line
            name, _, label, value = sample.groups()
            assert name in kinds
            assert (name, label or "") not in found
            found[name, label or ""] = float(value)
    return found


def app_at(address: str, folder: Path, rounds: int, **more: str) -> tuple[object, Context]:
    app = make_server_app(experiment(ALGORITHM, rounds), build_model, rules=QUICK)
    config: UserConfig = {"folder": str(folder), "metrics-address": address, **more}
    return app, Context(1, 1, {}, RecordDict(), config)


def test_prometheus_reads_the_figures_of_a_run_and_of_its_continuation(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    seen: list[dict[tuple[str, str], float]] = []

    def fate(client: int, message: Message) -> str:
        if client == 0 and message.metadata.message_type == MessageType.TRAIN:
            with urlopen(f"http://{address}/metrics") as response:
                assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                seen.append(read(response.read().decode()))
            with pytest.raises(HTTPError, match="404"):
                urlopen(f"http://{address}/other")
        return "failed" if (client, round_of(message)) == (1, 0) else "answered"

    grid = DirectGrid(client_apps(weak=(2,), capacity=3), tmp_path / "m", fate)
    for rounds in (2, 3):
        app, context = app_at(address, tmp_path / "run", rounds)
        app(grid, context)  # type: ignore[operator]
    with pytest.raises(URLError):
        urlopen(f"http://{address}/metrics")
    records = load_records(tmp_path / "run")
    assert len(seen) == len(records) == 3
    for done, figures in enumerate(seen):
        assert figures["fairlead_rounds_total", ""] == done
        assert figures["fairlead_rounds_planned", ""] == (2 if done < 2 else 3)
        assert figures["fairlead_clients_connected", ""] == 3
        for client in range(3):
            arrived = sum(client in record.arrived for record in records[:done])
            assert figures["fairlead_client_asked_total", str(client)] == done
            assert figures["fairlead_client_arrived_total", str(client)] == arrived
            assert figures["fairlead_client_arrival_rate", str(client)] == (arrived + 1) / (done + 2)
    last = seen[-1]
    assert last["fairlead_asked_total", ""] == 6
    assert last["fairlead_arrived_total", ""] == 5
    assert last["fairlead_missing_total", "failed"] == 1
    assert last["fairlead_train_loss", ""] == records[1].train_loss
    assert last["fairlead_received_bytes_total", ""] == sum(record.bytes_up for record in records[:2])
    # Two epochs of 12, 7 and 20 examples in batches of 5, of which the weak client does 3 steps.
    assert [last["fairlead_client_steps", str(client)] for client in range(3)] == [6, 4, 3]
    weights = [last["fairlead_client_weight", str(client)] for client in range(3)]
    measured = [last["fairlead_client_measured_weight", str(client)] for client in range(3)]
    assert weights == pytest.approx([12 / 39, 7 / 39, 20 / 39])
    gap = sum(abs(one - other) for one, other in zip(weights, measured, strict=True)) / 2
    assert last["fairlead_misplaced_weight", ""] == pytest.approx(gap) != 0
    # By hand: c_i τ_i over the arrivals, ω scaled to sum to 1 among them.
    pulls = [12 / 32 * 6 + 12 / 39 * 6, 7 / 39 * 4, 20 / 32 * 3 + 20 / 39 * 3]
    assert measured == pytest.approx([pull / sum(pulls) for pull in pulls])
    assert consistency_of(tmp_path / "run")[0].total_variation is not None


def test_reasons_of_clients_make_no_series(tmp_path: Path) -> None:
    """A hostile client could otherwise fill the memory of Prometheus with reasons."""
    from fairlead.flower.messages import refusal
    from fairlead.flower.monitoring import Watch

    def tamper(client: int, reply: Message) -> Message:
        if client == 1 and reply.metadata.message_type == MessageType.TRAIN:
            return Message(refusal('any"thing\n', "No."), reply_to=grid.sent[-1][1])
        return reply

    grid = DirectGrid(client_apps(), tmp_path / "m", tamper=tamper)
    run = run_on_grid(grid, experiment(ALGORITHM, 2), build_model, tmp_path / "run", QUICK)
    watch = Watch(None, json_log=False, trackers=(), address="127.0.0.1:0")
    watch.begin(run.federation, ALGORITHM, lambda: 3)
    assert read(watch.text)["fairlead_missing_total", "other"] == 2
    assert "thing" not in watch.text


@pytest.mark.parametrize("address", ["9464", "localhost", ":9464", "localhost:port", "localhost:70000"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, address: str) -> None:
    app, context = app_at(address, tmp_path / "run", 1)
    with pytest.raises(FieldError, match=r"metrics-address must be HOST:PORT, such as .*, got '"):
        app(DirectGrid(client_apps(), tmp_path / "m"), context)  # type: ignore[operator]


def test_an_address_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        app, context = app_at(f"127.0.0.1:{holder.getsockname()[1]}", tmp_path / "run", 1)
        with pytest.raises(FieldError, match=r"cannot be opened: Address already in use\."):
            app(DirectGrid(client_apps(), tmp_path / "m"), context)  # type: ignore[operator]


def test_no_port_is_open_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr(socket.socket, "bind", lambda self, address: opened.append(address))
    run_on_grid(
        DirectGrid(client_apps(), tmp_path / "m"),
        experiment(ALGORITHM, 1),
        build_model,
        tmp_path / "r",
        QUICK,
    )
    assert opened == []


def _scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
        EventAccumulator,
    )

    found = EventAccumulator(str(folder))
    found.Reload()
    return {name: [(e.step, e.value) for e in found.Scalars(name)] for name in found.Tags()["scalars"]}


def test_trackers_follow_a_run_and_its_continuation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    grid = DirectGrid(client_apps(), tmp_path / "m")
    for rounds in (2, 3):
        app, context = app_at("", tmp_path / "run", rounds, trackers="tensorboard, mlflow")
        app(grid, context)  # type: ignore[operator]
    losses = [record.train_loss for record in load_records(tmp_path / "run")]
    scalars = _scalars(tmp_path / "run" / "tensorboard")
    assert [step for step, _ in scalars["train_loss"]] == [1, 2, 3]
    assert [value for _, value in scalars["train_loss"]] == pytest.approx(losses)
    client = mlflow.MlflowClient()
    (found,) = client.search_runs([client.get_experiment_by_name("fairlead").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["clients.type"] == "RealClients"
    history = client.get_metric_history(found.info.run_id, "train_loss")
    assert [(each.step, each.value) for each in history] == list(enumerate(losses, start=1))


def test_weights_and_biases_follow_a_run_and_its_continuation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a connection: its files hold numbers as text."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    grid, folder = DirectGrid(client_apps(), tmp_path / "m"), tmp_path / "run"
    for rounds in (2, 3):
        app, context = app_at("", folder, rounds, trackers="wandb")
        app(grid, context)  # type: ignore[operator]
    starts, name = sorted((folder / "wandb").glob("offline-run-*")), (folder / "wandb_run_id").read_text()
    assert [start.name.rpartition("-")[2] for start in starts] == [name.strip()] * 2
    losses = [json.dumps(record.train_loss).encode() for record in load_records(folder)]

    def are_kept() -> bool:
        kept = b"".join(file.read_bytes() for start in starts for file in start.glob("*.wandb"))
        return len(losses) == 3 and all(loss in kept for loss in losses)

    # The process that writes them may take its time.
    wait_for(are_kept, 120.0, "the last figures")


@pytest.mark.parametrize("same", [False, True])
def test_a_strategy_is_watched_as_a_server_is(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The continuation of its run, by another strategy or the same, counts on in the same places."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    address, seen = f"127.0.0.1:{free_port()}", list[dict[tuple[str, str], float]]()

    def fate(client: int, message: Message) -> str:
        if client == 0 and message.metadata.message_type == MessageType.TRAIN:
            with urlopen(f"http://{address}/metrics") as response:
                seen.append(read(response.read().decode()))
        return "lost" if client == 1 and len(seen) == 2 else "answered"

    folder = tmp_path / "run"
    first, second = (
        FlowerStrategy(
            plan(fl.presets.fedavg),
            3,
            folder=folder,
            json_log=True,
            trackers=("tensorboard", "mlflow"),
            metrics_address=address,
        )
        for _ in range(2)
    )
    trained(first, tmp_path, 2, fate)
    strategy = first if same else second
    trained(strategy, tmp_path, 3, fate)
    assert [figures["fairlead_rounds_total", ""] for figures in seen] == [0, 1, 2]
    assert [figures["fairlead_rounds_planned", ""] for figures in seen] == [2, 2, 3]
    assert [figures["fairlead_client_arrived_total", "1"] for figures in seen] == [0, 1, 1]
    last = seen[-1]
    assert [last["fairlead_client_arrival_rate", str(client)] for client in range(3)] == [3 / 4, 2 / 4, 3 / 4]
    assert [last["fairlead_client_steps", str(client)] for client in range(3)] == list(STEPS)
    assert last["fairlead_misplaced_weight", ""] > 0
    losses = [record.train_loss for record in strategy.records]
    assert [step for step, _ in _scalars(folder / "tensorboard")["train_loss"]] == [1, 2, 3]
    client = mlflow.MlflowClient()
    (found,) = client.search_runs([client.get_experiment_by_name("fairlead").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["solver.optimizer.lr"] == "0.1"
    history = client.get_metric_history(found.info.run_id, "train_loss")
    assert [(each.step, each.value) for each in history] == list(enumerate(losses, start=1))
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines if "asked" in line] == [1, 2, 3]
    assert [(line["round"], line["client"]) for line in lines if "client" in line] == [(2, 1)]
    for watching in ({"json_log": True}, {"trackers": ("tensorboard",)}):
        with pytest.raises(FieldError, match=r"the folder of the run: give `folder` too\.$"):
            trained(FlowerStrategy(plan(fl.presets.fedavg), 3, **watching), tmp_path, 1)


def test_trackers_end_with_a_run_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")

    def broken(client: int, message: Message) -> str:
        if message.metadata.message_type == MessageType.TRAIN:
            raise OSError("the link is gone")
        return "answered"

    app, context = app_at("", tmp_path / "run", 2, trackers="mlflow")
    with pytest.raises(OSError, match="the link is gone"):
        app(DirectGrid(client_apps(), tmp_path / "m", broken), context)  # type: ignore[operator]
    client = mlflow.MlflowClient()
    (found,) = client.search_runs([client.get_experiment_by_name("fairlead").experiment_id])
    assert found.info.status == "FAILED"


def test_an_unknown_tracker_is_refused_before_the_run(tmp_path: Path) -> None:
    app, context = app_at("", tmp_path / "run", 1, trackers="tensorbord")
    with pytest.raises(FieldError, match="trackers must be one of aim, mlflow, tensorboard, wandb, got"):
        app(DirectGrid(client_apps(), tmp_path / "m"), context)  # type: ignore[operator]
    assert not (tmp_path / "run").exists()


_OTHER = f"0.{int(fl.__version__.split('.')[1]) + 1}.0"


def _versions() -> Iterator[tuple[str | None, bool]]:
    major, minor, _ = fl.__version__.split(".")
    yield fl.__version__, True
    yield f"{major}.{minor}.99", True
    yield _OTHER, False
    yield f"{int(major) + 1}.{minor}.0", False
    yield f"{major}.{minor}9.0", False
    yield None, False


@pytest.mark.parametrize(("version", "is_welcome"), tuple(_versions()))
def test_a_node_of_another_version_is_refused(tmp_path: Path, version: str | None, is_welcome: bool) -> None:
    def tamper(client: int, reply: Message) -> Message:
        if client == 1 and reply.metadata.message_type == MessageType.QUERY:
            values = reply.content.config_records["fairlead.values"]
            del values["version"]
            if version is not None:
                values["version"] = version
        return reply

    grid = DirectGrid(client_apps(), tmp_path / "m", tamper=tamper)
    started = (grid, experiment(ALGORITHM, 1), build_model, tmp_path / "run", QUICK)
    if is_welcome:
        assert run_on_grid(*started).federation.records[0].arrived == (0, 1, 2)
        return
    sentence = (
        f"Node 1001 was rejected: it runs fairlead {version or 'before 0.1'} and the server {fl.__version__}: "
        "install the same major and minor version."
    )
    with pytest.raises(FairleadError, match=re.escape(sentence)):
        run_on_grid(*started, join_seconds=0.2)
