"""What a run will need, estimated before its first round: what it remembers, and what a round holds."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from fairlead.algorithm import Algorithm
from fairlead.checkpoint import tables_of
from fairlead.client_table import ClientTable
from fairlead.errors import MemoryBudgetError
from fairlead.memory_budget import available_bytes
from fairlead.randomness import Key
from fairlead.records import ServerState
from fairlead.worlds.base import World

_VECTORS = 16
"""Vectors of d numbers that a round holds whatever its cohort: the model, the server's step, clients at work."""
_CLIENT_COPIES, _SERVER_COPIES = 3, 2
"""Rows of a table per client of a round: of clients' memory as it was, as it is and as a message of the difference; of
the server's as it was and as it is."""


class Need(NamedTuple):
    """Something that takes space."""

    what: str
    size: int
    table: ClientTable | None = None


def refuse_too_large(algorithm: Algorithm, world: World, state: ServerState, key: Key, rounds: int) -> None:
    """Raise `MemoryBudgetError` if `rounds` more rounds need more memory or disk than there is.

    A client is met in a round with probability c(1 − q)/N, so that N(1 − (1 − c(1 − q)/N)^R) clients are
    expected to be remembered after R rounds; a table that is full doubles.

    Symbols: N clients of a table, c the size of the next round's cohort, 1 − q its mean arrival rate, R `rounds`.
    What grows beyond the estimate is refused when it does.
    """
    everyone = world.population.num_clients
    if _fits(needs_of(state, everyone, everyone, rounds), state):
        return
    conditions = world.conditions(state.round, algorithm.solver, key)
    cohort = algorithm.sampler.draw(state.sampler, conditions, key.fold("sampler", state.round)).clients
    met = float(len(cohort) if conditions.arrival is None else conditions.arrival[cohort].sum())
    _refuse(needs_of(state, len(cohort), met, rounds), state)


def needs_of(state: ServerState, asked: int, met: float, rounds: int) -> list[Need]:
    """What is needed beyond what is there by rounds that ask `asked` clients and meet `met`, largest first."""
    dim, per_client = len(state.params), state.params.nbytes
    found = [Need(f"the model and the server's step, {dim} numbers", _VECTORS * state.params.nbytes)]
    for path, table in tables_of(state):
        rows = _room(table, met, rounds)
        size = (rows - table.capacity) * table.row_bytes
        found.append(Need(f"{path}, {rows} rows x {table.dim} numbers", size, table))
        per_client += table.row_bytes * (_CLIENT_COPIES if path.startswith("memory/") else _SERVER_COPIES)
    found.append(Need(f"the updates of a round, {asked} x {dim} numbers", asked * per_client))
    return sorted(found, key=lambda need: -need.size)


def _room(table: ClientTable, met: float, rounds: int) -> int:
    """Rows that a table will have room for."""
    rows, room = _expected_rows(table, met, rounds), table.capacity
    while room < rows:
        room = min(max(2 * room, math.ceil(met)), table.num_clients)
    return room


def _expected_rows(table: ClientTable, met: float, rounds: int) -> int:
    absent = max(1 - met / table.num_clients, 0.0) ** rounds
    return max(math.ceil(table.num_clients * (1 - absent)), len(table.clients))


def _in_memory(needs: Sequence[Need]) -> list[Need]:
    return [need for need in needs if need.table is None or need.table.folder is None]


def _fits(needs: Sequence[Need], state: ServerState) -> bool:
    """Whether everything fits in memory, without a look at any disk."""
    in_memory = _in_memory(needs)
    return len(in_memory) == len(needs) and _total(needs) <= available_bytes(state.params.device)


def _refuse(needs: Sequence[Need], state: ServerState) -> None:
    device = state.params.device
    in_memory = _in_memory(needs)
    left = available_bytes(device)
    if _total(in_memory) > left:
        raise MemoryBudgetError(
            f"{_sentence(in_memory, left, f'on {device}')}: ask fewer clients a round, run fewer rounds or a smaller "
            "model, or keep tables in files (SimulatedWorld.tables_in, UpdateMemory.folder) or in half the space "
            '(UpdateMemory.dtype="bfloat16").'
        )
    for folder in {need.table.folder for need in needs if need.table is not None} - {None}:
        assert folder is not None
        there = [need for need in needs if need.table is not None and need.table.folder == folder]
        left = shutil.disk_usage(folder).free
        if _total(there) > left:
            raise MemoryBudgetError(
                f"{_sentence(there, left, f'in {folder}')}: keep the tables in another folder, or run fewer rounds "
                "or a smaller model."
            )


def _total(needs: Sequence[Need]) -> int:
    return sum(need.size for need in needs)


def _sentence(needs: Sequence[Need], left: int, where: str) -> str:
    total = _total(needs)
    parts = "; ".join(f"{_gib(need.size)} for {need.what}" for need in needs if need.size > total / 50)
    return f"This run is expected to need {_gib(total)} {where} ({parts}), and {_gib(left)} are left"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
