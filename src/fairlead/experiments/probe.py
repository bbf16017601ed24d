"""Evidence for a diagnosis: what a federation, or records of one, can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fairlead.conditions.link import PerfectLink
from fairlead.diagnostics.client_overview import overview
from fairlead.diagnostics.consensus import consensus_test, drift_price
from fairlead.diagnostics.consistency import measured_consistency
from fairlead.diagnostics.evidence import (
    Cosines,
    DataSkew,
    DriftPrice,
    Evidence,
    Foresight,
    constant_foresight,
    observed_links,
    observed_work,
    outlook,
    silent_clients,
)
from fairlead.diagnostics.gradients import near_optimum, objective_value
from fairlead.diagnostics.surrogate import implied_surrogate
from fairlead.errors import FieldError
from fairlead.experiments.comparison import chance_level
from fairlead.experiments.recorded import REAL_CLIENTS, Recorded
from fairlead.federation import Federation
from fairlead.local_solver import LocalSolver
from fairlead.presets import fedavg
from fairlead.records import Cohort, Conditions, RoundRecord, WorkOrder
from fairlead.worlds.simulated import SimulatedWorld
from fairlead.worlds.simulation import simulation_of

_FORESEEN = 10
"""Rounds whose conditions are looked at for every round trained; they cost next to nothing."""
_FORESEEN_AT_MOST = 200
_HORIZONS = (1, 2, 5, 10, 20, 50)
_SEARCH = 100
"""Iterations of the search for the optimum that the consensus test starts from."""
_NUMBERS = 2**27
"""Numbers that are held at a time, at most: a GiB in double precision."""
_SEARCHABLE = 10**10
"""Examples times parameters beyond which the search for the optimum takes longer than a short probe may."""
_PRICED = 5
"""Rounds of averaging from the optimum by which the price of drift is measured."""
_FITS = 0.01
"""Share of the initial model's loss below which the optimum is said to fit all data."""
_COMPARED = 50
"""Clients whose updates are compared with each other, at most."""


