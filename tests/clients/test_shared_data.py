"""Real data sets through the loaders that users have; figures are those that each set is known for."""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections import defaultdict
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.errors import DataError

pytestmark = pytest.mark.shared_data
KEY = fl.Key.from_seed(0)


@pytest.fixture
def native(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Rebuilds the files that torchvision leaves, byte for byte (it checks their md5)."""
    monkeypatch.syspath_prepend(shared_data)
    return import_module("native")


def packed(shared_data: Path, path: str) -> dict[str, Any]:
    """The arrays of a pack, read without fairlead."""
    with np.load(io.BytesIO(lzma.decompress((shared_data / path).read_bytes()))) as arrays:
        return dict(arrays)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
class TestImages:
    def test_mnist(self, native: Any, shared_data: Path, tmp_path: Path) -> None:
        native.idx("mnist", str(tmp_path / "MNIST" / "raw"))
        pool = fl.MnistFolder(str(tmp_path)).pool()
        raw = packed(shared_data, "mnist/mnist.npz.xz")
        assert np.array_equal(pool.inputs.numpy()[:, 0], raw["x_train"])
        assert np.array_equal(pool.targets.numpy(), raw["y_train"])
        assert pool.test_inputs is not None
        assert np.array_equal(pool.test_inputs.numpy()[:, 0], raw["x_test"])
        assert torch.bincount(pool.targets).tolist() == [
            5923,
            6742,
            5958,
            6131,
            5842,
            5421,
            5918,
            6265,
            5851,
            5949,
        ]

    def test_fashion_mnist(self, native: Any, tmp_path: Path) -> None:
        native.idx("fashion_mnist", str(tmp_path / "FashionMNIST" / "raw"))
        source = fl.FashionMnistFolder(
            str(tmp_path), num_clients=100, partition=fl.DirichletPartitioner(0.1, min_partition_size=10)
        )
        data = source.load(KEY)
        assert torch.bincount(data.train.targets).tolist() == [6000] * 10
        assert int(data.train.sizes.min()) >= 10
        assert data.test is not None
        assert torch.bincount(data.test.targets).tolist() == [1000] * 10

    @pytest.mark.full
    def test_cifar10(self, native: Any, tmp_path: Path) -> None:
        """The original pickles of Python 2, with 200 shards as in the papers."""
        native.cifar10(str(tmp_path / "cifar-10-batches-py"))
        source = fl.CifarFolder(str(tmp_path), num_clients=100, partition=fl.ShardPartitioner(2))
        data = source.load(KEY)
        assert data.train.inputs.shape == (50000, 3, 32, 32)
        assert torch.bincount(data.train.targets).tolist() == [5000] * 10
        assert data.train.sizes.tolist() == [500] * 100
        mean = data.train.inputs.to(torch.float64).mean((0, 2, 3)) / 255
        assert mean.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)

    def test_cifar100_by_pachinko(self, native: Any, shared_data: Path, tmp_path: Path) -> None:
        """500 clients of 100 images as in TensorFlow Federated; the coarse labels are those of the data."""
        native.cifar100(str(tmp_path / "cifar-100-python"))
        source = fl.CifarFolder(str(tmp_path), num_clients=500, partition=fl.PachinkoPartitioner())
        fine, coarse = (replace(source, labels=kind).pool().targets for kind in ("fine", "coarse"))
        parents = [int(coarse[fine == label][0]) for label in range(100)]
        assert torch.equal(torch.tensor(parents)[fine], coarse)
        owner, stated = (
            partition.deal(fine.numpy(), 500, KEY)
            for partition in (fl.PachinkoPartitioner(), fl.PachinkoPartitioner(parents=tuple(parents)))
        )
        assert np.array_equal(owner, stated)
        assert np.bincount(owner).tolist() == [100] * 500


class TestNaturalClients:
    def test_writers_of_mnist(self, shared_data: Path) -> None:
        source = fl.NpzArrays(
            str(shared_data / "mnist" / "mnist.npz.xz"),
            "x_train",
            "y_train",
            "writer_train",
            test_inputs="x_test",
            test_targets="y_test",
            test_client="writer_test",
            shape=(1, 28, 28),
        )
        data = source.load(KEY)
        assert data.train.num_clients == 539
        assert (int(data.train.sizes.min()), int(data.train.sizes.max())) == (19, 131)
        assert data.test is not None
        assert data.test.num_clients == 1

    def test_writers_of_femnist(self, shared_data: Path, tmp_path: Path) -> None:
        """The same 105 writers train and are tested; written as LEAF's JSON they load to the same numbers."""
        path = shared_data / "femnist" / "femnist105.npz.xz"
        source = fl.NpzArrays(
            str(path),
            "x_train",
            "y_train",
            "writer_train",
            test_inputs="x_test",
            test_targets="y_test",
            test_client="writer_test",
            shape=(1, 28, 28),
        )
        data = source.load(KEY)
        assert data.train.num_clients == 105
        assert data.test is not None
        assert data.test.num_clients == 105
        assert int(data.train.targets.max()) == 61
        raw = packed(shared_data, "femnist/femnist105.npz.xz")
        _write_leaf(tmp_path, raw, writers=8)
        leaf = fl.LeafFolder(str(tmp_path), shape=(1, 28, 28)).load(KEY)
        names = [str(raw["writers"][writer]) for writer in range(8)]
        for client, name in enumerate(sorted(names)):
            own = raw["writer_train"] == names.index(name)
            rows = leaf.train.rows_of(client)
            assert leaf.train.targets[rows].tolist() == raw["y_train"][own].tolist()
            pixels = (leaf.train.inputs[rows, 0].numpy() * 255).round()
            assert np.array_equal(pixels, raw["x_train"][own])
        assert leaf.test is not None
        assert leaf.test.num_clients == 8

    def test_subjects_of_har(self, shared_data: Path) -> None:
        source = fl.NpzArrays(
            str(shared_data / "uci_har_acc" / "uci_har_acc.npz.xz"),
            "x_train",
            "y_train",
            "subject_train",
            test_inputs="x_test",
            test_targets="y_test",
            scale=1e-4,
        )
        data = source.load(KEY)
        assert data.train.num_clients == 21
        assert torch.bincount(data.train.targets).tolist() == [1226, 1073, 986, 1286, 1374, 1407]
        assert data.train.inputs.dtype == torch.float32
        # At rest a sensor feels gravity alone: about 1 g.
        resting = data.train.inputs[data.train.targets == 5].norm(dim=-1)
        assert float(resting.mean()) == pytest.approx(1.0, abs=0.05)

    def test_users_of_wisdm_with_gaps(self, shared_data: Path) -> None:
        """Three columns have gaps, which are refused with their row; without them 36 users train."""
        path = shared_data / "wisdm" / "wisdm.npz.xz"
        with pytest.raises(
            DataError, match=r"wisdm.npz.xz must have finite inputs, got NaN or infinity in row 9\."
        ):
            fl.NpzArrays(str(path), client="user").pool()
        filled = fl.NpzArrays(str(path), client="user", missing="median").load(KEY)
        assert bool(filled.train.inputs.isfinite().all())
        assert filled.train.num_clients == 36
        raw = packed(shared_data, "wisdm/wisdm.npz.xz")
        complete = raw["x"][:, ~np.isnan(raw["x"]).any(0)]
        data = fl.Pool.from_arrays(complete, raw["y"].astype(np.int64), raw["user"]).deal()
        assert data.num_clients == 36
        assert (int(data.sizes.min()), int(data.sizes.max())) == (60, 273)

    def test_arms_of_the_watch_data(self, shared_data: Path) -> None:
        """Recordings of different lengths, cut into windows by the user: 10 subjects with two arms each."""
        raw = packed(shared_data, "watch/watch.npz.xz")
        windows, labels, arms = [], [], []
        recordings = np.split(raw["x"].astype(np.float32) / 1000, np.cumsum(raw["lengths"])[:-1])
        for recording, label, subject, side in zip(
            recordings, raw["y"], raw["subject"], raw["side"], strict=True
        ):
            for start in range(0, len(recording) - 49, 50):
                windows.append(recording[start : start + 50])
                labels.append(int(label))
                arms.append(f"{subject}/{side}")
        data = fl.Pool.from_arrays(np.stack(windows), labels, arms).deal()
        assert data.num_clients == 20
        assert data.inputs.shape[1:] == (50, 6)


class TestTables:
    FEATURES = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak")

    def test_hospitals(self, shared_data: Path) -> None:
        """Without the three columns that most hospitals left empty, 740 patients are complete."""
        path = str(shared_data / "heart_disease" / "heart.csv")
        with pytest.raises(DataError, match=r"heart.csv, line \d+, column '\w+' is empty"):
            fl.CsvTable(path, "num", "hospital").pool()
        source = fl.CsvTable(path, "num", "hospital", self.FEATURES, missing="drop", standardize=True)
        pool = source.pool()
        assert len(pool) == 740
        assert pool.natural is not None
        assert torch.bincount(pool.natural).tolist() == [303, 261, 46, 130]
        run = fl.Experiment(source, fl.presets.fedavg(lr=0.1, epochs=1), rounds=20).build()
        *_, last = run.train(20, evaluate_every=20)
        assert last.evaluation is not None
        assert last.evaluation.metrics["accuracy"] > 0.7

    def test_news_by_agency_and_pooled(self, shared_data: Path) -> None:
        path = str(shared_data / "ag_news" / "ag_news.csv.xz")
        tokens = fl.HashedWords(length=32, buckets=2000)
        source = fl.CsvTable(
            path,
            "label",
            features="text",
            tokens=tokens,
            split="split",
            num_clients=10,
            partition=fl.DirichletPartitioner(0.1),
        )
        data = source.load(KEY)
        assert data.train.inputs.shape == (14547, 32)
        assert data.test is not None
        assert torch.bincount(data.test.targets).tolist() == [1900] * 4
        assert int(data.train.inputs.max()) < tokens.vocabulary
        by_agency = fl.CsvTable(
            path, "label", "source", features="text", tokens=tokens, split="split", missing="drop"
        ).pool()
        assert by_agency.natural is not None
        assert int(torch.bincount(by_agency.natural).max()) == 1663

    def test_roles_of_shakespeare(self, shared_data: Path) -> None:
        """A role of c characters gives ⌊(c − 1)/80⌋ windows, its speeches joined by newlines."""
        path = shared_data / "shakespeare" / "speeches.csv.xz"
        pool = fl.CsvText(str(path), "text", ("play", "speaker"), length=80).pool()
        speeches = defaultdict(list)
        with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                speeches[row["play"], row["speaker"]].append(row["text"])
        assert len(speeches) == 1399
        windows = {role: (len("\n".join(texts)) - 1) // 80 for role, texts in speeches.items()}
        expected = [windows[role] for role in sorted(windows) if windows[role] > 0]
        assert pool.natural is not None
        assert torch.bincount(pool.natural).tolist() == expected
        assert torch.equal(pool.inputs[:, 1:], pool.targets[:, :-1])


def _write_leaf(folder: Path, raw: dict[str, Any], writers: int) -> None:
    """Some writers of the pack as the JSON that LEAF's scripts write."""
    for part in ("train", "test"):
        data = {}
        for writer in range(writers):
            own = raw[f"writer_{part}"] == writer
            if own.any():
                pixels = raw[f"x_{part}"][own].reshape(own.sum(), -1) / 255
                name = str(raw["writers"][writer])
                data[name] = {"x": pixels.tolist(), "y": raw[f"y_{part}"][own].tolist()}
        content = {
            "users": list(data),
            "num_samples": [len(own["y"]) for own in data.values()],
            "user_data": data,
        }
        (folder / part).mkdir()
        (folder / part / "all_data_niid_0_keep_0.json").write_text(json.dumps(content))
