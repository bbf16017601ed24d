"""The role `FeatureSkew`: inputs that differ from client to client."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fairlead.clients.data import ClientData, is_moderate
from fairlead.component import Component
from fairlead.errors import LARGEST, ClashError, field_error, is_number
from fairlead.randomness import Key

_VALUES_AT_ONCE = 2**18
"""Numbers changed at once: many for speed, few beside the data."""


class OwnedRows(NamedTuple):
    """Some of the clients' inputs, real numbers (rows, ...)."""

    inputs: Tensor
    clients: Tensor
    """(rows,) the client of each."""
    places: Tensor
    """(rows,) position among the client's rows: 0, 1, 2, ..."""
    num_clients: int


class FeatureSkew(Component, ABC):
    """Changes the inputs of each client; targets and owners stay the same.

    Inputs of type uint8 become real numbers in [0, 1] first.
    """

    @abstractmethod
    def skewed(self, rows: OwnedRows, key: Key) -> Tensor:
        """The changed inputs; random draws may depend only on key, client and place."""

    def apply(self, data: ClientData, key: Key) -> ClientData:
        """The data after every client's change."""
        pixels = data.inputs.dtype == torch.uint8
        if not pixels and not data.inputs.is_floating_point():
            raise ClashError(f"{type(self).__name__} needs inputs of real numbers, got token ids.")
        clients = torch.repeat_interleave(torch.arange(data.num_clients), data.sizes)
        places = torch.arange(len(clients)) - data.offsets[clients]
        changed = data.inputs.to(torch.float32) / 255 if pixels else data.inputs.clone()
        count = max(_VALUES_AT_ONCE // max(changed.shape[1:].numel(), 1), 1)
        for own in (slice(start, start + count) for start in range(0, len(changed), count)):
            rows = OwnedRows(changed[own], clients[own], places[own], data.num_clients)
            changed[own] = self.skewed(rows, key)
        return replace(data, inputs=changed)


@dataclass(frozen=True)
class GaussianNoise(FeatureSkew):
    """Adds noise to every input, more of it from client to client.

        x ← x + N(0, (level·i/(N − 1))²) for client i = 0, …, N − 1

    Symbols: σ `level`, the standard deviation at the last client; or one level per client. A single client
    has level σ. Reduces to no change for level = 0.

    Differs from the paper, whose text counts clients from 1 and makes σ·i/N the variance; this is what its
    released code does. Values are not clipped.
    """

    level: float | tuple[float, ...]

    references = ("li2022niid",)

    def __post_init__(self) -> None:
        super().__post_init__()
        levels = self.level if isinstance(self.level, tuple) else (self.level,)
        if not levels or not all(is_moderate(level) and level >= 0 for level in levels):
            constraint = f"a number from 0 to {LARGEST:g}, or one per client"
            raise field_error(self, "level", constraint, self.level)

    def levels(self, num_clients: int) -> Tensor:
        """Standard deviation of each client's noise, (N,)."""
        if not isinstance(self.level, tuple):
            shares = np.linspace(0.0, 1.0, num_clients) if num_clients > 1 else np.ones(1)
            return torch.from_numpy(self.level * shares)
        if len(self.level) != num_clients:
            raise ClashError(
                f"GaussianNoise.level has {len(self.level)} numbers for {num_clients} clients: give one per "
                "client, or a single level for the last client."
            )
        return torch.tensor(self.level, dtype=torch.float64)

    def skewed(self, rows: OwnedRows, key: Key) -> Tensor:
        inputs, size = rows.inputs, rows.inputs.shape[1:].numel()
        # Every client counts through a stretch of ids of its own; 64 bits leave room for all.
        start = key.words(rows.clients.numpy()) + (rows.places * size).numpy().astype(np.uint64)
        ids = start[:, None] + np.arange(size, dtype=np.uint64)
        noise = key.fold("noise").normal(torch.from_numpy(ids.view(np.int64))).reshape(inputs.shape)
        level = self.levels(rows.num_clients)[rows.clients]
        return inputs + (level.reshape(-1, *[1] * (inputs.ndim - 1)) * noise).to(inputs.dtype)


@dataclass(frozen=True)
class Rotation(FeatureSkew):
    """Turns a client's images counter-clockwise by an angle of its own, in degrees.

        angle of client i = angles[i mod len(angles)]

    Four angles make four groups of clients that no single model serves well. Right angles move pixels
    exactly; others interpolate between them, with zeros beyond the edge. Reduces to no change for (0,).
    """

    angles: tuple[float, ...] = (0.0, 90.0, 180.0, 270.0)

    references = ("ghosh2020ifca",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.angles, tuple) or not self.angles or not all(map(is_number, self.angles)):
            raise field_error(self, "angles", "one or more numbers of degrees", self.angles)

    def skewed(self, rows: OwnedRows, key: Key) -> Tensor:
        inputs = rows.inputs
        if inputs.ndim not in (3, 4):
            raise ClashError(
                "Rotation needs images, (height, width) or (channels, height, width), got inputs of shape "
                f"{tuple(inputs.shape[1:])}."
            )
        angles = torch.tensor(self.angles, dtype=torch.float64)[rows.clients % len(self.angles)] % 360
        square = inputs.shape[-1] == inputs.shape[-2]
        turned, left = inputs.clone(), angles != 0
        for quarters in (1, 2, 3) if square else (2,):
            exact = angles == 90 * quarters
            turned[exact] = torch.rot90(inputs[exact], quarters, (-2, -1))
            left &= ~exact
        images = inputs[left] if inputs.ndim == 4 else inputs[left][:, None]
        turned[left] = _interpolated(images, torch.deg2rad(angles[left])).reshape(-1, *inputs.shape[1:])
        return turned


def _interpolated(images: Tensor, angles: Tensor) -> Tensor:
    """Images (n, channels, height, width), each turned about its center by bilinear interpolation."""
    if len(images) == 0:
        return images
    height, width = images.shape[-2:]
    cosine, sine, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    # Coordinates run from -1 to 1 along either side, so a turn of an oblong also stretches.
    matrix = torch.stack([cosine, -sine * height / width, zero, sine * width / height, cosine, zero], dim=1)
    grid = F.affine_grid(matrix.view(-1, 2, 3).to(images.dtype), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)
