"""Experiments and algorithms as TOML, with published settings, presets and overrides.

`setting = "hybrid_plus"` at the top stands for a published setting (`fairlead.settings`), and so does a table
`[setting]` with `name` and the setting's arguments: it fills in fields that the experiment leaves open. An
`[algorithm]` may be given by its parts, or as `preset = "fednova"` with the preset's arguments. Parts beside a
preset change it: a table with `type` takes the place of the preset's part, a table without changes fields of
it. A table `[compare]` is left to `fairlead compare`. `extends = "base.toml"` merges a spec into another one beside it.
"""

import os.path
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import TypeVar

import tomli_w

from fairlead.algorithm import Algorithm
from fairlead.clients.files import read_setup
from fairlead.clients.partitioners import NaturalIdPartitioner, Partitioner, ReshuffledPartitioner
from fairlead.clients.source import ClientSource, PooledSource, RealClients
from fairlead.component import Component, parts_of
from fairlead.conditions.links import LinkModel
from fairlead.conditions.work import WorkModel
from fairlead.errors import ClashError, FieldError, short
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.spec_fields import (
    Override,
    argument_parameters,
    call_with_plain,
    parse_override,
    preset_named,
    published,
    refuse_misplaced,
    set_value,
    spec_parameters,
)
from fairlead.optimizers.base import Constant, Schedule
from fairlead.plain_data import NONE, Plain, from_plain, join, refuse_unknown, settable_fields, to_plain
from fairlead.presets import METHODS
from fairlead.settings import SETTINGS, Setting
from fairlead.task import Task

_KEEPING_NUMBERS = (NONE, NaturalIdPartitioner.__name__, ReshuffledPartitioner.__name__)
"""Partitions that have as many clients as the data name."""


def take_setting(table: dict[str, Plain], changes: Iterable[Override]) -> Setting | None:
    """Remove the setting from the table of an experiment and read it after the changes that concern it."""
    given = table.pop("setting", None)
    # The shortest path first: another setting has other arguments, in any order of the changes.
    for change in sorted(changes, key=lambda change: len(change.path)):
        given = _changed(given, change)
    return None if given is None else _read(given)


def fill_in(table: Mapping[str, Plain], setting: Setting) -> dict[str, Plain]:
    """The table of an experiment with a setting's clients, work, link and rounds where it has none itself."""
    filled = dict(table)
    filled.setdefault("work", to_plain(setting.work, WorkModel))
    filled.setdefault("link", to_plain(setting.link, LinkModel))
    if setting.rounds is not None:
        filled.setdefault("rounds", setting.rounds)
    if setting.clients is not None:
        filled.setdefault("clients", to_plain(setting.clients, ClientSource))
    source = _source(filled.get("clients"))
    if setting.partition is not None and source is not None and issubclass(source, PooledSource):
        filled["clients"] = {"partition": to_plain(setting.partition, Partitioner), **filled["clients"]}
    return filled


def fill_in_arguments(algorithm: Plain, setting: Setting) -> Plain:
    """A preset with a setting's learning rate, local work and cohort size as the arguments that it leaves open.

    An algorithm given by parts is left alone.
    """
    if not isinstance(algorithm, dict) or "preset" not in algorithm:
        return algorithm
    side: dict[str, Plain] = {key: to_plain(value) for key, value in setting.client_side().items()}
    if "steps" in algorithm or "epochs" in algorithm:
        side.pop("steps", None)
        side.pop("epochs", None)
    filled = {**side, **algorithm}
    schedule = setting.solver.optimizer.schedule
    solver = filled.get("solver", {})
    optimizer = solver.get("optimizer", {}) if isinstance(solver, dict) else None
    # A solver or an optimizer of the spec's own has its own schedule too.
    if schedule != Constant() and isinstance(optimizer, dict) and "type" not in (*solver, *optimizer):
        optimizer = {"schedule": to_plain(schedule, Schedule), **optimizer}
        filled["solver"] = {**solver, "optimizer": optimizer}
    return filled


