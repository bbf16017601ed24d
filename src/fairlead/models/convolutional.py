"""The family `ImageModel`: convolutional networks for images, from two layers to VGG-11 and ResNet-18."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fairlead.component import BelowOne, PositiveCount
from fairlead.errors import ClashError, field_error
from fairlead.models.base import ExampleShape, Model, Widths, dropped

_NARROWEST = 5
"""Images are never narrower: (32, 32, 3) is an image with its channels last, not 32 channels of 32 x 3."""


class ImageModel(Model, ABC):
    """Family of models of images, (height, width) or (channels, height, width): asks for features and a head.

    A gray image without a channel axis gets one inside the module, so both forms train the same model.
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


@dataclass(frozen=True)
class FedAvgCNN(ImageModel):
    """The CNN of McMahan et al. (2017): two 5 x 5 convolutions with pooling, one hidden layer.

        conv5(32) - relu - pool2 - conv5(64) - relu - pool2 - linear(hidden) - relu - linear(classes)

    Parameters: 28 x 28 gray, 10 classes: 832 + 51,264 + (7·7·64 + 1)·512 + 513·10 = 1,663,370 as published;
    32 x 32 color, 10 classes: 2,156,490. `hidden=2048` is LEAF's CNN for FEMNIST (62 classes: 6,603,710).
    With `padding="valid"` the convolutions lose their border, as in many copies (MNIST: 582,026;
    CIFAR-10: 878,538).

    *Differs from the paper*: it names a ReLU after the hidden layer only; here, as in LEAF, one follows each
    convolution too.
    """

    hidden: PositiveCount = 512
    padding: Literal["same", "valid"] = "same"

    references = ("mcmahan2017fedavg", "caldas2018leaf")

    @property
    def smallest_side(self) -> int:
        return 4 if self.padding == "same" else 16

    def features(self, channels: int) -> list[nn.Module]:
        border = 2 if self.padding == "same" else 0
        return [
            *(nn.Conv2d(channels, 32, 5, padding=border), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 5, padding=border), nn.ReLU(), nn.MaxPool2d(2)),
        ]

    def head(self, size: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(size, self.hidden), nn.ReLU(), nn.Linear(self.hidden, outputs)]


@dataclass(frozen=True)
class FiveLayerCNN(ImageModel):
    """The 5-layer CNN of the FedAWARE papers: three 3 x 3 convolutions without border, two linear layers.

        conv3(32) - relu - pool2 - conv3(64) - relu - pool2 - conv3(64) - relu - linear(hidden) - relu
        - linear(classes)

    Parameters: CIFAR-10: 896 + 18,496 + 36,928 + (4·4·64 + 1)·64 + 65·10 = 122,570. It starts as the authors'
    code does: He's normal weights for convolutions, N(0, 0.01²) for linear layers, no biases; with
    `hidden=256` it is that code's small network for CIFAR-100.
    """

    hidden: PositiveCount = 64

    references = ("zeng2025fedaware",)
    smallest_side = 18

    def features(self, channels: int) -> list[nn.Module]:
        return [
            *(he_normal(nn.Conv2d(channels, 32, 3)), nn.ReLU(), nn.MaxPool2d(2)),
            *(he_normal(nn.Conv2d(32, 64, 3)), nn.ReLU(), nn.MaxPool2d(2)),
            *(he_normal(nn.Conv2d(64, 64, 3)), nn.ReLU()),
        ]

    def head(self, size: int, outputs: int) -> list[nn.Module]:
        layers = nn.Linear(size, self.hidden), nn.Linear(self.hidden, outputs)
        for layer in layers:
            nn.init.normal_(layer.weight, 0.0, 0.01)
            without_bias(layer)
        return [layers[0], nn.ReLU(), layers[1]]


@dataclass(frozen=True)
class DropoutCNN(ImageModel):
    """Two 3 x 3 convolutions, one pooling, and dropout of 1/4 and 1/2: the field's usual benchmark CNN.

        conv3(32) - relu - conv3(64) - relu - pool2 - dropout(1/4) - linear(128) - relu - dropout(1/2)
        - linear(classes)

    The EMNIST model of Reddi et al. (2021), 62 classes: 320 + 18,496 + (12·12·64 + 1)·128 + 129·62 =
    1,206,590 parameters; on CIFAR-10 the benchmark model of pfl-research:
    896 + 18,496 + (14·14·64 + 1)·128 + 129·10 = 1,626,442. Weights start Glorot-uniform and biases at zero,
    as in Keras; pfl's torch version keeps torch's random biases.
    """

    references = ("reddi2021", "granqvist2024pfl")
    smallest_side = 6

    def features(self, channels: int) -> list[nn.Module]:
        return [
            *(glorot_uniform(nn.Conv2d(channels, 32, 3)), nn.ReLU()),
            *(glorot_uniform(nn.Conv2d(32, 64, 3)), nn.ReLU(), nn.MaxPool2d(2)),
        ]

    def head(self, size: int, outputs: int) -> list[nn.Module]:
        return [
            *(nn.Dropout(0.25), glorot_uniform(nn.Linear(size, 128)), nn.ReLU()),
            *(nn.Dropout(0.5), glorot_uniform(nn.Linear(128, outputs))),
        ]


