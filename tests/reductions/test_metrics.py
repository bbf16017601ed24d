"""What metrics become for the simplest of their fields."""

from __future__ import annotations

import torch

import fairlead as fl


def test_top_1_is_the_accuracy() -> None:
    """`TopK`: "Reduces to accuracy for k = 1", ties included."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(200, 4, generator=generator).round()
    targets = torch.randint(4, (200,), generator=generator)
    assert fl.TopK(1).keep(outputs, targets).tolist() == fl.accuracy(outputs, targets).tolist()
