"""Sizes that no machine could serve: refused by name before the work starts, not tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from limits import bounded

import fairlead as fl
from fairlead.errors import FairleadError, FieldError, MemoryBudgetError
from fairlead.experiments.study import planned_sweep
from fairlead.worlds.executor import draw_batches

DIGITS = fl.Digits(3)


def run(solver: fl.LocalSolver, work: fl.WorkModel | None = None) -> None:
    """A round of digits."""
    algorithm = fl.Algorithm(solver)
    next(fl.Experiment(DIGITS, algorithm, 1, work=work or fl.EqualWork()).build().train())


def test_batches_that_do_not_fit_the_memory() -> None:
    solver = fl.LocalSolver(fl.SGD(0.1), epochs=10**6, batch_size=None)
    said = (
        r"^A block of 3 clients with up to 1000000 local steps each needs 21\.4 GiB of memory, "
        r"and \d\.\d GiB are left: lower their epochs, their steps, their batch size, or the block\.$"
    )
    with bounded(), pytest.raises(MemoryBudgetError, match=said):
        run(solver)
    with (
        bounded(),
        pytest.raises(MemoryBudgetError, match=r"^A client with 1000000 local steps of 480 examples needs 7"),
    ):
        draw_batches(0, 480, 10**6, 480, fl.Key.from_seed(0))


@pytest.mark.parametrize(
    ("work", "field", "steps"),
    [
        (None, r"LocalSolver\.epochs", 30_000_000),
        (fl.RandomEpochs(10**6, 10**6), "RandomEpochs", 30_000_000),
        (fl.LadderSteps(10**6, 10**6), "LadderSteps", 3_000_000),
        (fl.FixedBatchSizes((1, 1, 1)), "FixedBatchSizes", 480_000_000),
    ],
    ids=["epochs", "random epochs", "ladder", "batches of one"],
)
def test_local_work_without_an_end(work: fl.WorkModel | None, field: str, steps: int) -> None:
    solver = fl.LocalSolver(fl.SGD(0.1), epochs=10**6, batch_size=16)
    said = (
        rf"^{field} must give every client at most 1000000 local steps a round, got {steps} for client \d in"
    )
    with bounded(), pytest.raises(FieldError, match=said):
        run(solver, work)


def test_steps_of_a_trace_and_of_fast_devices(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("round,client,steps\n" + "".join(f"0,{c},2147483648\n" for c in range(3)))
    solver = fl.LocalSolver(fl.SGD(0.1), steps=1)
    with bounded(), pytest.raises(FieldError, match="TraceWork must give every client at most 1000000 local"):
        run(solver, fl.TraceWork(str(tmp_path / "t.csv")))
    fast = fl.FixedDevices(step_seconds=1e-30)
    experiment = fl.Experiment(
        DIGITS, fl.Algorithm(solver), 1, work=fl.TimeBudget(seconds=1e20), devices=fast
    )
    with (
        bounded(),
        pytest.raises(FieldError, match="TimeBudget must give every client at most 1000000 local"),
    ):
        next(experiment.build().train())


def test_one_local_step_too_many() -> None:
    """The limit itself is allowed; it is that of every field that counts steps or epochs."""
    assert fl.LocalSolver(fl.SGD(0.1), steps=10**6).steps == 10**6
    clients, sizes = torch.arange(1), torch.tensor([1])
    solver = fl.LocalSolver(fl.SGD(0.1), epochs=10**6, batch_size=1)
    work = fl.EqualWork().planned(clients, sizes, solver, 0, fl.Key.from_seed(0))
    assert work.num_steps.tolist() == [10**6]
    with pytest.raises(FieldError, match=r"LocalSolver\.steps must be a whole number of at most 1000000"):
        fl.LocalSolver(fl.SGD(0.1), steps=10**6 + 1)
    with pytest.raises(FieldError, match=r"FixedSteps\.steps must be whole numbers of at most 1000000"):
        fl.FixedSteps((1, 10**6 + 1))


def test_responses_to_more_impulses_than_can_be_probed() -> None:
    solver = fl.LocalSolver(fl.SGD(0.1), steps=1, step_schedule=fl.Cosine(10))
    with (
        bounded(),
        pytest.raises(FieldError, match="LocalSolver takes up to 131072 local steps, but at most 65536"),
    ):
        solver.effective_steps(torch.tensor([70_000]), 0)


@pytest.mark.parametrize(
    "partition",
    [
        fl.IidPartitioner(),
        fl.PathologicalPartitioner(1),
        fl.PathologicalPartitioner(2, "deterministic"),
        fl.InnerDirichletPartitioner(0.5),
        fl.DirichletPartitioner(0.5, 0),
        fl.PowerLawPartitioner(1.0, 0),
        fl.LabelBlocksPartitioner(),
    ],
)
def test_more_clients_than_the_memory_holds(partition: fl.Partitioner) -> None:
    labels = np.arange(50) % 10
    said = rf"^{type(partition).__name__} with num_clients = 2147483648 needs \d+\.\d GiB of memory"
    with bounded(), pytest.raises(MemoryBudgetError, match=said):
        partition.deal(labels, 2**31, fl.Key.from_seed(0))


def test_numbers_beyond_float32() -> None:
    for make, field in (
        (lambda: fl.Adam(0.1, initial_v=1e39), "Adam.initial_v"),
        (lambda: fl.SGD(1e39), "SGD.lr"),
        (lambda: fl.SGD(0.1, weight_decay=1e200), "SGD.weight_decay"),
        (lambda: fl.Clip(1e300), "Clip.bound"),
    ):
        with pytest.raises(FieldError, match=rf"^{field} must be a number from -1e\+30 to 1e\+30, got "):
            make()
    assert fl.Adam(0.1, initial_v=1e30).init(torch.zeros(1))["v"].item() == pytest.approx(1e30)


def test_synthetic_problems_that_take_hours() -> None:
    with (
        bounded(),
        pytest.raises(FieldError, match=r"^Quadratics\.dim must be at most 2924 with a conditioning"),
    ):
        fl.Quadratics(4, dim=5000, conditioning=2.0).problem(fl.Key.from_seed(0))
    with pytest.raises(
        FieldError, match=r"^SyntheticLogistic\.num_clients must be a whole number of at most 100000"
    ):
        fl.SyntheticLogistic(num_clients=100_001)


def test_spreads_of_minus_zero() -> None:
    """Minus zero is zero, which NumPy's deviations are not told."""
    key = fl.Key.from_seed(0)
    assert torch.equal(fl.Quadratics(2, spread=-0.0).problem(key).linear, torch.zeros(2, 5).double())
    fl.SyntheticRegression(2, noise=-0.0, shift=-0.0).problem(key)
    fl.SyntheticLogistic(-0.0, -0.0, num_clients=2).problem(key)


