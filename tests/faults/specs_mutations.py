"""Ways to damage a spec: values, keys, tables and the text itself."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import tomli_w

Table = dict[str, Any]

JUNK: tuple[Any, ...] = (
    "", " ", "none", "None", "true", "NaN", "0.5", "3", "x" * 10_000, "überall", "\u202e", "\x00", "🙂", "a:b",
    "../../etc/passwd", "file:///dev/zero", "os:system", "SGD", "Digits", "FedNova", "fedavg", "hybrids",
    "cuda:999", "cpu ", "float16", "MLP", "PerfectLink", "Component", "Experiment", "__class__", "{}", "[1]",
    True, False, 0, 1, -1, 2, 3, 7, 100, 20_001, -(2**63), 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64,
    10**30, 10**300, 0.0, -0.0, 0.5, 1.0, 1.5, -0.5, 1e-300, 5e-324, 1e38, 1e300, 1.7e308, -1e300, float("nan"),
    float("inf"), float("-inf"), [], [[]], [{}], {}, [0], [1, 2], [0.5, "x"], [True, False], [1, 2, 3],
    [0.1, 0.2, 0.3], [float("nan")] * 3, [2**62], [[1, 2], [3]], [[0, 1], [1, 0]], [{"type": "SGD"}], [[[]]],
    list(range(2_000)), {"type": "SGD", "lr": "x"}, {"type": "Digits", "x": 1}, {"type": 3}, {"type": []},
    {"type": "PerfectLink", "x": 1}, {"name": "hybrid", "x": 1}, {"preset": "fedavg", "x": 1}, {"x": {"x": {}}},
    {"": 1},
    datetime.date(1979, 5, 27), datetime.time(7, 32), datetime.datetime(1979, 5, 27, 7, 32),
)  # fmt: skip
"""Values that some field may take and most must not."""

KEYS = (
    "x",
    "",
    " ",
    "typ",
    "Type",
    "type ",
    "lr2",
    "seed_",
    "overrides",
    "__init__",
    "ключ",
    "a.b",
    "🙂",
    "\\n",
)
"""Names that nothing has."""


def mutated(table: Table, text: str, rng: random.Random) -> bytes:
    """A spec with one or two changes, or with damage to its text."""
    if rng.random() < 0.25:
        damaged = rng.choice(_TEXT_CHANGES)(text, rng)
        return damaged if isinstance(damaged, bytes) else damaged.encode()
    changed = deepcopy(table)
    for _ in range(rng.choice((1, 1, 1, 2))):
        rng.choice(_TABLE_CHANGES)(changed, rng)
    return tomli_w.dumps(changed).encode()


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in plain data, as the table or list that holds it and its key or place."""
    keys = list(node) if isinstance(node, dict) else range(len(node))
    for key in keys:
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


def _place(table: Table, rng: random.Random) -> tuple[Any, Any]:
    return rng.choice(list(places(table)) or [(table, "rounds")])


def _tables(table: Table) -> list[Table]:
    return [table, *(holder[key] for holder, key in places(table) if isinstance(holder[key], dict))]


def _replace(table: Table, rng: random.Random) -> None:
    holder, key = _place(table, rng)
    holder[key] = deepcopy(rng.choice(JUNK))


def _nudge(table: Table, rng: random.Random) -> None:
    """A value near the one that is there: another sign, another kind, a little more."""
    numbers = [
        (holder, key)
        for holder, key in places(table)
        if isinstance(holder[key], int | float) and not isinstance(holder[key], bool)
    ]
    if not numbers:
        return
    holder, key = rng.choice(numbers)
    value = holder[key]
    moved = [-value, 1 - value, value + 1, value - 1, value + 1e-9, value - 1e-9]
    scaled = [value * 2, value / 2, value * 10**12]
    holder[key] = rng.choice([*moved, *scaled, float(value), str(value), bool(value), [value], {"x": value}])


def _drop(table: Table, rng: random.Random) -> None:
    holder, key = _place(table, rng)
    holder.pop(key, None) if isinstance(holder, dict) else holder.pop(key)


def _rename(table: Table, rng: random.Random) -> None:
    holder, key = _place(table, rng)
    if isinstance(holder, dict) and key in holder:
        letter = rng.randrange(len(key) + 1)
        others = [
            key[:letter] + key[letter + 1 :],
            key[:letter] + "_" + key[letter:],
            key.swapcase(),
            key.replace("e", "е"),
            key + " ",
        ]
        holder[rng.choice(others)] = holder.pop(key)


