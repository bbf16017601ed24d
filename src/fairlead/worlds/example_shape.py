"""What clients' data ask of a model: the shape of an input and the number of outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.errors import DataError
from fairlead.models.base import ExampleShape

_CLASSES_AT_MOST = 2**24
"""A model has an output for each; larger targets are ids or quantities by mistake."""


def example_shape(clients: ClientData, test: ClientData | None) -> ExampleShape:
    """The shape that a model for these clients must fit, classes and tokens of the test set included."""
    targets = clients.targets
    if targets.is_floating_point():
        outputs = int(targets.shape[1:].numel())
    else:
        outputs = _count_values(targets, None if test is None else test.targets)
        if outputs > _CLASSES_AT_MOST:
            raise DataError(
                f"Targets of whole numbers are classes, counted from 0, and must be below {_CLASSES_AT_MOST}, got "
                f"{outputs - 1}: number the classes 0, 1, 2, ..., or give quantities as floating-point numbers."
            )
    inputs, test_inputs = clients.inputs, None if test is None else test.inputs
    # Bytes are pixels, which the model's input pipeline scales.
    real = inputs.is_floating_point() or inputs.dtype == torch.uint8
    if not real:
        _refuse_negative_tokens(inputs, test_inputs)
    tokens = None if real else _count_values(inputs, test_inputs)
    return ExampleShape(tuple(inputs.shape[1:]), outputs, tokens)


def _refuse_negative_tokens(train: Tensor, test: Tensor | None) -> None:
    # Some engines would take them for places counted from the end of an embedding.
    for part in (train, test):
        if part is not None and len(part) and int(part.min()) < 0:
            raise DataError(
                f"Inputs of whole numbers are token ids and must be at least 0, got {int(part.min())}: give "
                "quantities as floating-point numbers."
            )


def _count_values(train: Tensor, test: Tensor | None) -> int:
    """How many whole numbers there are from 0 to the largest in either part."""
    largest = [int(part.max()) for part in (train, test) if part is not None and len(part)]
    return max(largest, default=0) + 1
