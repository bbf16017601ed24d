"""Round records as strict JSON, and back without loss; a round as one row of numbers for frames and trackers."""

import dataclasses
import json
import math
import typing
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

from fairlead.errors import FieldError
from fairlead.plain_data import alternatives
from fairlead.records import RoundRecord

FactsT = TypeVar("FactsT")

_NON_FINITE = ("inf", "-inf", "nan")


def record_to_line(record: RoundRecord) -> str:
    """One line of JSON, without the line break."""
    return json.dumps(strict(dataclasses.asdict(record)), allow_nan=False, separators=(",", ":"))


def record_from_line(line: str) -> RoundRecord:
    """The record that `record_to_line` wrote."""
    try:
        return decoded(RoundRecord, json.loads(line))
    except (ValueError, TypeError, RecursionError) as error:
        raise FieldError(f"This is not the record of a round: {line[:80]!r}.") from error


def decoded(declared: type[FactsT], facts: Any) -> FactsT:
    """The dataclass whose fields strict JSON holds; `TypeError` or `ValueError` if they do not fit."""
    return typing.cast("FactsT", _decode(declared, facts))


def strict(value: Any) -> Any:
    """The same plain data with infinities and NaN as strings, so that any JSON reader takes them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value


def _decode(declared: Any, value: Any) -> Any:
    """A value of a record's field, by its declared type."""
    options = alternatives(declared)
    if type(None) in options:
        if value is None:
            return None
        (declared,) = (option for option in options if option is not type(None))
    if isinstance(declared, type) and dataclasses.is_dataclass(declared):
        hints = _field_types(declared)
        fields = {name: _decode(hints[name], item) for name, item in _table(value).items() if name in hints}
        return declared(**fields)
    if get_origin(declared) is tuple:
        if not isinstance(value, list):
            raise TypeError(value)
        return tuple(_decode(get_args(declared)[0], item) for item in value)
    if get_origin(declared) is Mapping:
        of_key, of_item = get_args(declared)
        return {of_key(key): _decode(of_item, item) for key, item in _table(value).items()}
    if declared is float and isinstance(value, str) and value in _NON_FINITE:
        return float(value)
    if declared in (str, bool):
        if not isinstance(value, declared):
            raise TypeError(value)
        return value
    if isinstance(value, bool) or not isinstance(value, int if declared is int else int | float):
        raise TypeError(value)
    return declared(value)


@cache
def _field_types(declared: Any) -> dict[str, Any]:
    """Cached: resolving types takes longer than reading a line."""
    return typing.get_type_hints(declared)


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(value)
    return value


RowValue = float | int | None

_COUNTED = ("asked", "arrived", "refused", "late")
_LISTS = ("multiplicity", "num_steps", "effective_steps", "coefficients", "remembered")
_TABLES = ("facts", "evaluation", "gradients")


def row_of(record: RoundRecord) -> dict[str, RowValue]:
    """The single numbers of a record by name.

    `asked`, `arrived`, `refused` and `late` are counts, `local_steps` is the sum over arrived updates; loss and metrics
    of an evaluation stand under their own names, figures of full gradients under `gradients.`, other facts under
    `facts.`.
    """
    row: dict[str, RowValue] = {}
    if record.evaluation is not None:
        row |= {"loss": record.evaluation.loss, **record.evaluation.metrics}
    for field in fields(record):
        if field.name in _COUNTED:
            row[field.name] = len(getattr(record, field.name))
        elif field.name not in (*_LISTS, *_TABLES):
            row[field.name] = getattr(record, field.name)
    row["local_steps"] = sum(record.num_steps)
    if record.gradients is not None:
        row |= {f"gradients.{name}": value for name, value in asdict(record.gradients).items()}
    return {**row, **{f"facts.{name}": value for name, value in record.facts.items()}}
