"""LEAF's JSON files, written by the tests as LEAF's own scripts write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import fairlead as fl
from fairlead.errors import ClashError, DataError, FieldError

Users = dict[str, tuple[list[Any], list[Any]]]


def write(file: Path, users: Users, /, **changes: Any) -> None:
    content = {
        "users": list(users),
        "num_samples": [len(targets) for _, targets in users.values()],
        "user_data": {name: {"x": inputs, "y": targets} for name, (inputs, targets) in users.items()},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**content, **changes}))


WRITERS: Users = {
    "f0002_41": ([[0.0, 0.25, 0.5, 1.0], [1.0, 1.0, 1.0, 1.0]], [12, 61]),
    "f0001_03": ([[0.5, 0.5, 0.5, 0.5]], [0]),
}


class TestFemnist:
    def test_users_of_several_files(self, tmp_path: Path) -> None:
        """Clients are the users in sorted order, whatever file they stand in."""
        write(tmp_path / "train" / "all_data_0.json", WRITERS)
        write(tmp_path / "train" / "all_data_1.json", {"f0000_77": ([[0.0, 0.0, 0.0, 1.0]], [5])})
        write(tmp_path / "test" / "all_data_0.json", {"f0002_41": ([[0.0, 1.0, 0.0, 1.0]], [7])})
        source = fl.LeafFolder(str(tmp_path), shape=(1, 2, 2))
        data = source.load(fl.Key.from_seed(0))
        assert data.train.sizes.tolist() == [1, 1, 2]
        assert data.train.targets.tolist() == [5, 0, 12, 61]
        assert data.train.inputs[2].tolist() == [[[0.0, 0.25], [0.5, 1.0]]]
        assert data.train.inputs.dtype == torch.float32
        assert data.test is not None
        assert data.test.sizes.tolist() == [0, 0, 1]

    def test_other_users_make_a_common_test_set(self, tmp_path: Path) -> None:
        write(tmp_path / "train" / "a.json", WRITERS)
        write(tmp_path / "test" / "a.json", {"f9": ([[0.0, 1.0, 0.0, 1.0]], [7])})
        data = fl.LeafFolder(str(tmp_path)).load(fl.Key.from_seed(0))
        assert data.test is not None
        assert data.test.sizes.tolist() == [1]

    def test_files_without_folders(self, tmp_path: Path) -> None:
        write(tmp_path / "a.json", WRITERS)
        pool = fl.LeafFolder(str(tmp_path)).pool()
        assert pool.natural is not None
        assert pool.natural.tolist() == [1, 1, 0]
        assert pool.test_inputs is None

    def test_an_iid_twin(self, tmp_path: Path) -> None:
        write(tmp_path / "a.json", WRITERS)
        source = fl.LeafFolder(str(tmp_path), partition=fl.ReshuffledPartitioner(), test_fraction=0.0)
        assert source.load(fl.Key.from_seed(1)).train.sizes.tolist() == [1, 2]


class TestShakespeare:
    def test_targets_are_the_next_characters(self, tmp_path: Path) -> None:
        """Characters in sorted order: " ", "B", "b", "e", "o", "r", "t" are 0 to 6."""
        write(tmp_path / "train" / "a.json", {"HAMLET": (["to be", "o be "], [" ", "B"])})
        write(tmp_path / "test" / "a.json", {"HAMLET": (["be or"], [" "])})
        pool = fl.LeafFolder(str(tmp_path), text=True).pool()
        assert pool.inputs.tolist() == [[6, 4, 0, 2, 3], [4, 0, 2, 3, 0]]
        assert pool.targets.tolist() == [[4, 0, 2, 3, 0], [0, 2, 3, 0, 1]]
        assert pool.inputs.dtype == pool.targets.dtype == torch.int64
        assert pool.test_targets is not None
        assert pool.test_targets.tolist() == [[3, 0, 4, 5, 0]]

    def test_a_character_model_trains(self, tmp_path: Path) -> None:
        write(tmp_path / "a.json", {"A": (["to be", "o be "], [" ", "o"]), "B": (["be or"], [" "])})
        source = fl.LeafFolder(str(tmp_path), text=True, test_fraction=0.0)
        assert source.default_task().model == fl.CharLSTM(pooling="none")
        task = fl.Task(fl.CharLSTM(embedding=2, hidden=3, layers=1, pooling="none"))
        run = fl.Experiment(source, fl.presets.fedavg(lr=0.1), rounds=2, task=task).build()
        assert len(list(run.train(2))) == 2


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ({"u": ([], [])}, r"a.json, user 'u' has no sample\."),
        (
            {"u": ([[1.0]], [0, 1])},
            "must have as many inputs and targets as 'num_samples' says, 2, got 1 and 2",
        ),
        (
            {"u": ([[1.0, 2.0], [1.0]], [0, 1])},
            "user 'u', sample 1 must be a list of numbers of the length of",
        ),
        ({"u": ([[1.0], "text"], [0, 1])}, "sample 1 must be a list.*texts need text=True"),
        ({"u": (["to be"], ["t"])}, "sample 0 must be a list of numbers.*texts need text=True"),
        (
            {"u": ([[1.0]], [-1])},
            "the target of sample 0 must be a class, a whole number of at least 0, got -1",
        ),
        ({"u": ([[1.0]], [0.5])}, "the target of sample 0 must be a class.*got 0.5"),
        ({"u": ([["a"]], [0])}, "user 'u' cannot be read as numbers"),
        (
            {"u": ([[1.0]], [0]), "v": ([[1.0, 2.0]], [0])},
            "user 'v' has inputs of length 2, but .*'u' has length 1",
        ),
        ({"u": ([[1.0], [float("nan")]], [0, 0])}, "user 'u', sample 1 must be finite numbers"),
        ({"u": ([[[1.0]]], [0])}, "user 'u', sample 0 must be finite numbers"),
    ],
)
def test_broken_users(tmp_path: Path, users: Users, message: str) -> None:
    write(tmp_path / "a.json", users)
    with pytest.raises(DataError, match=message):
        fl.LeafFolder(str(tmp_path)).pool()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"users": ["f0001_03", "someone"]},
            "must name the same users in 'users', 'num_samples' and 'user_data'",
        ),
        ({"users": ["f0002_41", "f0001_03", "f0001_03"], "num_samples": [2, 1, 1]}, "names a user twice"),
        ({"num_samples": [2]}, "must name the same users"),
        ({"user_data": {"f0002_41": {"x": []}, "f0001_03": {}}}, "must have lists 'x' and 'y'"),
    ],
)
def test_broken_contents(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write(tmp_path / "a.json", WRITERS, **changes)
    with pytest.raises(DataError, match=message):
        fl.LeafFolder(str(tmp_path)).pool()


def test_broken_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no user: it needs LEAF's .json files"):
        fl.LeafFolder(str(tmp_path)).pool()
    (tmp_path / "a.json").write_text('{"users": [')
    with pytest.raises(DataError, match=r"a.json cannot be read as JSON: "):
        fl.LeafFolder(str(tmp_path)).pool()
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(DataError, match=r"a.json is not a LEAF file: it must hold 'users'"):
        fl.LeafFolder(str(tmp_path)).pool()
    for content in (
        '{"users": 3, "num_samples": [1], "user_data": {}}',
        '{"users": ["a"], "num_samples": 1, "user_data": {}}',
        '{"users": ["a"], "num_samples": [1], "user_data": ["a"]}',
    ):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(DataError, match=r"a.json is not a LEAF file"):
            fl.LeafFolder(str(tmp_path)).pool()
    with pytest.raises(DataError, match=r"absent does not exist\."):
        fl.LeafFolder(str(tmp_path / "absent")).pool()


def test_a_user_in_two_files(tmp_path: Path) -> None:
    write(tmp_path / "a.json", WRITERS)
    write(tmp_path / "b.json", {"f0001_03": WRITERS["f0001_03"]})
    with pytest.raises(DataError, match=r"b.json, user 'f0001_03' appears a second time, after .*a.json"):
        fl.LeafFolder(str(tmp_path)).pool()


def test_half_a_surrogate_pair_is_a_character(tmp_path: Path) -> None:
    write(tmp_path / "a.json", {"A": (["ab\ud800"], ["b"])})
    assert fl.LeafFolder(str(tmp_path), text=True).pool().inputs.tolist() == [[0, 1, 2]]


def test_texts_that_do_not_fit(tmp_path: Path) -> None:
    write(tmp_path / "a.json", {"A": (["abc", "ab"], ["d", "e"])})
    with pytest.raises(DataError, match="sample 1 must be a text of the length of sample 0, 3, got one of 2"):
        fl.LeafFolder(str(tmp_path), text=True).pool()
    write(tmp_path / "a.json", {"A": (["abc"], ["de"])})
    with pytest.raises(DataError, match="the target of sample 0 must be one character, got 'de'"):
        fl.LeafFolder(str(tmp_path), text=True).pool()


def test_a_shape_that_does_not_fit(tmp_path: Path) -> None:
    write(tmp_path / "a.json", WRITERS)
    with pytest.raises(
        FieldError, match=r"LeafFolder.shape must be one of 4 numbers as each input of .*, got \(1, 28"
    ):
        fl.LeafFolder(str(tmp_path), shape=(1, 28, 28)).pool()
    with pytest.raises(
        ClashError, match=r"^Give LeafFolder.shape \(numeric inputs\) or text=True, not both\.$"
    ):
        fl.LeafFolder(str(tmp_path), shape=(4,), text=True)
