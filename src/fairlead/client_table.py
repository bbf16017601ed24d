"""`ClientTable`: one row per client, stored only for clients ever seen."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fairlead.errors import FieldError, MemoryBudgetError, StaleStateError
from fairlead.memory.budget import available_bytes

PartState = Mapping[str, "Tensor | ClientTable"]
"""The state of a part between rounds: named tensors and client tables. All of it is checkpointed."""


class _Store:
    """The rows themselves; shared by all handles and changed only through the newest."""

    def __init__(
        self, num_clients: int, dim: int, dtype: torch.dtype, device: torch.device, *, in_file: bool
    ) -> None:
        self.slot_of = torch.full((num_clients,), -1, dtype=torch.int64)
        self.clients = torch.empty(0, dtype=torch.int64)
        self.rows = torch.empty((0, dim), dtype=dtype, device="cpu" if in_file else device)
        self.device = device
        self.path: Path | None = None
        self.version = 0

    def admit(self, clients: Tensor) -> None:
        new = clients[self.slot_of[clients] < 0]
        if len(new) == 0:
            return
        # Rows first: a refusal must leave the table unchanged.
        self.make_room(len(new))
        used = len(self.clients)
        self.slot_of[new] = torch.arange(used, used + len(new))
        self.clients = torch.cat([self.clients, new])

    def make_room(self, num_new: int) -> None:
        used = len(self.clients)
        if used + num_new > len(self.rows):
            self._grow(min(len(self.slot_of), max(used + num_new, 2 * used)))

    def _grow(self, capacity: int) -> None:
        dim, kept = self.rows.shape[1], len(self.rows)
        size = capacity * dim * self.rows.element_size()
        if self.path is not None:
            # Writing to a map of a file that the disk cannot hold would kill the process.
            free = shutil.disk_usage(self.path.parent).free
            needed = size - self.path.stat().st_blocks * 512
            if needed > free:
                raise MemoryBudgetError(
                    f"A client table of {capacity} rows x {dim} parameters needs {needed / 2**30:.1f} GiB "
                    f"more in {self.path.parent}, and {free / 2**30:.1f} GiB are free there. Store the rows "
                    "in half the space (dtype=torch.bfloat16) or in another folder."
                )
            # A file grows in place: a longer map of the same file shows the rows already written.
            self.rows = torch.from_file(
                str(self.path), shared=True, size=capacity * dim, dtype=self.rows.dtype
            ).view(capacity, dim)
            return
        available = available_bytes(self.rows.device)
        if size > available:
            raise MemoryBudgetError(
                f"A client table of {capacity} rows x {dim} parameters needs {size / 2**30:.1f} GiB, "
                f"and {available / 2**30:.1f} GiB are left on {self.rows.device}. Store the rows in "
                "half the space (dtype=torch.bfloat16) or in a file (folder=...)."
            )
        grown = self.rows.new_zeros((capacity, dim))
        grown[:kept] = self.rows
        self.rows = grown


def _scratch_file(folder: Path) -> Path:
    """A new empty file with a unique name, so that runs in the same folder do not share rows."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="client-table-", suffix=".rows", dir=folder)
    except OSError as error:
        raise FieldError(
            f"ClientTable.folder must be a folder that can be written to, got {str(folder)!r}: "
            f"{error.strerror}."
        ) from error
    os.close(handle)
    return Path(name)


@dataclass(frozen=True, eq=False)
class ClientTable:
    """One vector of `dim` numbers per client: control variates, last updates, moving averages.

    Rows of clients never written read as zero and take no space. The table is the one mutable
    object of the library, so handles are versioned: `write` returns the handle to use from then on,
    and reading or writing through an older one raises `StaleStateError` instead of mixing rounds.

    >>> table = ClientTable.create(num_clients=5, dim=2)
    >>> table = table.write(torch.tensor([3]), torch.tensor([[1.0, 2.0]]))
    >>> table.read(torch.tensor([0, 3])).tolist()
    [[0.0, 0.0], [1.0, 2.0]]
    """

    _store: _Store
    version: int

    @staticmethod
    def create(
        num_clients: int,
        dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        folder: Path | None = None,
    ) -> ClientTable:
        """An empty table; with `folder` its rows live in a file there, mapped, and deleted with the table."""
        store = _Store(num_clients, dim, dtype, torch.device(device), in_file=folder is not None)
        if folder is not None:
            store.path = _scratch_file(folder)
            weakref.finalize(store, store.path.unlink, missing_ok=True)
        return ClientTable(store, 0)

    @property
    def num_clients(self) -> int:
        return len(self._store.slot_of)

    @property
    def dim(self) -> int:
        return self._store.rows.shape[1]

    @property
    def clients(self) -> Tensor:
        """Ids of the clients seen so far, in the order in which `rows` holds them."""
        return self._current().clients

    @property
    def rows(self) -> Tensor:
        """The (seen, dim) matrix of all rows written so far."""
        store = self._current()
        return store.rows[: len(store.clients)]

    @property
    def capacity(self) -> int:
        """Rows that fit; it doubles when more are needed."""
        return len(self._store.rows)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * self._store.rows.element_size()

    @property
    def folder(self) -> Path | None:
        """Where the rows are; None if they are in memory."""
        return None if self._store.path is None else self._store.path.parent

    def positions(self, clients: Tensor) -> Tensor:
        """Where in `rows` each client stands; -1 for clients never written."""
        return self._current().slot_of[clients]

    def read(self, clients: Tensor) -> Tensor:
        """Rows of the given clients, zero where nothing was written yet."""
        store = self._current()
        slots = store.slot_of[clients]
        if len(store.rows) == 0:
            return store.rows.new_zeros((len(clients), self.dim), device=store.device)
        found = store.rows[slots.clamp(min=0).to(store.rows.device)]
        if bool((slots < 0).any()):
            found[(slots < 0).to(found.device)] = 0
        return found.to(store.device)

    def make_room(self, clients: Tensor) -> None:
        """Grow once for clients that will be written one after another; the contents do not change."""
        store = self._current()
        store.make_room(int((store.slot_of[clients] < 0).sum()))

    def write(self, clients: Tensor, rows: Tensor) -> ClientTable:
        """Store rows and return the handle that replaces this one."""
        store = self._current()
        store.admit(clients)
        slots = store.slot_of[clients].to(store.rows.device)
        store.rows[slots] = rows.to(store.rows)
        store.version += 1
        return replace(self, version=store.version)

    def _current(self) -> _Store:
        if self.version != self._store.version:
            raise StaleStateError(
                f"This state holds version {self.version} of a client table that is now at version "
                f"{self._store.version}: continue from the newest state, or restore a checkpoint."
            )
        return self._store


def tensor_in(state: PartState, name: str) -> Tensor:
    """The tensor called `name` in a part's state."""
    value = state[name]
    assert isinstance(value, Tensor)
    return value


def table_in(state: PartState, name: str) -> ClientTable:
    """The client table called `name` in a part's state."""
    value = state[name]
    assert isinstance(value, ClientTable)
    return value
