"""`Experiment`: what it builds, whose weights count, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import torch

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.worlds.base import EngineName

QUADRATICS = fl.Quadratics(linear=((0.0,), (4.0,)), weights=(1.0, 3.0), start=0.0)
FEDAVG = fl.presets.fedavg(lr=0.1, steps=1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, [0.25, 0.75]), ("examples", [0.5, 0.5]), ("uniform", [0.5, 0.5]), ((1.0, 4.0), [0.2, 0.8])],
)
def test_weights_are_the_sources_own_unless_given(given: object, expected: list[float]) -> None:
    """Quadratics define (1, 3), normalized to (¼, ¾); each client holds one example."""
    experiment = replace(fl.Experiment(QUADRATICS, FEDAVG, rounds=1), weights=given)  # type: ignore[arg-type]
    torch.testing.assert_close(
        experiment.build().world.population.weights, torch.tensor(expected, dtype=torch.float64)
    )


def test_weights_are_by_examples_where_the_source_defines_none() -> None:
    clients = fl.Digits(3, fl.SizePartitioner((100, 200, 1497)), test_fraction=0.0)
    world = fl.Experiment(clients, FEDAVG, rounds=1).build().world
    assert isinstance(world, fl.SimulatedWorld)
    sizes = world.clients.sizes.to(torch.float64)
    torch.testing.assert_close(world.population.weights, sizes / sizes.sum())


def test_equal_experiments_give_equal_runs_and_the_seed_changes_them() -> None:
    experiment = fl.Experiment(fl.Digits(4, fl.DirichletPartitioner(0.5)), FEDAVG, rounds=2)
    first, second = experiment.build(), experiment.build()
    other = replace(experiment, seed=1).build()
    records = [list(federation.train(2)) for federation in (first, second, other)]
    assert records[0] == records[1]
    assert torch.equal(first.params, second.params)
    assert records[0] != records[2]


def test_algorithms_meet_the_same_data_and_initial_model() -> None:
    experiment = fl.Experiment(fl.Digits(4, fl.DirichletPartitioner(0.5)), FEDAVG, rounds=2, seed=3)
    one = experiment.build()
    other = replace(experiment, algorithm=fl.presets.scaffold(lr=0.3, steps=2)).build()
    assert torch.equal(one.params, other.params)
    assert isinstance(one.world, fl.SimulatedWorld)
    assert isinstance(other.world, fl.SimulatedWorld)
    assert torch.equal(one.world.clients.inputs, other.world.clients.inputs)


def test_dtype_task_and_engine_reach_the_world() -> None:
    experiment = fl.Experiment(
        fl.Digits(4), FEDAVG, rounds=1, task=fl.Task(fl.LogisticRegression()), dtype="float64", engine="loop"
    )
    federation = experiment.build()
    assert federation.params.dtype == torch.float64
    assert len(federation.params) == 64 * 10 + 10
    assert isinstance(federation.world, fl.SimulatedWorld)
    assert type(federation.world.engine).__name__ == "LoopEngine"


def test_a_device_that_the_machine_lacks_is_refused() -> None:
    missing = f"cuda:{torch.cuda.device_count()}"
    experiment = fl.Experiment(QUADRATICS, FEDAVG, rounds=1, device=missing)
    with pytest.raises(
        FieldError,
        match=r"Experiment.device must be 'cpu' or a CUDA device of this machine, which has (\d+|none), got",
    ):
        experiment.build()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rounds", 0, "Experiment.rounds must be a whole number of at least 1, got 0."),
        ("seed", -1, "Experiment.seed must be a whole number of at least 0, got -1."),
        (
            "seed",
            10**20 - 1,
            "Experiment.seed must be a whole number of at most 9223372036854775807, got 99999999999999999999.",
        ),
        ("evaluate_every", -1, "Experiment.evaluate_every must be a whole number of at least 0, got -1."),
        ("lanes", 0, "Experiment.lanes must be a whole number of at least 1, got 0."),
        (
            "device",
            "cuda:x",
            "Experiment.device must be 'cpu', 'cuda', 'cuda:<number>' or 'mps', got 'cuda:x'.",
        ),
        ("device", "cdua", "Experiment.device must be 'cpu', 'cuda', 'cuda:<number>' or 'mps', got 'cdua'."),
        ("device", None, "Experiment.device must be 'cpu', 'cuda', 'cuda:<number>' or 'mps', got None."),
        ("dtype", "half", "Experiment.dtype must be one of 'float32', 'float64', got 'half'."),
        ("weights", "size", "Experiment.weights must be one of 'examples', 'uniform', got 'size'."),
    ],
)
def test_values_that_are_not_allowed(field: str, value: object, message: str) -> None:
    with pytest.raises(FieldError) as caught:
        replace(fl.Experiment(QUADRATICS, FEDAVG, rounds=1), **{field: value})  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_every_engine_is_allowed_and_no_other() -> None:
    experiment = fl.Experiment(QUADRATICS, FEDAVG, rounds=1)
    for name in get_args(EngineName):
        assert replace(experiment, engine=name).engine == name
    with pytest.raises(FieldError, match=r"Experiment\.engine must be one of 'auto', .*, got 'fast'\."):
        replace(experiment, engine="fast")  # type: ignore[arg-type]


def test_training_does_what_the_experiment_says() -> None:
    """Rounds, every how many of them the model is evaluated, and whether for each client."""
    federation = fl.Experiment(QUADRATICS, FEDAVG, rounds=5, evaluate_every=2, per_client=True).build()
    evaluated = {record.round: record.evaluation for record in federation.train() if record.evaluation}
    assert list(evaluated) == [1, 3, 4]
    assert all(len(evaluation.client_loss or ()) == 2 for evaluation in evaluated.values())
    assert list(federation.train()) == []


def test_training_may_be_told_otherwise() -> None:
    experiment = fl.Experiment(QUADRATICS, FEDAVG, rounds=5, evaluate_every=1, per_client=True)
    federation = experiment.build()
    (silent,) = federation.train(1, evaluate_every=0)
    assert silent.evaluation is None
    (common,) = federation.train(1, per_client=False)
    assert common.evaluation is not None
    assert common.evaluation.client_loss is None
    assert [record.round for record in federation.train()] == [2, 3, 4]
    assert [record.round for record in federation.train(2)] == [5, 6]
