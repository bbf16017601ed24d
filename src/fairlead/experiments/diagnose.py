"""`diagnose`: probe a federation for a few rounds, and advise a method."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import fairlead.diagnostics.evidence as facts
from fairlead.algorithm import Algorithm
from fairlead.checkpoint.store import has_checkpoint
from fairlead.diagnostics.advice import diagnosis_of
from fairlead.diagnostics.clients import arrival_inequality, overview
from fairlead.diagnostics.consensus import consensus_test, drift_price
from fairlead.diagnostics.diagnosis import Diagnosis, SpecFile, arguments_for, fits_in, listed_values
from fairlead.diagnostics.diversity import client_updates, cosine_matrix
from fairlead.diagnostics.gradients import FEWEST, Dissimilarity, dissimilarity, near_optimum, objective_value
from fairlead.diagnostics.measurement import Tally, chance_level, report_of
from fairlead.diagnostics.personal import personal_gain
from fairlead.errors import DataError, FieldError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.method_list import listed_methods, on_client_side, own_name
from fairlead.experiments.record_io import REAL_CLIENTS, Recorded, read_recorded, recorded_run
from fairlead.experiments.run_folder import RunFolder
from fairlead.experiments.spec import load_experiment
from fairlead.experiments.study import ListedMethod, run_at
from fairlead.federation import Federation
from fairlead.local_solver import LocalSolver
from fairlead.presets import fedavg, method_named
from fairlead.records import Conditions, RoundRecord
from fairlead.theory.prediction import implied_surrogate
from fairlead.worlds.simulated import SimulatedWorld

_AHEAD = 10
"""Rounds whose conditions are computed for every round trained, which costs next to nothing."""
_AHEAD_AT_MOST = 200
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
) -> facts.Evidence:
    """The evidence of a federation and its records; `quick` skips the consensus test."""
    algorithm, world = federation.algorithm, federation.world
    population, simulation = world.population, world.simulation
    recorded = Recorded(
        tuple(records), population.weights, population.names, algorithm=algorithm, no_data=REAL_CLIENTS
    )
    if simulation is None:
        # A real world estimates its conditions from these same rounds, so they are no further evidence.
        return evidence_of_records(source, recorded)
    first, at_most = records[0].round, max(_NUMBERS // population.num_clients, 1)
    ahead = range(first, first + min(_AHEAD * len(records), _AHEAD_AT_MOST, at_most))

    def conditions(solver: LocalSolver) -> list[Conditions]:
        return [world.conditions(round, solver, federation.key) for round in ahead]

    told, counted = facts.outlook(conditions(algorithm.solver)), _counted(source, recorded)
    expected = _with_rates(conditions, counted.links.values) if told.links is None else conditions
    evidence = replace(
        counted,
        expected_conditions=expected,
        work=told.work or counted.work,
        links=told.links or counted.links,
        rates_told=told.links is not None,
        unreachable=counted.unreachable if told.links is None else told.unreachable,
    )
    return _looked_closer(_predicted(evidence, algorithm), federation, simulation, quick=quick)


def evidence_of_records(source: str, recorded: Recorded) -> facts.Evidence:
    """The evidence of rounds without the clients' data."""
    evidence, method = _counted(source, recorded), recorded.algorithm
    if recorded.averaged_by_weight:
        asked = max(len(record.asked) for record in recorded.records)
        method = fedavg(lr=0.1, steps=1, cohort_size=None if asked == len(recorded.weights) else asked)
    return evidence if method is None else _predicted(evidence, method)


def _counted(source: str, recorded: Recorded) -> facts.Evidence:
    """The evidence that the records alone give."""
    records, weights, tally = recorded.records, recorded.weights, Tally(recorded.weights)
    tally.add(records)
    work = facts.observed_work(records, weights)
    links = arrival_inequality(tally.asked, tally.arrived, weights, tally.rounds)
    steps = torch.where(tally.arrived > 0, tally.mean_steps, torch.nan)
    return facts.Evidence(
        source=source,
        weights=weights,
        names=recorded.names,
        records=records,
        algorithm=recorded.algorithm,
        expected_conditions=facts.constant_conditions(
            weights, len(records), work.values, links.values, steps
        ),
        tally=tally,
        consistency=report_of(tally, recorded.algorithm),
        chance=chance_level(records, weights),
        work=work,
        links=links,
        rates_told=False,
        unreachable=facts.silent_clients(tally),
        assumptions=recorded.assumptions,
        no_consensus=recorded.no_data,
    )


def _predicted(evidence: facts.Evidence, method: Algorithm) -> facts.Evidence:
    """The same with the weights that theory predicts for a method."""
    predicted = implied_surrogate(method, evidence.expected_conditions(method.solver))
    return replace(evidence, consistency=replace(evidence.consistency, predicted=predicted))


def _with_rates(conditions: facts.ExpectedConditions, rates: Tensor) -> facts.ExpectedConditions:
    """Conditions of a world that does not know arrival rates, with the rates counted in the records."""
    filled = torch.where(rates.isnan(), rates.nanmean(), rates)

    def counted(solver: LocalSolver) -> list[Conditions]:
        return [replace(told, forecast_arrival=lambda: filled) for told in conditions(solver)]

    return counted


