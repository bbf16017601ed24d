"""Changes to plain data that describe an experiment, such as "algorithm.server.lr=0.03"."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import reduce
from typing import Any, NamedTuple, get_args, get_origin

from fairlead.algorithm import Algorithm
from fairlead.component import Component
from fairlead.errors import FieldError, did_you_mean, short
from fairlead.experiments.signatures import argument_parameters, spec_parameters
from fairlead.plain_data import (
    LARGEST_INTEGER,
    NONE,
    Plain,
    alternatives,
    join,
    part_class,
    refuse_unknown,
    to_plain,
)
from fairlead.presets import METHODS, Method

_SPAN = re.compile(r"\s*(-?\d{1,18})\.\.(-?\d{1,18})\s*")
_MOST = 100_000
_OPENING, _CLOSING = "([{", ")]}"


def split_values(text: str, named: str) -> list[str]:
    """The values of a list: parted by commas outside of brackets and quotes, with whole spans written out.

    Errors call the list `named`.
    """
    values: list[str] = []
    for value in _split(text):
        span = _SPAN.fullmatch(value)
        values += _written_out(int(span[1]), int(span[2]), value, named) if span else [value.strip()]
    return values


def read_seeds(text: str, named: str = "--seeds") -> list[int]:
    """Seeds such as "0..4" or "0,1,2"."""
    found = split_values(text, named)
    written = [int(value) for value in found if re.fullmatch(r"\d{1,19}", value)]
    numbers = [number for number in written if number <= LARGEST_INTEGER]
    if len(set(numbers)) < len(found):
        raise FieldError(
            f"{named} must be different whole numbers from 0 to {LARGEST_INTEGER}, such as 0..4 or 0,1,2, got "
            f"{short(text)}."
        )
    return numbers


def _written_out(first: int, last: int, text: str, named: str) -> list[str]:
    if not first <= last < first + _MOST:
        raise FieldError(
            f"{named} must have ascending spans of at most {_MOST} numbers, got {text.strip()!r}."
        )
    return list(map(str, range(first, last + 1)))


def _split(text: str) -> list[str]:
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += not quote and character in _OPENING
        depth -= not quote and character in _CLOSING
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts


_OTHER_NAMES = {"learning_rate": "lr"}
"""Common names for fields in other libraries."""


class Override(NamedTuple):
    """A value and the keys that lead to it."""

    path: tuple[str, ...]
    value: Plain


def parse_override(text: str) -> Override:
    """The override `path.to.field=value`, whose value is TOML, or a string if it is not."""
    path, equals, written = text.partition("=")
    keys = tuple(re.sub(r"\[(\d+)\]", r".\1", path.strip()).split("."))
    if not equals or not all(keys):
        raise FieldError(f"An override must be of the form path.to.field=value, got {short(text)}.")
    written = written.strip()
    try:
        parsed = tomllib.loads(f"value = {written}")
    except (ValueError, RecursionError):
        return Override(keys, written)
    return Override(keys, parsed["value"] if len(parsed) == 1 else written)


def set_value(declared: Any, node: Plain, path: Sequence[str], value: Plain, where: str = "") -> None:
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
            raise FieldError(f"{reduce(join, path, where)} does not exist: type is a single value.")
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
    set_value(types[key], node[key], rest, value, join(where, key))


def refuse_misplaced(role: type[Component], node: dict[str, Plain], keys: Iterable[str]) -> None:
    """Refuse keys that the table of a part does not know while tables inside it do, and say which."""
    types, _, what = _schema(role, node, "")
    for key in keys:
        name = _OTHER_NAMES.get(key, key)
        places = [join(inner, name) for inner in types if name in _inner_types(types[inner], node.get(inner))]
        if key not in types and places:
            raise FieldError(f"{key} is not {what}. Did you mean {' or '.join(places)}?")


def _inner_types(declared: Any, node: Plain) -> dict[str, Any]:
    """Keys of a table inside another; empty if that is not a part, or not known yet."""
    role = _role(declared)
    if role is None or not isinstance(node, dict):
        return {}
    try:
        return _schema(role, node, "")[0]
    except FieldError:
        # It is refused with its own reason when it is read.
        return {}


def preset_named(name: Plain, where: str) -> Method:
    """The method whose preset an algorithm at `where` names."""
    if not isinstance(name, str) or name not in METHODS:
        raise FieldError(
            f"{join(where, 'preset')} must be the name of a preset, got {short(name)}."
            + did_you_mean(short(name), METHODS, otherwise="See `fairlead list methods`.")
        )
    return METHODS[name]


def _set_entry(
    declared: Any, node: list[Plain], key: str, rest: Sequence[str], value: Plain, where: str
) -> None:
    if not re.fullmatch("[0-9]{1,9}", key) or int(key) >= len(node):
        raise FieldError(f"{join(where, key)} does not exist: {where} is a list of {len(node)} entries.")
    if not rest:
        node[int(key)] = value
        return
    items = [get_args(option)[0] for option in alternatives(declared) if get_origin(option) is tuple]
    set_value(items[0] if items else None, node[int(key)], rest, value, f"{where}[{key}]")


def _role(declared: Any) -> type[Component] | None:
    """The kind of part among the alternatives of a declared type, if there is one."""
    for option in alternatives(declared):
        if isinstance(option, type) and issubclass(option, Component):
            return option
    return None


def _schema(
    role: type[Component], node: dict[str, Plain], where: str
) -> tuple[dict[str, Any], dict[str, Plain], str]:
    """Types and plain defaults of the keys of a table, and a name for such a key."""
    cls = part_class(role, node, where)
    parameters = spec_parameters(cls)
    what = f"a field of {cls.__name__}"
    if cls is Algorithm and "preset" in node:
        method = preset_named(node["preset"], where)
        parameters += argument_parameters(method.build)
        what = f"an argument of the preset {method.name}"
    types = {parameter.name: parameter.type for parameter in parameters}
    defaults = {
        parameter.name: to_plain(parameter.default, parameter.type)
        for parameter in parameters
        if parameter.default is not None
    }
    return types, defaults, what
