"""Contracts of the parts that make clients unequal: work, links, devices and partitioners."""

import math

import numpy as np
import torch
from torch import Tensor

from fairlead.clients.partitioners import Partitioner
from fairlead.conditions.devices import DeviceModel, FixedDevices
from fairlead.conditions.links import LinkModel
from fairlead.conditions.work import Workload, WorkModel, planned_work
from fairlead.corrections.drift import ControlVariates
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Cohort, WorkOrder
from fairlead.testing.examples import NUM_CLIENTS, NUM_EXAMPLES
from fairlead.testing.rounds import is_bound, require
from fairlead.testing.server_checks import Z_LIMIT
from fairlead.worlds.base import World

_SOME = torch.tensor([1, 4, 6])
_DEVICES = FixedDevices(step_seconds=(1.0, 0.5, 2.0, 0.1, 0.3, 4.0, 1.5), latency=0.2)
_DURATIONS = torch.tensor([1.0, 0.4, 2.0, 0.3, 0.6, 5.0, 1.1], dtype=torch.float64)


def check_work(part: WorkModel) -> None:
    """Raise an `AssertionError` unless a work model keeps its contract.

    Clients with examples take at least one step with batches of at most all their examples, and clients without
    examples take none; the work of a client depends on the key, the round and the client alone.
    """
    everyone, sizes = torch.arange(NUM_CLIENTS), torch.tensor([9, 0, 1, 3, 4, 100, 20])
    solver = LocalSolver(SGD(lr=0.1), epochs=2, batch_size=4)

    def workload(clients: Tensor, round: int, seed: int) -> Workload:
        devices = _DEVICES.profile(clients, round)
        return planned_work(part, clients, sizes[clients], solver, round, Key.from_seed(seed), devices)

    for round in range(5):
        work = workload(everyone, round, 0)
        steps, batches = work.num_steps, work.batch_sizes
        require(
            steps.shape == batches.shape == everyone.shape and steps.dtype == batches.dtype == torch.int64,
            f"{part!r} must give one whole number of steps and one batch size per client.",
        )
        require(
            bool(((steps >= 1) == (sizes > 0)).all()) and bool((steps >= 0).all()),
            f"{part!r} must give at least one step to a client with examples and none to one without, "
            f"got {steps.tolist()} for sizes {sizes.tolist()}.",
        )
        require(
            bool(((batches <= sizes) & ((batches >= 1) | (sizes == 0))).all()),
            f"{part!r} must keep batches between 1 and the examples a client has, got "
            f"{batches.tolist()} for sizes {sizes.tolist()}.",
        )
        some, again = workload(_SOME, round, 0), workload(everyone, round, 0)
        require(
            torch.equal(some.num_steps, steps[_SOME]) and torch.equal(some.batch_sizes, batches[_SOME]),
            f"{part!r} must not let a client's work depend on the rest of the cohort.",
        )
        require(
            torch.equal(again.num_steps, steps) and torch.equal(again.batch_sizes, batches),
            f"{part!r} must give the same work for the same key and round.",
        )


def check_link(part: LinkModel) -> None:
    """Raise an `AssertionError` unless a link model keeps its contract.

    Whether an update arrives depends on the key, the round, the client and how long it takes, never on who
    else is asked ("independent"); its arrival rates are probabilities, and 1,000 keys in each of two
    rounds agree with them by a z-test ("rates").
    """
    everyone = torch.arange(NUM_CLIENTS)
    for round in range(5):
        key = Key.from_seed(round)
        arrives = part.arrives(everyone, round, key, _DURATIONS)
        rates = part.arrival(everyone, round, key, _DURATIONS)
        require(
            arrives.shape == everyone.shape and arrives.dtype == torch.bool,
            f"{part!r} must return for every client whether its update arrives.",
        )
        if is_bound(part, "independent"):
            require(
                torch.equal(part.arrives(_SOME, round, key, _DURATIONS[_SOME]), arrives[_SOME]),
                f"{part!r} must not let an arrival depend on the rest of the cohort.",
            )
        closes = part.closes(_DURATIONS, arrives)
        require(
            math.isfinite(closes) and closes >= 0,
            f"{part!r} must end the round after a finite time, got {closes}.",
        )
        require(
            torch.equal(part.arrives(everyone, round, key, _DURATIONS), arrives),
            f"{part!r} must give the same arrivals for the same key and round.",
        )
        if rates is None:
            continue
        some = part.arrival(_SOME, round, key, _DURATIONS[_SOME])
        require(
            rates.shape == everyone.shape
            and rates.dtype == torch.float64
            and bool(((rates >= 0) & (rates <= 1)).all()),
            f"{part!r} must give arrival rates from 0 to 1 in float64, got {rates.tolist()}.",
        )
        require(
            some is not None and torch.equal(some, rates[_SOME]),
            f"{part!r} must not let an arrival rate depend on the rest of the cohort.",
        )
    if is_bound(part, "rates"):
        for round in (0, 3):
            _check_rates(part, round)


