"""`fairlead flower init` writes an app that runs as it is; `weights` reads what became of a run."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest
import torch
from direct_grid import DirectGrid
from flwr.app import Context, Message, RecordDict, UserConfig
from typer.testing import CliRunner

import fairlead as fl
from fairlead.checkpoint.store import has_checkpoint
from fairlead.cli import app
from fairlead.errors import FairleadError, FieldError
from fairlead.experiments.run_folder import RunFolder, load_records
from fairlead.experiments.spec import load_experiment
from fairlead.flower.local_trial import LocalFederation
from fairlead.flower.project import write_project
from fairlead.results.methods import group_runs
from fairlead.results.runs import read_runs
from fairlead.task import squared_error

SPEC = """
rounds = 3
seed = 5
evaluate_every = 3

[clients]
type = "Digits"
num_clients = 4
holdout = 0.25

[clients.partition]
type = "DirichletPartitioner"
alpha = 0.5

[algorithm]
preset = "scaffold"
lr = 0.1
batch_size = 64

[task]
metrics = ["accuracy", { type = "TopK", k = 3 }]

[task.model]
type = "MLP"
hidden = [6]
"""


def invoked(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["flower", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an app that `init` wrote, importable."""
    (tmp_path / "spec.toml").write_text(SPEC)
    folder = tmp_path / "trial_project"
    invoked("init", str(tmp_path / "spec.toml"), str(folder))
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "trial_project"]:
        del sys.modules[name]


def imported(name: str) -> ModuleType:
    return importlib.import_module(f"trial_project.{name}")


def test_a_written_app_gives_the_numbers_of_its_spec(project: Path, tmp_path: Path) -> None:
    clients, folder = dict.fromkeys(range(4), imported("client_app").app), tmp_path / "run"
    context = Context(1, 1, {}, RecordDict(), {"folder": str(folder), "bind-keys": False})
    imported("server_app").app(DirectGrid(clients, tmp_path / "memory"), context)
    twin = replace(load_experiment(tmp_path / "spec.toml"), engine="loop").build()
    expected = list(twin.train())
    records = load_records(folder)
    assert [record.train_loss for record in records] == [record.train_loss for record in expected]
    assert [record.step_norm for record in records] == [record.step_norm for record in expected]
    found, own = records[-1].evaluation, expected[-1].evaluation
    assert found is not None
    assert own is not None
    # On the examples that each client holds out.
    assert found.client_metrics == own.client_metrics
    assert has_checkpoint(RunFolder(folder).checkpoint)
    told = json.loads(invoked("weights", str(folder), "--json"))
    assert [row["client"] for row in told["clients"]] == [0, 1, 2, 3]
    intended = torch.tensor([row["intended"] for row in told["clients"]], dtype=torch.float64)
    assert torch.allclose(intended, twin.world.population.weights)
    assert "ω asked for" in invoked("weights", str(folder))


