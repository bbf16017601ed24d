"""`keyed_uniform` as one Triton kernel, where its two dozen small ones would cost more than a model's step."""

from math import prod
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _finalised(word: tl.tensor) -> tl.tensor:
    word = word ^ (word >> 16)
    word = word * 0x85EBCA6B
    word = word ^ (word >> 13)
    word = word * 0xC2B2AE35
    return word ^ (word >> 16)


@triton.jit  # type: ignore[untyped-decorator]
def _fill(keys: tl.tensor, out: tl.tensor, count: tl.tensor, BLOCK: tl.constexpr) -> None:
    lane = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    whole = tl.load(keys + lane)
    low, high = whole.to(tl.uint32), (whole >> 32).to(tl.uint32)
    word = _finalised(place.to(tl.uint32) * 0x9E3779B1 + low)
    word = _finalised(word ^ high)
    tl.store(out + lane * count + place, word.to(tl.float64) * 2.3283064365386963e-10, mask=place < count)


class KeyedUniform(torch.autograd.Function):
    """The numbers of `keyed_uniform` for a key () on a CUDA device, or under `vmap` for many keys at once."""

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
