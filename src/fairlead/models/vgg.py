"""VGG networks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fairlead.errors import require_integer, require_number
from fairlead.models.images import ImageModel, he_normal

_STAGES = ((1,), (2,), (4, 4), (8, 8), (8, 8))
"""Channels of the convolutions between poolings, over the first's: configuration A of the VGG paper."""


@dataclass(frozen=True)
class VGG11(ImageModel):
    """VGG-11 without batch normalisation, with the small head that CIFAR takes.

        (conv3 - relu)* - pool2, five times; then (dropout - linear(8w) - relu) twice - linear(classes)

    The convolutions have w, 2w, 4w, 4w and four times 8w channels, w being `width`. Parameters: CIFAR-10:
    9,220,480 in the convolutions + 2·513·512 + 513·10 = 9,750,922. The head and the start (He's normal
    weights for convolutions, torch's own for linear layers) are those of the code that Wang et al. (2021)
    released with FedNova.

    *Differs from the paper*: Simonyan and Zisserman's head, two layers of 4,096, is for images of 224 pixels.
    """

    dropout: float = 0.5
    width: int = 64

    references = ("simonyan2015vgg", "wang2021fednova")

    def __post_init__(self) -> None:
        require_number(self, "dropout", at_least=0, below=1)
        require_integer(self, "width", at_least=1)

    @property
    def smallest_side(self) -> int:
        return 32

    def features(self, channels: int) -> list[nn.Module]:
        layers: list[nn.Module] = []
        for stage in _STAGES:
            for factor in stage:
                wider = factor * self.width
                layers += [he_normal(nn.Conv2d(channels, wider, 3, padding=1)), nn.ReLU()]
                channels = wider
            layers.append(nn.MaxPool2d(2))
        return layers

    def head(self, size: int, outputs: int) -> list[nn.Module]:
        layers: list[nn.Module] = []
        for width in (size, 8 * self.width):
            if self.dropout:
                layers.append(nn.Dropout(self.dropout))
            layers += [nn.Linear(width, 8 * self.width), nn.ReLU()]
        return [*layers, nn.Linear(8 * self.width, outputs)]
