"""Specs whose values have the right type: other parts, other choices, and numbers at the edge of what is possible."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any, Literal, get_args, get_origin

import fairlead as fl
from fairlead.component import Component, alternatives, parts_of
from fairlead.plain_data import field_types, is_required, settable_fields

Table = dict[str, Any]

WHOLE = (0, 1, 2, 3, 5, 7, 20, 100, 999, 5_000, 20_001, 10**5, 10**6, 10**7, 10**8, 10**9, 2**31 - 1, 2**31, 2**32,
    2**40,
         2**53 + 1, 2**62, 2**63 - 1, -1, -(2**63))  # fmt: skip
REAL = (0.0, -0.0, 5e-324, 1e-300, 1e-45, 1e-38, 1e-7, 0.001, 0.1, 0.25, 0.5, 0.9, 0.999999, 1.0, 1.5, 2.0, 10.0,
    1e4, 1e7,
        1e15, 1e19, 1e30, 3.4e38, 3.5e38, 1e39, 1e154, 1e200, 1e300, 1.7e308, -0.5, -1.0, -1e300)  # fmt: skip
WORDS = (
    "",
    "x",
    "label",
    "who",
    "says",
    "x.csv",
    "none",
    "0",
    "fc.weight",
    "*",
    "torch.nn:Linear",
    "torch.nn:ReLU",
    "cpu",
)
_ROLES: dict[str, Any] = {"memory": fl.UpdateMemory}


def typed(table: Table, rng: random.Random) -> Table:
    """A spec with one to three values of the right type, or with the same fields in another part."""
    changed = deepcopy(table)
    for _ in range(rng.choice((1, 1, 2, 3))):
        holder, name, declared = rng.choice(_fields(fl.Experiment, changed))
        holder[name] = value_of(declared, rng)
    return changed


def _fields(declared: Any, node: Any) -> list[tuple[Any, Any, Any]]:
    """All places of a spec, with those that it leaves open, and their declared types."""
    options = alternatives(declared)
    if isinstance(node, list):
        items = [get_args(option)[0] for option in options if get_origin(option) is tuple]
        found: list[tuple[Any, Any, Any]] = []
        for place, entry in enumerate(node):
            found += [(node, place, items[0] if items else Any), *_fields(items[0] if items else Any, entry)]
        return found
    roles = [option for option in options if isinstance(option, type) and issubclass(option, Component)]
    if not isinstance(node, dict) or not roles or "preset" in node:
        return []
    cls = parts_of(Component).get(node.get("type", roles[0].__name__), roles[0])
    hints, found = field_types(cls), []
    for name in settable_fields(cls):
        if name not in ("ray", "device", "compile", "tables_in", "path"):
            found.append((node, name, hints[name]))
            found += _fields(hints[name], node.get(name))
    return found


def value_of(declared: Any, rng: random.Random, depth: int = 0) -> Any:
    """Plain data of a declared type."""
    option = rng.choice(alternatives(declared))
    if option is type(None):
        return "none"
    if get_origin(option) is Literal:
        return rng.choice(get_args(option))
    if get_origin(option) is tuple:
        kinds = get_args(option)
        length = rng.choice((0, 1, 2, 3, 3, 6, 6, 50)) if kinds[-1] is Ellipsis else len(kinds)
        one = value_of(kinds[0], rng, depth + 1)
        fixed = kinds[-1] is not Ellipsis
        return [
            value_of(kinds[n] if fixed else kinds[0], rng, depth + 1) if rng.random() < 0.5 else one
            for n in range(length)
        ]
    if option is bool:
        return rng.random() < 0.5
    if option is int:
        return rng.choice(WHOLE[:8]) if rng.random() < 0.4 else rng.choice(WHOLE)
    if option is float:
        return rng.choice(REAL[7:15]) if rng.random() < 0.3 else rng.choice(REAL)
    if isinstance(option, type) and issubclass(option, Component):
        return part_of(option, rng, depth)
    return rng.choice(WORDS)


def part_of(role: type[Component], rng: random.Random, depth: int) -> Table:
    """Any part of a role, with what it needs and some of what it may have."""
    known = parts_of(role)
    names = sorted(known)
    name = rng.choice(names) if names else role.__name__
    cls = known.get(name, role)
    hints = field_types(cls)
    made: Table = {"type": name}
    for field_name, field in settable_fields(cls).items():
        if is_required(field) or rng.random() < (0.3 if depth < 3 else 0.0):
            made[field_name] = value_of(hints[field_name], rng, depth + 1)
    return made