def evidence_of_federation(
    source: str, federation: Federation, records: Sequence[RoundRecord], *, quick: bool
) -> Evidence:
    """What a federation and its records tell; `quick` leaves the consensus test out."""
    algorithm, world = federation.algorithm, federation.world
    weights, names = world.population.weights, world.population.names
    simulation = simulation_of(world)
    if simulation is None:
        # What a real world foretells it has estimated from these rounds, which bear no more than they hold.
        kept = Recorded(tuple(records), weights, names, algorithm=algorithm, no_data=REAL_CLIENTS)
        return evidence_of_records(source, kept)
    first = records[0].round
    looked_at = min(_FORESEEN * len(records), _FORESEEN_AT_MOST, max(_NUMBERS // len(weights), 1))
    ahead = range(first, first + looked_at)

    def conditions(solver: LocalSolver) -> list[Conditions]:
        return [world.conditions(round, solver, federation.key) for round in ahead]

    told = outlook(conditions(algorithm.solver))
    seen_work, seen_links = observed_work(records, weights), observed_links(records, weights)
    work, links = told.work or seen_work, told.links or seen_links
    foresight: Foresight = conditions
    if told.links is None:
        foresight = _with_rates(conditions, links.values)
    evidence = Evidence(
        source=source,
        weights=weights,
        names=names,
        records=records,
        algorithm=algorithm,
        foresight=foresight,
        consistency=replace(
            measured_consistency(records, weights, algorithm=algorithm),
            predicted=implied_surrogate(algorithm, foresight(algorithm.solver)),
        ),
        chance=chance_level(records, weights),
        work=work,
        links=links,
        rates_told=told.links is not None,
        unreachable=told.unreachable if told.links is not None else silent_clients(records, weights),
    )
    return _looked_closer(evidence, federation, simulation, quick=quick)


def _with_rates(conditions: Foresight, rates: Tensor) -> Foresight:
    """Conditions of a world that does not tell arrival rates, with those that were counted."""
    filled = torch.where(rates.isnan(), rates.nanmean(), rates)

    def counted(solver: LocalSolver) -> list[Conditions]:
        return [replace(told, forecast_arrival=lambda: filled) for told in conditions(solver)]

    return counted


def _looked_closer(
    evidence: Evidence, federation: Federation, world: SimulatedWorld, *, quick: bool
) -> Evidence:
    """What only a simulation can tell: the clients' data, their updates from one model, their consensus."""
    seen = overview(world, federation.algorithm.solver, federation.key, rounds=1)
    evidence = replace(
        evidence, data=DataSkew(seen.sizes, seen.label_counts), cosines=_compared(federation, world)
    )
    if evidence.most_steps == 0:
        return replace(evidence, no_consensus="nothing arrived")
    if quick:
        return replace(evidence, no_consensus="the quick probe leaves it out")
    return _tested(evidence, federation, world) if evidence.most_steps > 1 else evidence


def _tested(evidence: Evidence, federation: Federation, world: SimulatedWorld) -> Evidence:
    """The same with a consensus test near the optimum, on as many clients as memory allows."""
    lr = federation.algorithm.solver.optimizer.lr_at(0)
    horizons = [steps for steps in _HORIZONS if steps <= max(evidence.most_steps, 2)]
    weighty = int((evidence.weights > 0).sum())
    size, examples = world.population.num_parameters, int(world.clients.sizes.sum())
    clients = min(weighty, _NUMBERS // (len(horizons) * size))
    if weighty < 2:
        return replace(evidence, no_consensus="there are fewer than two clients")
    if clients < 2 or examples * size > _SEARCHABLE:
        why = (
            f"it would take long with {examples} examples and {size} parameters: call consensus_test on a part "
            "of them"
        )
        return replace(evidence, no_consensus=why)
    start, buffers = federation.params, federation.state.buffers
    optimum = near_optimum(world, params=start, buffers=buffers, iterations=_SEARCH)
    try:
        report = consensus_test(world, optimum.params, lr, steps=horizons, clients=clients, buffers=buffers)
    except FieldError:
        why = f"local steps with learning rate {lr:g} do not stay finite near the optimum"
        return replace(evidence, no_consensus=why)
    before = objective_value(world, world.initial_model(federation.key)[0], buffers)
    price = None
    if report.verdict == "drift matters":
        rise = drift_price(world, optimum, lr, steps=horizons[-1], rounds=_PRICED)
        price = DriftPrice(rise, _PRICED, horizons[-1])
    fits = 0 <= optimum.loss < _FITS * before
    return replace(evidence, consensus=report, fits_all=fits, price=price)


def _compared(federation: Federation, world: SimulatedWorld) -> Cosines | None:
    """Updates of up to 50 clients from the present model, whatever their links; none of them is applied."""
    weighty = world.population.weights.nonzero().flatten()
    number = min(len(weighty), _COMPARED, _NUMBERS // world.population.num_parameters)
    clients = weighty[torch.linspace(0, len(weighty) - 1, number).long()]
    cohort = Cohort(clients, torch.ones_like(clients), world.population.weights[clients])
    state = federation.state
    updates = world.over(PerfectLink()).work(
        WorkOrder(
            state.round,
            federation.algorithm.solver,
            state.params,
            state.buffers,
            state.shared,
            cohort,
            state.memory,
            federation.key,
        )
    )
    return Cosines.of(updates.clients, updates.delta) if len(updates) > 1 else None


def evidence_of_records(source: str, recorded: Recorded) -> Evidence:
    """What rounds tell without the clients' data."""
    records, weights = recorded.records, recorded.weights
    work, links = observed_work(records, weights), observed_links(records, weights)
    foresight = constant_foresight(weights, work.values, links.values, len(records))
    method = recorded.algorithm
    report = measured_consistency(records, weights, algorithm=method)
    if recorded.averaged_by_weight:
        asked = max(len(record.asked) for record in records)
        method = fedavg(lr=0.1, steps=1, cohort_size=None if asked == len(weights) else asked)
    if method is not None:
        report = replace(report, predicted=implied_surrogate(method, foresight(method.solver)))
    return Evidence(
        source=source,
        weights=weights,
        names=recorded.names,
        records=records,
        algorithm=recorded.algorithm,
        foresight=foresight,
        consistency=report,
        chance=chance_level(records, weights),
        work=work,
        links=links,
        rates_told=False,
        unreachable=silent_clients(records, weights),
        assumptions=recorded.assumptions,
        no_consensus=recorded.no_data,
    )
