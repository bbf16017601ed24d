"""`diagnose`: a short probe of a federation, and what it says about the method to use."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from fairlead.checkpoint import has_checkpoint
from fairlead.diagnostics.advice import diagnosis_of
from fairlead.diagnostics.diagnosis import Diagnosis
from fairlead.diagnostics.recipe import SpecFile
from fairlead.diagnostics.wording import listed
from fairlead.errors import DataError, FieldError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.probe import evidence_of_federation, evidence_of_records
from fairlead.experiments.recorded import Recorded, read_recorded, recorded_run
from fairlead.experiments.run_folder import RunFolder
from fairlead.experiments.spec import load_experiment
from fairlead.federation import Federation
from fairlead.methods import ClientSide, method_named
from fairlead.records import RoundRecord

PROBE_ROUNDS, QUICK_ROUNDS = 20, 10
"""Rounds that a probe trains unless told otherwise, in full and in haste."""


def diagnose(
    subject: Experiment | Federation | str | PathLike[str],
    *,
    rounds: int | None = None,
    quick: bool = False,
    against: Sequence[str] = (),
    on_round: Callable[[RoundRecord], None] | None = None,
) -> Diagnosis:
    """What is unequal in a federation, which objective its method really optimises, and what to use instead.

    An experiment, or the path of its spec, is trained for a probe of `rounds` rounds (20; 10 if `quick`). A
    federation that has records, the folder of a run and a file of records logged elsewhere
    (`fairlead.experiments.recorded`) are judged by the rounds they have. Beside them the conditions
    of ten times as many rounds are looked at, 200 at most. Of a run with real clients, or whose data are no
    longer there, its records and what its folder notes of the clients are all that is used. The consensus test
    searches for the optimum of the clients' own data and is left out if `quick`. `against` names presets whose
    expected effect to compare. Nothing that is given is changed.

    >>> import fairlead as fl
    >>> world = fl.Quadratics(num_clients=12)
    >>> unequal = fl.FixedSteps((1, 9) * 6)
    >>> found = diagnose(Experiment(world, fl.presets.fedavg(lr=0.01, steps=1), rounds=100, work=unequal))
    >>> found.advice.preset
    'fednova'
    """
    if rounds is not None and rounds < 1:
        raise FieldError(f"diagnose needs rounds of at least 1, got {rounds}.")
    for preset in against:
        # A name that is none should be refused before the work, not after it.
        method_named(preset)
    if isinstance(subject, Federation):
        found: _Probed | Recorded = _Probed("the federation", subject, list(subject.records))
    elif isinstance(subject, Experiment):
        found = _Probed("the experiment", subject.build(), [])
    else:
        found = _opened(Path(subject))
    if rounds is not None and found.records:
        raise FieldError("rounds are those of a probe: what has run already is judged by all of its own.")
    if isinstance(found, Recorded):
        return diagnosis_of(evidence_of_records(str(subject), found), against)
    if not found.records:
        found = _trained(found, rounds or (QUICK_ROUNDS if quick else PROBE_ROUNDS), on_round)
    evidence = evidence_of_federation(found.source, found.federation, found.records, quick=quick)
    found_out = diagnosis_of(evidence, against)
    return found_out if found.spec is None else replace(found_out, spec=spec_file(found.spec))


def spec_file(path: Path, overrides: Sequence[str] = ()) -> SpecFile:
    """A spec as `fairlead compare` takes it: changes of the method alone belong to the present method."""
    algorithm = tomllib.loads(path.read_text(encoding="utf-8")).get("algorithm")
    method = None if algorithm is None else algorithm.get("preset", str(path))
    shared, own = [], []
    for change in overrides:
        name, _, value = change.partition("=")
        head, _, argument = name.strip().partition(".")
        if argument == "preset" and head == "algorithm":
            method = value.strip().strip("\"'")
        elif head == "algorithm" and argument not in ClientSide.__annotations__:
            own.append(f"{argument}={value.strip()}")
        else:
            shared.append(change)
    return SpecFile(str(path), None if method is None else ":".join([method, *own]), tuple(shared))


class _Probed(NamedTuple):
    source: str
    federation: Federation
    records: list[RoundRecord]
    spec: Path | None = None


def _opened(path: Path) -> _Probed | Recorded:
    """What lies at a path: a spec, the folder of a run, or the records of a real federation."""
    if path.name == "rounds.jsonl" and (path.parent / "spec.toml").exists():
        path = path.parent
    if path.is_dir():
        return _opened_run(RunFolder(path))
    if path.suffix == ".toml":
        return _Probed(str(path), load_experiment(path).build(), [], path)
    return read_recorded(path)


def _opened_run(store: RunFolder) -> _Probed | Recorded:
    """A run with its clients' data where they can be had, else with what its folder tells."""
    if not store.spec_file.exists() or not store.rounds_file.exists():
        below = _runs_below(store.path)
        raise FieldError(
            f"{store.path} is not the folder of a run: it lacks spec.toml or rounds.jsonl{below}."
        )
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


def _runs_below(path: Path) -> str:
    """Which runs a folder of several holds, as the end of a sentence."""
    below = sorted(file.parent for file in path.rglob("rounds.jsonl") if file.with_name("spec.toml").exists())
    return f"; runs below it are {listed(below)}" if below else ""


def _trained(probed: _Probed, rounds: int, on_round: Callable[[RoundRecord], None] | None) -> _Probed:
    """The same after some rounds, in a federation of its own."""
    given = probed.federation
    fresh = Federation(given.algorithm, given.world, given.seed)
    for record in fresh.train(rounds):
        if on_round:
            on_round(record)
    return probed._replace(federation=fresh, records=list(fresh.records))
