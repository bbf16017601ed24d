"""Models of plain Flower apps: named arrays, of which those of floating-point numbers are one flat vector here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from fairlead.errors import FieldError


@dataclass(frozen=True)
class ArrayLayout:
    """The float32 arrays of a model in their order; whole numbers, such as counters of batches, are not learnt."""

    shapes: Mapping[str, tuple[int, ...]]

    @staticmethod
    def of(arrays: ArrayRecord) -> ArrayLayout:
        floats = {name: array for name, array in arrays.items() if array.dtype.startswith("float")}
        wrong = [name for name, array in floats.items() if array.dtype != "float32"]
        if wrong or not floats:
            raise FieldError(
                f"FlowerStrategy needs a model of float32 arrays, got {wrong[:3] or 'none'}: convert it first."
            )
        return ArrayLayout({name: tuple(array.shape) for name, array in floats.items()})

    @property
    def sizes(self) -> dict[str, int]:
        return {name: prod(shape) for name, shape in self.shapes.items()}

    def flatten(self, arrays: ArrayRecord) -> Tensor:
        """The vector in a record that the server itself made."""
        return self.join({name: torch.from_numpy(arrays[name].numpy().copy()) for name in self.shapes})

    def join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([tensors[name].reshape(-1) for name in self.shapes])

    def renewed(self, arrays: ArrayRecord, vector: Tensor) -> ArrayRecord:
        """The record with the numbers of a vector in place of its own."""
        parts = dict(zip(self.shapes, torch.split(vector, list(self.sizes.values())), strict=True))
        return ArrayRecord(
            {
                name: Array(parts[name].reshape(self.shapes[name]).numpy()) if name in parts else array
                for name, array in arrays.items()
            }
        )
