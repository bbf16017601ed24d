"""Examples that users have in memory, all at once or one by one, as tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.errors import DataError, field_error, is_integer

ArrayLike = Any
"""A tensor, a NumPy array, or nested lists of numbers."""


@runtime_checkable
class Image(Protocol):
    """What torchvision's folders and Hugging Face's image columns yield: Pillow's images."""

    mode: str
    size: tuple[int, int]


def as_tensor(values: ArrayLike, name: str) -> Tensor:
    """Numbers as a tensor on the CPU: bytes and floats keep their type, other integers become int64."""
    if isinstance(values, Tensor):
        tensor = values.detach().cpu()
        if tensor.is_complex():
            raise DataError(f"{name} must be real numbers, got values of type {tensor.dtype}.")
        keeps = tensor.is_floating_point() or tensor.dtype == torch.uint8
        tensor = tensor if keeps else tensor.to(torch.int64)
    else:
        tensor = torch.from_numpy(_numbers(values, name))
    if tensor.ndim == 0:
        raise DataError(f"{name} must have one row per example, got a single number.")
    return tensor


def first_non_finite(values: Tensor) -> int | None:
    """The first row with NaN or infinity, if there is one."""
    if not values.is_floating_point() or bool(torch.isfinite(values).all()):
        return None
    return int((~torch.isfinite(values.reshape(len(values), -1))).any(1).nonzero()[0])


def require_shape(owner: object, shape: tuple[int, ...] | None) -> None:
    """Refuse `owner.shape` unless it is None or the lengths of the axes of one input."""
    if shape is not None and not (
        isinstance(shape, tuple) and all(is_integer(length, 1) for length in shape)
    ):
        raise field_error(owner, "shape", "whole numbers of at least 1", shape)


def shaped(owner: object, shape: tuple[int, ...] | None, inputs: Tensor, whose: str) -> Tensor:
    """Inputs in `owner.shape`, where it is given; `whose` they are is for the error."""
    if shape is None:
        return inputs
    size = inputs.shape[1:].numel()
    if size != math.prod(shape):
        raise field_error(owner, "shape", f"one of {size} numbers as each input of {whose}", shape)
    return inputs.reshape(len(inputs), *shape)


def stacked(values: Iterable[Any], count: int, name: str) -> Tensor:
    """Examples that come one by one; images become bytes (channels, height, width)."""
    rows: Tensor | None = None
    for place, value in enumerate(values):
        example = _example(value, f"{name}, example {place}")
        if rows is None:
            rows = torch.empty((count, *example.shape), dtype=example.dtype)
        if example.shape != rows.shape[1:]:
            raise DataError(
                f"{name}, example {place} must have shape {tuple(rows.shape[1:])} as those before it, got "
                f"{tuple(example.shape)}."
            )
        if example.dtype != rows.dtype:
            rows = rows.to(torch.promote_types(rows.dtype, example.dtype))
        rows[place] = example
    if rows is None:
        raise DataError(f"{name} has no example.")
    return rows


def _example(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    array = _numbers(value, name)
    if isinstance(value, Image):
        array = array[None] if array.ndim == 2 else np.ascontiguousarray(np.moveaxis(array, -1, 0))
    if array.dtype == np.float64 and not isinstance(value, np.ndarray):
        # Python has no other floats; data in the precision of a float64 come as arrays.
        array = array.astype(np.float32)
    return torch.from_numpy(array)


def _numbers(values: Any, name: str) -> NDArray[Any]:
    """An array of one's own in a type that torch has."""
    try:
        array = np.array(values, order="C")
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers in rows of equal length: {error}.") from error
    if array.dtype.kind not in "biuf":
        kind = "text" if array.dtype.kind in "US" else f"values of type {array.dtype}"
        raise DataError(f"{name} must be numbers, got {kind}.")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    if array.dtype.kind == "f" or array.dtype == np.uint8:
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return array.astype(np.int64)
