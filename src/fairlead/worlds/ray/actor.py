"""The actor: the engine of a simulated world in another process, and the shards of examples that it reads."""

import io
import os
import pickle
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray import ObjectRef, cloudpickle
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.records import PathRun, WorkOrder
from fairlead.worlds.device import Arithmetic, HostData
from fairlead.worlds.engines.base import Engine, Objective
from fairlead.worlds.executor import ClientBlock, LocalExecutor
from fairlead.worlds.simulated import SimulatedWorld

ValueT = TypeVar("ValueT")


class Packed(NamedTuple):
    """A tensor as bytes, with its type and shape."""

    content: NDArray[np.uint8]
    dtype: torch.dtype
    shape: tuple[int, ...]

    @staticmethod
    def of(tensor: Tensor) -> "Packed":
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        return Packed(flat.view(torch.uint8).numpy(), tensor.dtype, tuple(tensor.shape))

    def view(self) -> Tensor:
        """The tensor in shared memory: read only."""
        with warnings.catch_warnings():
            # Ray's memory cannot be written to, and torch warns of tensors in such memory.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            flat = torch.from_numpy(self.content)
        return flat.view(self.dtype).view(self.shape)


class Parcel(Generic[ValueT]):
    """Any value with its tensors packed; opening it copies them."""

    def __init__(self, value: ValueT) -> None:
        tensors: list[Packed] = []

        class Packer(cloudpickle.Pickler):
            def persistent_id(self, obj: Any) -> int | None:
                if type(obj) is not Tensor:
                    return None
                tensors.append(Packed.of(obj))
                return len(tensors) - 1

        text = io.BytesIO()
        Packer(text).dump(value)  # type: ignore[no-untyped-call]
        self._text, self._tensors = text.getvalue(), tensors

    def open(self) -> ValueT:
        """The value, with its tensors on the CPU."""
        tensors = self._tensors

        class Unpacker(pickle.Unpickler):
            def persistent_load(self, pid: int) -> Tensor:
                return tensors[pid].view().clone()

        value: ValueT = Unpacker(io.BytesIO(self._text)).load()
        return value


_SHARD_BYTES = 2**26
PackedShard = tuple[Packed, ...]
"""Inputs, targets and offsets of consecutive clients, packed for actors."""


@dataclass(frozen=True, eq=False)
class Shards:
    """All clients' examples, in Ray's object store.

    Actors on one machine share one copy of a shard. The first copy stays in the process that made the shards, so that
    no shard is lost with an actor.
    """

    first_clients: Sequence[int]
    """Of each shard, ascending."""
    references: Sequence[ObjectRef[PackedShard]]
    _viewed: dict[int, ClientData] = field(default_factory=dict)

    @staticmethod
    def put(data: ClientData, most_bytes: int = _SHARD_BYTES) -> "Shards":
        """Shards of about `most_bytes` each; no client is divided."""
        first_clients = first_clients_of_shards(data, most_bytes)
        references = []
        for first, last in zip(first_clients, [*first_clients[1:], data.num_clients], strict=True):
            offsets = data.offsets[first : last + 1]
            rows = slice(int(offsets[0]), int(offsets[-1]))
            shard = data.inputs[rows], data.targets[rows], offsets - offsets[0]
            references.append(ray.put(tuple(map(Packed.of, shard))))
        return Shards(first_clients, references)

    def examples_of(self, client: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one client, in memory that others share."""
        shard = bisect_right(self.first_clients, client) - 1
        if shard not in self._viewed:
            inputs, targets, offsets = (part.view() for part in ray.get(self.references[shard]))
            self._viewed[shard] = ClientData(inputs, targets, offsets)
        return self._viewed[shard].examples_of(client - self.first_clients[shard])


def first_clients_of_shards(data: ClientData, most_bytes: int) -> list[int]:
    """Where shards begin: a client belongs to the shard in which its first byte falls."""
    examples = max(len(data.inputs), 1)
    bytes_each = max((data.inputs.nbytes + data.targets.nbytes) / examples, 1.0)
    shard = torch.div(data.offsets[:-1] * bytes_each, most_bytes, rounding_mode="floor")
    begins = torch.cat([torch.tensor([True]), shard.diff() > 0])
    return begins.nonzero().flatten().tolist()


class PackedReturns(NamedTuple):
    """`LocalReturns`, packed for the way back."""

    rows: tuple[Packed | None, ...]
    ran: tuple[PathRun, ...]


@dataclass(frozen=True, eq=False)
class Recipe:
    """Everything that an actor needs except examples; a new actor starts from the same recipe."""

    objective: Objective
    """On the CPU, without examples."""
    engine: Engine
    arithmetic: Arithmetic
    device: str
    dtype: torch.dtype

    @staticmethod
    def of(simulation: SimulatedWorld) -> "Recipe":
        objective, data = simulation.objective, simulation.clients
        cpu = torch.device("cpu")
        model = objective.model.to(cpu, simulation.dtype)
        return Recipe(
            # New data rather than empty slices, with which all memory of what they are cut from would travel.
            objective=replace(objective, model=model, data=data.blank(0, cpu)),
            # Without the graphs that it may have captured, which mean nothing elsewhere.
            engine=replace(cast("Any", simulation.engine)),
            arithmetic=simulation.arithmetic,
            device=simulation.device.type,
            dtype=simulation.dtype,
        )

    def executor(self, shards: Shards) -> LocalExecutor:
        """An executor of the world's engine in this process."""
        device = torch.device(self.device)
        self.arithmetic.require_device(device, self.dtype)
        objective = replace(self.objective, model=self.objective.model.to(device, self.dtype))
        host_data = HostData(objective, shards.examples_of)
        return LocalExecutor(objective, self.engine, self.arithmetic, host_data=host_data)


class Assignment(NamedTuple):
    """The world that an actor trains for, as references that are equal in all processes."""

    recipe: ObjectRef[Recipe]
    shards: ObjectRef[Shards]


class ShardActor:
    """Trains blocks of clients; an assignment restores all of its state."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self._assignment: Assignment | None = None

    def process(self) -> int:
        """The id of its process, once it is ready."""
        return os.getpid()

    def train(
        self, assignment: Assignment, order: Parcel[WorkOrder], block: Parcel[ClientBlock]
    ) -> PackedReturns:
        """Local work of one block, which the engine receives as a whole."""
        if assignment != self._assignment:
            recipe, shards = ray.get(list(assignment))
            self._executor = recipe.executor(shards)
            self._assignment = assignment
        returns = self._executor.train(order.open(), block.open())
        packed = tuple(None if rows is None else Packed.of(rows) for rows in returns.rows)
        return PackedReturns(packed, returns.ran)
