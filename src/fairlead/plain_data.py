"""Parts to and from plain data (tables, lists, strings and numbers), as TOML and JSON hold them.

A part is a table of its fields; where its role has several parts, `type` names which one. Fields at
their default are left out when writing, and every key that is read must be a field. TOML has no null:
where a field may be None, the word "none" says so.
"""

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

from fairlead.component import Component, alternatives, declared_types, is_part, is_role, part_named, parts_of
from fairlead.errors import ClashError, FieldError, a_or_an, did_you_mean, short

ValueT = TypeVar("ValueT")
Plain = Any
"""None, bool, int, float, str, or lists and string-keyed tables of them."""

NONE = "none"
"""The word for None in plain data, which have no null."""

LARGEST_INTEGER = 2**63 - 1
"""Of either sign: TOML promises 64 bits."""

_PLAIN_KEY = re.compile(r"[\w-]{1,60}")

_SCALARS: dict[Any, str] = {float: "a number", int: "a whole number", str: "a string", bool: "true or false"}


def to_plain(value: Any, declared: Any = None, where: str = "") -> Plain:
    """Plain data that `from_plain` turns back into an equal value.

    `declared` is the type that the reader will expect: a part of exactly that class needs no `type`.
    """
    if isinstance(value, Component) and dataclasses.is_dataclass(value):
        options = alternatives(declared)
        table: dict[str, Plain] = {} if type(value) in options else {"type": type(value).__name__}
        hints = field_types(type(value))
        for field in dataclasses.fields(value):
            content = getattr(value, field.name)
            if _is_settable(field) and not _is_default(field, content):
                table[field.name] = to_plain(content, hints[field.name], join(where, field.name))
        return table
    if isinstance(value, tuple | list):
        lists = [get_args(option) for option in alternatives(declared) if _is_list(option)]
        item_types = _item_types(lists[0], len(value)) if lists else [None] * len(value)
        return [
            to_plain(item, item_type, f"{where}[{place}]")
            for place, (item, item_type) in enumerate(zip(value, item_types, strict=True))
        ]
    if value is None:
        return NONE
    if isinstance(value, str) and value == NONE and type(None) in alternatives(declared):
        raise FieldError(f"{where} must not be the word {NONE!r}, which means no value in a spec.")
    if isinstance(value, bool | int | float | str):
        return value
    raise FieldError(
        f"{where or 'The value'} holds a {type(value).__name__}, which cannot be written in a spec: use a "
        "named part, or 'package.module:name'."
    )


def from_plain(declared: type[ValueT], data: Plain, where: str = "") -> ValueT:
    """The value of a declared type that plain data describe; `where` is their path, for errors."""
    return typing.cast("ValueT", _read(declared, data, where))


def join(where: str, key: str) -> str:
    """The path of a key in the table at `where`; a key that would not look like one is quoted."""
    shown = key if _PLAIN_KEY.fullmatch(key) else short(key)
    return f"{where}.{shown}" if where else shown


def part_class(declared: type[Component], table: Mapping[str, Plain], where: str) -> type[Component]:
    """The part that a table describes: the one that `type` names, or the only one there is."""
    if "type" in table:
        name = table["type"]
        if not isinstance(name, str):
            raise _mismatch(join(where, "type"), f"the name of {a_or_an(declared.__name__)}", name)
        return part_named(declared, name, join(where, "type"))
    if not is_part(declared):
        known, role = did_you_mean("", parts_of(declared)), a_or_an(declared.__name__)
        raise FieldError(f"{join(where, 'type')} is missing: it must name {role}.{known}")
    return declared


def settable_fields(cls: type[Component]) -> dict[str, dataclasses.Field[Any]]:
    """Fields of a part that a spec may set."""
    return {field.name: field for field in dataclasses.fields(typing.cast("Any", cls)) if _is_settable(field)}


def _is_settable(field: dataclasses.Field[Any]) -> bool:
    """Whether a spec can hold it: values in memory are marked so."""
    return field.init and not field.metadata.get("in_memory")


def field_types(cls: type) -> dict[str, Any]:
    """Declared types of a part's fields, without their ranges."""
    return declared_types(cls).plain


