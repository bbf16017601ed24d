"""The methods of a comparison, in the place of a spec's own algorithm.

A method is a preset (`fednova`) or a spec file, of which the `[algorithm]` counts (`own.toml`). Values may
follow, each after a colon and as in an override of `algorithm`: `fedprox:mu=0.1`, `fednova:server.lr=0.5`.

A preset takes what the spec says about the client side: the arguments of `ClientSide`, such as `lr`, `epochs`
and `cohort_size`, and what stands under `[algorithm.solver]`, except for corrections. The preset that the spec
itself names takes all that the spec says.
"""

from __future__ import annotations

import re
import tomllib
import typing
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from fairlead.errors import FairleadError, FieldError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.spec import from_toml, load_experiment
from fairlead.methods import ClientSide, method_named
from fairlead.studies.ranges import split_values
from fairlead.studies.study import PlannedRun, folder_name

Table = dict[str, Any]


class ListedMethod(NamedTuple):
    """A method as it was listed, and the experiment with it."""

    name: str
    experiment: Experiment


def listed_methods(
    spec: str | PathLike[str], methods: str, overrides: Sequence[str] = ()
) -> list[ListedMethod]:
    """The experiment of a spec with each of the methods of a list such as "fedavg,fedprox:mu=0.1"."""
    own = load_experiment(spec, overrides)
    table = tomllib.loads(Path(spec).read_text(encoding="utf-8"))
    found = [_listed(text, own, table, Path(spec), overrides) for text in split_values(methods, "methods")]
    names = [method.name for method in found]
    for name in names:
        if names.count(name) > 1:
            raise FieldError(f"Every method must be listed once, got {name!r} {names.count(name)} times.")
    return found


def planned_comparison(methods: Sequence[ListedMethod], seeds: Sequence[int]) -> list[PlannedRun]:
    """A run for every method and seed, seed by seed, so that methods share the data that were loaded for it."""
    return [
        PlannedRun(
            folder=f"{folder_name(method.name)}/seed-{seed}",
            labels={"method": method.name, "seed": seed},
            experiment=replace(method.experiment, seed=seed),
        )
        for seed in seeds
        for method in methods
    ]


def _listed(text: str, own: Experiment, table: Table, spec: Path, overrides: Sequence[str]) -> ListedMethod:
    # A colon inside a value, as in 'module:function', is not followed by a name and an equals sign.
    base, *values = re.split(r":(?=[A-Za-z_][\w.\[\]]*=)", text.strip())
    if base.endswith(".toml"):
        algorithm, name = _algorithm_of(Path(base)), ":".join([Path(base).stem, *values])
    else:
        algorithm, name = _with_preset(method_named(base).name, own, table.get("algorithm", {})), text.strip()
    written = tomli_w.dumps({**table, "algorithm": algorithm})
    try:
        changes = [*overrides, *(f"algorithm.{value}" for value in values)]
        return ListedMethod(name, from_toml(Experiment, written, changes, source=str(spec)))
    except FairleadError as error:
        raise type(error)(f"Method {name}: {error}") from error


def _with_preset(preset: str, own: Experiment, algorithm: Table) -> Table:
    """A table that names the preset and keeps the client side of the spec's algorithm."""
    if algorithm.get("preset") == preset:
        return algorithm
    names = typing.get_type_hints(ClientSide)
    kept = {name: value for name, value in algorithm.items() if name in names}
    solver = {name: value for name, value in algorithm.get("solver", {}).items() if name != "corrections"}
    if "preset" not in algorithm:
        # By parts: what presets take as arguments must not stand beside them as well.
        kept["lr"] = own.algorithm.solver.optimizer.lr
        kept |= {name: solver.pop(name) for name in list(solver) if name in names}
        if "cohort_size" in algorithm.get("sampler", {}):
            kept["cohort_size"] = algorithm["sampler"]["cohort_size"]
    return {"preset": preset, **kept, **({"solver": solver} if solver else {})}


def _algorithm_of(file: Path) -> Table:
    load_experiment(file)
    algorithm: Table = tomllib.loads(file.read_text(encoding="utf-8"))["algorithm"]
    return algorithm
