"""What good specs allow, read from the comments behind their values: a judge that knows nothing of fairlead.

Every value in a spec of `tests/faults/specs` is followed by its rule:

    rounds = 3  # required whole [1, inf)
    drop = 0.5  # number [0, 1] or list(4) of number [0, 1]

A `size` or a `work` is a whole number that decides how much memory or time is needed, so that a large one may be
refused although it is allowed. Bounds and the condition behind `if` may name other values of the same table, of
which one that is not there reads as 0, and `clients(name, default)` is a value of the table of clients.
A value that breaks the condition behind `where` may be refused although it is allowed.
`#: name = rule` allows a value that the spec does not have. A table must be there if its header says `required`, or
`required with` a table that is, and `or word` at its end allows this word in the place of the table; what is
required inside a table must be there if the table is. A list of tables may not be longer than in the spec unless its
first header says `repeats`.
"""

from __future__ import annotations

import ast
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations
from typing import Any

LARGE = {"size": 10_000, "work": 1_000}
"""Numbers above these may be refused for want of memory or time."""


_ONLY_KINDS = {"algorithm": "Algorithm", "solver": "LocalSolver", "task": "Task", "memory": "UpdateMemory"}


class Siblings(dict[str, Any]):
    """Values of a table by name; what is not there is 0."""

    def __init__(self, table: Mapping[str, Any], root: Mapping[str, Any]) -> None:
        super().__init__(table)
        self._root = root

    def __missing__(self, name: str) -> Any:
        return 0

    def of_clients(self, name: str, default: int) -> Any:
        """A value of the table `clients`."""
        clients = self._root.get("clients")
        return clients.get(name, default) if isinstance(clients, dict) else default


@dataclass(frozen=True)
class Rule:
    """What one value may be."""

    text: str
    required: bool

    def allows(self, value: Any, siblings: Siblings) -> bool:
        kinds, _, condition = self.text.partition(" where ")[0].partition(" if ")
        fits = any(_fits(kind, value, siblings) for kind in kinds.split(" or "))
        return fits and (not condition or bool(_evaluated(condition, siblings)))

    def is_large(self, value: Any, siblings: Siblings) -> bool:
        """Whether a value asks for so much memory or time that it may be refused, or breaks its last condition."""
        if isinstance(value, list):
            return any(self.is_large(entry, siblings) for entry in value)
        asked = any(kind in self.text and isinstance(value, int) and value > LARGE[kind] for kind in LARGE)
        condition = self.text.partition(" where ")[2]
        return asked or (bool(condition) and not _evaluated(condition, siblings))


