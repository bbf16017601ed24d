"""One round of federated optimization, the same for every algorithm and every world."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from fairlead.aggregators.base import normalised, weighted_sum
from fairlead.algorithm import Algorithm
from fairlead.client_table import tensor_in
from fairlead.errors import NonFiniteError
from fairlead.observation import describe_round
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Conditions, RoundRecord, ServerState, Vectors, WorkOrder
from fairlead.worlds.base import World


def start(algorithm: Algorithm, world: World, key: Key) -> ServerState:
    """The state before the first round."""
    params, buffers = world.initial_model(key)
    population = world.population
    shared: dict[str, Tensor] = {}
    for correction in algorithm.solver.corrections:
        shared.update(correction.initial_shared(params))
    return ServerState(
        round=0,
        params=params,
        buffers=buffers,
        shared=shared,
        sampler=algorithm.sampler.init(population),
        aggregator=algorithm.aggregator.init(population),
        transforms=tuple(transform.init(population) for transform in algorithm.transforms),
        server=algorithm.server.init(params),
        memory=world.initial_memory(algorithm.solver),
    )


def run_round(
    algorithm: Algorithm, world: World, state: ServerState, key: Key
) -> tuple[ServerState, RoundRecord]:
    """Ask a cohort, let it work, follow the direction of what arrives.

    A round in which nothing arrives leaves the model and every optimizer and control state as they
    were; only participation counters of sampler and aggregator move on.
    """
    started = perf_counter()
    conditions = world.conditions(state.round, algorithm.solver, key)
    cohort = algorithm.sampler.draw(state.sampler, conditions, key.fold("sampler", state.round))
    order = WorkOrder(
        state.round,
        algorithm.solver,
        state.params,
        state.buffers,
        state.shared,
        cohort,
        state.memory,
        key,
    )
    updates = world.work(order)
    _refuse_non_finite(updates, state.round)

    aggregate = algorithm.aggregator.aggregate(updates, state.aggregator, conditions)
    sampler = algorithm.sampler.observe(state.sampler, conditions, cohort, updates)
    after = replace(state, round=state.round + 1, sampler=sampler, aggregator=aggregate.state)
    direction = step = torch.zeros_like(state.params)
    facts: dict[str, float] = {}
    if len(updates):
        round_facts = (updates, conditions, facts)
        direction, after = _transform("aggregate", aggregate.direction, algorithm, after, *round_facts)
        step, after = _server_step(direction, algorithm, after)
        step, after = _transform("step", step, algorithm, after, *round_facts)
        params = state.params + step
        after = replace(
            after,
            params=params,
            buffers=weighted_sum(normalised(updates.importance), updates.buffers),
            shared=_shared(algorithm, state.shared, updates, conditions),
            memory=world.commit(state.memory, updates, algorithm.solver, params),
        )
    record = describe_round(
        order,
        updates,
        aggregate,
        direction=direction,
        step=step,
        facts=facts,
        seconds=perf_counter() - started,
    )
    return after, record


def _transform(
    stage: Literal["aggregate", "step"],
    direction: Tensor,
    algorithm: Algorithm,
    state: ServerState,
    updates: ClientUpdates,
    conditions: Conditions,
    facts: dict[str, float],
) -> tuple[Tensor, ServerState]:
    """The direction after all transforms of a stage."""
    states = list(state.transforms)
    for position, transform in enumerate(algorithm.transforms):
        if transform.stage == stage:
            result = transform.transform(direction, updates, states[position], conditions)
            direction, states[position] = result.direction, result.state
            facts.update(result.facts)
    return direction, replace(state, transforms=tuple(states))


def _server_step(direction: Tensor, algorithm: Algorithm, state: ServerState) -> tuple[Tensor, ServerState]:
    """The displacement that the server optimizer makes of a direction."""
    lr = direction.new_tensor([algorithm.server.lr_at(state.round - 1)])
    slots = {name: tensor_in(state.server, name) for name in state.server}
    params, slots = algorithm.server.step(state.params, -direction, slots, lr)
    return params - state.params, replace(state, server=slots)


def _shared(algorithm: Algorithm, shared: Vectors, updates: ClientUpdates, conditions: Conditions) -> Vectors:
    """The vectors that corrections broadcast, after a round."""
    weights = conditions.weights[updates.clients]
    renewed: dict[str, Tensor] = {}
    for correction in algorithm.solver.corrections:
        own = {name: shared[name] for name in correction.shared_names}
        renewed.update(correction.share(own, updates, weights))
    return renewed


def _refuse_non_finite(updates: ClientUpdates, round: int) -> None:
    """Stop before NaN or infinity reaches the model, and say whose they are."""
    finite = torch.isfinite(updates.delta).all(1).cpu()
    if bool(finite.all()):
        return
    culprits = updates.clients[~finite].tolist()
    raise NonFiniteError(
        f"In round {round} the updates of clients {culprits[:10]} are not finite: lower the clients' "
        "learning rate, or bound their gradients with LocalSolver.clip."
    )
