"""Models of fully connected layers."""

from dataclasses import dataclass

import torch
from torch import nn

from fairlead.component import freeze_lists
from fairlead.errors import require_number
from fairlead.models.base import ExampleShape, Model, dropped, require_widths


@dataclass(frozen=True)
class LogisticRegression(Model):
    """One linear layer over the flattened input."""

    def build(self, shape: ExampleShape) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape.inputs).numel(), shape.outputs))


@dataclass(frozen=True)
class MLP(Model):
    """Fully connected layers with ReLU, and optional dropout after each hidden layer.

    `MLP(hidden=(200, 200))` on 28 x 28 images is the "2NN" of McMahan et al. (2017) and the MLP of FedLab:
    785·200 + 201·200 + 201·10 = 199,210 parameters.
    """

    hidden: tuple[int, ...] = (200,)
    dropout: float = 0.0

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_widths(self, "hidden")
        require_number(self, "dropout", at_least=0, below=1)

    def build(self, shape: ExampleShape) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        width = torch.Size(shape.inputs).numel()
        for next_width in self.hidden:
            layers += [nn.Linear(width, next_width), nn.ReLU(), *dropped(self.dropout)]
            width = next_width
        return nn.Sequential(*layers, nn.Linear(width, shape.outputs))
