"""Tensors between processes: their memory as it is, which Ray maps instead of copying where it can."""

from __future__ import annotations

import io
import pickle
import warnings
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ValueT = TypeVar("ValueT")


class Packed(NamedTuple):
    """A tensor as bytes, which every type of numbers has, with what they mean."""

    content: NDArray[np.uint8]
    dtype: torch.dtype
    shape: tuple[int, ...]

    @staticmethod
    def of(tensor: Tensor) -> Packed:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        return Packed(flat.view(torch.uint8).numpy(), tensor.dtype, tuple(tensor.shape))

    def view(self) -> Tensor:
        """The tensor in memory that others may share: to be read alone."""
        with warnings.catch_warnings():
            # Ray's memory cannot be written to, and torch warns of tensors in such memory.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            flat = torch.from_numpy(self.content)
        return flat.view(self.dtype).view(self.shape)


class Parcel(Generic[ValueT]):
    """Any value with its tensors packed; opening it gives tensors with memory of their own."""

    def __init__(self, value: ValueT) -> None:
        from ray import cloudpickle

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
        """The value, its tensors on the CPU."""
        tensors = self._tensors

        class Unpacker(pickle.Unpickler):
            def persistent_load(self, pid: int) -> Tensor:
                return tensors[pid].view().clone()

        value: ValueT = Unpacker(io.BytesIO(self._text)).load()
        return value
