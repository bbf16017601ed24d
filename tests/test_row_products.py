"""Sums of long rows do not lose what single precision would."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest
import torch

from fairlead.aggregators.base import weighted_sum
from fairlead.numerics import rows as long_rows
from fairlead.numerics.rows import inner_products, wide_sum


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


@pytest.mark.parametrize("natively", [True, False])
def test_large_rows_are_shared_out_between_cores_without_a_change_of_bits(
    monkeypatch: pytest.MonkeyPatch, natively: bool
) -> None:
    """By NumPy's products in float64, for one core and for three; the shares of 70,001 columns are of unequal width."""
    monkeypatch.setattr(long_rows, "has_numba", lambda: natively)
    rows = torch.randn((64, 70_001), generator=torch.Generator().manual_seed(3))
    assert rows.numel() > long_rows._LARGE
    chosen, factors = torch.tensor([5, 0, 63]), torch.linspace(-1, 2, 64, dtype=torch.float64)
    before, found = torch.get_num_threads(), []
    try:
        for cores in (1, 3):
            torch.set_num_threads(cores)
            found.append((inner_products(rows, chosen), wide_sum(factors, rows)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    wide = rows.double().numpy()
    assert np.allclose(found[0][0].numpy(), wide[chosen] @ wide.T, rtol=1e-12, atol=1e-9)
    assert np.allclose(found[0][1].numpy(), factors.numpy() @ wide, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("count", "chosen"), [(1, 1), (3, 2), (7, 3), (40, 32), (40, 33)])
def test_products_by_a_compiled_loop(monkeypatch: pytest.MonkeyPatch, count: int, chosen: int) -> None:
    """By NumPy; rows come in groups that these numbers do not fill, and from 33 chosen ones on in blocks."""
    monkeypatch.setattr(long_rows, "_LARGE", 1)
    by_loop = Mock(wraps=long_rows.products_by_loop)
    monkeypatch.setattr(long_rows, "products_by_loop", by_loop)
    draw = torch.Generator().manual_seed(5)
    rows = torch.randn((count, 2_511), generator=draw)
    at = torch.randperm(count, generator=draw)[:chosen]
    found, wide = inner_products(rows, at), rows.double().numpy()
    assert np.allclose(found.numpy(), wide[at] @ wide.T, rtol=0, atol=1e-10)
    assert by_loop.called == (chosen <= long_rows.MOST_IN_LOOP)


def test_rows_that_lie_apart_or_are_not_there_need_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_rows, "_LARGE", 1)
    rows = torch.randn((7, 2_511), generator=torch.Generator().manual_seed(6))[:, 3:]
    wide = rows.double()
    assert torch.allclose(
        inner_products(rows, torch.tensor([2, 5])), wide[[2, 5]] @ wide.mT, rtol=0, atol=1e-10
    )
    assert inner_products(rows.contiguous(), torch.empty(0, dtype=torch.int64)).shape == (0, 7)


def test_a_compiled_loop_does_not_hide_what_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_rows, "_LARGE", 1)
    rows = torch.ones((5, 100))
    rows[1, 7], rows[4, 99] = float("nan"), float("inf")
    found = inner_products(rows, torch.tensor([0, 2]))
    assert found.isnan().tolist() == [[False, True, False, False, False]] * 2
    assert found.isinf().tolist() == [[False, False, False, False, True]] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("count", "chosen"), [(1, 1), (7, 3), (130, 10), (130, 64), (130, 65)])
def test_products_are_those_of_float64(
    device: torch.device, dtype: torch.dtype, count: int, chosen: int
) -> None:
    """By NumPy, for rows that lie apart from each other in memory; rows and columns fill no block of a kernel."""
    draw = torch.Generator().manual_seed(4)
    rows = torch.randn((count, 2_011), generator=draw).to(device, dtype)[:, 5:2_006]
    # Every second number of a list, which lies apart in memory too.
    at = torch.randperm(count, generator=draw)[:chosen].repeat_interleave(2)[::2]
    found, wide = inner_products(rows, at), rows.double().cpu().numpy()
    assert found.dtype == torch.float64
    assert np.allclose(found.cpu().numpy(), wide[at] @ wide.T, rtol=0, atol=1e-10)
    assert torch.equal(found[:, at.to(device)], found[:, at.to(device)].mT)
    assert torch.equal(found, inner_products(rows, at))
