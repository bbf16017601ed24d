"""Fields of a spec: the parameters of parts, presets and settings, and changes such as "algorithm.server.lr=0.03"."""

import ast
import dataclasses
import inspect
import re
import sys
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache, reduce
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Required, TypeVar, Union, get_args, get_origin

from fairlead.algorithm import Algorithm
from fairlead.component import Component, alternatives
from fairlead.errors import ClashError, FieldError, did_you_mean, short
from fairlead.experiments.experiment import Experiment
from fairlead.plain_data import (
    NONE,
    Plain,
    field_types,
    from_plain,
    is_required,
    join,
    part_class,
    refuse_unknown,
    settable_fields,
    to_plain,
)
from fairlead.presets import METHODS, Method

BuiltT = TypeVar("BuiltT")


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
    has_default: bool = True
    """False where not giving it may be something else than giving any value, None included."""


_PRESET = "In a spec: a published method instead of parts, with its arguments beside it."
_SETTING = "In a spec: a published setting, which fills in open fields."
_STANDING_FOR_FIELDS: dict[type[Component], tuple[Parameter, ...]] = {
    Algorithm: (Parameter("preset", str, "str", False, None, _PRESET),),
    Experiment: (Parameter("setting", str | dict, "str | table", False, None, _SETTING),),
}


def spec_parameters(cls: type[Component]) -> list[Parameter]:
    """What a table that describes a part may hold: its fields, and a name that stands for some of them."""
    hints, notes = field_types(cls), attribute_docs(cls)
    parameters = [
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
    return [*parameters, *_STANDING_FOR_FIELDS.get(cls, ())]


def argument_parameters(build: Callable[..., object]) -> list[Parameter]:
    """Arguments of a preset or a setting, those that its `**` part is declared with included."""
    hints = typing.get_type_hints(build)
    parameters: list[Parameter] = []
    for name, argument in inspect.signature(build).parameters.items():
        if argument.kind is inspect.Parameter.VAR_KEYWORD:
            if name not in hints:
                raise FieldError(f"{build.__name__} must declare **{name} as **{name}: Unpack[ClientSide].")
            (bundle,) = get_args(hints[name])
            parameters += _typed_dict_parameters(bundle)
            continue
        required = argument.default is inspect.Parameter.empty
        default = None if required else argument.default
        parameters.append(Parameter(name, hints[name], _written(hints[name]), required, default, ""))
    return parameters


def call_with_plain(
    build: Callable[..., BuiltT],
    given: Mapping[str, Plain],
    what: str,
    where: str,
    *,
    also_known: Iterable[str] = (),
) -> BuiltT:
    """What a preset or a setting makes of arguments given as plain data.

    `what` it is and `where` the arguments stand is for errors, and so are other keys that are `also_known`.
    """
    known = {parameter.name: parameter for parameter in argument_parameters(build)}
    refuse_unknown(list(given), [*known, *also_known], f"an argument of {what}", where)
    for parameter in known.values():
        if parameter.required and parameter.name not in given:
            raise FieldError(f"{join(where, parameter.name)} is missing: {what} needs it.")
    arguments: dict[str, Any] = {
        key: from_plain(known[key].type, value, join(where, key)) for key, value in given.items()
    }
    try:
        return build(**arguments)
    except (FieldError, ClashError) as error:
        place = _argument_behind(error, arguments)
        raise type(error)(f"In {join(where, place) if place else where or what}: {error}") from error


def _argument_behind(error: FieldError | ClashError, arguments: Mapping[str, Any]) -> str | None:
    """The argument that became the field an error is about, where its name is longer: server_lr for lr."""
    if not isinstance(error, FieldError) or error.field is None:
        return None
    long_form = f"_{error.field}"
    named = (name for name, value in arguments.items() if name.endswith(long_form) and value is error.value)
    return next(named, None)


def _typed_dict_parameters(cls: type) -> list[Parameter]:
    notes = attribute_docs(cls)
    parameters = []
    # `__required_keys__` overlooks Required[...] where annotations are strings.
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        required = get_origin(hint) is Required
        plain = get_args(hint)[0] if required else hint
        note = notes.get(name, "")
        parameters.append(Parameter(name, plain, _written(plain), required, None, note, has_default=False))
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


def attribute_docs(cls: type) -> dict[str, str]:
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


def set_value(
    declared: Any, node: Plain, path: Sequence[str], value: Plain, where: str = "", *, merges: bool = False
) -> None:
    """Change one value inside plain data that describe a `declared`, filling in defaults on the way.

    An empty table is a value, unless it `merges` with a part and so changes nothing.
    """
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
        if not (merges and value == {} and _role(types[key])):
            node[key] = value
        return
    if key not in node or (node[key] == NONE and _role(types[key])):
        missing = {} if _role(types[key]) else NONE
        node[key] = deepcopy(defaults.get(key, missing))
    set_value(types[key], node[key], rest, value, join(where, key), merges=merges)


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
    return published(METHODS, name, join(where, "preset"), "a preset", "methods")


def published(known: Mapping[str, BuiltT], name: Plain, where: str, what: str, kind: str) -> BuiltT:
    """The preset or the setting of that name; another name is refused, with the command that lists the `kind`."""
    if not isinstance(name, str) or name not in known:
        raise FieldError(
            f"{where} must be the name of {what}, got {short(name)}."
            + did_you_mean(short(name), known, otherwise=f"See `fairlead list {kind}`.")
        )
    return known[name]


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
