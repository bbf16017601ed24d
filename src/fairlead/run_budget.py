"""What a run will need, estimated before its first round: the rows that it remembers and the updates of a round."""

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

_UPDATE_COPIES = 2
"""Rows of d numbers per client that a round holds at least: its update, and what is made of it."""


class _Need(NamedTuple):
    """Something that takes space."""

    what: str
    size: int
    table: ClientTable | None = None


def refuse_too_large(algorithm: Algorithm, world: World, state: ServerState, key: Key, rounds: int) -> None:
    """Raise `MemoryBudgetError` if `rounds` more rounds need more memory or disk than there is.

    A client is met in a round with probability c(1 − q)/N, so that N(1 − (1 − c(1 − q)/N)^R) clients are
    expected to be remembered after R rounds; a table grows by the rows that it does not have yet.

    Symbols: N clients of a table, c the size of the next round's cohort, 1 − q its mean arrival rate, R `rounds`.
    What grows beyond the estimate is refused when it does.
    """
    everyone = world.population.num_clients
    if _fits(_needs(state, everyone, everyone, rounds), state):
        return
    conditions = world.conditions(state.round, algorithm.solver, key)
    cohort = algorithm.sampler.draw(state.sampler, conditions, key.fold("sampler", state.round)).clients
    arrival = 1.0 if conditions.arrival is None else float(conditions.arrival[cohort].mean())
    _refuse(_needs(state, len(cohort), len(cohort) * arrival, rounds), state)


def _needs(state: ServerState, asked: int, met: float, rounds: int) -> list[_Need]:
    """What is needed beyond what is there, largest first."""
    found = [
        _Need(
            f"the updates of a round, {asked} x {len(state.params)} numbers",
            _UPDATE_COPIES * asked * state.params.nbytes,
        )
    ]
    for path, table in tables_of(state):
        rows = _expected_rows(table, met, rounds)
        size = (rows - len(table.clients)) * table.row_bytes
        found.append(_Need(f"{path}, {rows} rows x {table.dim} numbers", size, table))
    return sorted(found, key=lambda need: -need.size)


def _expected_rows(table: ClientTable, met: float, rounds: int) -> int:
    absent = max(1 - met / table.num_clients, 0.0) ** rounds
    return max(math.ceil(table.num_clients * (1 - absent)), len(table.clients))


def _in_memory(needs: Sequence[_Need]) -> list[_Need]:
    return [need for need in needs if need.table is None or need.table.folder is None]


def _fits(needs: Sequence[_Need], state: ServerState) -> bool:
    """Whether everything fits in memory, without a look at any disk."""
    in_memory = _in_memory(needs)
    return len(in_memory) == len(needs) and _total(needs) <= available_bytes(state.params.device)


def _refuse(needs: Sequence[_Need], state: ServerState) -> None:
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


def _total(needs: Sequence[_Need]) -> int:
    return sum(need.size for need in needs)


def _sentence(needs: Sequence[_Need], left: int, where: str) -> str:
    total = _total(needs)
    parts = "; ".join(f"{_gib(need.size)} for {need.what}" for need in needs if need.size > total / 50)
    return f"This run is expected to need {_gib(total)} {where} ({parts}), and {_gib(left)} are left"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
