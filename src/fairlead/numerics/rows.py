"""Products, sums and order statistics of long rows: one row per client, one column per parameter.

Products are summed in float64 and in blocks of columns. Rows stay in their own type and place (half precision, a mapped
file, a GPU); only one block at a time is widened. A single long sum in single precision loses three digits at ten
million parameters.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.numerics.native import compiled, has_numba

_BLOCK = 2**22
"""Entries sorted at a time: the order of a block takes three times its space."""
_ROUNDING = 1e-9
"""Shares of weight below this are rounding errors of sums of shares."""


def widest_float(device: torch.device) -> torch.dtype:
    """The most precise type of numbers that a device has; Apple's GPUs have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def home_of(device: torch.device) -> torch.device:
    """Where vectors of a run on a device are kept and summed: on the device if it has float64, else on the CPU."""
    return device if widest_float(device) == torch.float64 else torch.device("cpu")


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


Result = TypeVar("Result")


def inner_products(rows: Tensor, chosen: Tensor) -> Tensor:
    """⟨row_i, row_j⟩ of the chosen rows i with all rows j: (chosen, rows) float64, on the device of the rows.

    Rows are chosen by their positions from 0 on.
    """
    at = chosen.to(rows.device)
    total = _by_tensor_cores(rows, at) if _has_wide_cores(rows.device) else None
    if total is None:
        total = torch.stack(_shared_out(_products_over(rows, at), rows)).sum(0)
    own = total[:, at]
    # Both orders of a pair are computed; their last bits may differ.
    total[:, at] = (own + own.mT) / 2
    return total


def squared_distances(rows: Tensor) -> Tensor:
    """‖row_i − row_j‖² of all pairs: (m, m) float64 on the CPU, symmetric, 0 on the diagonal.

    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[0.0, 25.0], [25.0, 0.0]]
    """
    products = inner_products(rows, torch.arange(len(rows))).cpu()
    squares = products.diagonal()
    return (squares + squares[:, None] - 2 * products).clamp(min=0).fill_diagonal_(0.0)


@cache
def _has_wide_cores(device: torch.device) -> bool:
    """Whether Triton multiplies float64 by tensor cores of a device: since 3.5, on GPUs like the A100 and H100."""
    if device.type != "cuda" or torch.version.hip or find_spec("triton") is None:
        return False
    import triton

    release = tuple(int(number) for number in triton.__version__.split(".")[:2])
    return release >= (3, 5) and torch.cuda.get_device_capability(device) in ((8, 0), (9, 0))


def _by_tensor_cores(rows: Tensor, at: Tensor) -> Tensor | None:
    """The products by a Triton kernel, or None if it does not apply."""
    from fairlead.numerics.kernels_triton import MOST_CHOSEN, products_with_all

    in_order = rows.dtype == torch.float32 and rows.numel() > 0 and rows.stride(1) == 1
    return products_with_all(rows, at.contiguous()) if in_order and 0 < len(at) <= MOST_CHOSEN else None


def _products_over(rows: Tensor, at: Tensor) -> Callable[[slice], Tensor]:
    """A function that sums products over some columns: by a Numba loop if that is faster, else in widened blocks."""
    plain = rows.device.type == "cpu" and rows.dtype == torch.float32 and rows.is_contiguous()
    if plain and rows.numel() >= _LARGE and len(at) <= MOST_IN_LOOP and has_numba():
        return products_by_loop(rows, at.contiguous())

    def in_blocks(share: slice) -> Tensor:
        total = torch.zeros((len(at), len(rows)), dtype=torch.float64, device=rows.device)
        height, width = _block(rows)
        for columns in _ranges(share.stop, width, share.start):
            left = rows[at, columns].double()
            for others in _ranges(len(rows), height):
                total[:, others].addmm_(left, rows[others, columns].double().mT)
        return total

    return in_blocks


def wide_sum(coefficients: Tensor, rows: Tensor) -> Tensor:
    """Σ coefficient_i row_i over a few rows, (d,) in their type: summed in float64, rounded once."""
    factors = coefficients.to(rows.device, torch.float64, non_blocking=rows.is_cuda)
    total = rows.new_empty(rows.shape[1])

    def sum_over(share: slice) -> None:
        height, width = _block(rows)
        for columns in _ranges(share.stop, width, share.start):
            parts = [factors[few] @ rows[few, columns].double() for few in _ranges(len(rows), height)]
            # From the first part on, if there is one: added to a zero it would cost an operation more.
            total[columns] = sum(parts[1:], *parts[:1])

    _shared_out(sum_over, rows)
    return total


