"""Examples in host memory, copied to the device round by round, and the shapes that a model must fit."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fairlead.clients.data import ClientData, offsets_of
from fairlead.errors import DataError
from fairlead.memory.budget import available_bytes
from fairlead.models.base import ExampleShape
from fairlead.worlds.engines.base import Objective

_CLASSES_AT_MOST = 2**24
"""A model has an output for each; larger targets are ids or quantities by mistake."""


def example_shape(clients: ClientData, test: ClientData | None) -> ExampleShape:
    """The shape that a model for these clients must fit, classes and tokens of the test set included."""
    targets = clients.targets
    if targets.is_floating_point():
        outputs = int(targets.shape[1:].numel())
    else:
        outputs = _count_values([targets] if test is None else [targets, test.targets])
        if outputs > _CLASSES_AT_MOST:
            raise DataError(
                f"Targets of whole numbers are classes, counted from 0, and must be below {_CLASSES_AT_MOST}, got "
                f"{outputs - 1}: number the classes 0, 1, 2, ..., or give quantities as floating-point numbers."
            )
    inputs = [clients.inputs] if test is None else [clients.inputs, test.inputs]
    # Bytes are pixels, which the model's input pipeline scales.
    if inputs[0].is_floating_point() or inputs[0].dtype == torch.uint8:
        return ExampleShape(tuple(inputs[0].shape[1:]), outputs, None)
    smallest = min((int(part.min()) for part in inputs if len(part)), default=0)
    if smallest < 0:
        # Some engines would take them for places counted from the end of an embedding.
        raise DataError(
            f"Inputs of whole numbers are token ids and must be at least 0, got {smallest}: give quantities as "
            "floating-point numbers."
        )
    return ExampleShape(tuple(inputs[0].shape[1:]), outputs, _count_values(inputs))


def _count_values(parts: Sequence[Tensor]) -> int:
    """How many whole numbers there are from 0 to the largest in any part."""
    return max((int(part.max()) for part in parts if len(part)), default=0) + 1


_SPARE = 1.25
"""Room beyond what a round needs, so that the next one seldom needs more."""


class HostData:
    """Room on the device for the examples of one round's clients, at a fixed address.

    The clients of a round own ranges of rows, so each is one copy; engines then read the room as they would
    read data that live on the device. `examples_of` gives a client's inputs and targets; by default they are
    those of the objective.
    """

    def __init__(
        self, objective: Objective, examples_of: Callable[[int], tuple[Tensor, Tensor]] | None = None
    ) -> None:
        self._source = objective
        self._examples_of = examples_of or objective.data.examples_of
        self._room = self._allocate(0)

    def load(self, clients: Tensor) -> tuple[Objective, Tensor]:
        """The objective over the given clients' examples, and the row at which each client's begin."""
        examples = [self._examples_of(client) for client in clients.tolist()]
        starts = offsets_of(torch.tensor([len(inputs) for inputs, _ in examples], dtype=torch.int64))
        total = int(starts[-1])
        if total > len(self._room.data.inputs):
            self._room = self._allocate(int(total * _SPARE))
        for start, (inputs, targets) in zip(starts.tolist(), examples, strict=False):
            place = slice(start, start + len(inputs))
            self._room.data.inputs[place].copy_(inputs, non_blocking=True)
            self._room.data.targets[place].copy_(targets, non_blocking=True)
        return self._room, starts[:-1]

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
    return data.inputs.nbytes + data.targets.nbytes > available_bytes(device) // 2


def on_host(data: ClientData, dtype: torch.dtype, device: torch.device) -> ClientData:
    """The same data in host memory, from which the device can fetch without a detour if it is one."""
    data = data.to(torch.device("cpu"), dtype)
    if device.type != "cuda":
        return data
    return replace(data, inputs=data.inputs.pin_memory(), targets=data.targets.pin_memory())
