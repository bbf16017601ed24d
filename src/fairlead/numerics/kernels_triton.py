"""Triton kernels: inner products of a few long rows with all, and `keyed_uniform`."""

from math import prod
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_CHOSEN = 64
"""Rows whose products with all are summed at once; for more of them a widened copy of all rows is worth its time."""
_ROWS, _COLUMNS, _WARPS, _STAGES = 32, 64, 4, 3
"""A block of the rows, how many warps multiply it, and how many blocks are on their way from memory."""
_PROGRAMS = 4096
"""Programs among which the sums are shared out, by rows and by columns."""


def padded(number: int) -> int:
    """The next power of two, and 16 at least, as block products need."""
    return max(16, int(triton.next_power_of_2(number)))


def products_with_all(rows: Tensor, at: Tensor) -> Tensor:
    """⟨row_i, row_j⟩ of the rows i at these positions with all rows j: (at, rows) float64, by tensor cores.

    Rows of float32 are widened on the way into the product, so that each is read once and no copy is written. Shares
    of the columns are summed apart and added up in their order, so that bits repeat.
    """
    count, dim = rows.shape
    blocks = triton.cdiv(count, _ROWS)
    parts = max(1, min(_PROGRAMS // blocks, triton.cdiv(dim, 4 * _COLUMNS)))
    share = triton.cdiv(triton.cdiv(dim, parts), _COLUMNS) * _COLUMNS
    sums = torch.empty((parts, len(at), count), dtype=torch.float64, device=rows.device)
    # On the device of the rows, which need not be the current one.
    with torch.cuda.device_of(rows):  # type: ignore[no-untyped-call]
        _sum_share[(blocks, parts)](
            *(rows, at, sums, count, dim, rows.stride(0), len(at), share),
            CHOSEN=padded(len(at)),
            ROWS=_ROWS,
            COLUMNS=_COLUMNS,
            num_warps=_WARPS,
            num_stages=_STAGES,
        )
    return sums.sum(0)


# Arrivals differ from round to round, and compiling for each of their numbers would take longer than it gains.
@triton.jit(do_not_specialize=["count", "chosen"])  # type: ignore[untyped-decorator]
def _sum_share(
    rows: tl.tensor, at: tl.tensor, sums: tl.tensor, count: tl.tensor, dim: tl.tensor, stride: tl.tensor,
    chosen: tl.tensor, share: tl.tensor, CHOSEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
) -> None:  # fmt: skip
    """Products of the chosen rows with a block of all, over one share of the columns."""
    part = tl.program_id(1)
    i, j = tl.arange(0, CHOSEN), tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    left = rows + tl.load(at + i, mask=i < chosen, other=0)[:, None] * stride
    right = rows + j.to(tl.int64)[None, :] * stride
    total = tl.zeros((CHOSEN, ROWS), tl.float64)
    for first in range(part * share, min((part + 1) * share, dim), COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        inside = column < dim
        ours = tl.load(left + column[None, :], mask=(i < chosen)[:, None] & inside[None, :], other=0.0)
        others = tl.load(right + column[:, None], mask=(j < count)[None, :] & inside[:, None], other=0.0)
        total = tl.dot(ours.to(tl.float64), others.to(tl.float64), total, out_dtype=tl.float64)
    place = sums + (part * chosen + i[:, None]).to(tl.int64) * count + j[None, :]
    tl.store(place, total, mask=(i < chosen)[:, None] & (j < count)[None, :])


_BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _finalized(word: tl.tensor) -> tl.tensor:
    word = word ^ (word >> 16)
    word = word * 0x85EBCA6B
    word = word ^ (word >> 13)
    word = word * 0xC2B2AE35
    return word ^ (word >> 16)


@triton.jit  # type: ignore[untyped-decorator]
def keyed_word(key: tl.tensor, place: tl.tensor) -> tl.tensor:
    """32 random bits for a place under an int64 key: the number of `keyed_uniform` there, times 2³²."""
    word = _finalized(place.to(tl.uint32) * 0x9E3779B1 + key.to(tl.uint32))
    return _finalized(word ^ (key >> 32).to(tl.uint32))


@triton.jit  # type: ignore[untyped-decorator]
def _fill(keys: tl.tensor, out: tl.tensor, count: tl.tensor, BLOCK: tl.constexpr) -> None:
    lane = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = keyed_word(tl.load(keys + lane), place)
    tl.store(out + lane * count + place, word.to(tl.float64) * 2.3283064365386963e-10, mask=place < count)


class KeyedUniform(torch.autograd.Function):
    """The numbers of `keyed_uniform` for a key () on a CUDA device, or under `vmap` for many keys at once.

    One kernel, where its two dozen small ones would cost more than a model's step.
    """

    @staticmethod
    def forward(key: Tensor, shape: tuple[int, ...]) -> Tensor:
        return _filled(key.reshape(1), shape)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """A key has no gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, keys: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, int]:
        return _filled(keys.contiguous(), shape), 0


def _filled(keys: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(lanes, *shape) for keys (lanes,)."""
    out, count = torch.empty((len(keys), *shape), dtype=torch.float64, device=keys.device), prod(shape)
    if out.numel():
        _fill[(triton.cdiv(count, _BLOCK), len(keys))](keys, out, count, BLOCK=_BLOCK)
    return out
