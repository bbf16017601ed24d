"""The role `Model`: a recipe for a module, completed with the shapes of the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import nn

from fairlead.component import Component


@dataclass(frozen=True)
class ExampleShape:
    """What a model must take and give: the shape of one input and the number of outputs."""

    inputs: tuple[int, ...]
    outputs: int


class Model(Component, ABC):
    """A recipe for a module, completed with the shapes of the data."""

    @abstractmethod
    def build(self, shape: ExampleShape) -> nn.Module:
        """A freshly initialised module; torch's global generator is seeded around the call."""
