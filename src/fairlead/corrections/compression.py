"""Compressed updates with error feedback."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fairlead.component import PositiveShare, WholeRange
from fairlead.corrections.base import Correction, Extent, LocalOutcome, LocalResult
from fairlead.randomness import keyed_uniform
from fairlead.records import Vectors


@dataclass(frozen=True)
class CompressedUpdate(Correction):
    """Sends the largest entries of the update, coarsely rounded, and adds the rest to the next update.

        p = Δ_i + e_i,   upload q = Q(Top_k(p)),   e_i ← p − q
        Q(v) = σ/(1 + β) · sign(v)·ξ,   ξ = ⌊|v|/σ⌋ or one more, with mean |v|/σ,   σ = max|v|/(2^(b−1) − 1)

    Symbols: k = ⌈`share`·d⌉ of d entries are kept; b `bits` for each of them (None: not rounded); e_i
    `memory["residual"]`, zero at first; β = E‖σ·sign(v)ξ − v‖²/‖v‖², which makes Q a contraction for every b, so that
    e_i stays bounded. Random numbers depend on the run's key, the round and the client alone. The upload is k places of
    four bytes (none for `share` = 1), and k numbers, or ⌈kb/8⌉ bytes and a number; records, clocks and Flower messages
    have this size. It must be the last of the corrections.

    Reduces to no correction for `share` = 1 and `bits` = None.

    Differs from Basu et al. 2019, which scales by the longest instead of the largest entry and bounds β beforehand.
    A client whose update is lost keeps its e_i. Updates of earlier rounds arrive late, so that models circle the limit
    of the uncompressed method, at a distance that falls with the learning rate.

    >>> CompressedUpdate(share=0.01, bits=4).upload_bytes(1_000_000, torch.float32)
    45004
    """

    share: PositiveShare = 1.0
    bits: Annotated[int, WholeRange(2, 8)] | None = None

    references = ("basu2019qsparse", "karimireddy2019feedback", "stich2018sparsified")
    needs_single_updates = True

    @property
    def encodes(self) -> bool:
        """Whether the message stands for the update."""
        return self.share < 1 or self.bits is not None

    @property
    def memory_extent(self) -> dict[str, Extent]:
        return {"residual": "vector"} if self.encodes else {}

    @property
    def needs_draws(self) -> bool:
        return self.bits is not None

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        return gradient

    def after_steps(self, outcome: LocalOutcome, memory: Vectors, shared: Vectors) -> LocalResult:
        if not self.encodes:
            return LocalResult(outcome.delta, {}, {})
        wanted = outcome.delta + memory["residual"]
        message = self._encoded(wanted, outcome.draws)
        sent = self.decoded(message, wanted.shape[-1])
        return LocalResult(sent, {"residual": wanted - sent}, message)

    def decoded(self, message: Vectors, dim: int) -> Tensor:
        """The update (..., d) that a message stands for."""
        if self.bits is None:
            values = message["values"]
        else:
            codes = _unpacked(message["codes"], self._kept(dim), self.bits).to(message["scale"])
            values = (codes - (2 ** (self.bits - 1) - 1)) * message["scale"]
        if "places" not in message:
            return values
        zeros = values.new_zeros((*values.shape[:-1], dim))
        return zeros.scatter(-1, message["places"].long(), values)

    def fault(self, message: Vectors, dim: int) -> str | None:
        """What is wrong with a message of the right shapes, which comes from a client."""
        places = message.get("places")
        if places is None:
            return None
        if bool((places.diff() > 0).all()) and int(places[0]) >= 0 and int(places[-1]) < dim:
            return None
        return f"places of its update are not ascending numbers from 0 to {dim - 1}"

    def upload_bytes(self, dim: int, dtype: torch.dtype) -> int:
        """The size of an update of `dim` entries."""
        row = torch.zeros((1, dim), dtype=dtype, device="meta")
        message = self._encoded(row, torch.zeros((1, 1), dtype=torch.int64)) if self.encodes else {"": row}
        return sum(part.nbytes for part in message.values())

    def _kept(self, dim: int) -> int:
        # 0.07 of 100 is seven, and not a little more.
        return max(math.ceil(self.share * dim - 1e-9), 1)

    def _encoded(self, wanted: Tensor, draws: Tensor | None) -> dict[str, Tensor]:
        message, values = {}, wanted
        if self.share < 1:
            places = wanted.abs().topk(self._kept(wanted.shape[-1]), dim=-1).indices.sort(dim=-1).values
            message["places"], values = places.int(), wanted.gather(-1, places)
        if self.bits is None:
            return {**message, "values": values}
        assert draws is not None
        most = 2 ** (self.bits - 1) - 1
        unit = values.abs().amax(-1, keepdim=True) / most
        parts = values.abs() / torch.where(unit > 0, unit, 1.0)
        lower = parts.floor()
        above = parts - lower
        # Row by row: a sum over many rows at once may have other bits than that of one client alone.
        variance, square = _row_sums(above * (1 - above)), _row_sums(parts.square())
        scale = unit.double() / (1 + variance / square.clamp(min=1.0))
        levels = (lower + (_uniform(draws, values) < above)).clamp(max=most) * values.sign()
        return {**message, "codes": _packed((levels + most).byte(), self.bits), "scale": scale.to(values)}


def _row_sums(rows: Tensor) -> Tensor:
    sums = rows.double().new_zeros((*rows.shape[:-1], 1))
    for total, row in zip(sums.view(-1), rows.double().reshape(-1, rows.shape[-1]), strict=True):
        total.copy_(row.sum())
    return sums


def _uniform(draws: Tensor, like: Tensor) -> Tensor:
    """A number in [0, 1) for every entry, from a key for each row."""
    numbers = torch.zeros_like(like, dtype=torch.float64)
    for row, key in zip(numbers.view(-1, like.shape[-1]), draws.to(like.device).reshape(-1), strict=True):
        row.copy_(keyed_uniform(key, row.shape, like.device))
    return numbers


def _packed(codes: Tensor, bits: int) -> Tensor:
    """Bytes (..., k) below 2^bits as bytes (..., ⌈k·bits/8⌉), the lowest bits first."""
    digits = (codes[..., None] >> _places(bits, codes)) & 1
    flat = torch.nn.functional.pad(digits.flatten(-2), (0, -digits.shape[-2] * bits % 8))
    octets = flat.reshape(*flat.shape[:-1], flat.shape[-1] // 8, 8) << _places(8, codes)
    return octets.sum(-1, dtype=torch.uint8)


def _unpacked(octets: Tensor, number: int, bits: int) -> Tensor:
    """The numbers (..., `number`) in bytes, as bytes."""
    digits = (octets[..., None] >> _places(8, octets)) & 1
    whole = digits.flatten(-2)[..., : number * bits].reshape(*octets.shape[:-1], number, bits)
    return (whole << _places(bits, octets)).sum(-1, dtype=torch.uint8)


def _places(bits: int, like: Tensor) -> Tensor:
    return torch.arange(bits, dtype=torch.uint8, device=like.device)
