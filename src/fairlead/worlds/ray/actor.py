"""What runs in an actor: the engine of a simulated world, over the shards whose clients it is given."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from fairlead.clients.data import ClientData
from fairlead.records import WorkOrder
from fairlead.worlds.arithmetic import Arithmetic
from fairlead.worlds.engines.base import Engine, Objective
from fairlead.worlds.ray.shards import Shards
from fairlead.worlds.ray.wire import Packed, Parcel
from fairlead.worlds.simulated import SimulatedWorld
from fairlead.worlds.staging import Staging
from fairlead.worlds.workforce import ClientBlock, LocalWorkforce

if TYPE_CHECKING:
    from ray import ObjectRef

PackedReturns = tuple["Packed | None", ...]
"""The fields of `LocalReturns`."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """Everything that an actor needs beside examples: it can be made anew from this at any time."""

    objective: Objective
    """On the CPU, without examples."""
    engine: Engine
    arithmetic: Arithmetic
    device: str
    dtype: torch.dtype

    @staticmethod
    def of(simulation: SimulatedWorld) -> Recipe:
        objective, data = simulation.objective, simulation.clients
        # New tensors rather than empty slices, with which all memory of what they are cut from would travel.
        inputs, targets = (
            values.new_empty((0, *values.shape[1:]), device="cpu") for values in (data.inputs, data.targets)
        )
        nobody = ClientData(inputs, targets, torch.tensor([0, 0]))
        model = objective.model.to(torch.device("cpu"), simulation.dtype)
        return Recipe(
            objective=replace(objective, model=model, data=nobody),
            # Without the graphs that it may have captured, which mean nothing elsewhere.
            engine=replace(cast("Any", simulation.engine)),
            arithmetic=simulation.arithmetic,
            device=simulation.device.type,
            dtype=simulation.dtype,
        )

    def workforce(self, shards: Shards) -> LocalWorkforce:
        """The world's engine in this process."""
        device = torch.device(self.device)
        self.arithmetic.require_device(device, self.dtype)
        objective = replace(self.objective, model=self.objective.model.to(device, self.dtype))
        staging = Staging(objective, shards.examples_of)
        return LocalWorkforce(objective, self.engine, self.arithmetic, staging=staging)


class Assignment(NamedTuple):
    """For which world an actor works: references that stand for the same content everywhere."""

    recipe: ObjectRef[Recipe]
    shards: ObjectRef[Shards]


class ShardActor:
    """Trains blocks of clients; keeps nothing that an assignment could not restore."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self._assignment: Assignment | None = None

    def process(self) -> int:
        """The number of its process, once it is ready for work."""
        return os.getpid()

    def train(
        self, assignment: Assignment, order: Parcel[WorkOrder], block: Parcel[ClientBlock]
    ) -> PackedReturns:
        """Local work of a block, which is handed to the engine as it is."""
        import ray

        if assignment != self._assignment:
            recipe, shards = ray.get(list(assignment))
            self._workforce = recipe.workforce(shards)
            self._assignment = assignment
        device = self._workforce.objective.device
        returns = self._workforce.train(_told_on(device, order.open()), _block_on(device, block.open()))
        return tuple(None if rows is None else Packed.of(rows) for rows in returns)


def _block_on(device: torch.device, block: ClientBlock) -> ClientBlock:
    return replace(block, memory={name: rows.to(device) for name, rows in block.memory.items()})


def _told_on(device: torch.device, order: WorkOrder) -> WorkOrder:
    return replace(
        order,
        anchor=order.anchor.to(device),
        buffers=order.buffers.to(device),
        shared={name: vector.to(device) for name, vector in order.shared.items()},
    )
