"""Small convolutional networks for images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from fairlead.component import freeze_lists
from fairlead.errors import field_error, require_choice, require_integer, require_number
from fairlead.models.base import require_widths
from fairlead.models.images import ImageModel, glorot_uniform, he_normal, without_bias


@dataclass(frozen=True)
class FedAvgCNN(ImageModel):
    """The CNN of McMahan et al. (2017): two 5 x 5 convolutions with pooling, one hidden layer.

        conv5(32) - relu - pool2 - conv5(64) - relu - pool2 - linear(hidden) - relu - linear(classes)

    Parameters: 28 x 28 grey, 10 classes: 832 + 51,264 + (7·7·64 + 1)·512 + 513·10 = 1,663,370 as published;
    32 x 32 colour, 10 classes: 2,156,490. `hidden=2048` is LEAF's CNN for FEMNIST (62 classes: 6,603,710).
    With `padding="valid"` the convolutions lose their border, as in many copies (MNIST: 582,026;
    CIFAR-10: 878,538).

    *Differs from the paper*: it names a ReLU after the hidden layer only; here, as in LEAF, one follows each
    convolution too.
    """

    hidden: int = 512
    padding: Literal["same", "valid"] = "same"

    references = ("mcmahan2017fedavg", "caldas2018leaf")

    def __post_init__(self) -> None:
        require_integer(self, "hidden", at_least=1)
        require_choice(self, "padding", ("same", "valid"))

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

    hidden: int = 64

    references = ("zeng2025fedaware",)

    def __post_init__(self) -> None:
        require_integer(self, "hidden", at_least=1)

    @property
    def smallest_side(self) -> int:
        return 18

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

    @property
    def smallest_side(self) -> int:
        return 6

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
    `PooledCNN(hidden=(512, 256), dropout=0.2)`, 896 + 9,248 + 2,049·512 + 513·256 + 257·10 = 1,193,130.
    """

    channels: tuple[int, ...] = (32, 32)
    hidden: tuple[int, ...] = (256, 64)
    dropout: float = 0.0

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        freeze_lists(self)
        if not self.channels:
            raise field_error(self, "channels", "at least one number of channels", self.channels)
        for field in ("channels", "hidden"):
            require_widths(self, field)
        require_number(self, "dropout", at_least=0, below=1)

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
            layers += [*self._dropout(), nn.Linear(size, width), nn.ReLU()]
            size = width
        return [*layers, *self._dropout(), nn.Linear(size, outputs)]

    def _dropout(self) -> list[nn.Module]:
        return [nn.Dropout(self.dropout)] if self.dropout else []


@dataclass(frozen=True)
class UnpooledCNN(ImageModel):
    """Two 3 x 3 convolutions at full resolution, dropout, and a hidden layer.

        conv3(10) - conv3(20) - dropout - linear(50) - linear(classes)

    The FedACS paper's CNN for MNIST (Weng et al. 2025, table 3), 100 + 1,820 + (28·28·20 + 1)·50 + 51·10 =
    786,480 parameters. As printed it has no activation at all, so that without dropout it is a deep linear
    model; `relu=True` puts one after each layer but the last.
    """

    dropout: float = 0.2
    relu: bool = False

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        require_number(self, "dropout", at_least=0, below=1)

    @property
    def smallest_side(self) -> int:
        return 1

    def features(self, channels: int) -> list[nn.Module]:
        return [
            *(nn.Conv2d(channels, 10, 3, padding=1), *self._activation()),
            *(nn.Conv2d(10, 20, 3, padding=1), *self._activation()),
        ]

    def head(self, size: int, outputs: int) -> list[nn.Module]:
        dropout = [nn.Dropout(self.dropout)] if self.dropout else []
        return [*dropout, nn.Linear(size, 50), *self._activation(), nn.Linear(50, outputs)]

    def _activation(self) -> list[nn.Module]:
        return [nn.ReLU()] if self.relu else []
