"""Inner products of a few long rows with all, as one loop that Numba compiles.

Rows of float32 are widened on the way into the product, so that no copy is written, and four of them meet two chosen
ones at a time, so that what was read is used more than once. A library's product of so few rows takes most of its
time to rearrange the many.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.numerics.native import compiled

MOST_CHOSEN = 32
"""Rows whose products with all this loop sums; for more of them a library's product is as fast."""
_CHOSEN, _OTHERS = 2, 4
"""Rows that meet in the innermost loop, which is written for these numbers."""
_COLUMNS = 1024


def products_over(rows: Tensor, at: Tensor) -> Callable[[slice], Tensor]:
    """How ⟨row_i, row_j⟩ is summed over some columns, of the rows i at these positions with all: (at, rows) float64."""
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
