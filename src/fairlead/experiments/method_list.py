"""The methods of a comparison: presets on the client side of a spec, the spec's own algorithm, and other specs."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path

import tomli_w

from fairlead.algorithm import Algorithm
from fairlead.errors import ClashError, FairleadError, FieldError, short
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.spec import TomlTable, from_toml, load_experiment, read_table, to_toml
from fairlead.experiments.study import (
    Label,
    ListedMethod,
    as_label,
    grid_axis,
    grid_points,
    refuse_repeated,
    setting_name,
    split_values,
)
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.optimizers.personal import MetaSGD, MixedSGD, MoreauSGD
from fairlead.plain_data import Plain, refuse_unknown, settable_fields, to_plain
from fairlead.presets import METHODS, ClientSide, method_named, needed_arguments
from fairlead.samplers.base import Sampler
from fairlead.samplers.fixed import FullParticipation

_PERSONAL = (MetaSGD, MixedSGD, MoreauSGD)
"""Optimizers that are a part of their method."""
_SERVER_SIDE = ("aggregator", "transforms", "server", "calibrate", "privacy", "secure_aggregation")
"""Fields of an algorithm that presets do not take from a spec."""
WHOLE: Mapping[str, Label] = {"algorithm": "whole"}
"""Taken from the spec by its own algorithm."""


@dataclass(frozen=True)
class CompareTable:
    """The `[compare]` table of a spec; lists in the format of the command line."""

    methods: str | None = None
    seeds: str | None = None
    target: float | None = None
    metric: str | None = None


def compare_table(spec: str | PathLike[str]) -> CompareTable:
    """The table of a spec that can be read; an empty one if it has none."""
    table = read_table(spec).get("compare", {})
    if not isinstance(table, dict):
        raise FieldError(f"compare must be a table, got {table!r}.")
    refuse_unknown(
        list(table), [field.name for field in fields(CompareTable)], "a field of [compare]", "compare"
    )
    target, metric = table.get("target"), table.get("metric")
    if target is not None and (isinstance(target, bool) or not isinstance(target, int | float)):
        raise FieldError(f"compare.target must be a number, got {target!r}.")
    if metric is not None and not isinstance(metric, str):
        raise FieldError(f"compare.metric must be the name of a metric, got {metric!r}.")
    return CompareTable(
        _listed_in_table(table, "methods", str, "a list of presets and spec files"),
        _listed_in_table(table, "seeds", int, "a list of whole numbers, or a text such as '0..4'"),
        None if target is None else float(target),
        metric,
    )


def _listed_in_table(table: TomlTable, name: str, kind: type, allowed: str) -> str | None:
    """A list in one text, from a list or such a text."""
    value = table.get(name)
    if value is None or (isinstance(value, str) and value):
        return value
    if not isinstance(value, list) or not value or not all(type(entry) is kind for entry in value):
        raise FieldError(f"compare.{name} must be {allowed}, got {value!r}.")
    return ",".join(map(str, value))


def own_name(spec: str | PathLike[str]) -> str:
    """The name of a spec's own algorithm in a comparison: that of its file, with the ending if a preset has it too."""
    path = Path(spec)
    return path.name if path.stem in METHODS else path.stem


def listed_methods(
    spec: str | PathLike[str], methods: str | None, overrides: Sequence[str] = (), tune: Sequence[str] = ()
) -> dict[str, ListedMethod]:
    """The methods of a list such as "fedavg,fedprox:mu=0.1,other.toml" on the experiment of a spec, by name.

    A preset is the method as defined, with the client side of the spec. The spec's own algorithm is listed by the
    name of its file. Without a list, FedAvg and the spec's own algorithm are compared. Overrides change the spec.
    With `tune`, such as "lr=0.01,0.1", every method is listed at each point of this grid.
    """
    own = load_experiment(spec, overrides)
    texts = ["fedavg", own_name(spec)] if methods is None else split_values(methods, "methods")
    if methods is None and on_client_side("fedavg", own.algorithm)[0] == own.algorithm:
        raise FieldError(
            f"compare needs methods, because the algorithm of {spec} is FedAvg itself: --methods fedavg,fednova, or "
            "methods = [...] under [compare]."
        )
    found = _over_grid(texts, tune, lambda text, more: _listed(text.strip(), more, own, spec, overrides))
    if not any(method.from_spec is WHOLE for method in found.values()):
        _refuse_without_effect(overrides, own_name(spec))
    return found


def methods_on(
    experiment: Experiment, methods: Mapping[str, Algorithm | str] | Sequence[str], tune: Sequence[str] = ()
) -> dict[str, ListedMethod]:
    """The same for algorithms and presets by name, or a list of presets, on an experiment."""
    allowed = (str, Algorithm) if isinstance(methods, Mapping) else str
    for method in methods.values() if isinstance(methods, Mapping) else methods:
        if not isinstance(method, allowed):
            raise FieldError(
                "compare.methods must be a list of presets, such as ['fedavg', 'fedprox:mu=0.1'], or a dictionary "
                f"from names to algorithms and presets, got {short(method)} in it."
            )

    def build(name: str, more: Sequence[str]) -> tuple[str, ListedMethod]:
        algorithm = methods[name] if isinstance(methods, Mapping) else name
        if isinstance(algorithm, str):
            return name, _preset(algorithm, more, experiment)
        if more:
            changes = [_place(value, algorithm) for value in more]
            algorithm = from_toml(Algorithm, to_toml(algorithm), changes)
        return name, ListedMethod(replace(experiment, algorithm=algorithm))

    return _over_grid(list(methods), tune, build)


