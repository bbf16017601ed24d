"""The role `FeatureSkew`: clients that see the same things differently."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from fairlead.clients.data import ClientData
from fairlead.component import Component, freeze_lists
from fairlead.errors import ClashError, field_error, is_number
from fairlead.randomness import Key


class FeatureSkew(Component, ABC):
    """Changes clients' inputs, each client's in its own way, and leaves targets and owners alone.

    Inputs of type uint8 become real numbers in [0, 1] first.
    """

    @abstractmethod
    def skewed(self, inputs: Tensor, client: int, num_clients: int, key: Key) -> Tensor:
        """What one client sees instead of its `inputs`; `key` is the client's own."""

    def apply(self, data: ClientData, key: Key) -> ClientData:
        """The data after every client's change."""
        inputs = data.inputs
        if inputs.dtype == torch.uint8:
            inputs = inputs.to(torch.float32) / 255
        if not inputs.is_floating_point():
            raise ClashError(f"{type(self).__name__} needs inputs of real numbers, got token ids.")
        pieces = [
            self.skewed(own, client, data.num_clients, key.fold(client))
            for client, own in enumerate(torch.split(inputs, data.sizes.tolist()))
        ]
        return replace(data, inputs=torch.cat(pieces))


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
        freeze_lists(self)
        levels = self.level if isinstance(self.level, tuple) else (self.level,)
        if not levels or not all(is_number(level) and level >= 0 for level in levels):
            raise field_error(self, "level", "a number of at least 0, or one per client", self.level)

    def level_of(self, client: int, num_clients: int) -> float:
        """Standard deviation of a client's noise."""
        if not isinstance(self.level, tuple):
            return self.level * client / (num_clients - 1) if num_clients > 1 else self.level
        if len(self.level) != num_clients:
            raise ClashError(
                f"GaussianNoise.level has {len(self.level)} numbers for {num_clients} clients: give one per "
                "client, or a single number that clients share out evenly."
            )
        return self.level[client]

    def skewed(self, inputs: Tensor, client: int, num_clients: int, key: Key) -> Tensor:
        noise = torch.from_numpy(key.generator().standard_normal(tuple(inputs.shape)))
        return inputs + (self.level_of(client, num_clients) * noise).to(inputs.dtype)


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
        freeze_lists(self)
        if not isinstance(self.angles, tuple) or not self.angles or not all(map(is_number, self.angles)):
            raise field_error(self, "angles", "one or more numbers of degrees", self.angles)

    def skewed(self, inputs: Tensor, client: int, num_clients: int, key: Key) -> Tensor:
        if inputs.ndim not in (3, 4):
            raise ClashError(
                "Rotation needs images, (height, width) or (channels, height, width), got inputs of shape "
                f"{tuple(inputs.shape[1:])}."
            )
        angle = self.angles[client % len(self.angles)] % 360
        square = inputs.shape[-1] == inputs.shape[-2]
        if len(inputs) == 0 or angle == 0:
            return inputs
        if angle % 90 == 0 and (square or angle == 180):
            return torch.rot90(inputs, round(angle / 90), (-2, -1))
        images = inputs if inputs.ndim == 4 else inputs[:, None]
        return _interpolated(images, math.radians(angle)).reshape(inputs.shape)


def _interpolated(images: Tensor, angle: float) -> Tensor:
    """Images (n, channels, height, width) turned about their centre by bilinear interpolation."""
    height, width = images.shape[-2:]
    cosine, sine = math.cos(angle), math.sin(angle)
    # Coordinates run from -1 to 1 along either side, so a turn of an oblong also stretches.
    matrix = [[cosine, -sine * height / width, 0.0], [sine * width / height, cosine, 0.0]]
    grid = F.affine_grid(
        images.new_tensor(matrix).expand(len(images), 2, 3), list(images.shape), align_corners=False
    )
    return F.grid_sample(images, grid, align_corners=False)