@dataclass
class TableRule:
    """What a table may hold."""

    required: bool = False
    missed_as: str = ""
    """What is said to be missing without it, if not the table itself."""
    required_with: tuple[str, ...] = ()
    """Tables beside it that cannot do without it."""
    repeats: bool = False
    """Whether a list that it begins may hold more tables of the kinds in the spec."""
    or_word: str | None = None
    """A word that may stand in its place."""
    values: dict[str, Rule] = field(default_factory=dict)
    tables: dict[str, TableRule] = field(default_factory=dict)
    lists: dict[str, list[TableRule]] = field(default_factory=dict)

    def complaints(self, table: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Iterator[str]:
        """Names of what is wrong with a table: keys that are unknown, missing, or have another value."""
        root, written = table if root is None else root, table
        table = {name: value for name, value in table.items() if not self._is_word(name, value)}
        for name, value in table.items():
            tables = (
                name in self.lists and isinstance(value, list) and any(isinstance(v, dict) for v in value)
            )
            if name in self.values and not tables:
                if not self.values[name].allows(value, Siblings(table, root)):
                    # A part of another kind: any of its fields may be the first that does not fit.
                    # A file is named by its path.
                    yield from table if name == "type" else [name, str(value)] if name == "path" else [name]
            elif name in self.tables:
                yield from self.tables[name].complaints(value, root) if isinstance(value, dict) else [name]
            elif name in self.lists:
                yield from _list_complaints(name, self.lists[name], value, root)
            else:
                yield name
        missing = [name for name, rule in self.values.items() if rule.required and name not in table]
        missing += [
            rule.missed_as or name
            for name, rule in self.tables.items()
            if name not in table
            and (name not in written or written[name] == "none")
            and (rule.required or any(other in table for other in rule.required_with))
        ]
        missing += [name for name, rules in self.lists.items() if rules[0].required and name not in table]
        yield from missing

    def by_kind(self, kind: str) -> Iterator[tuple[str, TableRule]]:
        """This table and those inside it, each with what it describes."""
        yield kind, self
        for name, inner in self.tables.items():
            yield from inner.by_kind(inner.described or _ONLY_KINDS.get(name, name))
        for entries in self.lists.values():
            for entry in entries:
                yield from entry.by_kind(entry.described)

    @property
    def described(self) -> str:
        """The part, preset or setting that the table names; none where there is only one kind of it."""
        naming = [self.values[word].text for word in ("type", "preset", "name") if word in self.values]
        return naming[0].split('"')[1] if naming else ""

    def names(self) -> set[str]:
        """All that the table may hold."""
        return {*self.values, *self.tables, *self.lists}

    def asks_for_much(self, table: Any) -> bool:
        """Whether a good table asks for so much memory or time that it may be refused."""
        return any(
            (name in self.values and self.values[name].is_large(value, Siblings(table, {})))
            or (name in self.tables and isinstance(value, dict) and self.tables[name].asks_for_much(value))
            for name, value in table.items()
        )

    def _is_word(self, name: str, value: Any) -> bool:
        return name in self.tables and value is not None and value == self.tables[name].or_word


@dataclass(frozen=True)
class GoodSpec:
    """A spec that is good, and what else would be."""

    name: str
    template: str
    """The spec with the word FOLDER for where its files lie."""
    folder: str
    rule: TableRule

    @property
    def text(self) -> str:
        return self.template.replace("FOLDER", self.folder)

    @property
    def table(self) -> dict[str, Any]:
        return tomllib.loads(self.text)

    def filled(self, content: bytes) -> bytes:
        """What has become of the template, with its folder: damage must not depend on how long that name is."""
        return content.replace(b"FOLDER", self.folder.encode())


def read_good_spec(name: str, template: str, folder: str) -> GoodSpec:
    """A spec with the rules in its comments."""
    text = template.replace("FOLDER", folder)
    root = TableRule(required=True)
    here = root
    for line in text.splitlines():
        head, _, comment = line.partition("  # ")
        if header := re.fullmatch(r"\[\[(.+)\]\]", head):
            *outer, last = header[1].split(".")
            words = comment.split()
            here = TableRule(required="required" in words, repeats="repeats" in words)
            _inner(root, outer).lists.setdefault(last, []).append(here)
        elif header := re.fullmatch(r"\[(.+)\]", head):
            here = _inner(root, header[1].split("."))
            if comment.split()[-2:-1] == ["or"]:
                comment, _, here.or_word = comment.rpartition(" ")
                comment = comment.removesuffix("or").strip()
            here.required_with = tuple(comment.partition(" with ")[2].split())
            here.required = comment.startswith("required") and not here.required_with
            here.missed_as = comment.removeprefix("required ") if here.required and " " in comment else ""
        elif allowed := re.fullmatch(r"#: (\w+) = (.+)", line):
            here.values[allowed[1]] = Rule(allowed[2], required=False)
        elif value := re.match(r"(\w+) = ", head):
            required = comment.startswith("required ")
            here.values[value[1]] = Rule(comment.removeprefix("required "), required)
    return GoodSpec(name, template, folder, root)


def share_fields(specs: Iterable[GoodSpec]) -> None:
    """Let every table allow what a table of the same kind allows in another spec."""
    by_kind: dict[str, list[TableRule]] = {}
    for spec in specs:
        for kind, table in spec.rule.by_kind("Experiment"):
            by_kind.setdefault(kind, []).append(table)
    for tables in by_kind.values():
        for table, other in permutations(tables, 2):
            for name, rule in other.values.items():
                table.values.setdefault(name, replace(rule, required=False))
            for name, inner in other.tables.items():
                table.tables.setdefault(name, replace(inner, required=False))
            for name, entries in other.lists.items():
                table.lists.setdefault(name, [replace(entry, required=False) for entry in entries])


def _inner(table: TableRule, path: list[str]) -> TableRule:
    for key in path:
        table = table.tables.setdefault(key, TableRule())
    return table


def _list_complaints(name: str, rules: list[TableRule], value: Any, root: Mapping[str, Any]) -> Iterator[str]:
    """A list may have fewer tables than in the good spec, and more where its rule says so, but those as there."""
    is_list = isinstance(value, list) and (len(value) <= len(rules) or rules[0].repeats)
    if not is_list or (rules[0].required and not value):
        yield name
        return
    for entry in value:
        named = entry.get("type") if isinstance(entry, dict) else None
        rule = next((rule for rule in rules if rule.values["type"].text == f'"{named}"'), rules[0])
        yield from rule.complaints(entry, root) if isinstance(entry, dict) else [name]


def _fits(kind: str, value: Any, siblings: Siblings) -> bool:
    if kind == "none":
        return bool(value == "none")
    if kind in ("true", "false", "flag"):
        return isinstance(value, bool) and (kind == "flag" or value == (kind == "true"))
    if kind.startswith('"'):
        return isinstance(value, str) and value in re.findall('"([^"]*)"', kind)
    if form := re.match(r"list\((\d+)(\+?)\) of (.+)", kind):
        return _list_fits(int(form[1]), bool(form[2]), form[3], value, siblings)
    form = re.fullmatch(r"(whole|size|work|number) ([\[(])(.+)([\])])", kind)
    assert form, f"{kind!r} is not a rule"
    is_kind = isinstance(value, int) or (form[1] == "number" and isinstance(value, float))
    if not is_kind or isinstance(value, bool) or not _is_speakable(value):
        return False
    # Bounds are a tuple as Python writes it, whatever brackets are around them.
    low, high = _evaluated(f"({form[3]})", siblings)
    try:
        return bool(
            (low < value or (form[2] == "[" and low == value))
            and (value < high or (form[4] == "]" and high == value))
        )
    except TypeError:
        # A bound by another value that is no number: that one is complained about.
        return True


def _list_fits(length: int, more: bool, inner: str, value: Any, siblings: Siblings) -> bool:
    if not isinstance(value, list) or len(value) < length or (len(value) > length and not more):
        return False
    extras: dict[str, Callable[[list[Any]], bool]] = {
        " some": lambda entries: sum(entries) > 0,
        " distinct": lambda entries: len(set(entries)) == len(entries),
        " rising": lambda entries: all(a < b for a, b in pairwise(entries)),
        " ascending": lambda entries: all(a <= b for a, b in pairwise(entries)),
        " symmetric": lambda entries: all(_is_symmetric(matrix) for matrix in entries),
    }
    extra = next((word for word in extras if inner.endswith(word)), "")
    inner = inner.removesuffix(extra)
    return all(_fits(inner, entry, siblings) for entry in value) and (not extra or extras[extra](value))


def _is_symmetric(matrix: list[list[float]]) -> bool:
    return all(matrix[row][column] == matrix[column][row] for row in range(2) for column in range(row))


def _is_speakable(value: float) -> bool:
    """Whether a number is finite and, if whole, within 64 bits."""
    return value.bit_length() < 64 if isinstance(value, int) else math.isfinite(value)


def _evaluated(expression: str, siblings: Siblings) -> Any:
    names = {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}
    helpers = {
        "clients": siblings.of_clients,
        "never_both_zero": never_both_zero,
        "max": max,
        "min": min,
        "len": len,
        "inf": math.inf,
    }
    try:
        return eval(expression, helpers, {name: siblings[name] for name in names - set(helpers)})
    except TypeError:
        # Another value is of the wrong kind, which is complained about.
        return (-math.inf, math.inf)


def never_both_zero(first: Any, second: Any) -> bool:
    """Whether two numbers, or two lists entry by entry, are never both 0."""
    firsts, seconds = (value if isinstance(value, list) else [value] for value in (first, second))
    length = max(len(firsts), len(seconds))
    wide = [values * length if len(values) == 1 else values for values in (firsts, seconds)]
    return all(a != 0 or b != 0 for a, b in zip(*wide, strict=False))
