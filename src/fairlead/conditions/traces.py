"""Traces: files with the work and arrival of each client in each round.

A trace is a CSV file with a header, or a file of JSON lines, with the columns `round`, `client` and any of
`steps`, `batch_size` and `arrives` (0 or 1). Unknown values are empty. `TraceWork` reads the
first two, `TraceLink` the last, so that one file can hold both.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.clients.files import read_as, read_setup
from fairlead.errors import FieldError, did_you_mean, field_error, short
from fairlead.records import RoundRecord

SUFFIXES = (".csv", ".jsonl")


class TraceEntry(NamedTuple):
    """Work and arrival of one client in one round; None where unknown."""

    round: int
    client: int
    steps: int | None = None
    batch_size: int | None = None
    arrives: int | None = None


_LEAST: Mapping[str, int] = {"round": 0, "client": 0, "steps": 0, "batch_size": 1, "arrives": 0}


def trace_of(records: Iterable[RoundRecord]) -> list[TraceEntry]:
    """The trace of a run: arrivals with their steps, and lost updates.

    The work behind a lost update is unknown and stays empty.
    """
    entries = []
    for record in records:
        steps = dict(zip(record.arrived, record.num_steps, strict=True))
        entries += [
            TraceEntry(record.round, client, steps.get(client), None, int(client in steps))
            for client in record.asked
        ]
    return entries


def write_trace(path: str | PathLike[str], entries: Iterable[TraceEntry]) -> None:
    """Write a trace as CSV or as JSON lines, by the extension of the file."""
    file, entries = Path(path), list(entries)
    _require_suffix("A trace", file)
    used = [name for name in TraceEntry._fields if any(getattr(e, name) is not None for e in entries)]
    rows = [[getattr(entry, name) for name in used] for entry in entries]
    with file.open("w", encoding="utf-8", newline="") as stream:
        if file.suffix == ".csv":
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(used)
            writer.writerows(rows)
        else:
            for row in rows:
                known = {name: value for name, value in zip(used, row, strict=True) if value is not None}
                stream.write(json.dumps(known) + "\n")


def read_trace(path: str | PathLike[str]) -> list[TraceEntry]:
    """The entries of a trace, in the order of the file."""
    file = Path(path)
    _require_suffix("A trace", file)
    text = read_setup(file, "trace", "utf-8-sig")
    parse = _csv_rows if file.suffix == ".csv" else _json_rows
    entries, seen = [], set[tuple[int, int]]()
    for line, entry in parse(file, text):
        if entry[:2] in seen:
            raise FieldError(
                f"{file}, line {line}: client {entry.client} already has an entry for round {entry.round}."
            )
        seen.add(entry[:2])
        entries.append(entry)
    if not entries:
        raise FieldError(f"The trace {file} has no entries.")
    return entries


def require_trace_path(owner: object, path: object) -> None:
    """Refuse the `path` of a condition unless its ending says how to read it."""
    if not isinstance(path, str) or Path(path).suffix not in SUFFIXES:
        raise field_error(owner, "path", f"a file name that ends in {' or '.join(SUFFIXES)}", path)


def require_trace(owner: object, field: str, columns: tuple[str, ...]) -> None:
    """Refuse `owner.field` unless it names a trace with the replayed columns."""
    try:
        _timetable(getattr(owner, field), columns)
    except FieldError as error:
        raise FieldError(f"In {type(owner).__name__}.{field}: {error}") from error


def replay(
    owner: object, path: str, columns: tuple[str, ...], missing: str, clients: Tensor, round: int
) -> tuple[Tensor, Tensor]:
    """Values (c, columns) of the given clients in a round of a trace, and whether it has them, (c,) bool.

    Rounds start over after the last one of the file. `owner.missing` defines gaps: "hold" takes a client's latest entry
    up to the round, and with "refuse" and "hold" a client without any is an error. Unknown values are -1.
    """
    table = _timetable(path, columns)
    wanted = clients * table.period + round % table.period
    row = torch.searchsorted(table.places, wanted, right=True) - 1
    nearest = table.places[row.clamp(min=0)]
    holds = torch.div(nearest, table.period, rounding_mode="floor") == clients
    known = (row >= 0) & (holds if missing == "hold" else nearest == wanted)
    if missing in ("refuse", "hold") and not bool(known.all()):
        raise FieldError(
            f"The trace {Path(path)} has no entry for client {int(clients[~known][0])} in round "
            f"{round % table.period}: add one, or define gaps with {type(owner).__name__}.missing."
        )
    return table.values[row], known


class _Timetable(NamedTuple):
    """The entries of a trace for some columns, for look-ups by client and round."""

    period: int
    places: Tensor
    """(rows,) client·period + round, ascending."""
    values: Tensor
    """(rows, columns) int64, -1 where unknown."""


def _timetable(path: str, columns: tuple[str, ...]) -> _Timetable:
    """The entries of a trace that have a value in the first column, with the others beside it."""
    with read_as("", f"The trace {path}", refusal=FieldError):
        status = Path(path).stat()
    # Time and size of the file are part of the name under which it is remembered.
    return _read_timetable(path, status.st_mtime_ns, status.st_size, columns)


@lru_cache(maxsize=8)
def _read_timetable(path: str, modified: int, size: int, columns: tuple[str, ...]) -> _Timetable:
    entries = read_trace(path)
    period = max(entry.round for entry in entries) + 1
    telling = [entry for entry in entries if getattr(entry, columns[0]) is not None]
    if not telling:
        raise FieldError(f"The trace {path} has no values of {columns[0]}.")
    index = torch.tensor([entry.client * period + entry.round for entry in telling])
    known = [[getattr(entry, name) for name in columns] for entry in telling]
    values = torch.tensor([[-1 if value is None else value for value in row] for row in known])
    order = torch.argsort(index)
    return _Timetable(period, index[order], values[order])


def _csv_rows(file: Path, text: str) -> Iterator[tuple[int, TraceEntry]]:
    reader = csv.reader(text.splitlines(), strict=True)
    header: list[str] = []
    try:
        for row in reader:
            place = f"{file}, line {reader.line_num}"
            if not header:
                header = [name.strip() for name in row]
                _check_columns(header, place)
            elif len(row) != len(header) and row:
                raise FieldError(f"{place}: it must have {len(header)} values, got {len(row)}.")
            elif row:
                yield reader.line_num, _entry(dict(zip(header, row, strict=True)), place, _whole_text)
    except csv.Error as error:
        raise FieldError(f"{file}, line {reader.line_num}: {error}.") from error


def _json_rows(file: Path, text: str) -> Iterator[tuple[int, TraceEntry]]:
    for line, written in enumerate(text.splitlines(), start=1):
        place = f"{file}, line {line}"
        if not written.strip():
            continue
        with read_as(" as JSON", place, refusal=FieldError):
            row = json.loads(written)
        if not isinstance(row, dict):
            raise FieldError(f"{place}: it must be a JSON object, got {written.strip()[:50]}.")
        _check_columns(list(row), place)
        yield line, _entry(row, place, _whole_number)


def _check_columns(names: Sequence[str], place: str) -> None:
    for name in names:
        if name not in TraceEntry._fields:
            raise FieldError(
                f"{place}: {name!r} is not a column of a trace." + did_you_mean(name, TraceEntry._fields)
            )
        if names.count(name) > 1:
            raise FieldError(f"{place}: the column {name!r} appears twice.")
    for name in ("round", "client"):
        if name not in names:
            raise FieldError(f"{place}: the column {name!r} is missing.")


def _entry(row: Mapping[str, object], place: str, whole: Callable[[object], int | None]) -> TraceEntry:
    values: dict[str, int | None] = {}
    for name, written in row.items():
        if written is None or written == "":
            values[name] = None
            continue
        value, most = whole(written), 1 if name == "arrives" else 2**31
        is_wrong_truth = isinstance(written, bool) and name != "arrives"
        if value is None or is_wrong_truth or not _LEAST[name] <= value <= most:
            bounds = f"of at least {_LEAST[name]}" if name != "arrives" else "0 or 1"
            raise FieldError(f"{place}: {name} must be a whole number {bounds}, got {short(written)}.")
        values[name] = value
    round, client = values.get("round"), values.get("client")
    if round is None or client is None:
        raise FieldError(f"{place}: round and client must both be given.")
    return TraceEntry(round, client, values.get("steps"), values.get("batch_size"), values.get("arrives"))


def _whole_text(written: object) -> int | None:
    text = str(written).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _whole_number(written: object) -> int | None:
    return int(written) if isinstance(written, int) else None


def _require_suffix(what: str, file: Path) -> None:
    if file.suffix not in SUFFIXES:
        raise FieldError(f"{what} must be a file that ends in {' or '.join(SUFFIXES)}, got {file}.")
