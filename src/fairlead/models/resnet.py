"""Residual networks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairlead.errors import field_error, require_integer
from fairlead.models.images import ImageModel


@dataclass(frozen=True)
class ResNet18(ImageModel):
    """ResNet-18 with group normalisation and the stem for small images.

        conv3(w) - norm - relu; two residual blocks of w, two of 2w, two of 4w, two of 8w channels, where each
        widening halves the image; mean over pixels - linear(classes)

    w is `width`. Each example is normalised by itself, in `groups` groups of channels, so there are no batch
    statistics that clients would have to share. Parameters: CIFAR-10 11,173,962; CIFAR-100 11,220,132: as
    many as with batch normalisation.

    *Differs from the paper*: He et al.'s stem of a 7 x 7 convolution and pooling is for images of 224 pixels,
    and their normalisation is over batches.
    """

    groups: int = 32
    width: int = 64

    references = ("he2016resnet", "wu2018groupnorm")

    def __post_init__(self) -> None:
        require_integer(self, "groups", at_least=1)
        require_integer(self, "width", at_least=1)
        if self.width % self.groups:
            raise field_error(self, "width", f"a multiple of groups={self.groups}", self.width)

    @property
    def smallest_side(self) -> int:
        return 1

    def features(self, channels: int) -> list[nn.Module]:
        layers: list[nn.Module] = [_normalised(channels, self.width, self.groups), nn.ReLU()]
        width = self.width
        for stage in range(4):
            wider, stride = self.width << stage, 1 if stage == 0 else 2
            layers += [_Residual(width, wider, self.groups, stride), _Residual(wider, wider, self.groups, 1)]
            width = wider
        return [*layers, nn.AdaptiveAvgPool2d(1)]

    def head(self, size: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(size, outputs)]


class _Residual(nn.Module):
    """relu(two normalised convolutions + a shortcut, which is itself one where shapes differ)."""

    def __init__(self, channels: int, wider: int, groups: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            _normalised(channels, wider, groups, stride=stride),
            nn.ReLU(),
            _normalised(wider, wider, groups),
        )
        same = channels == wider and stride == 1
        self.shortcut = (
            nn.Identity() if same else _normalised(channels, wider, groups, kernel=1, stride=stride)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.branch(inputs) + self.shortcut(inputs))


def _normalised(channels: int, wider: int, groups: int, *, kernel: int = 3, stride: int = 1) -> nn.Module:
    convolution = nn.Conv2d(channels, wider, kernel, stride=stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.GroupNorm(groups, wider))
