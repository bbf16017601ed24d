"""Batches, samplers and links for any population: nothing outside, nothing lost, nothing that hangs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from part_examples import examples

import fairlead as fl
from fairlead.component import parts_of
from fairlead.errors import FieldError
from fairlead.records import Population
from fairlead.worlds.executor import draw_batches

WEIGHTS = st.lists(st.floats(0, 10), min_size=1, max_size=20).filter(lambda w: sum(w) > 1e-6)


@given(st.integers(0, 50), st.integers(1, 40), st.integers(1, 30), st.integers(1, 40), st.integers(0, 9))
def test_batches_hold_every_row_once_an_epoch(
    first: int, size: int, steps: int, batch_size: int, seed: int
) -> None:
    batch_size = min(batch_size, size)
    batches = draw_batches(first, size, steps, batch_size, fl.Key.from_seed(seed))
    assert batches.shape == (steps, batch_size)
    per_epoch = -(-size // batch_size)
    assert bool(((batches >= 0).sum(1) >= 1).all()), "no step without an example"
    for start in range(0, steps - per_epoch + 1, per_epoch):
        epoch = batches[start : start + per_epoch]
        assert sorted(epoch[epoch >= 0].tolist()) == list(range(first, first + size))


def conditions(weights: list[float]) -> tuple[Population, fl.Conditions]:
    omega = torch.tensor(weights, dtype=torch.float64)
    omega = omega / omega.sum()
    population = Population(omega, {"x": 2}, torch.device("cpu"), torch.float64)
    ones = torch.ones_like(omega)
    return population, fl.Conditions(0, omega, lambda: ones, lambda: ones)


@given(WEIGHTS, st.integers(1, 30), st.integers(0, 5))
def test_draws_with_replacement_never_take_a_client_of_weight_zero(
    weights: list[float], cohort_size: int, seed: int
) -> None:
    population, known = conditions(weights)
    sampler = fl.WeightedWithReplacement(cohort_size)
    cohort = sampler.draw(sampler.init(population), known, fl.Key.from_seed(seed))
    assert int(cohort.multiplicity.sum()) == cohort_size
    assert float(cohort.importance.sum()) == pytest.approx(1.0)
    assert bool((population.weights[cohort.clients] > 0).all())


@given(WEIGHTS, st.data())
def test_draws_without_replacement_take_as_many_as_asked(weights: list[float], data: st.DataObject) -> None:
    population, known = conditions(weights)
    available = int((population.weights > 0).sum())
    cohort_size = data.draw(st.integers(1, available + 2))
    sampler = fl.UniformWithoutReplacement(cohort_size)
    if cohort_size > available:
        with pytest.raises(FieldError, match=f"cohort_size must be at most {available}"):
            sampler.init(population)
        return
    cohort = sampler.draw(sampler.init(population), known, fl.Key.from_seed(0))
    assert len(cohort.clients) == cohort_size
    assert bool((population.weights[cohort.clients] > 0).all())


PARTITIONERS = [
    part
    for cls in parts_of(fl.Partitioner).values()  # type: ignore[type-abstract]
    if cls.__module__.startswith("fairlead.") and cls.__name__ != "SizePartitioner"
    for part in examples(cls)
]


@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=repr)
@given(
    labels=st.lists(st.integers(0, 6), min_size=1, max_size=60),
    num_clients=st.integers(1, 15),
    seed=st.integers(0, 3),
)
def test_partitioners_deal_everything_or_say_why_not(
    partitioner: fl.Partitioner, labels: list[int], num_clients: int, seed: int
) -> None:
    rows = np.array(labels, dtype=np.int64)
    natural = np.arange(len(rows)) % num_clients
    try:
        owner = partitioner.deal(rows, num_clients, fl.Key.from_seed(seed), natural)
    except FieldError:
        # Refusing is allowed where there is not enough to deal, never for one client that takes all.
        assert num_clients > 1 or len(set(labels)) < 2
        return
    assert owner.shape == rows.shape
    assert 0 <= owner.min() <= owner.max() < num_clients


@pytest.mark.parametrize("alpha", [1e-6, 0.01, 1.0, 1e6])
def test_dirichlet_deals_to_ten_thousand_clients_at_any_alpha(alpha: float) -> None:
    """Released code redraws until every client has enough, which at α = 0.01 never happens."""
    labels = np.arange(50_000, dtype=np.int64) % 10
    owner = fl.DirichletPartitioner(alpha).deal(labels, 10_000, fl.Key.from_seed(0))
    sizes = np.bincount(owner, minlength=10_000)
    assert len(sizes) == 10_000
    assert sizes.min() >= 1
    assert sizes.sum() == 50_000


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10), st.integers(0, 100), st.integers(0, 5))
def test_links_lose_nobody_at_zero_and_everybody_at_one(drop: list[float], round: int, seed: int) -> None:
    link, clients = fl.BernoulliLink(tuple(drop)), torch.arange(len(drop))
    arrives = link.arrives(clients, round, fl.Key.from_seed(seed))
    for q, came in zip(drop, arrives.tolist(), strict=True):
        assert came or q > 0.0
        assert not came or q < 1.0
