"""Missing values of features, imputed from the training rows alone, and the message that names the columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.errors import ClashError, DataError, FieldError

HEAD = "site,age,pressure,ill\n"
ROWS = "a,1,10,0\na,2,NA,1\na,2,30,0\nb,,40,1\nb,9,50,0\nb,4,20,1\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        (tmp_path / "t.csv").write_text(text)
        return str(tmp_path / "t.csv")

    return write


def source(path: str, missing: str, **options: object) -> fl.CsvTable:
    return fl.CsvTable(path, "ill", "site", ("age", "pressure"), missing=missing, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("missing", "age", "pressure"), [("median", 2.0, 30.0), ("mode", 2.0, 10.0)])
def test_gaps_are_filled(write: Callable[[str], str], missing: str, age: float, pressure: float) -> None:
    """Ages 1 2 2 4 9 and pressures 10 20 30 40 50; of equally frequent values the smallest."""
    data = source(write(HEAD + ROWS), missing, test_fraction=0.0).load(fl.Key.from_seed(0))
    filled = data.train.inputs[data.train.targets == 1]
    assert sorted(filled.tolist()) == sorted([[2.0, pressure], [age, 40.0], [4.0, 20.0]])
    assert len(data.train.inputs) == 6


def test_flags_say_where_a_value_was_missing(write: Callable[[str], str]) -> None:
    data = source(write(HEAD + ROWS), "flag", test_fraction=0.0).load(fl.Key.from_seed(0)).train
    assert data.features == ("age", "pressure", "age is missing", "pressure is missing")
    assert [2.0, 30.0, 0.0, 1.0] in data.inputs.tolist()
    assert [2.0, 40.0, 1.0, 0.0] in data.inputs.tolist()
    assert data.inputs[:, 2:].sum() == 2


@pytest.mark.parametrize(
    "options", [{"test_fraction": 0.4}, {"holdout": 0.4}, {"holdout": 0.4, "num_clients": 3}]
)
def test_only_training_rows_count(write: Callable[[str], str], options: dict[str, float]) -> None:
    """Whatever draws the test rows: gaps in either set have the median of the known values that train."""
    generator = np.random.default_rng(0)
    values = generator.permutation(60).astype(float)
    rows = [f"{'ab'[i % 2]},{'' if i % 5 == 0 else values[i]},{i},{i % 3}" for i in range(60)]
    partition = fl.IidPartitioner() if "num_clients" in options else None
    for seed in range(3):
        key = fl.Key.from_seed(seed)
        data = source(write(HEAD + "\n".join(rows)), "median", partition=partition, **options).load(key)
        assert data.test is not None
        assert len(data.train.inputs) + len(data.test.inputs) == 60
        trained = data.train.inputs[data.train.inputs[:, 1] % 5 != 0, 0]
        median = float(np.median(trained.numpy()))
        for part in (data.train, data.test):
            gaps = part.inputs[part.inputs[:, 1] % 5 == 0, 0]
            assert len(gaps)
            assert set(gaps.tolist()) == {median}


def test_own_test_set_and_excerpts_and_scales(write: Callable[[str], str]) -> None:
    text = (
        "site,age,pressure,ill,part\na,1,5,0,train\na,3,5,1,train\na,,6,0,train\nb,5,7,1,train\nb,,9,1,test\n"
    )
    table = source(write(text), "median", split="part")
    data = table.load(fl.Key.from_seed(0))
    assert data.test is not None
    assert data.test.inputs.tolist() == [[3.0, 9.0]]
    excerpt = fl.Excerpt(table, num_examples=4).load(fl.Key.from_seed(0))
    assert sorted(excerpt.train.inputs[:, 0].tolist()) == [1.0, 3.0, 3.0, 5.0]
    scaled = source(write(text), "median", split="part", standardize=True).load(fl.Key.from_seed(0))
    # Ages 1, 3 and 5 have mean 3 and variance 8/3.
    expected = [-((3 / 2) ** 0.5), 0.0, 0.0, (3 / 2) ** 0.5]
    assert sorted(scaled.train.inputs[:, 0].tolist()) == pytest.approx(expected)


def test_a_frame_in_memory() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"x": [1.0, None, 3.0, 8.0], "y": [0, 1, 0, 1]})
    pool = fl.Pool.from_table(frame, "y", missing="median")
    assert pool.inputs.tolist() == [[1.0], [3.0], [3.0], [8.0]]
    assert torch.isfinite(pool.deal(fl.IidPartitioner(), 2).inputs).all()


def test_the_message_names_the_columns(write: Callable[[str], str]) -> None:
    with pytest.raises(DataError) as caught:
        source(write(HEAD + ROWS), "refuse").pool()
    assert str(caught.value).endswith(
        "t.csv, line 3, column 'pressure' is empty ('NA'); rows lack a value in the columns 'age' (1) and 'pressure' "
        '(1): fill them in, or drop incomplete rows with missing="drop", or impute features with missing="median", '
        '"mode" or "flag".'
    )


def test_gaps_that_cannot_be_imputed_are_refused(write: Callable[[str], str]) -> None:
    with pytest.raises(DataError, match=r"line 3, column 'ill' is empty: .* missing=\"drop\"\.$"):
        source(write("site,age,pressure,ill\na,1,2,0\na,1,2,\n"), "median").pool()
    with pytest.raises(DataError, match="no value in the column 'age' among the rows for training"):
        source(write("site,age,pressure,ill\na,,2,0\nb,,2,1\n"), "median", test_fraction=0.0).load(
            fl.Key.from_seed(0)
        )
    with pytest.raises(
        FieldError, match=r"CsvTable\.missing must be one of 'refuse', 'drop', 'median', 'mode'"
    ):
        source("t.csv", "mean")
    rows = "site,age,pressure,ill\n" + "a,,2,0\na,old,2,1\nb,old,2,0\nb,young,2,1\na,young,2,1\n"
    with pytest.raises(
        DataError, match=r"line 3, column 'age': 'old' is not a finite number: .* repeats 2 words"
    ):
        source(write(rows), "flag").pool()
    with pytest.raises(ClashError, match="imputes numbers, but tokens makes ids of texts"):
        source("t.csv", "median", tokens=fl.ByteTokens(length=8))
