"""The family `ImageModel`: features over pixels, then a head over the flattened features."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import nn

from fairlead.errors import ClashError
from fairlead.models.base import ExampleShape, Model

_NARROWEST = 5
"""Images are never narrower: (32, 32, 3) is an image with its channels last, not 32 channels of 32 x 3."""


class ImageModel(Model, ABC):
    """Family of models of images, (height, width) or (channels, height, width): asks for features and a head.

    A grey image without a channel axis gets one inside the module, so both forms train the same model.
    """

    @property
    @abstractmethod
    def smallest_side(self) -> int:
        """Pixels a side below which a layer would have nothing left to see."""

    @abstractmethod
    def features(self, channels: int) -> list[nn.Module]:
        """Layers over (batch, channels, height, width)."""

    @abstractmethod
    def head(self, size: int, outputs: int) -> list[nn.Module]:
        """Layers over (batch, size), the flattened features."""

    def build(self, shape: ExampleShape) -> nn.Module:
        channels, height, width = self._image(shape)
        layers = self.features(channels)
        with torch.no_grad():
            # Measured rather than derived: one rule less to keep in step with the layers.
            size = nn.Sequential(*layers)(torch.zeros(1, channels, height, width)).numel()
        if len(shape.inputs) == 2:
            layers = [nn.Unflatten(1, (1, height)), *layers]
        return nn.Sequential(*layers, nn.Flatten(), *self.head(size, shape.outputs))

    def _image(self, shape: ExampleShape) -> tuple[int, int, int]:
        smallest = max(self.smallest_side, _NARROWEST)
        image = (1, *shape.inputs) if len(shape.inputs) == 2 else shape.inputs
        if len(image) != 3 or min(image[1:]) < smallest:
            raise ClashError(
                f"{type(self).__name__} needs images of at least {smallest} x {smallest} pixels, as (height, "
                f"width) or (channels, height, width), got inputs of shape {shape.inputs}."
            )
        channels, height, width = image
        return channels, height, width


def glorot_uniform(layer: nn.Conv2d | nn.Linear) -> nn.Module:
    """The layer with weights from U(±√(6/(fan in + fan out))) and no bias, as Keras starts."""
    nn.init.xavier_uniform_(layer.weight)
    return without_bias(layer)


def he_normal(layer: nn.Conv2d) -> nn.Module:
    """The layer with weights from N(0, 2/fan out) and no bias, as the code of VGG papers starts."""
    nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / (layer.out_channels * math.prod(layer.kernel_size))))
    return without_bias(layer)


def without_bias(layer: nn.Conv2d | nn.Linear) -> nn.Module:
    """The layer with its bias at zero."""
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
