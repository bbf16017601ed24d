"""`SimulatedWorld`: weights, conditions, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fairlead as fl
from fairlead.errors import DataError, FieldError, MemoryBudgetError
from fairlead.task import accuracy, cross_entropy, squared_error


def data(sizes: tuple[int, ...] = (4, 0, 12)) -> fl.ClientData:
    return fl.ClientData.from_lists(
        [torch.ones(n, 2) for n in sizes], [torch.zeros(n, dtype=torch.int64) for n in sizes]
    )


def world(**more: Any) -> fl.SimulatedWorld:
    return fl.SimulatedWorld(fl.Task(nn.Linear(2, 2)), data(), **more)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("examples", [0.25, 0.0, 0.75]),
        ("uniform", [0.5, 0.0, 0.5]),
        ([1, 0, 4], [0.2, 0.0, 0.8]),
        (torch.tensor([2.0, 0.0, 2.0]), [0.5, 0.0, 0.5]),
    ],
)
def test_objective_weights_sum_to_one(weights: Any, expected: list[float]) -> None:
    population = world(weights=weights).population
    assert population.weights.tolist() == pytest.approx(expected)
    assert population.weights.dtype == torch.float64
    assert (population.num_clients, population.num_parameters) == (3, 6)
    assert population.layout == {"weight": 4, "bias": 2}


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (
            "sizes",
            "SimulatedWorld.weights must be 'examples', 'uniform' or one number per client, got 'sizes'",
        ),
        ([1, 1], r"must have one number per client \(3\), got 2"),
        ([1, 0, -1], "must be finite, at least 0 and not all 0"),
        ([0, 0, 0], r"must be finite, at least 0 and not all 0, .*, got \[0\.0, 0\.0, 0\.0\]\."),
        ([1, 0, float("nan")], "must be finite, at least 0 and not all 0"),
        ([1.7e308, 0, 1.7e308], "must be finite, at least 0 and not all 0, with a finite sum"),
        ([1, 1, 1], "must be 0 for a client without examples, got 1 for client 1"),
    ],
)
def test_weights_that_make_no_objective_are_refused(weights: Any, sentence: str) -> None:
    with pytest.raises(FieldError, match=sentence):
        world(weights=weights)


def test_a_federation_without_examples_is_refused() -> None:
    with pytest.raises(FieldError, match="weights must be finite, at least 0 and not all 0"):
        fl.SimulatedWorld(fl.Task(nn.Linear(2, 2)), data((0, 0)))


@pytest.mark.parametrize(("value", "dtype"), [(float("nan"), torch.float64), (1e300, torch.float32)])
def test_models_that_start_from_no_numbers_are_refused(value: float, dtype: torch.dtype) -> None:
    """Each is refused before the first round, whose sentence would blame the clients' learning rate."""
    model = nn.Linear(2, 2, dtype=torch.float64)
    nn.init.constant_(model.bias, value)
    here = fl.SimulatedWorld(fl.Task(model), data((2, 2)), dtype=dtype)
    with pytest.raises(
        FieldError, match=rf"Task.model must start from finite numbers, .* Linear in dtype {str(dtype)[6:]}\."
    ):
        fl.Federation(fl.presets.fedavg(lr=0.1), here)