def _check_rates(part: LinkModel, round: int) -> None:
    everyone = torch.arange(NUM_CLIENTS)
    surplus, variance = torch.zeros(2, NUM_CLIENTS, dtype=torch.float64)
    for seed in range(1000):
        key = Key.from_seed(seed)
        rates = part.arrival(everyone, round, key, _DURATIONS)
        if rates is None:
            return
        surplus += part.arrives(everyone, round, key, _DURATIONS).to(torch.float64) - rates
        variance += rates * (1 - rates)
    worst = int((surplus.abs() - Z_LIMIT * variance.sqrt()).argmax())
    z = float(surplus[worst]) / math.sqrt(max(float(variance[worst]), 1e-12))
    require(
        abs(float(surplus[worst])) <= Z_LIMIT * math.sqrt(float(variance[worst])) + 1e-9,
        f"{part!r} lets updates of client {worst} arrive at another rate than it claims (z = {z:.1f}).",
    )


def check_devices(part: DeviceModel) -> None:
    """Raise an `AssertionError` unless a device model keeps its contract.

    How fast a client is depends on the round and the client alone; seconds are at least 0, bytes per second
    above 0.
    """
    everyone = torch.arange(NUM_CLIENTS)
    for round in range(3):
        profile, again = part.profile(everyone, round), part.profile(everyone, round)
        some = part.profile(_SOME, round)
        for name, figures in profile._asdict().items():
            is_rate = name in ("download", "upload")
            require(
                figures.shape == everyone.shape
                and figures.dtype == torch.float64
                and bool((figures > 0 if is_rate else (figures >= 0) & figures.isfinite()).all()),
                f"{part!r} must give every client a {name} in float64, got {figures.tolist()}.",
            )
            require(
                torch.equal(getattr(again, name), figures)
                and torch.equal(getattr(some, name), figures[_SOME]),
                f"{part!r} must not let {name} depend on the rest of the cohort, or on chance.",
            )


def check_partitioner(part: Partitioner) -> None:
    """Raise an `AssertionError` unless a partitioner keeps its contract.

    Every example goes to one client that exists; the deal depends on the key alone, and two keys give
    different deals ("different keys").
    """
    labels = np.arange(NUM_EXAMPLES, dtype=np.int64) % 5
    natural = np.arange(NUM_EXAMPLES, dtype=np.int64) * 3 % NUM_CLIENTS
    before = labels.copy(), natural.copy()
    deals = [part.deal(labels, NUM_CLIENTS, Key.from_seed(seed), natural) for seed in (0, 0, 1)]
    for owner in deals:
        require(
            owner.shape == labels.shape and owner.dtype == np.int64,
            f"{part!r} must name one owner per example, got shape {owner.shape}.",
        )
        require(
            bool(((owner >= 0) & (owner < NUM_CLIENTS)).all()),
            f"{part!r} must deal to clients from 0 to {NUM_CLIENTS - 1}, got {owner.min()} to {owner.max()}.",
        )
    require(
        bool((labels == before[0]).all() and (natural == before[1]).all()),
        f"{part!r} must not change labels or natural owners in place.",
    )
    require(bool((deals[0] == deals[1]).all()), f"{part!r} must deal the same examples for the same key.")
    if is_bound(part, "different keys"):
        require(
            bool((deals[0] != deals[2]).any()),
            f"{part!r} deals the same examples for two keys: it must use the key.",
        )


