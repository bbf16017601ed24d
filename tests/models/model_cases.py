"""Every model in a small size, with data that it fits."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.models.base import MLP, ExampleShape, LogisticRegression, Model
from fairlead.models.convolutional import (
    VGG11,
    DropoutCNN,
    FedAvgCNN,
    FiveLayerCNN,
    PooledCNN,
    ResNet18,
    UnpooledCNN,
)
from fairlead.models.imported import ImportedModel
from fairlead.models.sequences import CharLSTM, TextTransformer, WindowCNN


class Case(NamedTuple):
    """A model and what it is used for."""

    model: Model
    shape: ExampleShape
    every_position: bool = False
    """Whether there is a target at every position of a sequence."""

    def inputs(self, count: int, generator: torch.Generator) -> Tensor:
        size = (count, *self.shape.inputs)
        if self.shape.tokens is None:
            return torch.randn(size, generator=generator, dtype=torch.float64)
        return torch.randint(0, self.shape.tokens, size, generator=generator)

    def targets(self, count: int, generator: torch.Generator) -> Tensor:
        size = (count, *self.shape.inputs) if self.every_position else (count,)
        return torch.randint(0, self.shape.outputs, size, generator=generator)

    def clients(self, sizes: tuple[int, ...]) -> ClientData:
        generator = torch.Generator().manual_seed(3)
        return ClientData.from_lists(
            [self.inputs(size, generator) for size in sizes],
            [self.targets(size, generator) for size in sizes],
        )


IMPORTED = ImportedModel("torch.nn:Linear", (("in_features", 4), ("out_features", 3)))

SMALL = {
    "LogisticRegression": Case(LogisticRegression(), ExampleShape((4,), 3)),
    "MLP": Case(MLP(hidden=(5, 4), dropout=0.2), ExampleShape((2, 3), 3)),
    "ImportedModel": Case(IMPORTED, ExampleShape((4,), 3)),
    "FedAvgCNN": Case(FedAvgCNN(hidden=8), ExampleShape((8, 8), 3)),
    "FedAvgCNN valid": Case(FedAvgCNN(hidden=8, padding="valid"), ExampleShape((3, 16, 17), 3)),
    "FiveLayerCNN": Case(FiveLayerCNN(hidden=8), ExampleShape((3, 18, 18), 3)),
    "DropoutCNN": Case(DropoutCNN(), ExampleShape((6, 7), 3)),
    "PooledCNN": Case(PooledCNN((4, 5), (8,), dropout=0.2), ExampleShape((2, 8, 9), 3)),
    "UnpooledCNN": Case(UnpooledCNN(), ExampleShape((8, 8), 3)),
    "VGG11": Case(VGG11(width=2), ExampleShape((32, 32), 3)),
    "ResNet18": Case(ResNet18(groups=2, width=4), ExampleShape((3, 8, 8), 3)),
    "WindowCNN": Case(WindowCNN((4, 5), kernel=3), ExampleShape((9, 3), 3)),
    "CharLSTM": Case(CharLSTM(3, 4), ExampleShape((5,), 6, 6)),
    "CharLSTM everywhere": Case(CharLSTM(3, 4, pooling="none"), ExampleShape((5,), 6, 6), True),
    "TextTransformer": Case(TextTransformer(8, 2, 2, dropout=0.2, padding=0), ExampleShape((6,), 3, 9)),
    "TextTransformer everywhere": Case(
        TextTransformer(8, 2, 1, pooling="none"), ExampleShape((6,), 9, 9), True
    ),
}

every_model = pytest.mark.parametrize("case", SMALL.values(), ids=SMALL.keys())
