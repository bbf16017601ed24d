"""Client sources, feature skew and augmentation are values that a spec can hold."""

from __future__ import annotations

import pytest

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.experiments.spec import from_toml, to_toml

DIRICHLET = fl.DirichletPartitioner(0.3, min_partition_size=2)
SOURCES = [
    fl.CsvTable("heart.csv", "num", "hospital", ("age", "sex"), missing="drop", standardize=True),
    fl.CsvTable(
        "news.csv", "label", features="text", tokens=fl.HashedWords(32, 500), split="part", delimiter=";"
    ),
    fl.CsvText("plays.csv", "text", ("play", "speaker"), length=40),
    fl.ParquetTable("table.parquet", "y", test_path="test.parquet", num_clients=3, partition=DIRICHLET),
    fl.NpzArrays("mnist.npz", "x_train", "y_train", "writer", shape=(1, 28, 28), scale=0.5),
    fl.MnistFolder("data", num_clients=100, partition=fl.ShardPartitioner(2)),
    fl.FashionMnistFolder("data", num_clients=10, partition=DIRICHLET, feature_skew=(fl.GaussianNoise(0.1),)),
    fl.CifarFolder("data", labels="coarse", num_clients=10, partition=fl.IidPartitioner()),
    fl.LeafFolder("femnist", shape=(1, 28, 28), partition=fl.ReshuffledPartitioner()),
    fl.HuggingFaceData("news", "text", tokens=fl.ByteTokens(64), test_split="validation"),
    fl.Digits(feature_skew=(fl.Rotation((0.0, 45.0)), fl.GaussianNoise((0.1, 0.2)))),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_a_spec_gives_the_source_back(source: fl.ClientSource) -> None:
    experiment = fl.Experiment(source, fl.presets.fedavg(lr=0.1), rounds=3)
    assert from_toml(fl.Experiment, to_toml(experiment)) == experiment


def test_augmentation_in_a_spec() -> None:
    steps = (fl.RandomCrop(2), fl.HorizontalFlip(0.3), fl.Normalize((0.5, 0.4, 0.3), 0.25))
    task = fl.Task(fl.FedAvgCNN(), augment=steps)
    experiment = fl.Experiment(fl.Digits(), fl.presets.fedavg(lr=0.1), rounds=3, task=task)
    assert from_toml(fl.Experiment, to_toml(experiment)) == experiment


def test_an_unknown_part_is_named() -> None:
    text = 'rounds = 1\n[clients]\ntype = "CsvTabel"\n[algorithm]\npreset = "fedavg"\nlr = 0.1\n'
    with pytest.raises(FieldError, match=r"clients.type must be the name of a ClientSource.*'CsvTable'"):
        from_toml(fl.Experiment, text)
