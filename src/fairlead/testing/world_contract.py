"""The contract of the role `World`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairlead.corrections.control_variates import ControlVariates
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.sgd import SGD
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Cohort, WorkOrder
from fairlead.testing.rounds import require
from fairlead.worlds.base import World

_KEY = Key.from_seed(11)
_SOLVER = LocalSolver(SGD(lr=0.01), steps=3, batch_size=2, corrections=(ControlVariates(),))


def check_world(world: World) -> None:
    """Raise an `AssertionError` unless a world keeps its contract.

    Weights add up to 1; the same key gives the same model; what is foreseen is possible; of a cohort some clients
    arrive, in order, with as many rows of everything and the importance that they were asked with; the same order
    brings back the same bits, and nobody asked brings back no rows; evaluation changes nothing.
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
        f"{type(world).__name__}.conditions must foresee work of at least 0 and rates from 0 to 1 for every client.",
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
