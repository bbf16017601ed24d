"""The `[compare]` table of a spec stands for options of `fairlead compare`, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.experiments.method_list import CompareTable, compare_table

SPEC = """
rounds = 2
[clients]
type = "Digits"
num_clients = 4
[algorithm]
preset = "fedavg"
lr = 0.1
"""


def written(folder: Path, table: str) -> Path:
    file = folder / "spec.toml"
    file.write_text(SPEC + table)
    return file


def test_lists_become_what_the_options_take(tmp_path: Path) -> None:
    table = '[compare]\nmethods = ["fedavg", "fedprox:mu=0.1"]\nseeds = [0, 3]\ntarget = 1\nmetric = "loss"\n'
    assert compare_table(written(tmp_path, table)) == CompareTable(
        "fedavg,fedprox:mu=0.1", "0,3", 1.0, "loss"
    )
    as_text = '[compare]\nmethods = "fedavg,fednova"\nseeds = "0..2"\n'
    assert compare_table(written(tmp_path, as_text)) == CompareTable("fedavg,fednova", "0..2")
    assert compare_table(written(tmp_path, "")) == CompareTable()


def test_the_experiment_is_the_same_without_it(tmp_path: Path) -> None:
    plain = fl.load_experiment(written(tmp_path, ""))
    assert fl.load_experiment(written(tmp_path, '[compare]\nmethods = ["fedavg"]\n')) == plain


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("compare = 3\n", r"^compare must be a table, got 3\.$"),
        ("[compare]\nmethod = ['a']\n", r"method is not a field of \[compare\]\. Did you mean 'methods'"),
        (
            "[compare]\nmethods = [1]\n",
            r"^compare\.methods must be a list of presets and spec files, got \[1\]\.$",
        ),
        ("[compare]\nmethods = []\n", r"^compare\.methods must be a list"),
        ("[compare]\nseeds = [true]\n", r"^compare\.seeds must be a list of whole numbers"),
        ("[compare]\ntarget = '0.9'\n", r"^compare\.target must be a number, got '0\.9'\.$"),
        ("[compare]\nmetric = 1\n", r"^compare\.metric must be the name of a metric, got 1\.$"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, table: str, message: str) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(table + SPEC if table.startswith("compare") else SPEC + table)
    with pytest.raises(FieldError, match=message):
        compare_table(file)