def test_sweeps_of_more_runs_than_can_be_planned(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        fl.to_toml(fl.Experiment(fl.Quadratics(2), fl.presets.fedavg(lr=0.1), 1))
    )
    with pytest.raises(FieldError, match=r"^--random must be a whole number from 0 to 10000, got 1000000"):
        planned_sweep(tmp_path / "s.toml", ranges=["seed=0..9"], draws=1_000_000)
    with pytest.raises(FieldError, match=r"^A grid must have at most 10000 points, got 1000000"):
        planned_sweep(tmp_path / "s.toml", grid=["seed=0..999", "rounds=1..1000"])


def test_a_loss_that_is_none() -> None:
    for loss, said in (
        ("torch.nn:ReLU", "must be a function"),
        ("math:dist", "is part of Python"),
    ):
        with pytest.raises(FairleadError, match=said):
            fl.Experiment(DIGITS, fl.presets.fedavg(lr=0.1), 1, task=fl.Task(fl.MLP(), loss=loss)).build()


def test_devices_slower_than_numbers_tell() -> None:
    """Seconds beyond float64 would make a number of steps that is none."""
    said = r"^FixedDevices\.example_seconds must be numbers from 0 to 1e\+30, got 1\.7e\+308\.$"
    with pytest.raises(FieldError, match=said):
        fl.FixedDevices(example_seconds=1.7e308)
    solver = fl.LocalSolver(fl.SGD(0.1), steps=1)
    for devices in (fl.FixedDevices(step_seconds=1e30), fl.LogNormalDevices(1.0, speed_sigma=1e30)):
        work = fl.TimeBudget(seconds=4.0, max_steps=9)
        experiment = fl.Experiment(DIGITS, fl.Algorithm(solver), 1, work=work, devices=devices)
        record = next(experiment.build().train())
        assert set(record.num_steps) <= {1, 9}
