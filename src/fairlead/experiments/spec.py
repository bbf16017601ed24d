"""Experiments and algorithms as TOML, with presets and overrides.

`setting = "hybrid_plus"` at the top stands for a published setting (`fairlead.settings`): it fills in what
the experiment leaves open. An `[algorithm]` may be given by its parts, or as `preset = "fednova"` with the
preset's arguments. Parts beside a preset change it: a table with `type` takes the place of the preset's
part, a table without changes fields of it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import tomli_w

from fairlead.algorithm import Algorithm
from fairlead.component import Component
from fairlead.errors import ClashError, FieldError, did_you_mean
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.signatures import argument_parameters, part_parameters
from fairlead.plain_data import (
    NONE,
    Plain,
    alternatives,
    from_plain,
    join,
    part_class,
    refuse_unknown,
    settable_fields,
    to_plain,
)
from fairlead.presets import METHODS, Method
from fairlead.settings import fill_in_setting

SpecT = TypeVar("SpecT", Experiment, Algorithm)
Table = dict[str, Plain]


def load_experiment(
    path: str | PathLike[str], overrides: Sequence[str] = (), *, seed: int | None = None
) -> Experiment:
    """The experiment in a TOML file, after `overrides` such as "algorithm.server.lr=0.03".

    The value of an override is read as TOML, or as a string if it is none; entries of lists are
    reached by number ("algorithm.transforms.0.bound=2"). Setting the `type` of a part starts it afresh:
    its other fields are dropped. A `seed` given here wins.
    """
    file = Path(path)
    try:
        text = file.read_bytes().decode()
    except OSError as error:
        raise FieldError(f"The spec {file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise FieldError(f"The spec {file} is not UTF-8 text.") from error
    if seed is not None:
        overrides = [*overrides, f"seed={seed}"]
    return from_toml(Experiment, text, overrides, source=str(file))


def to_toml(part: Experiment | Algorithm) -> str:
    """TOML from which `from_toml` makes an equal value; presets have long become parts."""
    return tomli_w.dumps(to_plain(part, type(part)))


def from_toml(
    declared: type[SpecT], text: str, overrides: Sequence[str] = (), *, source: str = "the spec"
) -> SpecT:
    """The experiment or algorithm that a TOML text describes; `source` names the text in errors."""
    table = _parse(text, source)
    parsed = [_parse_override(override) for override in overrides]
    if declared is Experiment:
        chosen = [override.value for override in parsed if override.path == ("setting",)]
        parsed = [override for override in parsed if override.path != ("setting",)]
        table = fill_in_setting({**table, "setting": chosen[-1]} if chosen else table)
    # What belongs to a preset must be known before it becomes parts, wherever it stands in the list.
    for override in parsed:
        if _concerns_preset(declared, override.path):
            _set(declared, table, override.path, override.value, "")
    if declared is Algorithm:
        table = _expand_preset(table, "")
    elif isinstance(table.get("algorithm"), dict):
        table["algorithm"] = _expand_preset(table["algorithm"], "algorithm")
    for override in parsed:
        if not _concerns_preset(declared, override.path):
            _set(declared, table, override.path, override.value, "")
    return from_plain(declared, table)


def _parse(text: str, source: str) -> Table:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = re.sub(r" \(at .*\)$", "", str(error))
        place = re.search(r"at line (\d+)", str(error))
        line = int(place[1]) if place else len(text.splitlines())
        raise FieldError(f"{source}, line {line}: {message[:1].lower()}{message[1:]}.") from error
    except (ValueError, RecursionError) as error:
        raise FieldError(f"{source} is beyond what TOML allows: {error}.") from error


class _Override(NamedTuple):
    path: tuple[str, ...]
    value: Plain


def _parse_override(text: str) -> _Override:
    path, equals, written = text.partition("=")
    keys = tuple(re.sub(r"\[(\d+)\]", r".\1", path.strip()).split("."))
    if not equals or not all(keys):
        raise FieldError(f"An override must be of the form path.to.field=value, got {text!r}.")
    written = written.strip()
    try:
        parsed = tomllib.loads(f"value = {written}")
    except (ValueError, RecursionError):
        return _Override(keys, written)
    return _Override(keys, parsed["value"] if len(parsed) == 1 else written)


def _concerns_preset(declared: type[Component], path: tuple[str, ...]) -> bool:
    """Whether an override sets a whole algorithm, a preset or an argument of it."""
    if declared is Experiment:
        if path[0] != "algorithm":
            return False
        path = path[1:]
    return not path or path[0] not in settable_fields(Algorithm)


def _expand_preset(table: Table, where: str) -> Table:
    """The table of an algorithm with its parts instead of a preset."""
    if "preset" not in table:
        return table
    method = _method(table["preset"], where)
    parts = settable_fields(Algorithm)
    known = {parameter.name: parameter for parameter in argument_parameters(method.build)}
    given = {key: value for key, value in table.items() if key != "preset" and key not in parts}
    refuse_unknown(list(given), [*known, *parts], f"an argument of the preset {method.name}", where)
    for parameter in known.values():
        if parameter.required and parameter.name not in given:
            raise FieldError(f"{join(where, parameter.name)} is missing: the preset {method.name} needs it.")
    arguments: dict[str, Any] = {
        key: from_plain(known[key].type, value, join(where, key)) for key, value in given.items()
    }
    try:
        algorithm = method.build(**arguments)
    except (FieldError, ClashError) as error:
        raise type(error)(f"In {where or 'the algorithm'}: {error}") from error
    expanded: Table = to_plain(algorithm, Algorithm)
    for path, value in _leaves({key: value for key, value in table.items() if key in parts}):
        _set(Algorithm, expanded, path, value, where)
    return expanded


def _method(name: Plain, where: str) -> Method:
    if not isinstance(name, str) or name not in METHODS:
        raise FieldError(
            f"{join(where, 'preset')} must be the name of a preset, got {name!r}."
            + did_you_mean(str(name), METHODS)
        )
    return METHODS[name]


def _leaves(
    table: Mapping[str, Plain], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Plain]]:
    """What a table changes: single values, and whole parts where it names their `type`."""
    for key, value in table.items():
        if isinstance(value, dict) and "type" not in value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _set(declared: Any, node: Plain, path: Sequence[str], value: Plain, where: str) -> None:
    """Change one value inside plain data that describe a `declared`, filling in defaults on the way."""
    key, *rest = path
    if isinstance(node, list):
        _set_entry(declared, node, key, rest, value, where)
        return
    role = _role(declared)
    if not isinstance(node, dict) or role is None:
        raise FieldError(f"{join(where, key)} does not exist: {where} is a single value.")
    if key == "type":
        if rest:
            raise FieldError(f"{join(where, '.'.join(path))} does not exist: type is a single value.")
        if node.get("type", role.__name__) != value:
            node.clear()
        node["type"] = value
        return
    types, defaults, what = _schema(role, node, where)
    refuse_unknown([key], list(types), what, where)
    if not rest:
        node[key] = value
        return
    if key not in node or (node[key] == NONE and _role(types[key])):
        missing = {} if _role(types[key]) else NONE
        node[key] = deepcopy(defaults.get(key, missing))
    _set(types[key], node[key], rest, value, join(where, key))


def _set_entry(
    declared: Any, node: list[Plain], key: str, rest: Sequence[str], value: Plain, where: str
) -> None:
    if not re.fullmatch("[0-9]{1,9}", key) or int(key) >= len(node):
        raise FieldError(f"{where}.{key} does not exist: {where} is a list of {len(node)} entries.")
    if not rest:
        node[int(key)] = value
        return
    items = [get_args(option)[0] for option in alternatives(declared) if get_origin(option) is tuple]
    _set(items[0] if items else None, node[int(key)], rest, value, f"{where}[{key}]")


def _role(declared: Any) -> type[Component] | None:
    """The kind of part among the alternatives of a declared type, if there is one."""
    for option in alternatives(declared):
        if isinstance(option, type) and issubclass(option, Component):
            return option
    return None


def _schema(role: type[Component], node: Table, where: str) -> tuple[dict[str, Any], dict[str, Plain], str]:
    """Types and plain defaults of what may be set in a table, and what such a thing is called."""
    cls = part_class(role, node, where)
    parameters = part_parameters(cls)
    what = f"a field of {cls.__name__}"
    extra: dict[str, Any] = {}
    if cls is Algorithm and "preset" in node:
        method = _method(node["preset"], where)
        parameters += argument_parameters(method.build)
        what = f"an argument of the preset {method.name}"
    if cls is Algorithm:
        extra["preset"] = str
    types = {parameter.name: parameter.type for parameter in parameters}
    defaults = {
        parameter.name: to_plain(parameter.default, parameter.type)
        for parameter in parameters
        if parameter.default is not None
    }
    return {**types, **extra}, defaults, what