def _over_grid(
    texts: Sequence[str], tune: Sequence[str], build: Callable[[str, Sequence[str]], tuple[str, ListedMethod]]
) -> dict[str, ListedMethod]:
    """Every method, or each at all points of one grid; `build` takes a method and values, and returns its name too."""
    axes, found = [grid_axis(text, "lr=0.01,0.1") for text in tune], list[tuple[str, ListedMethod]]()
    refuse_repeated([name for name, _ in axes], "Every name must be tuned once")
    for text in texts:
        for point in grid_points(axes):
            values, labels = [*map("=".join, point)], {name: as_label(value) for name, value in point}
            try:
                method, listed = build(text, values)
            except FairleadError as error:
                raise type(error)(f"Method {':'.join([text, *values])}: {error}") from error
            tuned = {"tuned": method, **labels} if labels else {}
            found.append((setting_name(method, labels), listed._replace(tuned=tuned)))
    refuse_repeated([name for name, _ in found], "Every method must be listed once")
    refuse_same({name: method.experiment.algorithm for name, method in found})
    return dict(found)


def preset_and_values(text: str) -> tuple[str, list[str]]:
    """The parts of a method such as "fedprox:mu=0.1:lr=0.2"."""
    # A colon inside a value, as in 'module:function', is not followed by a name and an equals sign.
    base, *values = re.split(r":(?=[A-Za-z_][\w.\[\]]*=)", text)
    return base, values


def on_client_side(
    preset: str, own: Algorithm, values: Sequence[str] = ()
) -> tuple[Algorithm, dict[str, Label]]:
    """A preset as defined, with the client side of another algorithm, and the arguments that it took.

    The client side is the optimizer, local work and batch size of the clients, and the size of the cohort. `values`
    such as "mu=0.1" or "server.lr=0.5" replace arguments and fields.
    """
    given = {_first_name(value) for value in values}
    clients = own.solver.optimizer
    if isinstance(clients, _PERSONAL):
        # The steps of a personal method belong to it.
        clients = SGD(clients.lr, schedule=clients.schedule, weight_decay=clients.weight_decay)
    plain = replace(own.solver, optimizer=clients, corrections=(), personal=None)
    solver: TomlTable = to_plain(plain, LocalSolver)
    if type(clients) is not SGD:
        # Its fields are no arguments of presets.
        names = {field.name for field in fields(clients)}
        its = [value for value in values if _first_name(value) in names]
        values = [value for value in values if value not in its]
        changes = [f"solver.optimizer.{value.strip()}" for value in its]
        changed = from_toml(Algorithm, tomli_w.dumps({"solver": solver}), changes)
        solver = to_plain(changed.solver, LocalSolver)
    optimizer = solver["optimizer"]
    # Presets always set epochs or steps, so these are arguments.
    length: TomlTable = (
        {} if given & {"epochs", "steps"} else {n: solver[n] for n in ("epochs", "steps") if n in solver}
    )
    cohort = {} if "cohort_size" in given else _cohort(to_plain(own.sampler, Sampler))
    beside = {name: value for name, value in solver.items() if name not in ("epochs", "steps")}
    # Presets may use them for more than the update.
    arguments = {n: v for n, v in {**optimizer, **beside}.items() if n in ClientSide.__annotations__}
    table: TomlTable = {"preset": preset, **arguments, **length, **cohort}
    if type(clients) is not SGD:
        simple = [value for value in values if _first_name(value) != "solver"]
        table["solver"] = _optimizers(from_toml(Algorithm, tomli_w.dumps(table), simple), preset, optimizer)
    algorithm = from_toml(Algorithm, tomli_w.dumps(table), values)
    taken: TomlTable = {
        **{"optimizer" if name == "type" else name: value for name, value in optimizer.items()},
        **length,
        "batch_size": to_plain(own.solver.batch_size),
        **{name: value for name, value in beside.items() if name not in ("optimizer", "batch_size")},
        "cohort_size": "all",
        **cohort,
    }
    labels = {name: _label(value) for name, value in taken.items() if name not in given}
    return algorithm, labels | _not_taken(own, algorithm, given)


