"""The role `Model`: a recipe for a module, completed with the shapes of the data."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from fairlead.component import Component
from fairlead.errors import field_error, is_integer


@dataclass(frozen=True)
class ExampleShape:
    """The shape of one input and the number of outputs of a model."""

    inputs: tuple[int, ...]
    outputs: int
    tokens: int | None = None
    """One more than the largest input where inputs are whole numbers; None where they are real."""


class Model(Component, ABC):
    """A recipe for a module, completed with the shapes of the data."""

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


def require_widths(model: Model, field: str) -> None:
    """Refuse `model.field` unless it is a tuple of whole numbers of at least 1."""
    widths = getattr(model, field)
    if not isinstance(widths, tuple) or not all(is_integer(width, 1) for width in widths):
        raise field_error(model, field, "widths of at least 1", widths)


def dropped(share: float) -> list[nn.Module]:
    """A dropout layer, or none where nothing is dropped."""
    return [nn.Dropout(share)] if share else []
