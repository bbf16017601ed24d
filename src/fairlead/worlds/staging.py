"""Examples that stay in host memory and visit the device a round at a time."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.worlds.engines.base import Objective

_SPARE = 1.25
"""Room beyond what a round needs, so that the next one seldom needs more."""


class Staging:
    """Room on the device for the examples of one round's clients, at a fixed address.

    The clients of a round own ranges of rows, so each is one copy; engines then read the room as they would
    read data that live on the device.
    """

    def __init__(self, objective: Objective) -> None:
        self._source = objective
        self._room = self._allocate(0)

    def load(self, clients: Tensor) -> tuple[Objective, Tensor]:
        """The objective over the given clients' examples, and the row at which each client's begin."""
        data = self._source.data
        sizes = data.sizes[clients]
        total = int(sizes.sum())
        if total > len(self._room.data.inputs):
            self._room = self._allocate(int(total * _SPARE))
        ends = sizes.cumsum(0)
        for client, end in zip(clients.tolist(), ends.tolist(), strict=True):
            rows = data.rows_of(client)
            place = slice(end - (rows.stop - rows.start), end)
            self._room.data.inputs[place].copy_(data.inputs[rows], non_blocking=True)
            self._room.data.targets[place].copy_(data.targets[rows], non_blocking=True)
        return self._room, ends - sizes

    def _allocate(self, rows: int) -> Objective:
        inputs, targets = self._source.data.inputs, self._source.data.targets
        device = self._source.device
        room = ClientData(
            torch.zeros((rows, *inputs.shape[1:]), dtype=inputs.dtype, device=device),
            torch.zeros((rows, *targets.shape[1:]), dtype=targets.dtype, device=device),
            torch.tensor([0, rows]),
        )
        return replace(self._source, data=room)


def stays_on_host(data: ClientData, device: torch.device) -> bool:
    """Whether the examples would take more than half of a device's free memory."""
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return data.inputs.nbytes + data.targets.nbytes > free // 2


def on_host(data: ClientData, dtype: torch.dtype, device: torch.device) -> ClientData:
    """The same data in host memory, from which the device can fetch without a detour if it is one."""
    data = data.to(torch.device("cpu"), dtype)
    if device.type != "cuda":
        return data
    return replace(data, inputs=data.inputs.pin_memory(), targets=data.targets.pin_memory())
