"""One round of federated optimization, the same for every algorithm and every world."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from time import perf_counter
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fairlead.aggregators.base import normalized, refuse_claimed_weights, weighted_sum
from fairlead.algorithm import Algorithm, needed_sums
from fairlead.client_table import PartState, tensor_in
from fairlead.errors import ClashError, FairleadError, NonFiniteError
from fairlead.numerics.rows import weighted_median
from fairlead.randomness import Key
from fairlead.records import (
    Aggregate,
    ClientUpdates,
    ClientWeights,
    Conditions,
    RoundRecord,
    ServerState,
    Vectors,
    WorkOrder,
)
from fairlead.reply_checks import Reason, are_finite, finite_rows, leave_out
from fairlead.round_record import make_record, statistics_of
from fairlead.samplers.base import MemorylessSampler
from fairlead.text import ClientNames, called
from fairlead.worlds.base import World


def initial_state(algorithm: Algorithm, world: World, key: Key) -> ServerState:
    """The state before the first round."""
    params, buffers = world.initial_model(key)
    population = world.population
    if population.self_reported:
        refuse_claimed_weights(algorithm.aggregator)
    if algorithm.privacy is not None:
        algorithm.privacy.refuse_world(population, buffers)
    if algorithm.sampler.needs_losses and type(world).poll is World.poll:
        # Its own refusal, before any work is done.
        world.poll(torch.empty(0, dtype=torch.int64), params, buffers, 0)
    if algorithm.calibrate == "clients" and world.simulation is None:
        raise ClashError(
            'Algorithm.calibrate="clients" changes the learning rate of clients in every round, which only simulated '
            'clients follow: write calibrate="server".'
        )
    buffering = algorithm.sampler.buffering
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
        flight={} if buffering is None else world.initial_flight(buffering, algorithm.solver),
    )


class _Step(NamedTuple):
    """The server's step from an aggregate, with the new states of the parts that made it."""

    direction: Tensor
    step: Tensor
    transforms: tuple[PartState, ...]
    server: PartState
    facts: Mapping[str, float]
    remembered: ClientWeights | None = None
    """Client weights of the step where a transform replaced those of the aggregate."""
    shares: ClientWeights | None = None
    """λ of that transform."""


def run_round(
    algorithm: Algorithm, world: World, state: ServerState, key: Key, *, another_follows: bool = False
) -> tuple[ServerState, RoundRecord]:
    """Ask a cohort, let it work, and step along the aggregate of the arrivals.

    A round without arrivals leaves the model and every optimizer and control state unchanged; only participation
    counters of sampler and aggregator advance. Under privacy the model still moves by noise, and an aggregator that
    names remembered updates in such a round is followed (`StaleFedVARP`).

    If `another_follows` and its cohort is known already, the world may prefetch it.
    """
    started = perf_counter()
    round = state.round
    conditions = world.conditions(round, algorithm.solver, key)
    algorithm, calibrated = _calibrated(algorithm, conditions)
    solver = algorithm.solver
    chance = key.fold("sampler", round)
    candidates = algorithm.sampler.polled(state.sampler, conditions, chance)
    if candidates is not None:
        conditions = replace(conditions, poll=world.poll(candidates, state.params, state.buffers, round))
    cohort = algorithm.sampler.draw(state.sampler, conditions, chance)
    sums = needed_sums(algorithm, state.aggregator, conditions) if algorithm.secure_aggregation else None
    broadcast = (round, solver, state.params, state.buffers, state.shared)
    buffering = algorithm.sampler.buffering
    order = WorkOrder(*broadcast, cohort, state.memory, key, buffering, state.flight, sums)
    arrived = world.work(order)
    # Queued on a device that still trains, and read after the host has prepared the next round.
    finite, observed = finite_rows(arrived), statistics_of(arrived)
    if another_follows:
        _prefetch(algorithm, world, state, key)
    updates = _drop_non_finite(arrived, finite, algorithm, round, world.population.names)
    if updates is not arrived:
        observed = statistics_of(updates)

    aggregate = _aggregate(algorithm, updates, state.aggregator, conditions, key)
    sampler = algorithm.sampler.observe(state.sampler, conditions, cohort, updates)
    recalls = aggregate.remembered is not None and len(aggregate.remembered.clients) > 0
    if len(updates) or algorithm.privacy is not None or recalls:
        move = _server_step(aggregate.direction, algorithm, state, updates, conditions)
        params = state.params + move.step
        shared = _shared(algorithm, state.shared, updates, conditions)
        slots = (tensor_in(move.server, name) for name in move.server)
        _refuse_lost_server(round, params, *slots, *shared.values())
        after = replace(
            state,
            params=params,
            buffers=_average_buffers(state.buffers, updates, robust=algorithm.aggregator.robust),
            shared=shared,
            transforms=move.transforms,
            server=move.server,
            memory=world.commit(order, updates, params, aggregate.direction),
        )
    else:
        still = torch.zeros_like(state.params)
        move = _Step(still, still, state.transforms, state.server, {})
        after = state
    after = replace(
        after, round=round + 1, sampler=sampler, aggregator=aggregate.state, flight=updates.flight
    )
    if move.remembered is not None:
        aggregate = replace(aggregate, coefficients=None, remembered=move.remembered, shares=move.shares)
    if aggregate.shares is not None:
        after = replace(after, sampler=algorithm.sampler.follow(after.sampler, aggregate.shares))
    record = make_record(
        order,
        updates,
        aggregate,
        observed(),
        poll=conditions.poll,
        direction=move.direction,
        step=move.step,
        facts={**move.facts, **calibrated},
        seconds=perf_counter() - started,
    )
    return after, record


