"""What parts and presets can be told: names, types, defaults and a word on each."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Required, Union, get_args, get_origin

from fairlead.component import Component
from fairlead.plain_data import field_types, is_required, settable_fields


class Parameter(NamedTuple):
    """A field of a part, or an argument of a preset or a setting."""

    name: str
    type: Any
    """As Python's typing has it."""
    written: str
    """The type for people."""
    required: bool
    default: Any
    """None where there is none, or where not giving it means something of its own."""
    description: str


def part_parameters(cls: type[Component]) -> list[Parameter]:
    """Fields of a part, in the order of its constructor."""
    hints, notes = field_types(cls), _attribute_docs(cls)
    return [
        Parameter(
            name,
            hints[name],
            _written(hints[name]),
            is_required(field),
            None if field.default is dataclasses.MISSING else field.default,
            notes.get(name, ""),
        )
        for name, field in settable_fields(cls).items()
    ]


def argument_parameters(build: Callable[..., object]) -> list[Parameter]:
    """Arguments of a preset or a setting, those that its `**` part is declared with included."""
    hints = typing.get_type_hints(build)
    parameters: list[Parameter] = []
    for name, argument in inspect.signature(build).parameters.items():
        if argument.kind is inspect.Parameter.VAR_KEYWORD:
            (bundle,) = get_args(hints[name])
            parameters += _typed_dict_parameters(bundle)
            continue
        required = argument.default is inspect.Parameter.empty
        default = None if required else argument.default
        parameters.append(Parameter(name, hints[name], _written(hints[name]), required, default, ""))
    return parameters


def _typed_dict_parameters(cls: type) -> list[Parameter]:
    notes = _attribute_docs(cls)
    parameters = []
    # `__required_keys__` overlooks Required[...] where annotations are strings.
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        required = get_origin(hint) is Required
        plain = get_args(hint)[0] if required else hint
        parameters.append(Parameter(name, plain, _written(plain), required, None, notes.get(name, "")))
    return parameters


def _written(hint: Any) -> str:
    """A type in words that need no look into the source: the choices of a `Literal`, not the name of it."""
    if get_origin(hint) is Literal:
        return " | ".join(map(repr, get_args(hint)))
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(map(_written, get_args(hint)))
    if get_origin(hint) is tuple:
        inner = ["..." if arg is Ellipsis else _written(arg) for arg in get_args(hint)]
        return f"tuple[{', '.join(inner)}]"
    if hint is NoneType:
        return "None"
    return hint.__name__ if inspect.isclass(hint) else inspect.formatannotation(hint)


def _attribute_docs(cls: type) -> dict[str, str]:
    """The sentence below each attribute in the source of a class and its bases."""
    notes: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        notes.update(_module_docs(base.__module__).get(base.__qualname__, {}))
    return notes


@cache
def _module_docs(module: str) -> dict[str, dict[str, str]]:
    """The sentences below attributes of every class at the top of a module."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        # Modules without a source file: built-in ones, and the prompt.
        return {}
    return {
        definition.name: dict(_documented(definition.body))
        for definition in tree.body
        if isinstance(definition, ast.ClassDef)
    }


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for attribute, note in pairwise(body):
        if (
            isinstance(attribute, ast.AnnAssign)
            and isinstance(attribute.target, ast.Name)
            and isinstance(note, ast.Expr)
            and isinstance(note.value, ast.Constant)
        ):
            yield attribute.target.id, inspect.cleandoc(str(note.value.value))