@dataclass(frozen=True)
class PooledCNN(ImageModel):
    """Blocks of 3 x 3 convolution, ReLU and pooling, then hidden layers, with dropout before each linear one.

    The FedACS paper's CNNs (Weng et al. 2025, table 3): for CIFAR-10 `PooledCNN()`,
    896 + 9,248 + (8·8·32 + 1)·256 + 257·64 + 65·10 = 551,786 parameters; for CINIC-10
    `PooledCNN(hidden=(512, 256), dropout=0.2)`, 896 + 9,248 + 2,049·512 + 513·256 + 257·10 = 1,193,130. For MNIST the
    table prints the modules of the usual MNIST example, whose activations and poolings are calls and not modules:
    with them it is `PooledCNN((10, 20), (50,), 0.2)`, 100 + 1,820 + (7·7·20 + 1)·50 + 51·10 = 51,480, and
    `UnpooledCNN` as printed.
    """

    channels: Widths = (32, 32)
    hidden: Widths = (256, 64)
    dropout: BelowOne = 0.0

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.channels:
            raise field_error(self, "channels", "at least one number of channels", self.channels)

    @property
    def smallest_side(self) -> int:
        return int(2 ** len(self.channels))

    def features(self, channels: int) -> list[nn.Module]:
        layers: list[nn.Module] = []
        for wider in self.channels:
            layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            channels = wider
        return layers

    def head(self, size: int, outputs: int) -> list[nn.Module]:
        layers: list[nn.Module] = []
        for width in self.hidden:
            layers += [*dropped(self.dropout), nn.Linear(size, width), nn.ReLU()]
            size = width
        return [*layers, *dropped(self.dropout), nn.Linear(size, outputs)]


@dataclass(frozen=True)
class UnpooledCNN(ImageModel):
    """Two 3 x 3 convolutions at full resolution, dropout, and a hidden layer.

        conv3(10) - conv3(20) - dropout - linear(50) - linear(classes)

    The FedACS paper's CNN for MNIST (Weng et al. 2025, table 3), 100 + 1,820 + (28·28·20 + 1)·50 + 51·10 =
    786,480 parameters. As printed it has no activation at all, so that without dropout it is a deep linear
    model; `PooledCNN((10, 20), (50,), 0.2)` has the activations and poolings that the table may leave out.
    """

    dropout: BelowOne = 0.2

    references = ("weng2025fedacs",)
    smallest_side = 1

    def features(self, channels: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, 10, 3, padding=1), nn.Conv2d(10, 20, 3, padding=1)]

    def head(self, size: int, outputs: int) -> list[nn.Module]:
        return [*dropped(self.dropout), nn.Linear(size, 50), nn.Linear(50, outputs)]


_STAGES = ((1,), (2,), (4, 4), (8, 8), (8, 8))
"""Channels of the convolutions between poolings, over the first's: configuration A of the VGG paper."""


@dataclass(frozen=True)
class VGG11(ImageModel):
    """VGG-11 without batch normalization, with the small head that CIFAR takes.

        (conv3 - relu)* - pool2, five times; then (dropout - linear(8w) - relu) twice - linear(classes)

    The convolutions have w, 2w, 4w, 4w and four times 8w channels, w being `width`. Parameters: CIFAR-10:
    9,220,480 in the convolutions + 2·513·512 + 513·10 = 9,750,922. The head and the start (He's normal
    weights for convolutions, torch's own for linear layers) are those of the code that Wang et al. (2021)
    released with FedNova.

    *Differs from the paper*: Simonyan and Zisserman's head, two layers of 4,096, is for images of 224 pixels.
    """

    dropout: BelowOne = 0.5
    width: PositiveCount = 64

    references = ("simonyan2015vgg", "wang2021fednova")
    smallest_side = 32

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
            layers += [*dropped(self.dropout), nn.Linear(width, 8 * self.width), nn.ReLU()]
        return [*layers, nn.Linear(8 * self.width, outputs)]


@dataclass(frozen=True)
class ResNet18(ImageModel):
    """ResNet-18 with group normalization and the stem for small images.

        conv3(w) - norm - relu; two residual blocks of w, two of 2w, two of 4w, two of 8w channels, where each
        widening halves the image; mean over pixels - linear(classes)

    w is `width`. Each example is normalized by itself, in `groups` groups of channels, so there are no batch
    statistics that clients would have to share. Parameters: CIFAR-10 11,173,962; CIFAR-100 11,220,132: as
    many as with batch normalization.

    *Differs from the paper*: He et al.'s stem of a 7 x 7 convolution and pooling is for images of 224 pixels,
    and their normalization is over batches.
    """

    groups: PositiveCount = 32
    width: PositiveCount = 64

    references = ("he2016resnet", "wu2018groupnorm")
    smallest_side = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.groups:
            raise field_error(self, "width", f"a multiple of groups={self.groups}", self.width)

    def features(self, channels: int) -> list[nn.Module]:
        layers: list[nn.Module] = [_normalized(channels, self.width, self.groups), nn.ReLU()]
        width = self.width
        for stage in range(4):
            wider, stride = self.width << stage, 1 if stage == 0 else 2
            layers += [_Residual(width, wider, self.groups, stride), _Residual(wider, wider, self.groups, 1)]
            width = wider
        return [*layers, nn.AdaptiveAvgPool2d(1)]

    def head(self, size: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(size, outputs)]


class _Residual(nn.Module):
    """relu(two normalized convolutions + a shortcut, which is itself one where shapes differ)."""

    def __init__(self, channels: int, wider: int, groups: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            _normalized(channels, wider, groups, stride=stride), nn.ReLU(), _normalized(wider, wider, groups)
        )
        same = channels == wider and stride == 1
        self.shortcut = (
            nn.Identity() if same else _normalized(channels, wider, groups, kernel=1, stride=stride)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.branch(inputs) + self.shortcut(inputs))


def _normalized(channels: int, wider: int, groups: int, *, kernel: int = 3, stride: int = 1) -> nn.Module:
    convolution = nn.Conv2d(channels, wider, kernel, stride=stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.GroupNorm(groups, wider))
