"""Clients' examples in shards of consecutive clients, which actors map when they first need one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.worlds.ray.wire import Packed

if TYPE_CHECKING:
    from ray import ObjectRef

_SHARD_BYTES = 2**26


class PackedShard(NamedTuple):
    """The examples of consecutive clients on their way to an actor."""

    inputs: Packed
    targets: Packed
    offsets: Packed

    def view(self) -> ClientData:
        return ClientData(self.inputs.view(), self.targets.view(), self.offsets.view())


@dataclass(frozen=True, eq=False)
class Shards:
    """All clients' examples, in the memory of the cluster.

    Actors on one machine share a single copy of a shard. The first copy lives where the shards were made, so
    that no actor's death loses one.
    """

    first_clients: Sequence[int]
    """Of each shard, ascending."""
    references: Sequence[ObjectRef[PackedShard]]
    _viewed: dict[int, ClientData] = field(default_factory=dict)

    @staticmethod
    def put(data: ClientData, most_bytes: int = _SHARD_BYTES) -> Shards:
        """Shards of about `most_bytes` each; no client is divided."""
        import ray

        first_clients = first_clients_of_shards(data, most_bytes)
        references = []
        for first, last in zip(first_clients, [*first_clients[1:], data.num_clients], strict=True):
            offsets = data.offsets[first : last + 1]
            rows = slice(int(offsets[0]), int(offsets[-1]))
            shard = PackedShard(
                Packed.of(data.inputs[rows]), Packed.of(data.targets[rows]), Packed.of(offsets - offsets[0])
            )
            references.append(ray.put(shard))
        return Shards(first_clients, references)

    def examples_of(self, client: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one client, in memory that others share."""
        import ray

        shard = bisect_right(self.first_clients, client) - 1
        if shard not in self._viewed:
            self._viewed[shard] = ray.get(self.references[shard]).view()
        return self._viewed[shard].examples_of(client - self.first_clients[shard])


def first_clients_of_shards(data: ClientData, most_bytes: int) -> list[int]:
    """Where shards begin: a client belongs to the shard in which its first byte falls."""
    examples = max(len(data.inputs), 1)
    bytes_each = max((data.inputs.nbytes + data.targets.nbytes) / examples, 1.0)
    shard = torch.div(data.offsets[:-1] * bytes_each, most_bytes, rounding_mode="floor")
    begins = torch.cat([torch.tensor([True]), shard.diff() > 0])
    return begins.nonzero().flatten().tolist()
