"""Properties of samplers, aggregators, partitioners and specs: 10,000 examples of each on demand.

`tests/properties` holds single parts to more of them; here one example may be any part that fairlead ships.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from fault_runs import FULL
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from part_examples import examples
from torch import Tensor

import fairlead as fl
from fairlead.client_table import PartState
from fairlead.component import Component, parts_of
from fairlead.errors import ClashError, FairleadError, FieldError
from fairlead.samplers.base import Sampler
from fairlead.testing.rounds import (
    NUM_PARAMETERS,
    contents,
    make_conditions,
    make_population,
    make_updates,
    same_tensors,
)

many = settings(max_examples=10_000 if FULL else 40, deadline=None)

RoleT = TypeVar("RoleT", bound=Component)


def shipped(role: type[RoleT], *left_out: str) -> list[RoleT]:
    """Examples of every part of a role that fairlead ships and that can be made from nothing."""
    found: list[RoleT] = []
    for name, cls in parts_of(role).items():
        if cls.__module__.startswith("fairlead.") and name not in left_out:
            try:
                found += examples(cls)
            except AssertionError:
                # Parts that read files.
                continue
    return found


SAMPLERS = st.sampled_from(shipped(Sampler, "ScriptedSampler"))  # type: ignore[type-abstract]
AGGREGATORS = st.sampled_from(shipped(fl.Aggregator))  # type: ignore[type-abstract]
PARTITIONERS = st.sampled_from(shipped(fl.Partitioner, "SizePartitioner"))  # type: ignore[type-abstract]
OPTIMIZERS = st.sampled_from(shipped(fl.Optimizer))  # type: ignore[type-abstract]
CORRECTIONS = st.sampled_from(shipped(fl.Correction))  # type: ignore[type-abstract]
TRANSFORMS = st.sampled_from(shipped(fl.DirectionTransform))  # type: ignore[type-abstract]
WORK = st.sampled_from(shipped(fl.WorkModel))  # type: ignore[type-abstract]
LINKS = st.sampled_from(shipped(fl.LinkModel))  # type: ignore[type-abstract]
DEVICES = st.sampled_from(shipped(fl.DeviceModel))  # type: ignore[type-abstract]
WEIGHTS = st.lists(st.floats(0, 10), min_size=1, max_size=12).filter(lambda weights: sum(weights) > 1e-6)


def doubles(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@many
@given(sampler=SAMPLERS, weights=WEIGHTS, seed=st.integers(0, 2**32), data=st.data())
def test_samplers(sampler: Sampler, weights: list[float], seed: int, data: st.DataObject) -> None:
    """Whoever is asked exists, counts, and is asked again under the same key; weights of 0 get no importance."""
    omega = doubles(weights) / sum(weights)
    population = make_population(omega)
    size = len(weights)
    arrival = doubles(data.draw(st.lists(st.floats(0.01, 1), min_size=size, max_size=size)))
    work = doubles(data.draw(st.lists(st.floats(1, 100), min_size=size, max_size=size)))
    conditions = make_conditions(omega, 1, arrival=arrival, work=work)
    available = int((omega > 0).sum())
    without_replacement = isinstance(
        sampler, fl.UniformWithoutReplacement | fl.WeightFeedback | fl.PowerOfChoice
    )
    if getattr(sampler, "cohort_size", 0) > available and without_replacement:
        with pytest.raises(FieldError, match=f"cohort_size must be at most {available}"):
            sampler.init(population)
        return
    state = sampler.init(population)
    cohort, again = (sampler.draw(state, conditions, fl.Key.from_seed(seed)) for _ in range(2))
    assert torch.equal(cohort.clients, again.clients)
    assert torch.equal(cohort.importance, again.importance)
    assert bool((cohort.clients.diff() > 0).all())
    assert bool(((cohort.clients >= 0) & (cohort.clients < size)).all())
    assert bool((cohort.multiplicity >= 1).all())
    assert bool(cohort.importance.isfinite().all())
    assert bool((cohort.importance >= 0).all())
    assert bool((cohort.importance[omega[cohort.clients] == 0] == 0).all())


@many
@given(aggregator=AGGREGATORS, weights=WEIGHTS, data=st.data())
def test_aggregators(aggregator: fl.Aggregator, weights: list[float], data: st.DataObject) -> None:
    """Over three rounds with any losses: finite, of the right shape, by the weights told, still when empty."""
    # Clients of weight 0 are asked by no sampler.
    omega = doubles([weight for weight in weights if weight > 0])
    omega = omega / omega.sum()
    size = len(omega)
    arrival = doubles(data.draw(st.lists(st.floats(0.05, 1), min_size=size, max_size=size)))
    steps = torch.tensor(data.draw(st.lists(st.integers(1, 50), min_size=size, max_size=size)))
    state = aggregator.init(make_population(omega))
    for round in range(3):
        asked = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1)))
        arrived = sorted(data.draw(st.sets(st.sampled_from(asked))))
        values = data.draw(st.integers(0, 2**32 - 1))
        scale = data.draw(st.sampled_from([0.0, 1e-6, 1.0, 1e6]))
        delta = scale * torch.from_numpy(
            np.random.default_rng(values).normal(size=(len(arrived), NUM_PARAMETERS))
        )
        updates = make_updates(asked, arrived, omega[asked], delta, steps[arrived])
        conditions = make_conditions(omega, round, arrival=arrival, work=steps.to(torch.float64))
        before = contents(state)
        result = aggregator.aggregate(updates, state, conditions)
        assert result.direction.shape == (NUM_PARAMETERS,)
        assert bool(result.direction.isfinite().all())
        if not arrived:
            # What it proposes then, as FedDyn does by what it remembers, is not followed by a round.
            assert same_tensors(vectors(before), vectors(contents(result.state)))
        elif result.coefficients is not None and result.remembered is None:
            assert result.coefficients.shape == (len(arrived),)
            expected = result.coefficients @ delta
            torch.testing.assert_close(result.direction, expected, rtol=1e-9, atol=1e-9 * max(scale, 1e-300))
        state = result.state


def vectors(state: PartState | dict[str, Tensor]) -> dict[str, Tensor]:
    """What a state holds of updates, counters left out."""
    return {
        name: value
        for name, value in state.items()
        if isinstance(value, Tensor) and value.ndim and value.shape[-1] == NUM_PARAMETERS and value.ndim == 2
    }


@many
@given(
    partitioner=PARTITIONERS,
    labels=st.lists(st.integers(0, 6), min_size=1, max_size=60),
    num_clients=st.integers(1, 15),
    seed=st.integers(0, 2**32),
)
def test_partitioners(partitioner: fl.Partitioner, labels: list[int], num_clients: int, seed: int) -> None:
    """Every example has one owner, the same under the same key, and small clients are as large as was asked."""
    rows = np.array(labels, dtype=np.int64)
    natural = np.arange(len(rows)) % num_clients
    try:
        owner, again = (
            partitioner.deal(rows, num_clients, fl.Key.from_seed(seed), natural) for _ in range(2)
        )
    except FieldError:
        # Refusing is allowed where there is not enough to deal, never for one client that takes all.
        assert num_clients > 1 or len(set(labels)) < 2
        return
    assert np.array_equal(owner, again)
    assert owner.shape == rows.shape
    assert 0 <= owner.min() <= owner.max() < num_clients
    least = getattr(partitioner, "min_partition_size", 0)
    assert np.bincount(owner, minlength=num_clients).min() >= least


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


STATED_WEIGHTS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.just("uniform"), st.lists(st.floats(0, 1e300), min_size=1, max_size=4)
)


@st.composite
def experiments(draw: st.DrawFn) -> fl.Experiment:
    """Any experiment of parts that can be made from nothing, where they go together."""
    try:
        solver = fl.LocalSolver(
            draw(OPTIMIZERS),
            steps=draw(optional(st.integers(1, 9))),
            batch_size=draw(optional(st.integers(1, 99))),
            corrections=tuple(draw(st.lists(CORRECTIONS, max_size=2))),
            clip=draw(optional(st.floats(1e-9, 1e9))),
        )
        algorithm = fl.Algorithm(
            solver,
            draw(SAMPLERS),
            draw(AGGREGATORS),
            tuple(draw(st.lists(TRANSFORMS, max_size=2))),
            draw(OPTIMIZERS),
        )
        return fl.Experiment(
            fl.Digits(draw(optional(st.integers(1, 99))), draw(PARTITIONERS)),
            algorithm,
            rounds=draw(st.integers(1, 2**62)),
            work=draw(WORK),
            link=draw(LINKS),
            devices=draw(optional(DEVICES)),
            weights=draw(STATED_WEIGHTS),
            seed=draw(st.integers(0, 2**62)),
            dtype=draw(st.sampled_from(["float32", "float64"])),
        )
    except (ClashError, FieldError):
        assume(False)
        raise


@many
@given(experiment=experiments())
def test_specs(experiment: fl.Experiment) -> None:
    """Whatever can be made can be written, reads back equal, and is written the same again."""
    text = fl.to_toml(experiment)
    again = fl.from_toml(fl.Experiment, text)
    assert again == experiment
    assert fl.to_toml(again) == text


@many
@given(st.text(max_size=200), st.sampled_from(["", "rounds = 1\n", "[clients]\n", "[algorithm]\npreset = "]))
def test_any_text_is_refused_in_one_sentence(text: str, before: str) -> None:
    """No text of this kind is an experiment: it lacks clients or an algorithm."""
    with pytest.raises(FairleadError) as caught:
        fl.from_toml(fl.Experiment, before + text)
    assert str(caught.value).isprintable()
