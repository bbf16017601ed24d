"""Products with long rows, in float64 and in blocks along the parameters.

Rows stay in their own type and place (half precision, a mapped file, a GPU); only one block of columns at a
time is widened. A single long sum in single precision loses three digits at ten million parameters.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor

from fairlead.numerics.native import has_numba

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
    from fairlead.numerics.row_products_triton import MOST_CHOSEN, products_with_all

    in_order = rows.dtype == torch.float32 and rows.numel() > 0 and rows.stride(1) == 1
    return products_with_all(rows, at.contiguous()) if in_order and 0 < len(at) <= MOST_CHOSEN else None


def _products_over(rows: Tensor, at: Tensor) -> Callable[[slice], Tensor]:
    """A function that sums products over some columns: by a Numba loop if that is faster, else in widened blocks."""
    plain = rows.device.type == "cpu" and rows.dtype == torch.float32 and rows.is_contiguous()
    if plain and rows.numel() >= _LARGE and has_numba():
        from fairlead.numerics import row_products_numba

        if len(at) <= row_products_numba.MOST_CHOSEN:
            return row_products_numba.products_over(rows, at.contiguous())

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
