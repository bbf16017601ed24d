"""Classes that the data number themselves, name, or give codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.clients.columns import whole_classes

KEY = fl.Key.from_seed(0)


@pytest.mark.parametrize(
    ("values", "is_coded"),
    [
        ([0, 1, 2], False),
        ([1, 99], False),
        ([0, 100], True),
        ([*range(50), 99], False),
        ([*range(49), 100], True),
        ([*range(50), 100], False),
        ([*range(1, 1001)], False),
        ([], False),
    ],
)
def test_codes_are_large_and_sparse(values: list[int], is_coded: bool) -> None:
    """Of 50 distinct ones with 100 the largest is twice their number, of 51 it is not."""
    found = whole_classes(torch.tensor(values, dtype=torch.int64))
    assert found.names == (tuple(map(str, values)) if is_coded else None)
    assert found.numbers.tolist() == (list(range(len(values))) if is_coded else values)


def test_a_table_with_codes_has_as_many_outputs_as_classes(tmp_path: Path) -> None:
    """Three classes of two features are 3·2 weights and 3 constants; those of the test rows count too."""
    codes = [45000, 1001, 2002, 1001]
    marks = ["train", "train", "test", "train"]
    rows = [
        f"{place},{-place},{code},{mark}" for place, (code, mark) in enumerate(zip(codes, marks, strict=True))
    ]
    file = tmp_path / "codes.csv"
    file.write_text("\n".join(["a,b,code,part", *rows]))
    source = fl.CsvTable(str(file), "code", split="part", num_clients=1, partition=fl.IidPartitioner())
    data = source.load(KEY)
    assert data.test is not None
    assert sorted(data.train.targets.tolist()) == [0, 0, 2]
    assert data.test.targets.tolist() == [1]
    assert data.train.class_names == ("1001", "2002", "45000")
    world = fl.SimulatedWorld(source.default_task(), data.train, test=data.test)
    assert len(fl.Federation(fl.presets.fedavg(lr=0.1), world).state.params) == 9


def test_named_classes_keep_their_names(tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    file.write_text("x,y\n1,no\n2,yes\n3,no\n")
    pool = fl.CsvTable(str(file), "y").pool()
    assert pool.targets.tolist() == [0, 1, 0]
    assert pool.class_names == ("no", "yes")


def test_arrays_of_a_file_number_training_and_test_together(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, x=np.zeros((2, 1)), y=[300, 7], tx=np.zeros((2, 1)), ty=[7, 20])
    pool = fl.NpzArrays(str(file), test_inputs="tx", test_targets="ty").pool()
    assert pool.targets.tolist() == [2, 0]
    assert pool.test_targets is not None
    assert pool.test_targets.tolist() == [0, 1]
    assert pool.class_names == ("7", "20", "300")


def test_quantities_sequences_and_arrays_in_memory_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, x=np.zeros((2, 1)), y=[300, 7], words=np.array([[300, 7], [7, 7]]))
    assert fl.NpzArrays(str(file), regression=True).pool().targets.tolist() == [300.0, 7.0]
    assert fl.NpzArrays(str(file), targets="words").pool().targets.tolist() == [[300, 7], [7, 7]]
    assert fl.Pool.from_arrays([[0.0], [1.0]], [300, 7]).targets.tolist() == [300, 7]
