"""Parts to and from plain data (tables, lists, strings and numbers), as TOML and JSON hold them.

A part is a table of its fields; where its role has several parts, `type` names which one. Fields at
their default are left out when writing, and every key that is read must be a field.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from fairlead.component import Component, is_part, part_named, parts_of
from fairlead.errors import FieldError, did_you_mean

PartT = TypeVar("PartT", bound=Component)
Plain = Any
"""None, bool, int, float, str, or lists and string-keyed tables of them."""


def to_plain(value: Any, declared: Any = None) -> Plain:
    """Plain data that `from_plain` turns back into an equal value.

    `declared` is the type that the reader will expect; a part of exactly that class needs no `type`.
    """
    if isinstance(value, Component) and dataclasses.is_dataclass(value):
        table: dict[str, Plain] = {} if type(value) is declared else {"type": type(value).__name__}
        hints = typing.get_type_hints(type(value))
        for field in dataclasses.fields(value):
            content = getattr(value, field.name)
            if not field.init or content is None or _is_default(field, content):
                continue
            table[field.name] = to_plain(content, hints[field.name])
        return table
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise FieldError(f"{value!r} cannot be written in a spec: use a named part, or 'package.module:name'.")


def from_plain(declared: type[PartT], data: Plain, where: str) -> PartT:
    """The part that a table describes; `where` is its path in the spec, for errors."""
    return typing.cast("PartT", _read(declared, data, where))


def _is_default(field: dataclasses.Field[Any], content: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(content == field.default)
    return False


def _read(declared: Any, data: Plain, where: str) -> Any:
    origin = get_origin(declared)
    if origin in (Union, types.UnionType):
        return _read_union(get_args(declared), data, where)
    if origin is Literal:
        allowed = get_args(declared)
        if data not in allowed or isinstance(data, bool):
            raise _mismatch(where, "one of " + ", ".join(map(repr, allowed)), data)
        return data
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise _mismatch(where, "a list", data)
        (item, *_) = get_args(declared)
        return tuple(_read(item, entry, f"{where}[{place}]") for place, entry in enumerate(data))
    if inspect.isclass(declared) and issubclass(declared, Component):
        return _read_part(declared, data, where)
    return _read_scalar(declared, data, where)


def _read_scalar(declared: Any, data: Plain, where: str) -> Any:
    if declared is float and isinstance(data, int | float) and not isinstance(data, bool):
        return float(data)
    if declared in (int, str, bool) and type(data) is declared:
        return data
    names = {float: "a number", int: "a whole number", str: "a string", bool: "true or false"}
    raise _mismatch(where, names.get(declared, "plain data"), data)


def _read_union(options: tuple[Any, ...], data: Plain, where: str) -> Any:
    """The first alternative that fits the kind of the data; its own error if there is only one."""
    if data is None and type(None) in options:
        return None
    fitting = [option for option in options if _fits(option, data)]
    for option in fitting[:-1]:
        try:
            return _read(option, data, where)
        except FieldError:
            continue
    if fitting:
        return _read(fitting[-1], data, where)
    readable = [_describe(option) for option in options if _describe(option)]
    raise _mismatch(where, " or ".join(readable), data)


def _fits(option: Any, data: Plain) -> bool:
    """Whether data of this kind can possibly mean `option`."""
    origin = get_origin(option)
    if origin is Literal or option is str:
        return isinstance(data, str)
    if origin is tuple:
        return isinstance(data, list | tuple)
    if inspect.isclass(option) and issubclass(option, Component):
        return isinstance(data, dict)
    if option is float:
        return isinstance(data, int | float) and not isinstance(data, bool)
    return option in (int, bool) and type(data) is option


def _describe(option: Any) -> str:
    origin = get_origin(option)
    if origin is Literal:
        return ", ".join(map(repr, get_args(option)))
    if origin is tuple:
        return "a list"
    if inspect.isclass(option) and issubclass(option, Component):
        return f"a table that describes a {option.__name__}"
    return {float: "a number", int: "a whole number", str: "a string", bool: "true or false"}.get(option, "")


def _read_part(declared: type[Component], data: Plain, where: str) -> Component:
    if not isinstance(data, dict):
        raise _mismatch(where, f"a table that describes a {declared.__name__}", data)
    fields = dict(data)
    cls = declared
    if "type" in fields:
        name = fields.pop("type")
        if not isinstance(name, str):
            raise _mismatch(f"{where}.type", f"the name of a {declared.__name__}", name)
        cls = part_named(declared, name, f"{where}.type")
    elif not is_part(declared):
        raise FieldError(
            f"{where}.type is missing: it must name a {declared.__name__}."
            + did_you_mean("", parts_of(declared))
        )
    known = {field.name: field for field in dataclasses.fields(typing.cast("Any", cls)) if field.init}
    for key in fields:
        if key not in known:
            raise FieldError(f"{where}.{key} is not a field of {cls.__name__}." + did_you_mean(key, known))
    hints = typing.get_type_hints(cls)
    for name, field in known.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in fields:
            raise FieldError(f"{where}.{name} is missing: {cls.__name__} needs it.")
    values = {key: _read(hints[key], value, f"{where}.{key}") for key, value in fields.items()}
    try:
        return cls(**values)
    except FieldError as error:
        raise type(error)(f"In {where}: {error}") from error


def _mismatch(where: str, expected: str, data: Plain) -> FieldError:
    return FieldError(f"{where} must be {expected}, got {data!r}.")
