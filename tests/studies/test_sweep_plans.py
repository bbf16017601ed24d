"""Sweeps as plans: grids, draws, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.experiments.study import planned_sweep

SPEC = """
rounds = 2
[clients]
type = "Digits"
num_clients = 4
[algorithm]
preset = "fednova"
lr = 0.05
[task.model]
type = "MLP"
hidden = [8]
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path / "spec.toml"


def test_a_grid_is_the_product_of_its_axes(spec: Path) -> None:
    planned = planned_sweep(
        spec, grid=["algorithm.lr=0.01,0.1", "seed=0..2"], overrides=["algorithm.batch_size=8"]
    )
    assert [run.labels for run in planned] == [
        {"algorithm.lr": lr, "seed": seed} for lr in (0.01, 0.1) for seed in (0, 1, 2)
    ]
    for run in planned:
        assert run.experiment.algorithm.solver.optimizer.lr == run.labels["algorithm.lr"]
        assert run.experiment.seed == run.labels["seed"]
        assert run.experiment.algorithm.solver.batch_size == 8
    assert len({run.folder for run in planned}) == 6
    assert planned[1].folder == "algorithm.lr=0.01,seed=1"


def test_values_of_any_kind(spec: Path) -> None:
    planned = planned_sweep(spec, grid=["task.model.hidden=[8],[16, 16]", "dtype=float32,float64"])
    models = [run.experiment.task.model for run in planned if run.experiment.task]
    assert models == [fl.MLP((8,)), fl.MLP((8,)), fl.MLP((16, 16)), fl.MLP((16, 16))]
    assert [run.experiment.dtype for run in planned] == ["float32", "float64"] * 2
    assert len({run.folder for run in planned}) == 4


def test_draws_are_reproducible_spread_and_only_added_to(spec: Path) -> None:
    """100 draws of log:1e-4..1 against the uniform law of the exponent: mean −2, standard error 0.116."""
    ranges = ["algorithm.lr=log:1e-4..1", "algorithm.batch_size=1..4", "algorithm.server.lr=0.5..1.5"]

    def drawn(number: int, seed: int = 0) -> list[dict[str, float]]:
        runs = planned_sweep(spec, ranges=ranges, draws=number, draw_seed=seed)
        return [{key: float(value) for key, value in run.labels.items()} for run in runs]

    many = drawn(100)
    assert drawn(3) == many[:3]
    assert drawn(3, seed=1) != many[:3]
    exponents = [math.log10(setting["algorithm.lr"]) for setting in many]
    assert all(-4 <= exponent <= 0 for exponent in exponents)
    assert sum(exponents) / 100 == pytest.approx(-2, abs=4 * 0.116)
    sizes = [setting["algorithm.batch_size"] for setting in many]
    assert {sizes.count(size) > 8 for size in (1, 2, 3, 4)} == {True}
    assert set(sizes) == {1, 2, 3, 4}
    assert sum(s["algorithm.server.lr"] for s in many) / 100 == pytest.approx(1.0, abs=4 * 0.29 / 10)


def test_a_setting_drawn_twice_is_run_once(spec: Path) -> None:
    """Two runs side by side in one folder would refuse each other."""
    planned = planned_sweep(spec, ranges=["algorithm.batch_size=8..10"], draws=20)
    assert sorted(run.folder for run in planned) == [f"algorithm.batch_size={size}" for size in (10, 8, 9)]


def test_every_draw_is_run_at_every_point_of_the_grid(spec: Path) -> None:
    planned = planned_sweep(spec, grid=["seed=0..2"], ranges=["algorithm.lr=0.1..0.9"], draws=4)
    rates = [run.labels["algorithm.lr"] for run in planned]
    assert [run.labels["seed"] for run in planned] == [0, 1, 2] * 4
    assert rates[0] == rates[1] == rates[2]
    assert len(set(rates)) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "A sweep needs values: --grid seed=0..4, or --random 10 --range algorithm.lr=0.01..1."),
        ({"grid": ["seed"]}, "A field and its values must have a form such as seed=0..4 or"),
        ({"grid": ["seed=1,1"]}, "The grid of seed must be a list of different values, got '1,1'."),
        (
            {"grid": ["algorithm.lr=0.1,1e-1"]},
            "The grid of algorithm.lr must be a list of different values, got '0.1,1e-1'.",
        ),
        ({"grid": ["seed=1,"]}, "The grid of seed must be a list of different values, got '1,'."),
        (
            {"grid": ["seed=5..2"]},
            "The grid of seed must ascend, such as 1..3, to 10000 numbers at most",
        ),
        ({"grid": ["seed=1", "seed=2"]}, "Every field must be swept once, got 'seed' 2 times."),
        ({"grid": ["sed=1"]}, "sed is not a field of Experiment. Did you mean 'seed'?"),
        ({"ranges": ["seed=1..2"]}, "--random N needs --range PATH=RANGE"),
        ({"draws": 3}, "--random N needs --range PATH=RANGE, and --range needs --random N."),
        ({"ranges": ["a=1..2"], "draws": -1}, "--random must be a whole number from 0 to 10000, got -1."),
        ({"ranges": ["a=1-2"], "draws": 1}, "The range of a must be low..high or log:low..high, got '1-2'."),
        ({"ranges": ["a=log:0..1"], "draws": 1}, "The range of a must ascend, between finite"),
        ({"ranges": [f"a=0..{'9' * 400}"], "draws": 1}, "The range of a must ascend, between finite"),
        ({"ranges": ["a=2..1"], "draws": 1}, "The range of a must ascend, between finite"),
    ],
)
def test_refusals(spec: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(FieldError) as caught:
        planned_sweep(spec, **arguments)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
