"""Contracts of the parts that make clients unequal: work, links, devices and partitioners."""

import math

import numpy as np
import torch
from torch import Tensor

from fairlead.clients.partitioners import Partitioner
from fairlead.conditions.devices import DeviceModel, FixedDevices
from fairlead.conditions.links import LinkModel
from fairlead.conditions.work import Workload, WorkModel
from fairlead.corrections.drift import ControlVariates
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Cohort, WorkOrder
from fairlead.testing.rounds import NUM_CLIENTS, NUM_EXAMPLES, fault, has_form, is_bound
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
        return part.workload(clients, sizes[clients], solver, round, Key.from_seed(seed), devices)

    for round in range(5):
        work = workload(everyone, round, 0)
        steps, batches = work.num_steps, work.batch_sizes
        if not all(has_form(figures, everyone.shape, torch.int64) for figures in work):
            raise fault(part, "give one whole number of steps and one batch size per client")
        if not ((steps >= 1) == (sizes > 0)).all() or not (steps >= 0).all():
            found = f"got {steps.tolist()} for sizes {sizes.tolist()}"
            what = "give at least one step to a client with examples and none to one without"
            raise fault(part, f"{what}, {found}")
        if not ((batches <= sizes) & ((batches >= 1) | (sizes == 0))).all():
            found = f"got {batches.tolist()} for sizes {sizes.tolist()}"
            raise fault(part, f"keep batches between 1 and the examples a client has, {found}")
        some, again = workload(_SOME, round, 0), workload(everyone, round, 0)
        if not torch.equal(some.num_steps, steps[_SOME]) or not torch.equal(some.batch_sizes, batches[_SOME]):
            raise fault(part, "not let a client's work depend on the rest of the cohort")
        if not torch.equal(again.num_steps, steps) or not torch.equal(again.batch_sizes, batches):
            raise fault(part, "give the same work for the same key and round")


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
        if arrives.shape != everyone.shape or arrives.dtype != torch.bool:
            raise fault(part, "return for every client whether its update arrives")
        some = part.arrives(_SOME, round, key, _DURATIONS[_SOME])
        if is_bound(part, "independent") and not torch.equal(some, arrives[_SOME]):
            raise fault(part, "not let an arrival depend on the rest of the cohort")
        closes = part.closes(_DURATIONS, arrives)
        if not 0 <= closes < math.inf:
            raise fault(part, f"end the round after a finite time, got {closes}")
        if not torch.equal(part.arrives(everyone, round, key, _DURATIONS), arrives):
            raise fault(part, "give the same arrivals for the same key and round")
        if rates is None:
            continue
        own = part.arrival(_SOME, round, key, _DURATIONS[_SOME])
        if not has_form(rates, everyone.shape, torch.float64) or not ((rates >= 0) & (rates <= 1)).all():
            raise fault(part, f"give arrival rates from 0 to 1 in float64, got {rates.tolist()}")
        if own is None or not torch.equal(own, rates[_SOME]):
            raise fault(part, "not let an arrival rate depend on the rest of the cohort")
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
    if abs(float(surplus[worst])) > Z_LIMIT * math.sqrt(float(variance[worst])) + 1e-9:
        raise AssertionError(
            f"{part!r} lets updates of client {worst} arrive at another rate than it claims (z = {z:.1f})."
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
            valid = figures > 0 if is_rate else (figures >= 0) & figures.isfinite()
            if not has_form(figures, everyone.shape, torch.float64) or not valid.all():
                raise fault(part, f"give every client a {name} in float64, got {figures.tolist()}")
            alike = torch.equal(getattr(again, name), figures)
            if not alike or not torch.equal(getattr(some, name), figures[_SOME]):
                raise fault(part, f"not let {name} depend on the rest of the cohort, or on chance")


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
        if owner.shape != labels.shape or owner.dtype != np.int64:
            raise fault(part, f"name one owner per example, got shape {owner.shape}")
        if not ((owner >= 0) & (owner < NUM_CLIENTS)).all():
            dealt = f"{owner.min()} to {owner.max()}"
            raise fault(part, f"deal to clients from 0 to {NUM_CLIENTS - 1}, got {dealt}")
    if (labels != before[0]).any() or (natural != before[1]).any():
        raise fault(part, "not change labels or natural owners in place")
    if not (deals[0] == deals[1]).all():
        raise fault(part, "deal the same examples for the same key")
    if is_bound(part, "different keys") and not (deals[0] != deals[2]).any():
        raise AssertionError(f"{part!r} deals the same examples for two keys: it must use the key.")


_KEY = Key.from_seed(11)
_SOLVER = LocalSolver(SGD(lr=0.01), steps=3, batch_size=2, corrections=(ControlVariates(),))


def check_world(world: World) -> None:
    """Raise an `AssertionError` unless a world keeps its contract.

    Weights add up to 1; the same key gives the same model; planned work and arrival rates are valid; clients of a
    cohort arrive in order, each with one row of everything and its importance; the same order
    returns the same bits, and an empty cohort no rows; evaluation changes nothing.
    """
    name, weights = type(world).__name__, world.population.weights
    if weights.dtype != torch.float64 or not math.isclose(float(weights.sum()), 1.0, rel_tol=1e-9):
        raise fault(f"{name}.population", "have weights in float64 with sum 1")
    params, buffers = world.initial_model(_KEY)
    repeats = all(map(torch.equal, (params, buffers), world.initial_model(_KEY)))
    if params.shape != (world.population.num_parameters,) or not repeats:
        what = "give the population's number of parameters, the same for the same key"
        raise fault(f"{name}.initial_model", what)
    _check_conditions(world)
    everyone = torch.arange(len(weights))
    for clients in (everyone, everyone[::2].clone(), everyone[:0]):
        _check_work(world, params, buffers, clients)
    before = world.evaluate(params, buffers)
    if not math.isfinite(before.loss) or world.evaluate(params, buffers) != before:
        raise fault(f"{name}.evaluate", "give a finite loss, and the same again")
    filled = torch.cat([value.detach().flatten() for value in world.module(params, buffers).parameters()])
    if not torch.equal(filled, params):
        raise fault(f"{name}.module", "have the parameters that it is given")


def _check_conditions(world: World) -> None:
    conditions = world.conditions(0, _SOLVER, _KEY)
    steps, arrival = conditions.effective_steps, conditions.arrival
    shape = world.population.weights.shape
    for figures, most in ((steps, math.inf), (arrival, 1.0)):
        if figures is not None and (figures.shape != shape or not ((figures >= 0) & (figures <= most)).all()):
            what = "give every client work of at least 0 and a rate from 0 to 1"
            raise fault(f"{type(world).__name__}.conditions", what)


def _check_work(world: World, params: Tensor, buffers: Tensor, clients: Tensor) -> None:
    name, importance = f"{type(world).__name__}.work", 1.0 / (2.0 + clients.to(torch.float64))
    cohort = Cohort(clients, torch.ones_like(clients), importance)
    shared = {key: value for c in _SOLVER.corrections for key, value in c.initial_shared(params).items()}
    memory = world.initial_memory(_SOLVER)
    order = WorkOrder(0, _SOLVER, params, buffers, shared, cohort, memory, _KEY)
    updates, again = world.work(order), world.work(order)
    arrived = updates.clients
    if not torch.isin(arrived, clients).all() or not (arrived.diff() > 0).all():
        found = f"{arrived.tolist()} of {clients.tolist()}"
        raise fault(name, f"return clients of the cohort, each once and in order, got {found}")
    first, second = _rows(updates), _rows(again)
    is_whole = has_form(updates.delta, (len(arrived), len(params)), params.dtype)
    if not is_whole or any(len(rows) != len(arrived) for rows in first.values()):
        raise fault(name, "return as many rows of everything as clients, in the type of the parameters")
    given = importance[torch.searchsorted(clients, arrived)]
    if not torch.equal(updates.importance, given) or not (updates.num_steps >= 1).all():
        raise fault(name, "return clients with the importance of the cohort and at least one step")
    if not all(torch.equal(first[field], second[field]) for field in first):
        raise fault(name, "return the same bits for the same order")
    if len(updates):
        world.commit(order, updates, params, updates.delta[0])


def _rows(updates: ClientUpdates) -> dict[str, Tensor]:
    """Everything that has one row per client."""
    single = ("clients", "importance", "delta", "num_steps", "loss", "num_examples", "buffers", "age")
    return {**{name: getattr(updates, name) for name in single}, **updates.messages, **updates.memory}