def _not_taken(own: Algorithm, algorithm: Algorithm, given: Collection[str]) -> dict[str, Label]:
    """The parts of an own algorithm beyond plain FedAvg that a preset does not have."""
    usual, left = replace(own.solver, corrections=(), personal=None), list[str]()
    for its, other, plain in ((own, algorithm, Algorithm(own.solver)), (own.solver, algorithm.solver, usual)):
        for name in ("corrections", "personal") if its is own.solver else _SERVER_SIDE:
            value = getattr(its, name)
            if name not in given and value not in (getattr(plain, name), getattr(other, name)):
                left.append(name)
    if type(own.sampler) not in (FullParticipation, type(algorithm.sampler)):
        left.append("sampler")
    return {"not_taken": ", ".join(left)} if left else {}


def _first_name(value: str) -> str:
    """The argument or part that a value such as "server.lr=0.5" changes."""
    return re.split(r"[.=]", value, maxsplit=1)[0].strip()


def _optimizers(algorithm: Algorithm, preset: str, optimizer: TomlTable) -> TomlTable:
    """Fields of a preset's solver that make it use another optimizer than SGD, at the same learning rates."""
    solver, personal = algorithm.solver, algorithm.solver.personal
    for each in (solver, personal):
        if each is not None and isinstance(each.optimizer, _PERSONAL):
            raise ClashError(
                f"{preset} trains clients with {type(each.optimizer).__name__}, which has no place for the "
                f"{optimizer['type']} of the spec: give clients SGD in the spec, or leave {preset} out."
            )
    own = {} if personal is None else {"personal": {"optimizer": {**optimizer, "lr": personal.optimizer.lr}}}
    return {"optimizer": {**optimizer, "lr": solver.optimizer.lr}, **own}


def refuse_same(algorithms: Mapping[str, Algorithm]) -> None:
    """Raise if two methods of a comparison are the same algorithm."""
    names = list(algorithms)
    for place, name in enumerate(names):
        for other in names[:place]:
            if algorithms[name] == algorithms[other]:
                raise FieldError(f"{other} and {name} are the same algorithm: leave one of them out.")


def _listed(
    text: str, more: Sequence[str], own: Experiment, spec: str | PathLike[str], overrides: Sequence[str]
) -> tuple[str, ListedMethod]:
    """A method of a list with more values: the spec's own algorithm, that of another spec, or a preset."""
    base, values = preset_and_values(text)
    is_file = base.endswith(".toml")
    is_own = base == own_name(spec) or (is_file and Path(base).resolve() == Path(spec).resolve())
    if not is_own and not is_file:
        return text, _preset(text, more, own)
    file, given = spec if is_own else base, _once([*values, *more])
    name, table = ":".join([own_name(file), *values]), read_table(file).get("algorithm")
    if given and isinstance(table, dict) and "preset" not in table:
        given = [_place(value, load_experiment(file).algorithm) for value in given]
    changes = [f"algorithm.{value}" for value in given]
    if is_own:
        return name, ListedMethod(load_experiment(spec, [*overrides, *changes]), WHOLE)
    return name, ListedMethod(replace(own, algorithm=load_experiment(base, changes).algorithm), {})


def _preset(text: str, more: Sequence[str], own: Experiment) -> ListedMethod:
    """A preset with more values and the client side of an experiment's algorithm."""
    base, values = preset_and_values(text)
    given = _once([*values, *more])
    for argument in needed_arguments(method_named(base).build):
        if argument not in map(_first_name, given):
            raise FieldError(f"{base} needs {argument}: write {text}:{argument}=0.1.")
    algorithm, taken = on_client_side(base, own.algorithm, given)
    return ListedMethod(replace(own, algorithm=algorithm), taken)


def _once(values: Sequence[str]) -> Sequence[str]:
    refuse_repeated(
        [value.partition("=")[0].strip() for value in values], "Every value must be given or tuned once"
    )
    return values


def _place(value: str, algorithm: Algorithm) -> str:
    """A value such as "lr=0.1" with the path of the part of the client side that has it."""
    name, solver = _first_name(value), algorithm.solver
    parts = {"": algorithm, "solver.optimizer.": solver.optimizer, "solver.": solver}
    return next((path for path, part in parts.items() if name in settable_fields(type(part))), "") + value


def _cohort(sampler: TomlTable) -> TomlTable:
    """The cohort size of a sampler, or of the one that it wraps."""
    inner = [value for value in sampler.values() if isinstance(value, dict)]
    sizes = [table["cohort_size"] for table in (sampler, *inner) if "cohort_size" in table]
    return {"cohort_size": sizes[0]} if sizes else {}


def _label(value: Plain) -> Label:
    """A value of the client side in one word: a schedule by its type."""
    return str(value["type"]) if isinstance(value, dict) else value


def _refuse_without_effect(overrides: Sequence[str], own: str) -> None:
    """Raise if an override changes only the spec's own algorithm, which is not compared."""
    for override in overrides:
        head, *inner = override.partition("=")[0].strip().split(".")
        client_side = inner[:1] == ["solver"] or (inner and inner[0] in ClientSide.__annotations__)
        if head == "algorithm" and not client_side:
            raise FieldError(
                f"--set {override} changes the spec's own algorithm, which is not compared: add {own} to the methods, "
                "or write the value behind a preset, as in fedavg:server.lr=0.5."
            )