def _calibrated(algorithm: Algorithm, conditions: Conditions) -> tuple[Algorithm, Mapping[str, float]]:
    """The algorithm with the learning rates of a round, and their factor for the record."""
    if algorithm.calibrate is None:
        return algorithm, {}
    # Loaded on demand: no other round needs theory.
    from fairlead.theory.prediction import calibration

    factor, server, solver = calibration(algorithm, conditions), algorithm.server, algorithm.solver
    if algorithm.calibrate == "server":
        server = replace(server, lr=factor * server.lr)
    else:
        solver = replace(solver, optimizer=replace(solver.optimizer, lr=factor * solver.optimizer.lr))
    return replace(algorithm, server=server, solver=solver), {"calibration": factor}


def _prefetch(algorithm: Algorithm, world: World, state: ServerState, key: Key) -> None:
    """Let a world prepare the next round while this one is computed, if its cohort is known already."""
    if not world.prefetches or algorithm.calibrate == "clients":
        return
    sampler, solver, following = algorithm.sampler, algorithm.solver, state.round + 1
    if not isinstance(sampler, MemorylessSampler) or sampler.needs_arrival or sampler.needs_effective_steps:
        return
    # An error here is raised again in its own round, which reports it.
    with suppress(FairleadError):
        conditions = world.conditions(following, solver, key)
        cohort = sampler.draw(state.sampler, conditions, key.fold("sampler", following))
        world.prefetch(following, solver, key, cohort)


def _aggregate(
    algorithm: Algorithm, updates: ClientUpdates, state: PartState, conditions: Conditions, key: Key
) -> Aggregate:
    """The aggregator's direction, made private if the algorithm has privacy: later steps see nothing else."""
    if algorithm.privacy is None:
        return algorithm.aggregator.aggregate(updates, state, conditions)
    noise = key.fold("privacy", conditions.round)
    return algorithm.privacy.aggregate(algorithm.sampler, updates, conditions, noise)


def _server_step(
    direction: Tensor,
    algorithm: Algorithm,
    state: ServerState,
    updates: ClientUpdates,
    conditions: Conditions,
) -> _Step:
    """Transforms of the aggregate, server optimizer, transforms of its step."""
    states, facts = list(state.transforms), dict[str, float]()
    followed: list[tuple[ClientWeights, ClientWeights | None]] = []

    def apply_transforms(stage: Literal["aggregate", "step"], vector: Tensor) -> Tensor:
        for place, transform in enumerate(algorithm.transforms):
            if transform.stage == stage:
                changed = transform.transform(vector, updates, states[place], conditions)
                vector, states[place] = changed.direction, changed.state
                facts.update(changed.facts)
                if changed.remembered is not None:
                    followed.append((changed.remembered, changed.shares))
        return vector

    direction = apply_transforms("aggregate", direction)
    slots = {name: tensor_in(state.server, name) for name in state.server}
    lr = direction.new_full((1,), algorithm.server.lr_at(state.round))
    params, server = algorithm.server.step(state.params, -direction, slots, lr)
    step = apply_transforms("step", params - state.params)
    remembered, shares = followed[-1] if followed else (None, None)
    return _Step(direction, step, tuple(states), server, facts, remembered, shares)


def _shared(algorithm: Algorithm, shared: Vectors, updates: ClientUpdates, conditions: Conditions) -> Vectors:
    """The vectors that corrections broadcast, after a round."""
    weights = conditions.weights[updates.clients]
    renewed: dict[str, Tensor] = {}
    for correction in algorithm.solver.corrections:
        own = {name: shared[name] for name in correction.shared_names}
        renewed.update(correction.update_shared(own, updates, weights))
    return renewed


def _average_buffers(buffers: Tensor, updates: ClientUpdates, *, robust: bool) -> Tensor:
    """Running statistics after a round; computed as a change, so that constant buffers keep every bit."""
    if not buffers.numel() or not len(updates):
        return buffers
    shares, change = normalized(updates.importance), updates.buffers - buffers
    return buffers + (weighted_median(change, shares) if robust else weighted_sum(shares, change))


def _refuse_lost_server(round: int, *vectors: Tensor) -> None:
    """Stop at infinity even if the step hides it: an infinite second moment makes a step of zero."""
    if not reduce(torch.logical_and, (are_finite(vector[None]) for vector in vectors)):
        raise NonFiniteError(
            f"In round {round + 1} the server's step is not finite although every update is: lower the server's "
            "learning rate, or bound its direction with Clip."
        )


def _drop_non_finite(
    updates: ClientUpdates, finite: Tensor, algorithm: Algorithm, round: int, names: ClientNames | None
) -> ClientUpdates:
    """Keep NaN and infinity from the model: drop such rows if the aggregator is robust, else stop."""
    finite = finite.cpu()
    if bool(finite.all()):
        return updates
    if algorithm.aggregator.robust:
        return leave_out(updates, ~finite, Reason.NOT_FINITE, "its update holds NaN or infinity")
    culprits = ", ".join(called(client, names) for client in updates.clients[~finite].tolist()[:10])
    raise NonFiniteError(
        f"In round {round + 1} the updates of clients [{culprits}] are not finite: lower the clients' "
        "learning rate, or bound their gradients with LocalSolver.clip."
    )
