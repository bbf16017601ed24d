"""Sums of long rows do not lose what single precision would."""

from __future__ import annotations

import torch

from fairlead.aggregators.base import weighted_sum
from fairlead.row_products import wide_sum


def test_sums_are_wide_and_rounded_once() -> None:
    """1 + 10⁸ − 10⁸ is 1 in float64, and 0 where 1 + 10⁸ is rounded to float32 on the way."""
    rows = torch.tensor([[1.0], [1e8], [-1e8]]).expand(3, 9000)
    total = weighted_sum(torch.ones(3, dtype=torch.float64), rows)
    assert total.dtype == torch.float32
    assert torch.equal(total, torch.ones(9000))


def test_blocks_of_columns_are_all_there() -> None:
    rows = torch.arange(2 * 10_001, dtype=torch.float64).view(2, 10_001)
    factors = torch.tensor([2.0, -1.0], dtype=torch.float64)
    assert torch.equal(wide_sum(factors, rows), 2 * rows[0] - rows[1])


def test_nothing_sums_to_zero() -> None:
    none = torch.empty(0, dtype=torch.float64)
    assert torch.equal(wide_sum(none, torch.empty(0, 3)), torch.zeros(3))
    assert wide_sum(torch.ones(2, dtype=torch.float64), torch.empty(2, 0)).shape == (0,)
