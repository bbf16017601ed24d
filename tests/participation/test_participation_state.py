"""What participation methods keep between rounds: counters, memories, checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from lossy_quadratics import updates_of

from fairlead import presets
from fairlead.aggregators.base import Aggregator
from fairlead.aggregators.remembered import MIFA, FedVARP, StaleFedVARP
from fairlead.aggregators.weighted import FedAU
from fairlead.algorithm import Algorithm
from fairlead.client_table import ClientTable, table_in, tensor_in
from fairlead.clients.quadratics import Quadratics
from fairlead.conditions.links import BernoulliLink
from fairlead.conditions.work import RandomSteps
from fairlead.federation import Federation
from fairlead.plain_data import from_plain, to_plain
from fairlead.randomness import Key
from fairlead.records import Cohort, Conditions, Population, ServerState
from fairlead.worlds.simulated import SimulatedWorld

WEIGHTS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
POPULATION = Population(WEIGHTS, {"x": 2}, torch.device("cpu"), torch.float64)
CONDITIONS = Conditions(0, WEIGHTS)
EVERYONE = Cohort(torch.arange(3), torch.ones(3, dtype=torch.int64), WEIGHTS)
OWN = [
    "importance_sampling",
    "uniform_sampling",
    "optimal_sampling",
    "full_participation",
    "fedacs",
    "fedacs_estimated",
    "communication_aware_fedavg",
    "communication_aware_fednova",
    "anonymous_fednova",
    "fedau",
    "fedvarp",
    "fedvarp_stale",
    "mifa",
]


def build(name: str) -> Algorithm:
    cohort_size = None if name == "full_participation" else 4
    return presets.method_named(name).build(lr=0.1, steps=1, cohort_size=cohort_size)


def lossy_world() -> SimulatedWorld:
    problem = Quadratics(num_clients=6, dim=4, conditioning=3.0).problem(Key.from_seed(0))
    link = BernoulliLink((0.0, 0.2, 0.4, 0.6, 0.8, 0.9))
    return SimulatedWorld(problem.task(), problem.data(), work=RandomSteps(1, 5), link=link)


def contents(state: ServerState) -> dict[str, torch.Tensor]:
    """Every tensor that sampler and aggregator keep, tables as rows by client."""
    found = {"params": state.params}
    for part in (state.sampler, state.aggregator):
        for name, value in part.items():
            if isinstance(value, ClientTable):
                found[name] = value.read(torch.arange(value.num_clients))
            else:
                found[name] = value
    return found


@pytest.mark.parametrize("name", OWN)
def test_resumed_run_is_the_uninterrupted_one(name: str, tmp_path: Path) -> None:
    """Twelve lossy rounds at once, and seven and five with a checkpoint between: the same to the last bit."""
    whole = Federation(build(name), lossy_world(), seed=3)
    records = list(whole.train(12))
    first = Federation(build(name), lossy_world(), seed=3)
    for _ in first.train(7):
        pass
    first.save(tmp_path)
    second = Federation(build(name), lossy_world(), seed=3)
    second.resume(tmp_path)
    assert list(second.train(5)) == records[7:]
    expected, found = contents(whole.state), contents(second.state)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    assert any(len(record.arrived) < len(record.asked) for record in records)


@pytest.mark.parametrize("name", OWN)
def test_preset_survives_a_spec(name: str) -> None:
    algorithm = build(name)
    assert from_plain(Algorithm, to_plain(algorithm), "algorithm") == algorithm


def nothing_arrived(aggregator: Aggregator, rounds: int) -> dict[str, torch.Tensor]:
    """State tensors after one full round and then some in which everything was lost."""
    state = aggregator.init(POPULATION)
    delta = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    full = updates_of(EVERYONE, torch.arange(3), delta, torch.ones(3, dtype=torch.int64))
    state = aggregator.aggregate(full, state, CONDITIONS).state
    nobody = torch.tensor([], dtype=torch.int64)
    for _ in range(rounds):
        empty = updates_of(EVERYONE, nobody, delta[:0], nobody)
        result = aggregator.aggregate(empty, state, CONDITIONS)
        if not isinstance(aggregator, StaleFedVARP):
            assert result.remembered is None
            assert torch.equal(result.direction, torch.zeros(2, dtype=torch.float64))
        state = result.state
    return {
        name: value.read(torch.arange(3)) if isinstance(value, ClientTable) else value
        for name, value in state.items()
    }


def test_fedau_counts_empty_rounds() -> None:
    """After one full round and four empty ones everyone has waited for four rounds, one interval seen."""
    state = nothing_arrived(FedAU(cutoff=None), 4)
    assert state["absence"].tolist() == [4.0] * 3
    assert state["intervals"].tolist() == [1.0] * 3
    assert state["mean_interval"].tolist() == [1.0] * 3


def test_fedau_cuts_intervals_in_empty_rounds() -> None:
    """K = 3: the third empty round ends an interval of 3, so that u = (1·1 + 3)/2 = 2; one more has begun."""
    state = nothing_arrived(FedAU(cutoff=3), 4)
    assert state["absence"].tolist() == [1.0] * 3
    assert state["intervals"].tolist() == [2.0] * 3
    assert state["mean_interval"].tolist() == [2.0] * 3


@pytest.mark.parametrize("aggregator", [FedVARP(), StaleFedVARP(), MIFA()], ids=lambda a: type(a).__name__)
def test_memories_do_not_change_in_empty_rounds(aggregator: Aggregator) -> None:
    once, later = nothing_arrived(aggregator, 0), nothing_arrived(aggregator, 3)
    assert all(torch.equal(once[name], later[name]) for name in once)


def test_fedau_uses_the_weights_known_before_the_round() -> None:
    """Absent for two rounds, client 1 still enters with u = 1 and only then learns u = 3."""
    aggregator = FedAU()
    state = aggregator.init(POPULATION)
    ones = torch.ones(3, dtype=torch.int64)
    seen = []
    for arrived in ([0], [0, 2], [0, 1]):
        ids = torch.tensor(arrived)
        updates = updates_of(EVERYONE, ids, torch.ones(len(ids), 2, dtype=torch.float64), ones[: len(ids)])
        result = aggregator.aggregate(updates, state, CONDITIONS)
        assert result.coefficients is not None
        seen.append(result.coefficients.tolist())
        state = result.state
    assert seen == [[0.5], [0.5, 0.2], [0.5, 0.3]]
    assert tensor_in(state, "mean_interval").tolist() == [1.0, 3.0, 2.0]


@pytest.mark.parametrize("aggregator", [FedVARP(), MIFA()], ids=lambda a: type(a).__name__)
def test_running_mean_of_memories_does_not_drift(aggregator: Aggregator) -> None:
    """2000 rounds of float32 updates, first of size 1e4 and then of 1: the mean is Σ ω_i y_i to 1e-8."""
    population = Population(WEIGHTS, {"x": 2}, torch.device("cpu"), torch.float32)
    state, generator = aggregator.init(population), np.random.default_rng(0)
    for round in range(2000):
        arrived = torch.from_numpy(np.flatnonzero(generator.random(3) < 0.5))
        scale = 1e4 if round < 1000 else 1.0
        delta = torch.from_numpy(generator.normal(size=(len(arrived), 2)) * scale).float()
        updates = updates_of(EVERYONE, arrived, delta, torch.ones_like(arrived))
        state = aggregator.aggregate(updates, state, CONDITIONS).state
    exact = WEIGHTS @ table_in(state, "last").read(torch.arange(3)).double()
    torch.testing.assert_close(tensor_in(state, "mean"), exact, rtol=0, atol=1e-8)
    assert tensor_in(state, "mean").abs().max() < 10


def test_direction_keeps_the_dtype_of_the_updates() -> None:
    population = Population(WEIGHTS, {"x": 2}, torch.device("cpu"), torch.float32)
    updates = updates_of(EVERYONE, torch.arange(3), torch.ones(3, 2), torch.ones(3, dtype=torch.int64))
    for aggregator in (FedAU(), FedVARP(), StaleFedVARP(), MIFA()):
        result = aggregator.aggregate(updates, aggregator.init(population), CONDITIONS)
        assert result.direction.dtype == torch.float32
        torch.testing.assert_close(result.direction, torch.ones(2))
