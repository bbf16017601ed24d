"""The role `Model`: a recipe for a module, completed with the shapes of the data; and dense networks."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from fairlead.component import BelowOne, Component, WholeList


@dataclass(frozen=True)
class ExampleShape:
    """The shape of one input and the number of outputs of a model."""

    inputs: tuple[int, ...]
    outputs: int
    tokens: int | None = None
    """One more than the largest input where inputs are whole numbers; None where they are real."""


class Model(Component, ABC):
    """A recipe for a module, completed with the shapes of the data."""

    @property
    def copies(self) -> int:
        """Copies of the parameters in memory, at least, while it is made: as modules of two types, vector and step."""
        return 6

    @abstractmethod
    def build(self, shape: ExampleShape) -> nn.Module:
        """A freshly initialized module; torch's global generator is seeded around the call."""


class StackableModule(nn.Module, ABC):
    """A module that runs many clients at once, each with its own parameters.

    The batched engine then calls `forward_stacked` instead of vectorizing `forward`; both must give the same
    numbers, and dropout is not available.
    """

    @abstractmethod
    def forward_stacked(self, params: Tensor, inputs: Tensor) -> Tensor:
        """Outputs (L, B, ...) of L clients with flat parameters (L, d) and inputs (L, B, ...)."""


MOST_LAYERS = 1000
"""Largest number of layers, since building them takes time even if they are small."""


Widths = Annotated[tuple[int, ...], WholeList(1, noun="widths")]


def dropped(share: float) -> list[nn.Module]:
    """A dropout layer, or none where nothing is dropped."""
    return [nn.Dropout(share)] if share else []


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

    hidden: Widths = (200,)
    dropout: BelowOne = 0.0

    def build(self, shape: ExampleShape) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        width = torch.Size(shape.inputs).numel()
        for next_width in self.hidden:
            layers += [nn.Linear(width, next_width), nn.ReLU(), *dropped(self.dropout)]
            width = next_width
        return nn.Sequential(*layers, nn.Linear(width, shape.outputs))
