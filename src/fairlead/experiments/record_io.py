"""Round records: as strict JSON and back without loss, as rows of numbers, and from the log of another server.

A log of another server has the JSON of one round in each line. A line needs `round`, `asked` and `arrived` (ids of
clients, any whole numbers) and `num_steps` (local steps of each arrival). It may have `weights` (objective weight or
number of examples) and `names` of clients by id, in any line from which the server knows them. It may also have every
field of a `RoundRecord`; a diagnosis uses `effective_steps` (‖a‖₁), `coefficients` (the server's factor for each
update) and the figures of updates (`elud`, `coherence`, `consensus` and others).
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.clients.files import read_setup
from fairlead.component import alternatives
from fairlead.errors import DataError, FieldError, is_number
from fairlead.experiments.provenance import ClientFacts
from fairlead.records import NOTHING_MEASURED, RoundRecord
from fairlead.text import ClientNames, names_from

FactsT = TypeVar("FactsT")

_NON_FINITE = ("inf", "-inf", "nan")


def record_to_line(record: RoundRecord) -> str:
    """One line of JSON, without the line break."""
    return json.dumps(strict(asdict(record)), allow_nan=False, separators=(",", ":"))


def record_from_line(line: str) -> RoundRecord:
    """The record that `record_to_line` wrote."""
    try:
        return decoded(RoundRecord, json.loads(line))
    except (ValueError, TypeError, RecursionError) as error:
        raise FieldError(f"This is not the record of a round: {line[:80]!r}.") from error


def decoded(declared: type[FactsT], facts: Any) -> FactsT:
    """The dataclass whose fields strict JSON holds; `TypeError` or `ValueError` if they do not fit."""
    return cast("FactsT", _decode(declared, facts))


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
    if isinstance(declared, type) and is_dataclass(declared):
        hints = _field_types(declared)
        known = {name: _decode(hints[name], item) for name, item in _table(value).items() if name in hints}
        return declared(**known)
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
    return get_type_hints(declared)


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


_NEEDED = ("round", "asked", "arrived", "num_steps")
_UNTOLD = "without them, data sizes, label mixes and the angles between all clients' updates are unknown too"
REAL_CLIENTS = f"the clients' data stay with them; {_UNTOLD}"
"""Why there are no data of a run with real clients, as the end of a sentence."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """Rounds of a federation whose clients are numbered from 0, in the order of their ids."""

    records: tuple[RoundRecord, ...]
    weights: Tensor
    """ω, (N,), sum 1."""
    names: ClientNames | None
    assumptions: tuple[str, ...] = ()
    """Assumptions about facts that the lines leave out, a sentence each."""
    averaged_by_weight: bool = False
    """Whether the server is assumed to average arrivals, since no line has coefficients."""
    algorithm: Algorithm | None = None
    """The method; None if it was not recorded."""
    no_data: str = "records do not hold the clients' data and model"
    """Why there are no data, as the end of a sentence."""


def recorded_run(
    records: Sequence[RoundRecord], algorithm: Algorithm, clients: ClientFacts, error: DataError | None = None
) -> Recorded:
    """The rounds of a run with real clients, or of one whose data cannot be read for the given error."""
    no_data = REAL_CLIENTS
    if error is not None:
        no_data = f"the clients' data cannot be read here ({str(error).rstrip('.')}); {_UNTOLD}"
    return Recorded(tuple(records), clients.omega, clients.client_names, algorithm=algorithm, no_data=no_data)


def read_recorded(path: Path) -> Recorded:
    """The rounds that a federation logged into a file."""
    lines = [line for line in read_setup(path, "records").split("\n") if line.strip()]
    if not lines:
        raise FieldError(f"{path} holds no records.")
    records, weights, names = [], dict[int, float](), dict[int, str]()
    measured = True
    for number, line in enumerate(lines, 1):
        where = f"Line {number} of {path}"
        table = _logged(line, where)
        weights |= _weights(table.pop("weights", {}), where)
        names |= _names(table.pop("names", {}), where)
        measured &= "effective_steps" in table
        records.append(_record(table, where))
    found = _joined(records, weights, names, path)
    if measured:
        return found
    plain = "The lines have no effective_steps: plain SGD without clipping is assumed on the clients."
    return replace(found, assumptions=(*found.assumptions, plain))


def _logged(line: str, where: str) -> dict[str, Any]:
    try:
        table = json.loads(line)
    except ValueError as error:
        raise FieldError(f"{where} is damaged or incomplete.") from error
    if not isinstance(table, dict):
        raise FieldError(f"{where} is not the record of a round.")
    missing = [field for field in _NEEDED if field not in table]
    if missing:
        raise FieldError(f"{where} lacks {', '.join(missing)}: a round needs {', '.join(_NEEDED)}.")
    return table


def _record(table: dict[str, Any], where: str) -> RoundRecord:
    """The record of a line; missing fields get the values of a run that measured nothing else."""
    try:
        filled = {
            **asdict(NOTHING_MEASURED),
            "multiplicity": [1] * len(table["asked"]),
            # As for plain SGD.
            "effective_steps": table["num_steps"],
            **table,
        }
        record = record_from_line(json.dumps(filled))
    except (FieldError, TypeError) as error:
        raise FieldError(f"{where} is not the record of a round.") from error
    for fault in _contradictions(record):
        raise FieldError(f"{where}: {fault}.")
    return record


def _contradictions(record: RoundRecord) -> Iterator[str]:
    """What no round can be, each as the end of a sentence."""
    asked, arrived = set(record.asked), set(record.arrived)
    yield from (
        f"client {client} arrived but was not asked" for client in sorted(arrived - asked - set(record.late))
    )
    yield from (
        f"client {client} is late but has not arrived" for client in sorted(set(record.late) - arrived)
    )
    for field in ("asked", "arrived"):
        if len(set(getattr(record, field))) < len(getattr(record, field)):
            yield f"{field} must name each client once; multiplicity says how often"
    lengths = dict.fromkeys(("num_steps", "effective_steps", "coefficients"), len(record.arrived))
    for field, length in {**lengths, "multiplicity": len(record.asked)}.items():
        values = getattr(record, field)
        if values is not None and len(values) != length:
            yield f"{field} must have one number for each of {length} clients, got {len(values)}"
    for field in ("num_steps", "multiplicity"):
        least = min(getattr(record, field), default=1)
        if least < 1:
            yield f"{field} must be at least 1, got {least}"
    bad = [work for work in record.effective_steps or () if not (math.isfinite(work) and work > 0)]
    yield from (f"effective_steps must be finite and above 0, got {work:g}" for work in bad)
    shares = (*(record.coefficients or ()), *record.remembered.values())
    yield from (f"coefficients must be finite, got {share:g}" for share in shares if not math.isfinite(share))


def _weights(told: Any, where: str) -> dict[int, float]:
    if not isinstance(told, dict) or not all(is_number(value) and value >= 0 for value in told.values()):
        raise FieldError(f"{where}: weights must be numbers of at least 0 by client, got {told!r:.80}.")
    return {_id(client, where): float(value) for client, value in told.items()}


def _names(told: Any, where: str) -> dict[int, str]:
    if not isinstance(told, dict):
        raise FieldError(f"{where}: names must be given by client, got {told!r:.80}.")
    return {_id(client, where): str(name) for client, name in told.items()}


def _id(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise FieldError(f"{where}: the id of a client must be a whole number, got {text!r}.") from error


def _joined(
    records: Sequence[RoundRecord], weights: Mapping[int, float], names: Mapping[int, str], path: Path
) -> Recorded:
    rounds = [record.round for record in records]
    if any(later <= earlier for earlier, later in pairwise(rounds)):
        raise FieldError(f"The rounds in {path} must ascend.")
    met = sorted({client for r in records for client in (*r.asked, *r.remembered)} | set(weights))
    assumptions = []
    if weights:
        unknown = [client for client in met if client not in weights]
        if unknown:
            raise FieldError(
                f"Client {unknown[0]} in {path} has no weight, although other clients have one: add it to weights."
            )
        if not sum(weights.values()) > 0:
            raise FieldError(f"The weights in {path} must not all be 0.")
    else:
        assumptions.append("The lines have no weights: equal weights are assumed for all clients.")
    place = {client: position for position, client in enumerate(met)}
    values = torch.tensor([weights.get(client, 1.0) for client in met], dtype=torch.float64)
    omega = values / values.sum()
    numbered = [_renumbered(record, place) for record in records]
    averaged = all(record.coefficients is None and not record.remembered for record in records)
    if averaged:
        assumptions.append(
            "The lines have no coefficients: the server is assumed to average arrivals by weight."
        )
        numbered = [replace(record, coefficients=_by_weight(record, omega)) for record in numbered]
    called = names_from(np.array([names.get(client, str(client)) for client in met], dtype=object))
    return Recorded(tuple(numbered), omega, called, tuple(assumptions), averaged)


def _renumbered(record: RoundRecord, place: Mapping[int, int]) -> RoundRecord:
    return replace(
        record,
        asked=tuple(place[client] for client in record.asked),
        arrived=tuple(place[client] for client in record.arrived),
        remembered={place[client]: share for client, share in record.remembered.items()},
        late={place[client]: age for client, age in record.late.items()},
    )


def _by_weight(record: RoundRecord, weights: Tensor) -> tuple[float, ...]:
    own = weights[list(record.arrived)]
    total = float(own.sum())
    return tuple((own / total).tolist()) if total > 0 else (0.0,) * len(own)
