"""Counter-based randomness: every draw is named by its purpose, never by its time.

A `Key` is folded with a purpose, a round and a client, and the resulting stream depends on that path
alone. Execution order, lanes, engines, number of machines and resuming therefore cannot change a
run, and two methods compared under one seed meet the same batches, the same work and the same links.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from operator import index

import numpy as np
import torch
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from fairlead.errors import FieldError, short
from fairlead.numerics.rows import widest_float

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class Key:
    """A 128-bit name of a random stream.

    >>> key = Key.from_seed(0)
    >>> key.fold("batches", 3, 7) == key.fold("batches", 3).fold(7)
    True
    """

    name: bytes

    @staticmethod
    def from_seed(seed: int) -> Key:
        return Key(b"fairlead").fold(seed)

    @staticmethod
    def of(key: Key | int) -> Key:
        """A key as it is, or the key of a seed."""
        if not isinstance(key, Key) and not hasattr(key, "__index__"):
            raise FieldError(f"A seed must be a whole number or a Key, got {short(key)}.")
        return key if isinstance(key, Key) else Key.from_seed(key)

    def fold(self, *path: int | str) -> Key:
        """The key of a sub-stream; folding a path is folding its parts one after another."""
        name = self.name
        for part in path:
            # By value: 3, numpy's 3 and a tensor's 3 name the same stream.
            tag = b"s" + part.encode() if isinstance(part, str) else b"i" + str(index(part)).encode()
            name = blake2b(tag, key=name, digest_size=16).digest()
        return Key(name)

    def generator(self) -> np.random.Generator:
        """A NumPy generator at the start of this stream."""
        # NumPy takes every ISeedSequence; its annotations know only its own.
        return np.random.Generator(np.random.Philox(_PhiloxKey(self.name)))  # type: ignore[arg-type]

    def torch_seed(self) -> int:
        return int.from_bytes(self.name[:8], "little") >> 1

    def words(self, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
        """One 64-bit word per id (SplitMix64), the same for an id whatever ids surround it."""
        start = np.uint64(int.from_bytes(self.name[8:], "little"))
        with np.errstate(over="ignore"):
            word = start + (ids.astype(np.uint64) + np.uint64(1)) * _GOLDEN
            word = (word ^ (word >> np.uint64(30))) * _MIX_1
            word = (word ^ (word >> np.uint64(27))) * _MIX_2
        mixed: NDArray[np.uint64] = word ^ (word >> np.uint64(31))
        return mixed

    def uniform(self, ids: Tensor) -> Tensor:
        """One float64 in [0, 1) per id."""
        return torch.from_numpy((self.words(ids.numpy()) >> np.uint64(11)) * 2.0**-53)

    def normal(self, ids: Tensor) -> Tensor:
        """One float64 from N(0, 1) per id, by the inverse of its distribution function."""
        # Half a unit off the grid, so that neither 0 nor 1 and no infinite draw can occur.
        draws = ((self.words(ids.numpy()) >> np.uint64(12)) + 0.5) * 2.0**-52
        normal: Tensor = torch.special.ndtri(torch.from_numpy(draws))
        return normal

    def integers(self, ids: Tensor, low: int | Tensor, high: int | Tensor) -> Tensor:
        """One whole number in [low, high] per id, both ends included."""
        span = torch.as_tensor(high - low + 1)
        return torch.as_tensor(low) + (self.uniform(ids) * span).floor().to(torch.int64)


class _PhiloxKey(ISeedSequence):
    """The key of a Philox stream as a seed: `Philox(key=...)` would first ask the system for entropy."""

    def __init__(self, name: bytes) -> None:
        self._key = np.frombuffer(name, dtype="<u8")

    def generate_state(self, n_words: int, dtype: DTypeLike = np.uint32) -> NDArray[np.uint64]:
        return self._key


@contextmanager
def seeded_start(key: Key) -> Iterator[None]:
    """Within the block torch's own generator draws the initial numbers of a model from a key."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.fold("init").torch_seed())
        yield


def keyed_uniform(key: Tensor, shape: torch.Size, device: torch.device) -> Tensor:
    """Uniform numbers in [0, 1) of the given shape from an int64 key held in a tensor.

    The i-th number is MurmurHash3's finalizer of (i, key): plain integer arithmetic that batches
    under `vmap`, is captured in graphs and gives the same numbers on every device.
    """
    # A compiler fuses the plain operations into one kernel itself, and must not look for another.
    if device.type == "cuda" and not torch.compiler.is_compiling() and _has_triton():
        from fairlead.numerics.kernels_triton import KeyedUniform

        numbers: Tensor = KeyedUniform.apply(key, tuple(shape))  # type: ignore[no-untyped-call]
        return numbers
    low, high = key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF
    # The multiplier modulo 2³², so that compilers may count in 32 bits: only those matter.
    word = torch.arange(shape.numel(), device=device) * (0x9E3779B1 - 2**32) + low
    for salt in (0, high):
        word = (word ^ salt) & 0xFFFFFFFF
        word = ((word ^ (word >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
        word = ((word ^ (word >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
        word = word ^ (word >> 16)
    if widest_float(device) == torch.float32:
        # As many bits as fit: rounded up, the largest words would give 1.
        return ((word >> 8).to(torch.float32) * 2.0**-24).reshape(shape)
    return (word.to(torch.float64) * 2.0**-32).reshape(shape)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
