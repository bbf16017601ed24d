"""Memory and disk that a run needs, estimated before its first round."""

import math
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from fairlead.algorithm import Algorithm
from fairlead.checkpoint.store import tables_of
from fairlead.client_table import ClientTable
from fairlead.errors import MemoryBudgetError
from fairlead.memory.budget import available_bytes
from fairlead.randomness import Key
from fairlead.records import ServerState
from fairlead.worlds.base import World

_VECTORS = 16
"""Vectors of d numbers that a round holds for any cohort: the model, the server's step, clients at work."""
_CLIENT_COPIES, _SERVER_COPIES = 3, 1
"""Rows per client that a round holds in addition to a table: the clients' old memory, the new memory and the message of
their difference; for the server, the new rows."""
_PRODUCT_COPIES = 3
"""Of AWARE's inner products while λ is computed: all of them, those of clients seen, and these scaled."""


class Need(NamedTuple):
    """Something that takes space."""

    what: str
    size: int
    device: torch.device
    table: ClientTable | None = None


def refuse_too_large(algorithm: Algorithm, world: World, state: ServerState, key: Key, rounds: int) -> None:
    """Raise `MemoryBudgetError` if `rounds` more rounds need more memory or disk than is available.

    A client is met in a round with probability c(1 − q)/N, so that N(1 − (1 − c(1 − q)/N)^R) clients are
    expected to be remembered after R rounds; a table that is full doubles, and is copied.

    Symbols: N clients of a table, c the size of the next round's cohort, 1 − q its mean arrival rate, R `rounds`.
    Growth beyond the estimate is refused when it happens.
    """
    everyone = world.population.num_clients
    if not any(_shortages(needs_of(state, everyone, everyone, rounds))):
        return
    conditions = world.conditions(state.round, algorithm.solver, key)
    cohort = algorithm.sampler.draw(state.sampler, conditions, key.fold("sampler", state.round)).clients
    met = float(len(cohort) if conditions.arrival is None else conditions.arrival[cohort].sum())
    for sentence in _shortages(needs_of(state, len(cohort), met, rounds)):
        raise MemoryBudgetError(sentence)


def needs_of(state: ServerState, asked: int, met: float, rounds: int) -> list[Need]:
    """Further needs of rounds that ask `asked` clients and receive `met` updates, largest first."""
    dim, device, per_client = len(state.params), state.params.device, state.params.nbytes
    found = [Need(f"the model and the server's step, {dim} numbers", _VECTORS * state.params.nbytes, device)]
    for path, table in tables_of(state):
        rows, copied = _room(table, met, rounds)
        size = (rows + copied - table.capacity) * table.row_bytes
        found.append(Need(f"{path}, {rows} rows x {table.dim} numbers", size, table.rows.device, table))
        if path.endswith("/products"):
            copies = _PRODUCT_COPIES * rows * table.row_bytes
            found.append(
                Need(f"AWARE's weights from {rows} x {table.dim} products", copies, table.rows.device)
            )
        per_client += table.row_bytes * _copies(path, whole=table.dim == dim)
    found.append(Need(f"the updates of a round, {asked} x {dim} numbers", asked * per_client, device))
    return sorted(found, key=lambda need: -need.size)


def _copies(path: str, *, whole: bool) -> int:
    if path.startswith("memory/"):
        return _CLIENT_COPIES
    # Moving averages are renewed a few at a time, from the updates themselves where these are remembered whole.
    return 0 if path.endswith("/averages") and whole else _SERVER_COPIES


def _room(table: ClientTable, met: float, rounds: int) -> tuple[int, int]:
    """The capacity that a table will reach, and its old rows, which exist too while they are copied."""
    rows, room, before = _expected_rows(table, met, rounds), table.capacity, 0
    while room < rows:
        before, room = room, min(max(2 * room, math.ceil(met)), table.num_clients)
    # A file grows in place.
    return room, before if table.folder is None else 0


def _expected_rows(table: ClientTable, met: float, rounds: int) -> int:
    absent = max(1 - met / table.num_clients, 0.0) ** rounds
    return max(math.ceil(table.num_clients * (1 - absent)), len(table.clients))


def _shortages(needs: Sequence[Need]) -> Iterator[str]:
    """A sentence for every device and folder that has less room than is needed there."""
    places = defaultdict[torch.device | Path, list[Need]](list)
    for need in needs:
        places[(need.table and need.table.folder) or need.device].append(need)
    for place, there in places.items():
        if isinstance(place, Path):
            left, where = shutil.disk_usage(place).free, f"in {place}"
            remedy = "keep the tables in another folder, or run fewer rounds or a smaller model."
        else:
            left, where = available_bytes(place), f"on {place}"
            remedy = (
                "ask fewer clients a round, run fewer rounds or a smaller model, or keep tables in files "
                "(SimulatedWorld.tables_in, UpdateMemory.folder) or in half the space "
                '(UpdateMemory.dtype="bfloat16").'
            )
        if sum(need.size for need in there) > left:
            yield f"{_sentence(there, left, where)}: {remedy}"


def _sentence(needs: Sequence[Need], left: int, where: str) -> str:
    total = sum(need.size for need in needs)
    parts = "; ".join(f"{_gib(need.size)} for {need.what}" for need in needs if need.size > total / 50)
    return f"This run is expected to need {_gib(total)} {where} ({parts}), and {_gib(left)} are left"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
