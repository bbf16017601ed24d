"""Weighted medians and trimmed means of rows, coordinate by coordinate."""

from collections.abc import Callable

import torch
from torch import Tensor

_BLOCK = 2**22
"""Entries sorted at a time: the order of a block takes three times its space."""
_ROUNDING = 1e-9
"""Shares of weight below this are rounding errors of sums of shares."""


def weighted_median(rows: Tensor, shares: Tensor) -> Tensor:
    """In every coordinate the value with at most half of the weight below and above it, (d,).

    Where exactly half of the weight lies below a value, the mean of it and the one before. `shares` (m,)
    are float64 on the CPU and sum to 1.

    >>> weighted_median(torch.tensor([[1.0], [2.0], [9.0]]), torch.tensor([0.25, 0.25, 0.5]).double()).item()
    5.5
    """

    def median(block: Tensor, shares: Tensor) -> Tensor:
        values, order = block.sort(dim=0)
        up_to = shares[order].cumsum(0)
        last = len(values) - 1
        lower, upper = (
            values.gather(0, before.sum(0, keepdim=True).clamp(max=last))[0]
            for before in (up_to < 0.5 - _ROUNDING, up_to <= 0.5 + _ROUNDING)
        )
        return torch.lerp(lower, upper, 0.5)

    return _by_columns(median, rows, shares)


def weighted_trimmed_mean(rows: Tensor, shares: Tensor, trim: float) -> Tensor:
    """In every coordinate the mean after a share of the weight is cut off at both ends, (d,).

    A row at the edge counts with the weight that is left of it. `shares` as for `weighted_median`.

    >>> quarters = torch.full((4,), 0.25).double()
    >>> weighted_trimmed_mean(torch.tensor([[1.0], [2.0], [4.0], [99.0]]), quarters, 0.25).item()
    3.0
    """

    def mean(block: Tensor, shares: Tensor) -> Tensor:
        values, order = block.sort(dim=0)
        own = shares[order]
        up_to = own.cumsum(0)
        kept = up_to.clamp(max=1 - trim) - (up_to - own).clamp(min=trim)
        # A rounding error times a hostile number is no rounding error.
        kept = torch.where(kept > _ROUNDING, kept, 0.0)
        return ((kept / kept.sum(0)).to(values) * values).sum(0)

    return _by_columns(mean, rows, shares)


def _by_columns(statistic: Callable[[Tensor, Tensor], Tensor], rows: Tensor, shares: Tensor) -> Tensor:
    """A statistic of the columns, computed in blocks."""
    shares = shares.to(rows.device)
    width = max(1, _BLOCK // max(len(rows), 1))
    return torch.cat([statistic(block, shares) for block in torch.split(rows, width, dim=1)])
