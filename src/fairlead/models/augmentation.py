"""The role `Augmentation`: changes of a batch of inputs before the model."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from fairlead.component import Component, NaturalNumber, UnitInterval
from fairlead.errors import ClashError, field_error, is_number
from fairlead.randomness import keyed_uniform

_SALT = 0xD1B54A32D192ED03 >> 1
"""Keeps the draws of augmentations apart from each other and from those of dropout."""


class Augmentation(Component, ABC):
    """Changes a batch of inputs on the device, inside the training step.

    Randomness comes as uniform numbers, `draws` per example, from the key of the local step. So every engine and every
    resumed run changes the same inputs in the same way. A random augmentation applies only in training; a
    deterministic one is part of the model, and evaluation applies it too.
    """

    draws: ClassVar[int] = 0
    """Uniform numbers needed per example."""

    @abstractmethod
    def require_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs whose examples have a shape that this cannot work on."""

    @abstractmethod
    def apply(self, inputs: Tensor, uniform: Tensor) -> Tensor:
        """The changed batch, of the same shape; `uniform` is (batch, draws) in [0, 1)."""


@dataclass(frozen=True)
class RandomCrop(Augmentation):
    """Shifts an image by up to `padding` pixels each way, and fills the gap with zeros.

        out[y, x] = in[y + dy, x + dx];  dy, dx ~ U{−padding, …, padding}

    The same as to pad by `padding` and cut out a random piece of the old size. Images are the last two
    axes of an input. Reduces to no change for padding = 0.
    """

    padding: NaturalNumber = 4

    draws = 2

    def require_shape(self, shape: tuple[int, ...]) -> None:
        _require_image(self, shape)

    def apply(self, inputs: Tensor, uniform: Tensor) -> Tensor:
        shifts = (uniform * (2 * self.padding + 1)).floor().to(torch.int64) - self.padding
        return _shifted(_shifted(inputs, shifts[:, 0], -2), shifts[:, 1], -1)


@dataclass(frozen=True)
class HorizontalFlip(Augmentation):
    """Mirrors an image left to right with the given `probability`."""

    probability: UnitInterval = 0.5

    draws = 1

    def require_shape(self, shape: tuple[int, ...]) -> None:
        _require_image(self, shape)

    def apply(self, inputs: Tensor, uniform: Tensor) -> Tensor:
        mirrored = (uniform[:, 0] < self.probability).reshape(-1, *[1] * (inputs.ndim - 1))
        return torch.where(mirrored, inputs.flip(-1), inputs)


@dataclass(frozen=True)
class Normalize(Augmentation):
    """Centers and scales inputs, in evaluation too.

        out = (in − mean) / std

    One number for all of an input, or one per entry of its first axis: a channel of an image, a column of
    a table. Reduces to no change for mean = 0 and std = 1.
    """

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, constraint in (("mean", "a finite number or some"), ("std", "a number above 0 or some")):
            values = _as_tuple(getattr(self, field))
            fits = all(is_number(value) and (field == "mean" or value > 0) for value in values)
            if not values or not fits:
                raise field_error(self, field, constraint, getattr(self, field))

    def require_shape(self, shape: tuple[int, ...]) -> None:
        for field in ("mean", "std"):
            value = getattr(self, field)
            if isinstance(value, tuple) and (not shape or len(value) != shape[0]):
                raise ClashError(
                    f"Normalize.{field} has {len(value)} numbers, but the inputs have shape {shape}: give "
                    "one number, or one per entry of the first axis."
                )

    def constants(self, entries: int) -> tuple[float, ...]:
        """Means of so many entries, then their deviations."""
        pairs = (_as_tuple(value) for value in (self.mean, self.std))
        return tuple(
            number for values in pairs for number in (values if len(values) > 1 else values * entries)
        )

    def apply(self, inputs: Tensor, uniform: Tensor) -> Tensor:
        dtype = inputs.dtype if inputs.is_floating_point() else torch.float32
        # A compiler makes constants of its own, and warns of a cache that it looks through.
        constant = _on_device if torch.compiler.is_compiling() else sent_once
        mean, std = (
            constant(_as_tuple(value), inputs.device, dtype).reshape(-1, *[1] * (inputs.ndim - 2))
            for value in (self.mean, self.std)
        )
        return (inputs - mean) / std


@dataclass(frozen=True)
class InputPipeline:
    """The preprocessing of inputs: scales pixels, then applies augmentations in order.

    Inputs of type uint8 are pixels 0 to 255, kept as bytes (a quarter of the memory and of the traffic of
    float32) and scaled to [0, 1] batch by batch; all other inputs are left as they are.
    """

    steps: tuple[Augmentation, ...] = ()

    @property
    def draws_noise(self) -> bool:
        """Whether training needs a key."""
        return any(step.draws for step in self.steps)

    def require_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse examples of a shape that a step cannot work on."""
        for step in self.steps:
            step.require_shape(shape)

    def apply(self, inputs: Tensor, noise: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Inputs (batch, ...) as the model sees them; without `noise` (evaluation) nothing is drawn."""
        if inputs.dtype == torch.uint8:
            inputs = inputs.to(dtype) / 255
        for place, step in enumerate(self.steps, start=1):
            shape = torch.Size((len(inputs), step.draws))
            if step.draws == 0:
                inputs = step.apply(inputs, inputs.new_zeros(shape))
            elif noise is not None:
                # The first rows draw the same numbers however many follow, so padding changes nothing.
                inputs = step.apply(inputs, keyed_uniform(noise ^ salt_of(place), shape, inputs.device))
        return inputs


def salt_of(place: int) -> int:
    """By which the key of a step is changed for the augmentation at a place, from 1."""
    return _SALT * place % 2**63


def _shifted(inputs: Tensor, shift: Tensor, axis: int) -> Tensor:
    """Examples shifted along an axis, each by its own number, with zeros at the border."""
    size = inputs.shape[axis]
    source = torch.arange(size, device=inputs.device) + shift[:, None]
    shape = [len(inputs), *[1] * (inputs.ndim - 1)]
    shape[axis] = size
    inside = ((source >= 0) & (source < size)).reshape(shape)
    index = source.clamp(0, size - 1).reshape(shape).expand(inputs.shape)
    return torch.where(inside, inputs.gather(axis, index), 0.0)


def _require_image(step: Augmentation, shape: tuple[int, ...]) -> None:
    if len(shape) < 2:
        raise ClashError(
            f"{type(step).__name__} needs images, (height, width) or (channels, height, width), got inputs "
            f"of shape {shape}."
        )


def _as_tuple(value: float | tuple[float, ...]) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)


def _on_device(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).to(device, dtype)


@lru_cache(maxsize=64)
def sent_once(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """A copy from the host could not be captured in a graph."""
    return _on_device(values, device, dtype)
