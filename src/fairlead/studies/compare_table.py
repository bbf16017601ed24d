"""The `[compare]` table of a spec, which says what `fairlead compare` is to run.

[compare]
methods = ["fedavg", "fednova", "fedprox:mu=0.1"]
seeds = "0..4"      # or [0, 1, 2]
target = 0.9        # of the metric, optional like everything here
metric = "accuracy"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

from fairlead.errors import FieldError
from fairlead.plain_data import refuse_unknown


@dataclass(frozen=True)
class CompareTable:
    """What a spec says about comparisons; lists as the command line has them."""

    methods: str | None = None
    seeds: str | None = None
    target: float | None = None
    metric: str | None = None


def compare_table(spec: str | PathLike[str]) -> CompareTable:
    """The table of a spec that can be read; an empty one if it has none."""
    table = tomllib.loads(Path(spec).read_text(encoding="utf-8")).get("compare", {})
    if not isinstance(table, dict):
        raise FieldError(f"compare must be a table, got {table!r}.")
    refuse_unknown(
        list(table), [field.name for field in fields(CompareTable)], "a field of [compare]", "compare"
    )
    target, metric = table.get("target"), table.get("metric")
    if target is not None and (isinstance(target, bool) or not isinstance(target, int | float)):
        raise FieldError(f"compare.target must be a number, got {target!r}.")
    if metric is not None and not isinstance(metric, str):
        raise FieldError(f"compare.metric must be the name of a metric, got {metric!r}.")
    return CompareTable(
        _listed_in_table(table, "methods", str, "a list of presets and spec files"),
        _listed_in_table(table, "seeds", int, "a list of whole numbers, or a text such as '0..4'"),
        None if target is None else float(target),
        metric,
    )


def _listed_in_table(table: dict[str, Any], name: str, kind: type, allowed: str) -> str | None:
    """A list in one text, from a list or such a text."""
    value = table.get(name)
    if value is None or (isinstance(value, str) and value):
        return value
    if not isinstance(value, list) or not value or not all(type(entry) is kind for entry in value):
        raise FieldError(f"compare.{name} must be {allowed}, got {value!r}.")
    return ",".join(map(str, value))