def combination(coefficients: Tensor, rows: Tensor, *, like: Tensor) -> Tensor:
    """Σ coefficient_i row_i, (d,) in the type and on the device of `like`."""
    used = coefficients.nonzero()[:, 0].to(rows.device)
    factors = coefficients.to(rows.device)
    if rows.dtype == like.dtype:
        # A copy of the rows in use costs four times as much as reading those that are not.
        few = 4 * len(used) < len(rows)
        total = factors[used].to(rows) @ rows[used] if few else factors.to(rows) @ rows
        return total.to(like)
    total = like.new_empty(rows.shape[1])
    for columns in _ranges(rows.shape[1], _block(rows)[1]):
        total[columns] = (factors[used] @ rows[used, columns].double()).to(total)
    return total


def _shared_out(work: Callable[[slice], Result], rows: Tensor) -> list[Result]:
    """The results of `work` for shares of the columns, in order; on a CPU the cores divide them.

    Operations on single blocks are short, and cores that share them wait for each other at every one: beside other
    work a step took up to 25 times as long. The shares do not depend on the number of cores, and so nor does any bit.
    """
    dim = rows.shape[1]
    if rows.is_cuda or rows.numel() < _LARGE:
        return [work(slice(0, dim))]
    edges = [dim * share // _SHARES for share in range(_SHARES + 1)]
    shares = [slice(first, last) for first, last in pairwise(edges)]
    with ThreadPoolExecutor(
        min(torch.get_num_threads(), _SHARES), initializer=torch.set_num_threads, initargs=(1,)
    ) as cores:
        return list(cores.map(work, shares))


_LARGE = 2**22
"""Numbers above which starting a thread costs little."""
_SHARES = 16


def _block(rows: Tensor) -> tuple[int, int]:
    """Rows and columns to widen at a time: what stays in a processor's cache; on a GPU half a gigabyte."""
    if not rows.is_cuda:
        return 128, 4096
    return max(len(rows), 1), max(1, 2**26 // max(len(rows), 1))


def _ranges(stop: int, size: int, start: int = 0) -> Iterator[slice]:
    return (slice(first, min(first + size, stop)) for first in range(start, stop, size))


MOST_IN_LOOP = 32
"""Rows whose products with all this loop sums; for more of them a library's product is as fast."""
_CHOSEN, _OTHERS = 2, 4
"""Rows that meet in the innermost loop, which is written for these numbers."""
_COLUMNS = 1024


def products_by_loop(rows: Tensor, at: Tensor) -> Callable[[slice], Tensor]:
    """Sums ⟨row_i, row_j⟩ over some columns by a Numba loop, of the rows i at these positions with all: (at, rows).

    Rows of float32 are widened on the way into the product, so that no copy is written, and four of them meet two
    chosen ones at a time, so that what was read is used more than once. A library's product of so few rows takes most
    of its time to rearrange the many.
    """
    # Here, since every thread that asked for it at once would get a loop of its own to compile.
    add_products = compiled(_add_products)
    height, width = -(-len(at) // _CHOSEN) * _CHOSEN, -(-len(rows) // _OTHERS) * _OTHERS

    def products(columns: slice) -> Tensor:
        sums = torch.zeros((height, width), dtype=torch.float64)
        add_products(rows.numpy(), at.numpy(), columns.start, columns.stop, sums.numpy())
        return sums[: len(at), : len(rows)]

    return products


def _add_products(
    rows: NDArray[Any], at: NDArray[np.int64], start: int, stop: int, sums: NDArray[np.float64]
) -> None:
    """Add to `sums` what the columns from `start` on contribute; it has room for whole groups of rows."""
    last = len(rows) - 1
    chosen = np.zeros((len(sums), _COLUMNS))
    for first in range(start, stop, _COLUMNS):
        end = min(first + _COLUMNS, stop)
        for i in range(len(at)):
            chosen[i, : end - first] = rows[at[i], first:end]
        for j in range(0, len(rows), _OTHERS):
            a, b = rows[j, first:end], rows[min(j + 1, last), first:end]
            c, d = rows[min(j + 2, last), first:end], rows[min(j + 3, last), first:end]
            for i in range(0, len(sums), _CHOSEN):
                x, y = chosen[i], chosen[i + 1]
                xa = xb = xc = xd = ya = yb = yc = yd = 0.0
                for k in range(end - first):
                    ak, bk, ck, dk = np.float64(a[k]), np.float64(b[k]), np.float64(c[k]), np.float64(d[k])
                    xa += x[k] * ak
                    xb += x[k] * bk
                    xc += x[k] * ck
                    xd += x[k] * dk
                    ya += y[k] * ak
                    yb += y[k] * bk
                    yc += y[k] * ck
                    yd += y[k] * dk
                sums[i, j] += xa
                sums[i, j + 1] += xb
                sums[i, j + 2] += xc
                sums[i, j + 3] += xd
                sums[i + 1, j] += ya
                sums[i + 1, j + 1] += yb
                sums[i + 1, j + 2] += yc
                sums[i + 1, j + 3] += yd