def fill_in_number(
    table: Mapping[str, Plain], setting: Setting, *, own_partition: bool
) -> Mapping[str, Plain]:
    """The table of an experiment with a setting's number of clients, or the data's where its partition needs that.

    Clients that cannot or should not be dealt are refused where the setting deals a pooled data set: those that a
    column names may be dealt anew only if the experiment has a partition of its own.
    """
    clients: Plain = table.get("clients")
    source = _source(clients)
    if setting.partition is None or source is None:
        return table
    if not issubclass(source, PooledSource):
        raise ClashError(
            f"The setting deals a data set to its clients, and {source.__name__} makes its own: choose other "
            "clients, or another setting."
        )
    column = clients.get("client", NONE)
    if column != NONE and not own_partition and not isinstance(setting.partition, NaturalIdPartitioner):
        raise ClashError(
            f"clients.client names the clients ({column!r}), but the setting would deal their examples anew by "
            f"its {type(setting.partition).__name__}: leave out clients.client, or say which partition, such as "
            'clients.partition = { type = "NaturalIdPartitioner" } to keep them.'
        )
    partition = clients["partition"]
    kind = partition.get("type") if isinstance(partition, dict) else partition
    number = NONE if kind in _KEEPING_NUMBERS else to_plain(setting.num_clients)
    return {**table, "clients": {"num_clients": number, **clients}}


def _source(clients: Plain) -> type[ClientSource] | None:
    """The source that a table names; None where there is none of that name, which is refused later."""
    name = clients.get("type") if isinstance(clients, dict) else None
    found = parts_of(Component).get(name) if isinstance(name, str) else None
    return found if found is not None and issubclass(found, ClientSource) else None


def _changed(given: Plain, change: Override) -> Plain:
    _, *path = change.path
    if not path:
        return change.value
    if len(path) > 1:
        raise FieldError(
            f"{reduce(join, change.path)} does not exist: {join('setting', path[0])} is a single value."
        )
    named = {} if given is None else {"name": given}
    return {**(given if isinstance(given, dict) else named), path[0]: change.value}


def _read(given: Plain) -> Setting:
    table, where = (given, "setting.name") if isinstance(given, dict) else ({"name": given}, "setting")
    if "name" not in table:
        raise FieldError(f"{where} is missing: it must be the name of a published setting.")
    found = published(SETTINGS, table["name"], where, "a published setting", "settings")
    arguments = {key: value for key, value in table.items() if key != "name"}
    return call_with_plain(found.build, arguments, f"the setting {found.name}", "setting")


SpecT = TypeVar("SpecT", Experiment, Algorithm)
TomlTable = dict[str, Plain]


def load_experiment(
    path: str | PathLike[str], overrides: Sequence[str] = (), *, seed: int | None = None
) -> Experiment:
    """The experiment in a TOML file, after `overrides` such as "algorithm.server.lr=0.03".

    The value of an override is read as TOML, or as a string if it is none; entries of lists are
    reached by number ("algorithm.transforms.0.bound=2"). Setting the `type` of a part starts it afresh:
    its other fields are dropped. A `seed` given here wins.
    """
    if seed is not None:
        overrides = [*overrides, f"seed={seed}"]
    return _from_table(Experiment, read_table(path), overrides)


def read_table(path: str | PathLike[str]) -> TomlTable:
    """The table of a spec, merged into that of the spec that it `extends`, if it does."""
    return _extended(Path(path), ())


