"""Texts as token ids."""

import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.component import Component, PositiveCount
from fairlead.errors import DataError, require_instance
from fairlead.memory.budget import require_memory
from fairlead.models.hugging_face import hugging_face, quiet_reading, saved_folder

_WORD = re.compile(r"\w+|[^\w\s]")


class Tokenizer(Component, ABC):
    """Turns texts into rows of token ids of one length: short ones are padded at their end, and long ones cut."""

    length: int

    @property
    def padding(self) -> int:
        """The id that fills up short texts."""
        return 0

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """One more than the largest id."""

    @abstractmethod
    def tokens(self, text: str) -> Sequence[int]:
        """Ids other than padding, at least as many of the text's as `length` asks for."""

    def all_tokens(self, texts: Sequence[str]) -> Iterable[Sequence[int]]:
        """The tokens of each text."""
        return map(self.tokens, texts)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(texts, length) int64."""
        what = f"{type(self).__name__} with length = {self.length} for {len(texts)} texts"
        require_memory(what, 2 * 8 * len(texts) * self.length, "lower the length")
        rows = np.full((len(texts), self.length), self.padding, dtype=np.int64)
        for row, tokens in zip(rows, self.all_tokens(texts), strict=True):
            row[: len(tokens)] = tokens[: self.length]
        return torch.from_numpy(rows)


@dataclass(frozen=True)
class ByteTokens(Tokenizer):
    """One token per UTF-8 byte, its value plus one: 257 ids, padding included.

    >>> ByteTokens(length=4).encode(["Hi"]).tolist()
    [[73, 106, 0, 0]]
    """

    length: PositiveCount = 256

    @property
    def vocabulary(self) -> int:
        return 257

    def tokens(self, text: str) -> Sequence[int]:
        # A character takes at least one byte.
        return [byte + 1 for byte in text[: self.length].encode(errors="surrogatepass")]


@dataclass(frozen=True)
class HashedWords(Tokenizer):
    """One token per word or punctuation mark in lower case, hashed to `buckets` ids.

        id = 1 + crc32(word) mod buckets

    No vocabulary has to be learned from the clients' texts or shared among them, and a word is the same
    id in every data set; two words share an id by chance.

    >>> HashedWords(length=3, buckets=1000).encode(["Stocks fall", "stocks"])[:, 0].unique().numel()
    1
    """

    length: PositiveCount = 64
    buckets: PositiveCount = 8192

    @property
    def vocabulary(self) -> int:
        return self.buckets + 1

    def tokens(self, text: str) -> Sequence[int]:
        words = (word.encode(errors="surrogatepass") for word in _WORD.findall(text.lower()))
        return [1 + zlib.crc32(word) % self.buckets for word in words]


@dataclass(frozen=True)
class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of Hugging Face from a folder of `save_pretrained`; needs transformers (the extra `hf`).

    Nothing is downloaded: `AutoTokenizer.from_pretrained(name).save_pretrained(path)` once makes the folder. Special
    tokens are added as the tokenizer does it, and kept in texts that are cut to `length`. Padding is the tokenizer's
    own, or its end-of-text token if it has none.
    """

    path: str
    length: PositiveCount = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        require_instance(self, "path", self.path, str)

    @property
    def vocabulary(self) -> int:
        return int(max(self._loaded().get_vocab().values())) + 1

    @property
    def padding(self) -> int:
        loaded = self._loaded()
        ids = (loaded.pad_token_id, loaded.eos_token_id)
        found = next((id for id in ids if id is not None), None)
        if found is None:
            raise DataError(f"The tokenizer in {self.path} has neither a padding nor an end-of-text token.")
        return int(found)

    def tokens(self, text: str) -> Sequence[int]:
        return next(iter(self.all_tokens([text])))

    def all_tokens(self, texts: Sequence[str]) -> Iterable[Sequence[int]]:
        encoded = self._loaded()(list(texts), truncation=True, max_length=self.length) if texts else {}
        found: list[list[int]] = encoded.get("input_ids", [])
        return found

    def _loaded(self) -> Any:
        folder = saved_folder(self, self.path, "tokenizer_config.json")
        transformers = hugging_face("transformers", type(self).__name__)
        with quiet_reading(folder, transformers):
            return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


def code_points(text: str) -> NDArray[np.int64]:
    """The Unicode number of every character."""
    # Files may hold one half of a pair of surrogates, which is no character but does no harm here.
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype=np.uint32).astype(np.int64)


def next_characters(texts: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Inputs and targets (texts, length) of texts (texts, length + 1): characters, and those that follow them.

    Characters become 0, 1, 2, ... in the sorted order of all that occur.
    """
    occurs = np.bincount(texts.ravel()) > 0
    ids = torch.from_numpy((np.cumsum(occurs) - 1)[texts])
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def next_character_windows(ids: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Pieces of `length` + 1 ids, (pieces, length + 1), of which each begins where the one before ends.

    What is left at the end and fills no piece is dropped.
    """
    count = max((len(ids) - 1) // length, 0)
    if count == 0:
        return ids[:0].reshape(0, length + 1)
    return np.lib.stride_tricks.sliding_window_view(ids, length + 1)[: count * length : length]
