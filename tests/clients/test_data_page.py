"""What docs/data.md shows really runs, and its tables miss nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.component import Component, parts_of
from fairlead.errors import DataError
from fairlead.experiments.catalog import ROLES

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


MEMORY, SPLIT, LISTS, ARRAYS, FRAME, FLOWER, TRAIN, WORDS, DEAL, HOLD_OUT, CONSISTENCY, SKEW = blocks(
    "python"
)
TABLE, LEAF, ARCHIVE, IMAGES = blocks("toml")
(HELD_OUT,) = blocks('toml title="held_out.toml"')
CLIENTS, COMPARE = re.findall(r"^\$ fairlead (.*)$", PAGE, flags=re.MULTILINE)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in code:
        exec(compile(block, "docs/data.md", "exec"), names)
    return names


def loaded(clients: str) -> fl.FederatedData:
    """What a spec with the given table reads."""
    spec = f'rounds = 1\n{clients}[algorithm]\npreset = "fedavg"\nlr = 0.1\n'
    return fl.from_toml(fl.Experiment, spec).clients.load(fl.Key.from_seed(0))


@pytest.mark.needs_package("pandas")
def test_an_experiment_on_data_in_memory() -> None:
    names = run(MEMORY, SPLIT)
    assert names["run"].outcome == "finished"
    assert (names["pool"].test_inputs.shape[0], names["experiment"].load().train.num_clients) == (20, 5)
    assert Path("runs/memory/spec.toml").read_text().startswith("# Data, model or functions")


@pytest.mark.needs_package("pandas")
def test_arrays_to_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    """50 and 30 examples are 2 and 1 batches of 32, so Bonn counts 2/(2·5/8 + 3/8) = 1.23 times its weight."""
    names = run(MEMORY, LISTS, ARRAYS, TRAIN, CONSISTENCY, DEAL, HOLD_OUT, SKEW)
    said = capsys.readouterr().out
    assert "\n['Bonn' 'Ulm'] tensor([50, 30])\n" in said
    assert CONSISTENCY.split("# ... ")[1].strip() in said
    assert names["data"].names.tolist() == ["Bonn", "Ulm"]
    assert names["dealt"].num_clients == 10
    assert names["dealt"].names is None
    assert names["world"].held_out.sizes.sum() > 0
    assert names["skewed"].num_clients == 8


@pytest.mark.needs_package("pandas")
def test_a_frame() -> None:
    names = run(MEMORY, LISTS, ARRAYS, FRAME)
    (said,) = re.findall(r"# (.*)$", FRAME, flags=re.MULTILINE)
    assert names["pool"].deal().names.tolist() == re.findall("'(.*?)'", said)


@pytest.mark.needs_package("pandas")
@pytest.mark.needs_package("flwr_datasets")
@pytest.mark.filterwarnings("ignore:Specifying null_placement:FutureWarning")
def test_a_partitioner_of_flower() -> None:
    data = run(MEMORY, LISTS, ARRAYS, FRAME, FLOWER)["pool"].deal()
    assert data.num_clients == 5
    assert len(data.inputs) == 80


def test_a_table() -> None:
    rows = [f"{'Ulm' if age < 50 else 'Bonn'},{age},{age + 70},{age % 2}" for age in range(30, 70)]
    Path("patients.csv").write_text("\n".join(["hospital,age,pressure,ill", *rows, "Ulm,55,NA,0"]))
    clients = fl.from_toml(fl.Experiment, TABLE).clients
    train = clients.load(fl.Key.from_seed(0)).train
    assert train.names is not None
    assert train.names.tolist() == ["Bonn", "Ulm"]
    assert train.num_dropped == 1
    Path("patients.toml").write_text(TABLE)
    result = CliRunner().invoke(app, CLIENTS.split())
    assert result.exit_code == 0, result.output
    (in_python,) = re.findall(r"`(fl\.CsvTable\(.*?\))`", PAGE)
    assert eval(in_python, {"fl": fl}) == clients


@pytest.mark.needs_package("pandas")
def test_a_column_of_words() -> None:
    Path("patients.csv").write_text("hospital,ward,ill\nUlm,eye,0\nUlm,skin,1\nBonn,eye,1\nBonn,skin,0\n")
    with pytest.raises(DataError, match=r"column 'ward': 'eye' .*pandas\.get_dummies"):
        fl.CsvTable("patients.csv", "ill", "hospital").pool()
    run(WORDS)
    pool = fl.CsvTable("encoded.csv", "ill", "hospital").pool()
    assert pool.features == ("ward_eye", "ward_skin")
    assert pool.inputs.tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]


def test_leaf_users() -> None:
    for part in ("train", "test"):
        users = {name: {"x": [[0.5] * 784] * 2, "y": [0, 1]} for name in ("f0001_03", "f0002_41")}
        Path("femnist", part).mkdir(parents=True)
        content = {"users": list(users), "num_samples": [2, 2], "user_data": users}
        Path("femnist", part, "a.json").write_text(json.dumps(content))
    train = loaded(LEAF).train
    assert train.names is not None
    assert train.names.tolist() == ["f0001_03", "f0002_41"]
    assert train.inputs.shape == (4, 1, 28, 28)


def test_arrays_of_a_file() -> None:
    images = np.zeros((6, 1, 4, 4), dtype=np.uint8)
    np.savez("writers.npz", images=images, digits=[0, 1, 2, 3, 4, 5], writer=["p", "q"] * 3)
    train = loaded(ARCHIVE).train
    assert train.names is not None
    assert train.names.tolist() == ["p", "q"]


def test_a_folder_of_torchvision() -> None:
    raw = Path("downloads/MNIST/raw")
    raw.mkdir(parents=True)
    for part, count in (("train", 12), ("t10k", 3)):
        header = bytes((0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 28, 0, 0, 0, 28))
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + bytes(count * 784))
        labels = bytes((0, 0, 8, 1, 0, 0, 0, count)) + (bytes(range(10)) * 2)[:count]
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    data = loaded(IMAGES)
    assert data.train.sizes.tolist() == [4, 4, 4]
    assert data.train.inputs.dtype == torch.uint8


def test_held_out_examples() -> None:
    Path("held_out.toml").write_text(HELD_OUT)
    clients = fl.load_experiment("held_out.toml").clients
    assert isinstance(clients, fl.Digits)
    (in_python,) = re.findall(r"`(fl\.Digits\(.*?\))`", PAGE)
    assert eval(in_python, {"fl": fl}) == replace(clients, partition=fl.IidPartitioner())
    result = CliRunner().invoke(app, COMPARE.split())
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("kind", ["clients", "partitioners", "skews", "augmentations", "tokenizers"])
def test_every_part_is_named(kind: str) -> None:
    parts: set[type[Component]] = {cls for role in ROLES[kind] for cls in parts_of(role).values()}
    own = {cls.__name__ for cls in parts if cls.__module__.startswith("fairlead.")}
    assert own
    assert {name for name in own if f"`{name}`" not in PAGE} == set()
