"""`InMemory`: clients whose data a Python program holds, for experiments in scripts and notebooks."""

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from fairlead.clients.data import ClientData
from fairlead.clients.pool import Pool
from fairlead.clients.source import PooledSource, table_task
from fairlead.errors import DataError, field_error
from fairlead.models.sequences import TextTransformer
from fairlead.task import Task

ALLOWED = (
    "a Pool, ClientData, a torch Dataset, or tensors (inputs, targets) or (inputs, targets, clients); a table becomes "
    "a Pool by Pool.from_table(table, target=..., client=...)"
)
"""Data in memory, in the words of errors."""


@dataclass(frozen=True)
class InMemory(PooledSource):
    """Clients whose `data` are in memory, with an optional `test` set in the same form.

    `data` are a `Pool`, `ClientData`, a torch `Dataset`, or tensors or arrays: (inputs, targets), or (inputs, targets,
    clients) with the client of each example. A spec cannot hold them. The folder of a run says so, and notes only their
    `digest`; such a run resumes from Python, with the same data.

    >>> from fairlead import Key
    >>> source = InMemory(([[0.1], [0.2], [0.3], [0.4]], [0, 1, 1, 0], ["a", "b", "a", "b"]), test_fraction=0)
    >>> source.load(Key.from_seed(0)).train.sizes.tolist()
    [2, 2]
    """

    data: Any = field(default=None, compare=False, repr=False, metadata={"in_memory": True})
    test: Any = field(default=None, compare=False, repr=False, metadata={"in_memory": True})
    digest: str = ""

    def __post_init__(self) -> None:
        if self.data is not None:
            pool = _pool_of(self, "data", self.data)
            if self.test is not None:
                pool = _with_test(pool, _pool_of(self, "test", self.test))
            self._refuse_nobody(pool)
            for name, value in (("data", pool), ("test", None), ("digest", _digest(pool))):
                object.__setattr__(self, name, value)
        elif not self.digest:
            raise field_error(self, "data", ALLOWED, None)
        super().__post_init__()

    def pool(self) -> Pool:
        if self.data is None:
            raise DataError(
                f"These data were in the memory of a Python program ({self.digest}), and no spec holds them: give them "
                "again in Python, as InMemory(data), or resume there."
            )
        pool: Pool = self.data
        return pool

    def default_task(self) -> Task:
        pool = self.pool()
        inputs = pool.inputs
        if not inputs.is_floating_point() and inputs.dtype != torch.uint8:
            return Task(TextTransformer(vocabulary=int(inputs.max()) + 1))
        return table_task(None, regression=pool.targets.is_floating_point())


def in_memory(clients: object) -> object:
    """Data as their source; anything else as it is."""
    return InMemory(clients) if isinstance(clients, Pool | ClientData | Dataset | tuple) else clients


def _pool_of(source: InMemory, name: str, data: object) -> Pool:
    if isinstance(data, Pool):
        return data
    if isinstance(data, ClientData):
        owner = torch.repeat_interleave(torch.arange(data.num_clients), data.sizes)
        return Pool(data.inputs, data.targets, owner, client_names=data.names, class_names=data.class_names)
    if isinstance(data, Dataset):
        return Pool.from_dataset(data)
    if isinstance(data, tuple | list) and len(data) in (2, 3):
        return Pool.from_arrays(*data)
    raise field_error(source, name, ALLOWED, data)


def _with_test(pool: Pool, test: Pool) -> Pool:
    """Its examples with those of another pool as the test set; clients of both are the same by name."""
    pool = replace(pool, test_inputs=test.inputs, test_targets=test.targets, test_natural=None)
    if pool.natural is None or test.natural is None:
        return pool
    names, theirs = (
        list(range(int(each.natural.max()) + 1)) if each.client_names is None else each.client_names.tolist()
        for each in (pool, test)
        if each.natural is not None
    )
    places = {name: place for place, name in enumerate(names)}
    numbers = torch.tensor([places.get(name, -1) for name in theirs])[test.natural]
    return pool if bool((numbers < 0).any()) else replace(pool, test_natural=numbers)


def _digest(pool: Pool) -> str:
    """The number of examples, their shape, and a hash of all data."""
    found = sha256()
    parts = (pool.inputs, pool.targets, pool.natural, pool.test_inputs, pool.test_targets, pool.test_natural)
    for part in parts:
        if isinstance(part, Tensor):
            found.update(f"{part.dtype} {tuple(part.shape)}".encode())
            found.update(part.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    shape = " × ".join(map(str, pool.inputs.shape[1:])) or "1"
    return f"{len(pool)} examples of {shape} numbers, sha256 {found.hexdigest()[:16]}"