def test_a_written_app_evaluates_on_the_test_set_of_its_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its server reads no data: with `get_data` replaced, a spec may name files that only clients have."""
    spec, folder = tmp_path / "spec.toml", tmp_path / "run"
    spec.write_text(SPEC.replace("holdout = 0.25", ""))
    invoked("init", str(spec), str(tmp_path / "plain_project"))
    monkeypatch.syspath_prepend(str(tmp_path / "plain_project"))
    client, server = (importlib.import_module(f"plain_project.{end}_app").app for end in ("client", "server"))
    clients = dict.fromkeys(range(4), client)
    config: UserConfig = {"folder": str(folder), "bind-keys": False, "num-clients": 4}
    twin = replace(load_experiment(spec), engine="loop").build()
    *_, expected = twin.train()
    grid = DirectGrid(clients, tmp_path / "memory")
    answer, own = grid._deliver, fl.Digits.load

    def unreadable(source: fl.Digits, key: fl.Key) -> NoReturn:
        raise FairleadError("The server has no data.")

    def deliver(message: Message) -> str:
        with pytest.MonkeyPatch.context() as clients_only:
            clients_only.setattr(fl.Digits, "load", own)
            return answer(message)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fl.Digits, "load", unreadable)
        patched.setattr(grid, "_deliver", deliver)
        server(grid, Context(1, 1, {}, RecordDict(), config))
    evaluation = load_records(folder)[-1].evaluation
    assert evaluation is not None
    assert expected.evaluation is not None
    assert evaluation.loss == pytest.approx(expected.evaluation.loss, rel=1e-12)
    assert evaluation.metrics == pytest.approx(expected.evaluation.metrics, rel=1e-12)


def test_a_report_keeps_a_simulated_and_a_real_run_of_one_spec(project: Path, tmp_path: Path) -> None:
    context = Context(1, 1, {}, RecordDict(), {"folder": str(tmp_path / "a" / "run"), "bind-keys": False})
    clients = dict.fromkeys(range(4), imported("client_app").app)
    imported("server_app").app(DirectGrid(clients, tmp_path / "memory"), context)
    fl.run_experiment(load_experiment(tmp_path / "a" / "run" / "spec.toml"), tmp_path / "b" / "run")
    study = group_runs(read_runs([tmp_path / "a", tmp_path / "b"]))
    assert study.repeated == ()
    assert [method.label for method in study.methods] == ["run (clients=real)", "run (clients=simulated)"]
    for name, links in (("a", "at nodes of Flower"), ("b", "links `PerfectLink()`")):
        card = fl.export_model(tmp_path / name / "run", tmp_path / f"{name}.safetensors").card.read_text()
        assert f"| Clients | 4, local work `EqualWork()`, {links} |" in card


def test_an_app_for_real_clients_says_what_to_fill_in(tmp_path: Path) -> None:
    text = SPEC.split("[task")[0].replace(
        'type = "Digits"\nnum_clients = 4\nholdout = 0.25', 'type = "RealClients"\nnum_clients = 4'
    )
    (tmp_path / "spec.toml").write_text(
        text.replace('[clients.partition]\ntype = "DirichletPartitioner"\nalpha = 0.5', "")
    )
    invoked("init", str(tmp_path / "spec.toml"), str(tmp_path / "mine"))
    source = (tmp_path / "mine" / "mine" / "task.py").read_text()
    compile(source, "task.py", "exec")
    assert "Return the torch module that all clients train." in source
    assert "Return this client's inputs and targets" in source


def test_the_data_of_an_app_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{row % 2},{row % 2},{row}" for row in range(12))
    Path("patients.csv").write_text(f"hospital,ill,age\n{rows}\n")
    clients = '[clients]\ntype = "CsvTable"\npath = "patients.csv"\ntarget = "ill"\nclient = "hospital"\n'
    Path("spec.toml").write_text(f'rounds = 1\n[algorithm]\npreset = "fedavg"\nlr = 0.1\n{clients}')
    invoked("init", "spec.toml", "table_app")
    monkeypatch.chdir("table_app")
    assert load_experiment("table_app/spec.toml").load().train.num_clients == 2


def test_what_init_refuses(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "taken").touch()
    for folder, sentence in (
        ("full", "is not empty"),
        ("1st", "must make a Python package"),
        ("taken", "is a file: choose a folder for the app."),
    ):
        result = CliRunner().invoke(
            app, ["flower", "init", str(tmp_path / "spec.toml"), str(tmp_path / folder)]
        )
        assert result.exit_code == 2
        assert sentence in result.output


def test_what_an_app_cannot_say_in_words_is_refused(tmp_path: Path) -> None:
    """A loss or metric that is a function of this process would otherwise become another one in the app."""

    def own(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return squared_error(outputs, targets)

    model = fl.MLP(hidden=(6,))
    for field, task in (("loss", fl.Task(model, own)), ("metrics", fl.Task(model, metrics=(own,)))):
        spec = fl.Experiment(fl.Digits(num_clients=3), fl.presets.fedavg(lr=0.1), rounds=1, task=task)
        with pytest.raises(
            FieldError, match=rf"^Task.{field} must be a known name or 'package.module:function'"
        ):
            write_project(spec, tmp_path / "mine")
        assert not (tmp_path / "mine").exists()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes federations were to have, none of which starts."""
    nodes: list[int] = []

    def enter(federation: LocalFederation) -> LocalFederation:
        nodes.append(federation.num_nodes)
        raise FairleadError("Not today.")

    monkeypatch.setattr(LocalFederation, "__enter__", enter)
    return nodes


@pytest.mark.parametrize("options", [[], ["--nodes", "4"]])
def test_up_starts_a_node_for_each_client(options: list[str], project: Path, started: list[int]) -> None:
    result = CliRunner().invoke(app, ["flower", "up", str(project), *options])
    assert started == [4]
    assert "Not today." in result.output


