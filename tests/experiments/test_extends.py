"""Specs that extend others: merged before they are read, and refused where they go in circles."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.errors import FieldError
from fairlead.worlds.device import usable_device

BASE = """
rounds = 5
[clients]
type = "Digits"
num_clients = 4
[algorithm]
preset = "fedavg"
lr = 0.1
[algorithm.server]
lr = 0.5
[compare]
methods = ["fedavg", "fednova"]
seeds = "0..1"
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("specs").mkdir()
    Path("specs/base.toml").write_text(BASE)


def written(text: str, name: str = "specs/own.toml") -> Path:
    Path(name).write_text(text)
    return Path(name)


def test_values_replace_tables_merge_and_other_parts_begin_anew() -> None:
    own = written(
        'extends = "base.toml"\nrounds = 7\n[algorithm]\nlr = 0.3\n[algorithm.server]\nmomentum = 0.9\n'
    )
    found = fl.load_experiment(own)
    assert (found.rounds, found.clients) == (7, fl.Digits(4))
    assert found.algorithm.solver.optimizer.lr == 0.3
    assert found.algorithm.server == fl.SGD(lr=0.5, momentum=0.9)
    other = written('extends = "own.toml"\n[clients]\ntype = "Quadratics"\ndim = 3\n', "specs/third.toml")
    assert fl.load_experiment(other).clients == fl.Quadratics(dim=3)
    assert fl.load_experiment(other).rounds == 7
    assert fl.load_experiment(other, ["rounds=9"]).rounds == 9


def test_commands_and_their_table_see_the_whole_spec() -> None:
    written('extends = "specs/base.toml"\nrounds = 1\n', "own.toml")
    done = CliRunner().invoke(app, ["compare", "own.toml", "--jobs", "1"])
    assert done.exit_code == 0, done.output
    labels = [run.labels for run in fl.StudyFolder(Path("runs/own-compare")).runs()]
    assert labels == [{"method": name, "seed": seed} for seed in (0, 1) for name in ("fedavg", "fednova")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extends = "own.toml"', r"own\.toml extends itself\."),
        ('extends = "loop.toml"', r"loop\.toml extends own\.toml, which in turn extends"),
        ('extends = "none.toml"', r"own\.toml extends specs/none\.toml, which does not exist\."),
        ('extends = "broken.toml"', r"broken\.toml, line 2: "),
        ("extends = 3", r"extends in specs/own\.toml must be the path of a spec, got 3\."),
        ('extends = "base.toml"\nround = 3', "round is not a field of Experiment"),
    ],
)
def test_errors_name_the_right_file(text: str, message: str) -> None:
    written('extends = "own.toml"', "specs/loop.toml")
    written("rounds = 1\n[clients\n", "specs/broken.toml")
    with pytest.raises(FieldError, match=message):
        fl.load_experiment(written(text))


def test_a_text_without_a_file_cannot_extend() -> None:
    with pytest.raises(FieldError, match="extends is a path beside"):
        fl.from_toml(fl.Experiment, 'extends = "base.toml"')


def test_a_device_given_on_the_command_line_wins() -> None:
    for command in ("run", "compare", "sweep", "diagnose"):
        more = ["--grid", "seed=0..1"] if command == "sweep" else []
        done = CliRunner().invoke(app, [command, "specs/base.toml", "--device", "tpu", *more])
        assert done.exit_code == 2
        assert "Experiment.device must be 'cpu', 'cuda', 'cuda:<number>' or 'mps', got 'tpu'." in done.output


def test_mps_is_refused_where_torch_finds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a device is named; `doctor` lists it where torch has it."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    why = "must be 'cpu' or a CUDA device of this machine, which has"
    for arguments in (["run", "specs/base.toml"], ["demo"], ["reproduce", "wang2021_lemma_1"]):
        for device in ("mps", "mps:0"):
            done = CliRunner().invoke(app, [*arguments, "--device", device])
            assert (done.exit_code, why in done.output) == (2, True), done.output
    with pytest.raises(FieldError, match=why):
        usable_device(None, "mps")
    for has_it in (False, True):
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda has_it=has_it: has_it)
        assert ("Apple's GPU" in CliRunner().invoke(app, ["doctor", "--json"]).output) is has_it


def test_shells_complete_commands() -> None:
    done = CliRunner().invoke(app, ["--help"])
    assert "--install-completion" in done.output


def test_data_paths_start_from_the_folder_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else from the working directory, if the file is there alone."""
    inner, here = tmp_path / "inner", tmp_path / "here"
    for folder in (inner, here):
        folder.mkdir()
    text = 'rounds = 1\n[algorithm]\npreset = "fedavg"\nlr = 0.1\n'
    text += '[clients]\ntype = "CsvTable"\npath = "d.csv"\ntarget = "y"\n'
    (inner / "spec.toml").write_text(text)
    monkeypatch.chdir(here)

    def path() -> str:
        clients = fl.load_experiment(inner / "spec.toml").clients
        assert isinstance(clients, fl.CsvTable)
        return str(clients.path)

    assert path() == str(inner / "d.csv")
    (here / "d.csv").write_text("x,y\n1,0\n")
    assert path() == "d.csv"
    (inner / "d.csv").write_text("x,y\n1,0\n")
    assert path() == str(inner / "d.csv")