def refuse_unknown(keys: Sequence[str], known: Sequence[str], what: str, where: str) -> None:
    """Refuse keys that are not `known` and suggest the nearest; `what` names what they should be."""
    for key in keys:
        if key not in known:
            raise FieldError(f"{join(where, key)} is not {what}." + did_you_mean(key, known))


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether a part cannot be made without this field."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_default(field: dataclasses.Field[Any], content: Any) -> bool:
    default = field.default
    if isinstance(content, tuple) and isinstance(default, tuple):
        # Objects of other libraries may answer == by anything.
        same = list(map(type, content)) == list(map(type, default))
        return same and content == default
    return type(content) is type(default) and bool(content == default)


def _read(declared: Any, data: Plain, where: str) -> Any:
    options = alternatives(declared)
    if type(None) in options and (data is None or data == NONE):
        return None
    fitting = [option for option in options if _fits(option, data)]
    if not fitting:
        raise _mismatch(where, _describe(options, data), data)
    for option in fitting[:-1]:
        try:
            return _read_one(option, data, where)
        except FieldError:
            continue
    return _read_one(fitting[-1], data, where)


def _read_one(option: Any, data: Plain, where: str) -> Any:
    """Data of the right kind as a value of a type that is no union."""
    if _is_list(option):
        return _read_list(option, data, where)
    if is_role(option):
        return _read_part(option, data, where)
    if get_origin(option) is dict:
        item = get_args(option)[1]
        return (
            data if item is Any else {key: _read(item, each, join(where, key)) for key, each in data.items()}
        )
    return float(data) if option is float else data


def _read_list(option: Any, data: Plain, where: str) -> tuple[Any, ...]:
    items = _item_types(get_args(option), len(data))
    if len(items) != len(data):
        raise _mismatch(where, f"a list of {len(items)}", data)
    return tuple(
        _read(item, entry, f"{where}[{place}]")
        for place, (item, entry) in enumerate(zip(items, data, strict=True))
    )


def _read_part(declared: type[Component], data: Mapping[str, Plain], where: str) -> Component:
    cls = part_class(declared, data, where)
    known = settable_fields(cls)
    given = {key: value for key, value in data.items() if key != "type"}
    refuse_unknown(list(given), list(known), f"a field of {cls.__name__}", where)
    for name, field in known.items():
        if is_required(field) and name not in given:
            raise FieldError(f"{join(where, name)} is missing: {cls.__name__} needs it.")
    hints = field_types(cls)
    values = {key: _read(hints[key], value, join(where, key)) for key, value in given.items()}
    try:
        return cls(**values)
    except (FieldError, ClashError) as error:
        raise type(error)(f"In {where}: {error}" if where else str(error)) from error


def _fits(option: Any, data: Plain) -> bool:
    """Whether data of this kind, or for a choice this value, can mean `option`."""
    if get_origin(option) is Literal:
        return any(type(data) is type(choice) and data == choice for choice in get_args(option))
    if _is_list(option):
        return isinstance(data, list | tuple)
    if is_role(option) or get_origin(option) is dict:
        return isinstance(data, dict)
    if type(data) is int and abs(data) > LARGEST_INTEGER:
        return False
    if option is float:
        return isinstance(data, int | float) and not isinstance(data, bool)
    return option in _SCALARS and type(data) is option


def _describe(options: Sequence[Any], data: Plain) -> str:
    """The values that a field with these alternatives takes, in words."""
    words: list[str] = []
    for option in options:
        if get_origin(option) is Literal:
            words += map(repr, get_args(option))
        elif _is_list(option):
            named = isinstance(data, str) and str in alternatives(get_args(option)[0])
            words.append(f"a list such as {[data]}" if named else "a list")
        elif is_role(option):
            words.append(f"a table that describes {a_or_an(option.__name__)}")
        elif get_origin(option) is dict:
            words.append("a table")
        elif option is int and type(data) is int:
            bound = f"at most {LARGEST_INTEGER}" if data > 0 else f"at least {-LARGEST_INTEGER}"
            words.append(f"{_SCALARS[int]} of {bound}")
        elif option in _SCALARS:
            words.append(_SCALARS[option])
        elif option is type(None):
            words.append(repr(NONE))
    return " or ".join(words) if len(words) < 3 else "one of " + ", ".join(words)


def _is_list(option: Any) -> bool:
    return get_origin(option) is tuple


def _item_types(arguments: Sequence[Any], length: int) -> list[Any]:
    """Types of the items of a tuple: `tuple[x, ...]` takes any number of them."""
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return [arguments[0]] * length
    return list(arguments)


def _mismatch(where: str, expected: str, data: Plain) -> FieldError:
    return FieldError(f"{where or 'The spec'} must be {expected}, got {short(data)}.")