_KEY = Key.from_seed(11)
_SOLVER = LocalSolver(SGD(lr=0.01), steps=3, batch_size=2, corrections=(ControlVariates(),))


def check_world(world: World) -> None:
    """Raise an `AssertionError` unless a world keeps its contract.

    Weights add up to 1; the same key gives the same model; planned work and arrival rates are valid; clients of a
    cohort arrive in order, each with one row of everything and its importance; the same order
    returns the same bits, and an empty cohort no rows; evaluation changes nothing.
    """
    name, weights = type(world).__name__, world.population.weights
    require(
        weights.dtype == torch.float64 and math.isclose(float(weights.sum()), 1.0, rel_tol=1e-9),
        f"{name}.population must have weights in float64 with sum 1.",
    )
    params, buffers = world.initial_model(_KEY)
    require(
        params.shape == (world.population.num_parameters,)
        and all(map(torch.equal, (params, buffers), world.initial_model(_KEY))),
        f"{name}.initial_model must give the population's number of parameters, the same for the same key.",
    )
    _check_conditions(world)
    everyone = torch.arange(len(weights))
    for clients in (everyone, everyone[::2].clone(), everyone[:0]):
        _check_work(world, params, buffers, clients)
    before = world.evaluate(params, buffers)
    require(
        math.isfinite(before.loss) and world.evaluate(params, buffers) == before,
        f"{name}.evaluate must give a finite loss, and the same again.",
    )
    filled = torch.cat([value.detach().flatten() for value in world.module(params, buffers).parameters()])
    require(torch.equal(filled, params), f"{name}.module must have the parameters that it is given.")


def _check_conditions(world: World) -> None:
    conditions = world.conditions(0, _SOLVER, _KEY)
    steps, arrival = conditions.effective_steps, conditions.arrival
    shape = world.population.weights.shape
    require(
        (steps is None or (steps.shape == shape and bool((steps >= 0).all())))
        and (arrival is None or (arrival.shape == shape and bool(((arrival >= 0) & (arrival <= 1)).all()))),
        f"{type(world).__name__}.conditions must give every client work of at least 0 and a rate from 0 to 1.",
    )


def _check_work(world: World, params: Tensor, buffers: Tensor, clients: Tensor) -> None:
    name, importance = type(world).__name__, 1.0 / (2.0 + clients.to(torch.float64))
    cohort = Cohort(clients, torch.ones_like(clients), importance)
    shared = {key: value for c in _SOLVER.corrections for key, value in c.initial_shared(params).items()}
    memory = world.initial_memory(_SOLVER)
    order = WorkOrder(0, _SOLVER, params, buffers, shared, cohort, memory, _KEY)
    updates, again = world.work(order), world.work(order)
    arrived = updates.clients
    require(
        bool(torch.isin(arrived, clients).all()) and bool((arrived.diff() > 0).all()),
        f"{name}.work must return clients of the cohort, each once and in order, got {arrived.tolist()} of "
        f"{clients.tolist()}.",
    )
    require(
        all(len(rows) == len(arrived) for rows in _rows(updates).values())
        and updates.delta.shape == (len(arrived), len(params))
        and updates.delta.dtype == params.dtype,
        f"{name}.work must return as many rows of everything as clients, in the type of the parameters.",
    )
    require(
        torch.equal(updates.importance, importance[torch.searchsorted(clients, arrived)])
        and bool((updates.num_steps >= 1).all()),
        f"{name}.work must return clients with the importance of the cohort and at least one step.",
    )
    first, second = _rows(updates), _rows(again)
    require(
        all(torch.equal(first[field], second[field]) for field in first),
        f"{name}.work must return the same bits for the same order.",
    )
    if len(updates):
        world.commit(memory, updates, _SOLVER, params, updates.delta[0])


def _rows(updates: ClientUpdates) -> dict[str, Tensor]:
    """Everything that has one row per client."""
    single = ("clients", "importance", "delta", "num_steps", "loss", "num_examples", "buffers", "age")
    return {**{name: getattr(updates, name) for name in single}, **updates.messages, **updates.memory}