def test_up_says_how_good_the_model_is(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was done before in this process: with nodes that never start, `up` has only to tell of it."""
    monkeypatch.setattr(LocalFederation, "__enter__", lambda federation: federation)
    monkeypatch.setattr(LocalFederation, "submit", lambda federation, config: "1")
    context = Context(1, 1, {}, RecordDict(), {"folder": str(tmp_path / "run"), "bind-keys": False})
    clients = dict.fromkeys(range(4), imported("client_app").app)
    imported("server_app").app(DirectGrid(clients, tmp_path / "memory"), context)
    evaluation = load_records(tmp_path / "run")[-1].evaluation
    assert evaluation is not None
    said = f"Final model: loss {evaluation.loss:.4g}  accuracy {evaluation.metrics['accuracy']:.4g}"
    assert said in invoked("up", str(project), "-o", str(tmp_path / "run"))
    assert invoked("up", str(project), "-o", str(tmp_path / "run"), "--quiet") == ""


def test_up_refuses_another_number_of_nodes(project: Path, started: list[int]) -> None:
    result = CliRunner().invoke(app, ["flower", "up", str(project), "--nodes", "3"])
    assert result.exit_code == 2
    sentence = "--nodes must be 4, one for each client of the spec, got 3: omit it"
    assert sentence in " ".join(result.output.split())
    assert started == []


@pytest.mark.parametrize(
    "config", ["", "[tool.flwr.app.config]\nfolder = ''\n", "[tool.flwr.app]\nconfig = 3\n", "[["]
)
def test_up_says_which_settings_an_app_lacks(config: str, project: Path, started: list[int]) -> None:
    (project / "pyproject.toml").write_text(config)
    result = CliRunner().invoke(app, ["flower", "up", str(project)])
    assert result.exit_code == 2
    assert "bind-keys = false under [tool.flwr.app.config]." in " ".join(result.output.split())
    assert started == []


def test_up_starts_many_nodes_only_if_told_so(project: Path, started: list[int]) -> None:
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace("num-clients = 4", "num-clients = 11"))
    result = CliRunner().invoke(app, ["flower", "up", str(project)])
    assert result.exit_code == 2
    assert "write --nodes 11 to confirm" in " ".join(result.output.split())
    CliRunner().invoke(app, ["flower", "up", str(project), "--nodes", "11"])
    assert started == [11]


def test_up_does_not_continue_a_simulation(project: Path, tmp_path: Path, started: list[int]) -> None:
    fl.run_experiment(load_experiment(project / "trial_project" / "spec.toml"), tmp_path / "run")
    result = CliRunner().invoke(app, ["flower", "up", str(project), "-o", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "holds a run that is not of make_server_app" in " ".join(result.output.split())
    assert started == []


def test_an_app_for_secure_aggregation_is_written(tmp_path: Path) -> None:
    text = SPEC.replace('preset = "scaffold"', 'preset = "fedavg"\nsecure_aggregation = true')
    (tmp_path / "secure.toml").write_text(text)
    result = CliRunner().invoke(app, ["flower", "init", str(tmp_path / "secure.toml"), str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert load_experiment(tmp_path / "new" / "new" / "spec.toml").algorithm.secure_aggregation


def test_weights_of_a_folder_without_a_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["flower", "weights", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds no run on Flower" in result.output


def test_up_does_not_take_another_run_for_its_own(project: Path, tmp_path: Path) -> None:
    """A finished run of another spec in the folder would otherwise be told as the end of this one."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "spec.toml").write_text(SPEC.replace("seed = 5", "seed = 6"))
    (folder / "rounds.jsonl").write_text("{}\n")
    result = CliRunner().invoke(app, ["flower", "up", str(project), "-o", str(folder)])
    assert result.exit_code == 2
    assert "is another experiment, with a different seed" in " ".join(result.output.split())


def test_what_clients_remember_stays_where_a_later_start_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(LocalFederation, "_start", lambda self, name, command: started.append(command))
    LocalFederation(tmp_path / "scratch", tmp_path, 1, memory=tmp_path / "run" / "memory").start_node(0)
    ((*_, config),) = started
    assert config == f'client-id=0 memory-folder="{tmp_path / "run" / "memory"}"'
