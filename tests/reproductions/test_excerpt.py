"""`Excerpt`: fewer examples of any data set, always the same ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.errors import FieldError

KEY = fl.Key.from_seed(0)


def pack(folder: Path, *, test_writers: bool) -> fl.NpzArrays:
    """Forty examples of four writers, each example its own number, and twenty for testing."""
    path = folder / "pack.npz"
    np.savez(
        path,
        x=np.arange(40, dtype=np.float32)[:, None],
        y=np.arange(40) % 5,
        who=np.arange(40) % 4,
        tx=np.arange(20, dtype=np.float32)[:, None],
        ty=np.arange(20) % 5,
        tw=np.arange(20) % 4,
    )
    return fl.NpzArrays(
        str(path),
        "x",
        "y",
        "who",
        test_inputs="tx",
        test_targets="ty",
        test_client="tw" if test_writers else None,
    )


def test_rows_stay_together_and_do_not_depend_on_the_seed(tmp_path: Path) -> None:
    pool = fl.Excerpt(pack(tmp_path, test_writers=True), 12, num_test=6).pool()
    rows = pool.inputs[:, 0].to(torch.int64)
    assert len(set(rows.tolist())) == 12
    assert torch.equal(pool.targets, rows % 5)
    assert pool.natural is not None
    assert torch.equal(pool.natural, rows % 4)
    assert pool.test_inputs is not None
    assert len(pool.test_inputs) == 6
    again = fl.Excerpt(pack(tmp_path, test_writers=True), 12, num_test=6).pool()
    assert torch.equal(again.inputs, pool.inputs)


def test_clients_without_a_row_are_left_out(tmp_path: Path) -> None:
    excerpt = fl.Excerpt(pack(tmp_path, test_writers=False), 2, num_test=6)
    data = excerpt.load(KEY)
    assert int(data.train.sizes.sum()) == 2
    assert int(data.train.sizes.min()) >= 1
    assert data.train.names is not None
    assert len(data.train.names) == data.train.num_clients
    assert data.test is not None
    assert data.test.num_clients == 1


def test_it_is_dealt_as_it_says(tmp_path: Path) -> None:
    source = fl.Excerpt(fl.Digits(num_clients=7), 100, num_clients=4, partition=fl.IidPartitioner())
    assert source.load(KEY).train.sizes.tolist() == [20] * 4
    assert source.default_task() == fl.Digits().default_task()


def test_more_than_there_is_means_all() -> None:
    assert len(fl.Excerpt(fl.Digits(), 10_000).pool()) == 1797


def test_it_survives_a_spec() -> None:
    source = fl.Excerpt(fl.Digits(), 100, num_clients=4, partition=fl.IidPartitioner())
    experiment = fl.Experiment(source, fl.presets.fedavg(lr=0.1), 1)
    assert fl.from_toml(fl.Experiment, fl.to_toml(experiment)) == experiment


def test_wrong_fields_are_refused() -> None:
    with pytest.raises(FieldError, match=r"Excerpt.num_examples must be .* got 0\."):
        fl.Excerpt(fl.Digits(), 0)
    with pytest.raises(FieldError, match=r"Excerpt.source must be a PooledSource"):
        fl.Excerpt(fl.Quadratics(), 5)  # type: ignore[arg-type]
