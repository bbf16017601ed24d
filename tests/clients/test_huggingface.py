"""Folders that `save_to_disk` of Hugging Face's datasets writes."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.errors import DataError

needs_datasets = pytest.mark.needs_package("datasets")


def save(folder: Path, **splits: dict[str, Any]) -> str:
    datasets = import_module("datasets")
    parts = {name: datasets.Dataset.from_dict(columns) for name, columns in splits.items()}
    datasets.DatasetDict(parts).save_to_disk(folder)
    return str(folder)


@needs_datasets
class TestFolders:
    def test_texts_with_a_test_split(self, tmp_path: Path) -> None:
        path = save(
            tmp_path / "news",
            train={"text": ["aa", "b"], "label": [1, 0], "source": ["bbc", "afp"]},
            test={"text": ["c"], "label": [2], "source": ["bbc"]},
        )
        source = fl.HuggingFaceData(path, "text", client="source", tokens=fl.ByteTokens(length=2))
        data = source.load(fl.Key.from_seed(0))
        assert data.train.inputs.tolist() == [[99, 0], [98, 98]]
        assert data.train.targets.tolist() == [0, 1]
        assert data.test is not None
        assert data.test.sizes.tolist() == [0, 1]
        assert isinstance(source.default_task().model, fl.TextTransformer)

    def test_names_and_incomplete_rows_of_both_splits(self, tmp_path: Path) -> None:
        path = save(
            tmp_path / "t",
            train={"x": [1.0, None, 3.0], "label": [0, 1, 1], "site": ["b", "b", "a"]},
            test={"x": [None, 5.0], "label": [0, 1], "site": ["a", "b"]},
        )
        with pytest.raises(DataError, match="t, train, row 1, column 'x' is empty"):
            fl.HuggingFaceData(path, "x", client="site").pool()
        data = fl.HuggingFaceData(path, "x", client="site", missing="drop").load(fl.Key.from_seed(0))
        assert data.train.inputs.flatten().tolist() == [3.0, 1.0]
        assert data.train.num_dropped == 2
        assert data.test is not None
        assert data.test.sizes.tolist() == [0, 1]
        for part in (data.train, data.test):
            assert part.names is not None
            assert part.names.tolist() == ["a", "b"]

    def test_one_data_set_without_splits(self, tmp_path: Path) -> None:
        table = import_module("datasets").Dataset.from_dict(
            {"x": [[1.0, 2.0], [3.0, 4.0]], "price": [0.5, 1.5]}
        )
        table.save_to_disk(tmp_path / "t")
        pool = fl.HuggingFaceData(str(tmp_path / "t"), "x", "price", regression=True).pool()
        assert pool.inputs.tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert pool.targets.tolist() == [0.5, 1.5]

    @pytest.mark.needs_package("PIL")
    def test_images(self, tmp_path: Path) -> None:
        """A column of images, decoded from the folder's own files."""
        datasets, image = import_module("datasets"), import_module("PIL.Image")
        pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
        features = datasets.Features(
            {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
        )
        columns = {"image": [image.fromarray(own) for own in pixels], "label": [0, 1, 1]}
        datasets.Dataset.from_dict(columns, features=features).save_to_disk(tmp_path / "images")
        source = fl.HuggingFaceData(
            str(tmp_path / "images"), num_clients=3, partition=fl.IidPartitioner(), test_fraction=0.0
        )
        pool = source.pool()
        assert pool.inputs.dtype == torch.uint8
        assert pool.inputs.tolist() == pixels[:, None].tolist()
        assert source.load(fl.Key.from_seed(0)).train.sizes.tolist() == [1, 1, 1]

    def test_broken_folders(self, tmp_path: Path) -> None:
        path = save(tmp_path / "t", train={"x": [1.0], "label": [0]})
        with pytest.raises(DataError, match=r"has no split 'trian'. Did you mean 'train'?"):
            fl.HuggingFaceData(path, "x", split="trian").pool()
        with pytest.raises(DataError, match="t, train has no column 'image'"):
            fl.HuggingFaceData(path).pool()
        with pytest.raises(DataError, match=r"absent does not exist\."):
            fl.HuggingFaceData(str(tmp_path / "absent")).pool()
        (tmp_path / "empty").mkdir()
        with pytest.raises(DataError, match="empty cannot be read as a folder of save_to_disk: "):
            fl.HuggingFaceData(str(tmp_path / "empty")).pool()
        path = save(tmp_path / "u", train={"text": ["a"], "label": [0]})
        with pytest.raises(DataError, match=r"column 'text': 'a' is not a finite number.*tokens for text"):
            fl.HuggingFaceData(path, "text").pool()


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        DataError, match=r"HuggingFaceData needs datasets: install it with pip install 'datasets>="
    ):
        fl.HuggingFaceData(str(tmp_path)).pool()


def test_the_usual_task_follows_the_columns() -> None:
    """Images unless something else is said: several columns are numbers, and a quantity has a squared error."""
    assert isinstance(fl.HuggingFaceData("a").default_task().model, fl.FedAvgCNN)
    assert isinstance(fl.HuggingFaceData("a", ("x", "z")).default_task().model, fl.LogisticRegression)
    rated = fl.HuggingFaceData("a", "text", "stars", tokens=fl.ByteTokens(), regression=True).default_task()
    assert isinstance(rated.model, fl.TextTransformer)
    assert rated.loss == "squared_error"