def _add(table: Table, rng: random.Random) -> None:
    rng.choice(_tables(table))[rng.choice(KEYS)] = deepcopy(rng.choice(JUNK))


def _move(table: Table, rng: random.Random) -> None:
    """A value or a table where another one belongs."""
    holder, key = _place(table, rng)
    # A table may be good in the place of one with the same name.
    others = [other for other in _tables(table) if key not in other]
    if isinstance(holder, dict) and key in holder and others:
        value = holder.pop(key)
        rng.choice(others)[key] = value


def _swap(table: Table, rng: random.Random) -> None:
    """Two values in each other's place: parts of the wrong kind, numbers in other fields."""
    (one, first), (other, second) = _place(table, rng), _place(table, rng)
    if not (isinstance(one, dict) and isinstance(other, dict) and first in one and second in other):
        return
    # Tables with the same name may be good in each other's place.
    if first != second or not isinstance(one[first], dict):
        one[first], other[second] = deepcopy(other[second]), deepcopy(one[first])


def _wrap(table: Table, rng: random.Random) -> None:
    """A value inside lists or tables, up to a hundred deep."""
    holder, key = _place(table, rng)
    if isinstance(holder, list) or key in holder:
        for _ in range(rng.choice((1, 2, 5, 100))):
            holder[key] = (
                [holder[key]] if rng.random() < 0.5 else {rng.choice(("x", "type", str(key))): holder[key]}
            )


def _stretch(table: Table, rng: random.Random) -> None:
    """A list that is shorter, or longer if it is one of values."""
    lists = [holder[key] for holder, key in places(table) if isinstance(holder[key], list)]
    if lists:
        chosen = rng.choice(lists)
        if chosen and (rng.random() < 0.5 or isinstance(chosen[0], dict)):
            chosen.pop(rng.randrange(len(chosen)))
        else:
            chosen.append(deepcopy(rng.choice(chosen or [1])))


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text))]


def _scratch(text: str, rng: random.Random) -> str:
    """A few characters deleted, inserted or replaced."""
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(text))
        kept = place + rng.choice((0, 1, 1, 2))
        text = (
            text[:place]
            + rng.choice(("", "", '"', "'", "[", "]", "=", "\n", "#", "{", "\x07", "\t", "é", "0"))
            + text[kept:]
        )
    return text


def _repeat_lines(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    first = rng.randrange(len(lines))
    some = lines[first : first + rng.randint(1, 6)]
    place = rng.randrange(len(lines))
    return "".join([*lines[:place], *some, *lines[place:]])


def _drop_lines(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    first = rng.randrange(len(lines))
    return "".join([*lines[:first], *lines[first + rng.randint(1, 6) :]])


def _other_bytes(text: str, rng: random.Random) -> str | bytes:
    """What editors and transfers do to files, and what nobody would type."""
    contents: list[str | bytes] = [
        "",
        "\n",
        "\ufeff" + text,
        text.replace("\n", "\r\n"),
        text.replace("\n", "\r"),
        text.encode("utf-16"),
        text.encode() + b"\xff\xfe",
        b"\x00" * 100,
        bytes(rng.randrange(256) for _ in range(200)),
        text + "\x00",
        "x = " + "[" * 20_000,
        "x = " + "{x = " * 20_000,
        f"[{'.'.join(['x'] * 2_000)}]\n" + text,
        text + f"\n[{'.'.join(['algorithm', *['x'] * 2_000])}]\n",
        f"clients.{'.'.join(['x'] * 2_000)} = 1\n" + text,
        "rounds = " + "9" * 5_000 + "\n",
        "rounds = 0x" + "f" * 5_000 + "\n",
        "x = '" + "y" * 1_000_000 + "'\n" + text,
        "\n" * 10_000 + text,
        "x = 1" + "e" * rng.randint(1, 9),
        "x = 2024-13-45\n" + text,
        'x = "\\ud800"\n' + text,
    ]
    return rng.choice(contents)


_TABLE_CHANGES: tuple[Callable[[Table, random.Random], None], ...] = (
    _replace, _replace, _replace, _replace, _nudge, _nudge, _nudge, _drop, _rename, _add, _move, _swap, _wrap, _stretch,
)  # fmt: skip
_TEXT_CHANGES: tuple[Callable[[str, random.Random], str | bytes], ...] = (
    _cut, _scratch, _scratch, _repeat_lines, _drop_lines, _other_bytes,
)  # fmt: skip