class _Greedy(nn.Module):
    """Asks for 2⁵⁴ bytes, as attention over a very long sequence would."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.layer(inputs) + torch.empty(2**52, 1).sum()
        return out


def test_a_batch_that_does_not_fit_in_memory_is_refused_as_such() -> None:
    with pytest.raises(
        MemoryBudgetError, match=r"_Greedy needs more memory than is left for a batch with inputs of"
    ):
        fl.SimulatedWorld(fl.Task(_Greedy()), data())


def test_a_name_without_end_is_cut_in_the_error() -> None:
    with pytest.raises(FieldError, match=r"Task.metrics must be .* known name, got 'x{96}\.\.\.\."):
        fl.Task(fl.MLP(), metrics=("x" * 10_000,))


def test_token_ids_below_zero_are_refused() -> None:
    tokens = fl.ClientData.from_lists([torch.tensor([[0, 1], [2, -1]])], [torch.zeros(2, dtype=torch.int64)])
    with pytest.raises(DataError, match="are token ids and must be at least 0, got -1"):
        fl.SimulatedWorld(fl.Task(fl.CharLSTM(hidden=2)), tokens)


def test_ids_are_no_classes() -> None:
    """One output for each class up to the largest would fill any memory."""
    ids = fl.ClientData.from_lists([torch.zeros(2, 2)], [torch.tensor([0, 10**12])])
    with pytest.raises(
        DataError, match=r"are classes, counted from 0, and must be below \d+, got 1000000000000:"
    ):
        fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), ids)


def test_devices_of_another_kind_are_refused() -> None:
    with pytest.raises(FieldError, match=r"SimulatedWorld.devices must be a DeviceModel, got 'phones'\."):
        fl.SimulatedWorld(fl.Task(nn.Linear(2, 2)), data((1, 1)), devices="phones")  # type: ignore[arg-type]


def test_other_examples_of_the_same_sizes_are_another_world() -> None:
    task, zeros = fl.Task(nn.Linear(2, 2)), torch.zeros(3, dtype=torch.int64)
    worlds = [
        fl.SimulatedWorld(task, fl.ClientData.from_lists([inputs], [targets]))
        for inputs in (torch.zeros(3, 2), torch.ones(3, 2))
        for targets in (zeros, zeros + 1)
    ]
    assert len({world.description for world in worlds}) == 4


def test_conditions_forecast_work_and_arrival() -> None:
    here = world(work=fl.FixedSteps((3, 1, 5)), link=fl.BernoulliLink((0.1, 0.2, 0.3)))
    solver = fl.LocalSolver(fl.SGD(0.1, momentum=0.5))
    conditions = here.conditions(0, solver, fl.Key.from_seed(0))
    assert conditions.effective_steps is not None
    assert conditions.arrival is not None
    expected = solver.accumulation(torch.tensor([3, 0, 5]), 0)
    assert expected is not None
    assert torch.equal(conditions.effective_steps, expected.l1)
    assert conditions.arrival.tolist() == pytest.approx([0.9, 0.8, 0.7])


def test_what_cannot_be_known_is_none() -> None:
    here = world(link=fl.ScriptedLink(((0,),)))
    conditions = here.conditions(0, fl.LocalSolver(fl.Adam(0.1)), fl.Key.from_seed(0))
    assert (conditions.effective_steps, conditions.arrival) == (None, None)


def test_forecasts_are_what_really_happens() -> None:
    """Random work is drawn from the key of round and client: the plan and the deed are one draw."""
    problem = fl.Quadratics(num_clients=6).problem(fl.Key.from_seed(0))
    here = fl.SimulatedWorld(problem.task(), problem.data(), work=fl.RandomSteps(1, 20))
    run = fl.Federation(fl.presets.fedavg(lr=0.01), here, seed=4)
    for record in run.train(3):
        planned = here.conditions(record.round, run.algorithm.solver, run.key).effective_steps
        assert planned is not None
        assert record.effective_steps == tuple(planned.tolist())


def test_models_are_built_for_the_shape_of_the_data() -> None:
    """Outputs count the classes of training and test set together; floats count their entries."""
    train = fl.ClientData.from_lists([torch.zeros(3, 2, 2)], [torch.tensor([0, 1, 1])])
    test = fl.ClientData.from_lists([torch.zeros(1, 2, 2)], [torch.tensor([4])])
    here = fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), train, test=test)
    assert here.population.layout == {"1.weight": 20, "1.bias": 5}
    floats = fl.ClientData.from_lists([torch.zeros(3, 2)], [torch.zeros(3, 7)])
    regression = fl.SimulatedWorld(fl.Task(fl.LogisticRegression(), "squared_error", ()), floats)
    assert regression.population.num_parameters == 21


def test_a_module_starts_from_its_own_parameters_and_is_left_alone() -> None:
    model = nn.Linear(2, 2)
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    here = fl.SimulatedWorld(fl.Task(model), data())
    run = fl.Federation(fl.presets.fedavg(lr=0.5), here)
    assert torch.equal(run.params, before)
    list(run.train(2))
    assert not torch.equal(run.params, before)
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), before)


def test_building_a_recipe_leaves_torch_generator_alone() -> None:
    before = torch.get_rng_state()
    fl.Federation(fl.presets.fedavg(lr=0.5), fl.SimulatedWorld(fl.Task(fl.MLP(hidden=(3,))), data()))
    assert torch.equal(before, torch.get_rng_state())


def test_losses_by_hand() -> None:
    outputs = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    assert cross_entropy(outputs, torch.tensor([0, 1])).tolist() == pytest.approx(
        [0.693147, 2.126928], abs=1e-5
    )
    assert squared_error(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0])).tolist() == [0.5, 2.0]
    assert accuracy(outputs, torch.tensor([0, 1])).tolist() == [1.0, 0.0]


def test_sequences_count_their_targets_only() -> None:
    """Of three positions one has no target (-100): loss and accuracy are means over the other two."""
    outputs = torch.tensor([[[9.0, 0.0], [9.0, 0.0], [0.0, 9.0]]])
    targets = torch.tensor([[0, 1, -100]])
    token = F.cross_entropy(outputs[0, :2], targets[0, :2])
    assert cross_entropy(outputs, targets).tolist() == pytest.approx([float(token)])
    assert accuracy(outputs, targets).tolist() == [0.5]
    assert cross_entropy(outputs, torch.full((1, 3), -100)).tolist() == [0.0]
    assert accuracy(outputs, torch.full((1, 3), -100)).tolist() == [0.0]


def test_metrics_need_names_of_their_own() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[:, 0]

    for metrics in ((loss,), (lambda outputs, targets: outputs[:, 0],), ("accuracy", "accuracy")):
        with pytest.raises(FieldError, match=r"Task\.metrics must have different names other than"):
            fl.Task(nn.Linear(2, 2), metrics=metrics)


def test_unknown_losses_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(FieldError, match="Did you mean 'cross_entropy'"):
        fl.Task(nn.Linear(2, 2), loss="cross_entropi")
    with pytest.raises(FieldError, match=r"Task\.loss names 'torch:nothing', which cannot be imported"):
        fl.Task(nn.Linear(2, 2), loss="torch:nothing")


def test_quadratics_start_where_they_are_told_to_the_last_bit() -> None:
    problem = fl.Quadratics(num_clients=2, dim=2).problem(fl.Key.from_seed(0))
    here = fl.SimulatedWorld(problem.task(0.1), problem.data(), dtype=torch.float64)
    assert here.initial_model(fl.Key.from_seed(0))[0].tolist() == [0.1, 0.1]