def _extended(file: Path, extending: tuple[Path, ...]) -> TomlTable:
    table = _parse(read_setup(file, "spec"), str(file))
    for part in ("clients", "work", "link", "devices"):
        _start_paths(table.get(part), file.resolve().parent)
    base = table.pop("extends", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise FieldError(f"extends in {file} must be the path of a spec, got {short(base)}.")
    extending = (*extending, file.resolve())
    if (file.parent / base).resolve() == file.resolve():
        raise FieldError(f"{file} extends itself.")
    if not (file.parent / base).exists():
        raise FieldError(f"{file} extends {file.parent / base}, which does not exist.")
    if (file.parent / base).resolve() in extending:
        raise FieldError(f"{file} extends {base}, which in turn extends {file}: remove one of the two.")
    return merged_tables(_extended(file.parent / base, extending), table)


def _start_paths(part: Plain, folder: Path) -> None:
    """Let relative paths of data start from the folder of the spec; one that exists only here is left alone."""
    if not isinstance(part, dict) or folder == Path.cwd().resolve():
        return
    for key, value in part.items():
        _start_paths(value, folder)
        if key in ("path", "test_path") and isinstance(value, str) and not value.startswith("~"):
            beside = folder / value
            part[key] = str(beside) if os.path.exists(beside) or not os.path.exists(value) else value


def merged_tables(base: TomlTable, own: TomlTable) -> TomlTable:
    """A table over another: tables are merged, except a part of another type, and all else is replaced."""
    merged = dict(base)
    for key, value in own.items():
        old = base.get(key)
        merged[key] = value
        if isinstance(old, dict) and isinstance(value, dict):
            same = value.get("type", old.get("type")) == old.get("type")
            merged[key] = merged_tables(old, value) if same else value
    return merged


def to_toml(part: Experiment | Algorithm) -> str:
    """TOML from which `from_toml` makes an equal value; presets and settings are written out as parts."""
    return tomli_w.dumps(to_plain(part, type(part)))


def from_toml(
    declared: type[SpecT], text: str, overrides: Sequence[str] = (), *, source: str = "the spec"
) -> SpecT:
    """The experiment or algorithm that a TOML text describes; `source` names the text in errors."""
    table = _parse(text, source)
    if "extends" in table:
        raise FieldError("extends is a path beside a spec's own file: read the file with load_experiment.")
    return _from_table(declared, table, overrides)


def _from_table(declared: type[SpecT], table: TomlTable, overrides: Sequence[str]) -> SpecT:
    changes = [parse_override(override) for override in overrides]
    # Parts of an algorithm can be changed only when its preset has become parts.
    late = [change for change in changes if _is_within_algorithm(declared, change.path)]
    early = [change for change in changes if not _is_within_algorithm(declared, change.path)]
    if declared is Algorithm:
        _apply(declared, table, early)
        table = _expand_preset(table, "")
    else:
        table = _filled_experiment(table, early)
        _fill_in_task(table, [change for change in early if change.path[0] == "task"])
        if isinstance(table.get("algorithm"), dict):
            table["algorithm"] = _expand_preset(table["algorithm"], "algorithm")
    _apply(declared, table, late)
    where = "" if declared is Algorithm else "algorithm"
    algorithm = table.get(where) if where else table
    if isinstance(algorithm, dict) and "solver" not in algorithm:
        raise FieldError(f"{join(where, 'solver')} is missing: give it, or a preset that has one.")
    return from_plain(declared, table)


def _parse(text: str, source: str) -> TomlTable:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = re.sub(r" \(at .*\)$", "", str(error))
        place = re.search(r"at line (\d+)", str(error))
        line = int(place[1]) if place else len(text.splitlines())
        hint = "" if source.endswith(".toml") else " A spec is a TOML file, such as study.toml."
        raise FieldError(f"{source}, line {line}: {message[:1].lower()}{message[1:]}.{hint}") from error
    except (ValueError, RecursionError) as error:
        raise FieldError(f"{source} exceeds the limits of TOML: {error}.") from error


def _is_within_algorithm(declared: type[SpecT], path: tuple[str, ...]) -> bool:
    """Whether an override reaches a part of the algorithm, not its preset or an argument of that."""
    inner = path if declared is Algorithm else path[1:] if path[0] == "algorithm" else ()
    return bool(inner) and inner[0] in settable_fields(Algorithm)


def _apply(declared: type[SpecT], table: TomlTable, changes: Iterable[Override]) -> None:
    for change in changes:
        set_value(declared, table, change.path, change.value)


def _filled_experiment(table: TomlTable, changes: Sequence[Override]) -> TomlTable:
    """The table of an experiment after changes, with its setting become fields."""
    # For `fairlead compare`, which reads it itself.
    table = {key: value for key, value in table.items() if key != "compare"}
    refuse_misplaced(Experiment, table, [*table, *(change.path[0] for change in changes)])
    known = [parameter.name for parameter in spec_parameters(Experiment)]
    refuse_unknown(list(table), known, "a field of Experiment", "")
    setting = take_setting(table, [change for change in changes if change.path[0] == "setting"])
    others = [change for change in changes if change.path[0] not in ("setting", "task")]
    if setting is None:
        _apply(Experiment, table, others)
        return table
    own_partition = _says_partition(table, others)
    table = fill_in(table, setting)
    _apply(Experiment, table, others)
    # Once more: a change may have reset fields.
    table = fill_in(table, setting)
    table = dict(fill_in_number(table, setting, own_partition=own_partition))
    if "algorithm" in table:
        table["algorithm"] = fill_in_arguments(table["algorithm"], setting)
    return table


def _fill_in_task(table: TomlTable, changes: Sequence[Override]) -> None:
    """Apply changes of the task; one without a model, or none at all, is first filled in from the clients' default."""
    _apply(Experiment, table, [change for change in changes if change.path == ("task",)])
    within = [change for change in changes if change.path != ("task",)]
    given = table.get("task", NONE)
    task = {} if given == NONE and within else given
    if isinstance(task, dict) and "model" not in task and isinstance(table.get("clients"), dict):
        source = from_plain(ClientSource, table["clients"], "clients")  # type: ignore[type-abstract]
        if not isinstance(source, RealClients):
            table["task"] = {**to_plain(source.default_task(), Task, "task"), **task}
    _apply(Experiment, table, within)


def _says_partition(table: TomlTable, changes: Iterable[Override]) -> bool:
    """Whether a spec or a change of it has its own partition."""
    values = [table.get("clients"), *(change.value for change in changes if change.path == ("clients",))]
    return any(isinstance(value, dict) and "partition" in value for value in values) or any(
        change.path[:2] == ("clients", "partition") for change in changes
    )


def _expand_preset(table: TomlTable, where: str) -> TomlTable:
    """The table of an algorithm with its parts instead of a preset."""
    parts = settable_fields(Algorithm)
    if "preset" not in table:
        if "solver" not in table:
            _refuse_lone_arguments(table, where)
        refuse_unknown(list(table), [*parts, "preset", "type"], "a field of Algorithm", where)
        return table
    method = preset_named(table["preset"], where)
    given = {key: value for key, value in table.items() if key != "preset" and key not in parts}
    algorithm = call_with_plain(method.build, given, f"the preset {method.name}", where, also_known=parts)
    expanded: TomlTable = to_plain(algorithm, Algorithm)
    for path, value in _leaves({key: value for key, value in table.items() if key in parts}):
        set_value(Algorithm, expanded, path, value, where, merges=True)
    return expanded


def _refuse_lone_arguments(table: TomlTable, where: str) -> None:
    """Refuse arguments of presets where no preset is named."""
    arguments = {parameter.name for each in METHODS.values() for parameter in argument_parameters(each.build)}
    lone = [key for key in table if key in arguments and key not in settable_fields(Algorithm)]
    if lone:
        preset, argument = join(where, "preset"), join(where, lone[0])
        raise FieldError(f"{preset} is missing: {argument} is an argument of a preset.")


def _leaves(
    table: Mapping[str, Plain], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Plain]]:
    """What a table changes: single values, and whole parts where it names their `type`."""
    for key, value in table.items():
        if isinstance(value, dict) and value and "type" not in value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value