def _looked_closer(
    evidence: facts.Evidence, federation: Federation, world: SimulatedWorld, *, quick: bool
) -> facts.Evidence:
    """Adds evidence that needs a simulation: the clients' data, their updates from one model, their consensus."""
    data = overview(world, federation.algorithm.solver, federation.key, rounds=1)
    most = min(_COMPARED, _NUMBERS // world.population.num_parameters)
    evidence = replace(
        evidence,
        data=data,
        cosines=_compared(federation, world),
        dissimilarity=_differing(federation, world),
        personal=personal_gain(federation, world, most),
        planned=federation.rounds or 0,
    )
    if evidence.most_steps == 0:
        return replace(evidence, no_consensus="no update arrived")
    if quick:
        return replace(evidence, no_consensus="the quick probe skips it")
    return _tested(evidence, federation, world) if evidence.most_steps > 1 else evidence


def _tested(evidence: facts.Evidence, federation: Federation, world: SimulatedWorld) -> facts.Evidence:
    """Adds a consensus test near the optimum, on as many clients as memory allows."""
    lr = federation.algorithm.solver.optimizer.lr_at(0)
    horizons = [steps for steps in _HORIZONS if steps <= max(evidence.most_steps, 2)]
    weighty = int((evidence.weights > 0).sum())
    size, examples = world.population.num_parameters, int(world.clients.sizes.sum())
    clients = min(weighty, _NUMBERS // (len(horizons) * size))
    if weighty < 2:
        return replace(evidence, no_consensus="there are fewer than two clients")
    if clients < 2 or examples * size > _SEARCHABLE:
        why = (
            f"it would take too long with {examples} examples and {size} parameters: call consensus_test on some "
            "of the clients"
        )
        return replace(evidence, no_consensus=why)
    start, buffers = federation.params, federation.state.buffers
    optimum = near_optimum(world, params=start, buffers=buffers, iterations=_SEARCH)
    try:
        report = consensus_test(world, optimum.params, lr, steps=horizons, clients=clients, buffers=buffers)
    except FieldError:
        why = f"local steps with learning rate {lr:g} diverge near the optimum"
        return replace(evidence, no_consensus=why)
    before = objective_value(world, world.initial_model(federation.key)[0], buffers)
    price = None
    if report.verdict == "drift matters":
        rise = drift_price(world, optimum, lr, steps=horizons[-1], rounds=_PRICED)
        price = facts.DriftPrice(rise, _PRICED, horizons[-1])
    fits = 0 <= optimum.loss < _FITS * before
    return replace(evidence, consensus=report, fits_all=fits, price=price)


def _compared(federation: Federation, world: SimulatedWorld) -> facts.Cosines | None:
    """Cosines of the updates of up to 50 clients from the present model, over perfect links; none is applied."""
    weighty = world.population.weights.nonzero().flatten()
    number = min(len(weighty), _COMPARED, _NUMBERS // world.population.num_parameters)
    updates = client_updates(federation, weighty[torch.linspace(0, len(weighty) - 1, number).long()])
    if len(updates) < 2:
        return None
    return facts.Cosines(tuple(updates.clients.tolist()), cosine_matrix(updates.delta))


def _differing(federation: Federation, world: SimulatedWorld) -> Dissimilarity | str:
    """How much the gradients of up to 50 clients differ, or why that is not tested."""
    weights, sizes = world.population.weights, world.clients.sizes
    usable = ((weights > 0) & (sizes > 1)).nonzero().flatten()
    size = world.population.num_parameters
    number = min(len(usable), _COMPARED, _NUMBERS // (4 * size))
    if len(usable) < FEWEST:
        return f"fewer than {FEWEST} clients of positive weight have two examples"
    if number < FEWEST or int(sizes.sum()) * size > _SEARCHABLE:
        return f"it would take too long with {int(sizes.sum())} examples and {size} parameters"
    chosen = usable[torch.linspace(0, len(usable) - 1, number).long()]
    return dissimilarity(world, federation.params, clients=chosen, buffers=federation.state.buffers)


PROBE_ROUNDS, QUICK_ROUNDS = 20, 10
"""Rounds of a full probe and of a quick one, by default."""
TRIAL_ROUNDS, TRIAL_SEEDS = 50, (0, 1, 2)
"""Rounds of a trial at most, and its seeds."""
_CANDIDATES = ("fednova", "scaffold", "feddyn")
"""Methods of a trial beside FedAvg and the advised one."""


def diagnose(
    subject: Experiment | Federation | str | PathLike[str],
    *,
    rounds: int | None = None,
    quick: bool = False,
    against: Sequence[str] = (),
    on_round: Callable[[RoundRecord], None] | None = None,
) -> Diagnosis:
    """Measure how clients differ and which objective a method really optimizes, and recommend a method.

    An experiment, or the path of its spec, is trained for a probe of `rounds` rounds (20; 10 if `quick`). A
    federation with records, the folder of a run and a file of records logged elsewhere
    (`fairlead.experiments.record_io`) are diagnosed from the rounds they have. The conditions of ten times as many
    rounds are computed as well, 200 at most. A run with real clients, or whose data are gone, is diagnosed from its
    records and from the facts about clients in its folder. The consensus test searches for the optimum of the clients'
    own data; `quick` skips it. `against` names presets whose predicted effect to compare. The subject is not changed.

    >>> import fairlead as fl
    >>> world = fl.Quadratics(num_clients=12)
    >>> unequal = fl.FixedSteps((1, 9) * 6)
    >>> found = diagnose(Experiment(world, fl.presets.fedavg(lr=0.01, steps=1), rounds=100, work=unequal))
    >>> found.advice.preset
    'scaffold'
    """
    if rounds is not None and rounds < 1:
        raise FieldError(f"diagnose needs rounds of at least 1, got {rounds}.")
    for preset in against:
        # Unknown names are refused before the work, not after it.
        method_named(preset)
    if isinstance(subject, Federation):
        found: _Probed | Recorded = _Probed("the federation", subject, list(subject.records))
    elif isinstance(subject, Experiment):
        found = _Probed("the experiment", subject.build(), [])
    else:
        found = _opened(Path(subject))
    if rounds is not None and found.records:
        raise FieldError("`rounds` only applies to a spec; a finished run is diagnosed from all its rounds.")
    if isinstance(found, Recorded):
        return diagnosis_of(evidence_of_records(str(subject), found), against)
    if not found.records:
        found = _trained(found, rounds or (QUICK_ROUNDS if quick else PROBE_ROUNDS), on_round)
    evidence = evidence_of_federation(found.source, found.federation, found.records, quick=quick)
    found_out = diagnosis_of(evidence, against)
    return found_out if found.spec is None else replace(found_out, spec=spec_file(found.spec))


def spec_file(path: Path, overrides: Sequence[str] = ()) -> SpecFile:
    """A spec as `fairlead compare` takes it."""
    return SpecFile(str(path), own_name(path), tuple(overrides))


def trial_methods(found: Diagnosis) -> dict[str, ListedMethod]:
    """The present method first, then FedAvg, the advised preset and other candidates, for a short comparison.

    All have the client side of the spec and the same number of rounds, `TRIAL_ROUNDS` at most.
    """
    if found.spec is None:
        raise FieldError(
            f"--try needs clients that can be simulated: {found.source} has only the records of a federation. Write a "
            "spec with similar clients, work and links, and try it there."
        )
    spec, advice, evidence = found.spec, found.advice, found.evidence
    (own,) = listed_methods(spec.path, spec.name, spec.overrides).values()
    rounds = min(own.experiment.rounds, TRIAL_ROUNDS)
    every = max(min(own.experiment.evaluate_every, rounds // 10), 1)
    own = own._replace(experiment=replace(own.experiment, rounds=rounds, evaluate_every=every))
    methods = {spec.name: own}
    for preset in dict.fromkeys(filter(None, ("fedavg", advice.preset, *_CANDIDATES))):
        if fits_in(preset, evidence):
            own_values = listed_values(preset, arguments_for(preset, evidence))
            values = advice.values if preset == advice.preset else own_values
            algorithm, taken = on_client_side(preset, own.experiment.algorithm, values)
            if all(algorithm != other.experiment.algorithm for other in methods.values()):
                experiment = replace(own.experiment, algorithm=algorithm)
                methods[":".join([preset, *values])] = ListedMethod(experiment, taken)
    return methods


class _Probed(NamedTuple):
    source: str
    federation: Federation
    records: list[RoundRecord]
    spec: Path | None = None


def _opened(path: Path) -> _Probed | Recorded:
    """The subject at a path: a spec, the folder of a run, or the records of a real federation."""
    if path.name == "rounds.jsonl" and (path.parent / "spec.toml").exists():
        path = path.parent
    if path.is_dir():
        return _opened_run(run_at(path))
    if path.suffix == ".toml":
        return _Probed(str(path), load_experiment(path).build(), [], path)
    return read_recorded(path)


def _opened_run(store: RunFolder) -> _Probed | Recorded:
    """A run with its clients' data if they can be loaded, else with the facts in its folder."""
    records, clients, experiment = store.records(), store.clients(), store.experiment()
    if not records:
        raise FieldError(f"The run in {store.path} has no rounds yet: diagnose its spec.toml instead.")
    if clients is not None and clients.real:
        return recorded_run(records, experiment.algorithm, clients)
    try:
        federation = experiment.build()
    except DataError as error:
        if clients is None:
            raise
        return recorded_run(records, experiment.algorithm, clients, error)
    if has_checkpoint(store.checkpoint):
        federation.resume(store.checkpoint)
    return _Probed(str(store.path), federation, records, store.spec_file)


def _trained(probed: _Probed, rounds: int, on_round: Callable[[RoundRecord], None] | None) -> _Probed:
    """The same after some rounds, trained in a new federation."""
    given = probed.federation
    fresh = Federation(given.algorithm, given.world, given.seed, rounds=given.rounds)
    for record in fresh.train(rounds):
        if on_round:
            on_round(record)
    return probed._replace(federation=fresh, records=list(fresh.records))
