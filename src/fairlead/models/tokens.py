"""The family `TokenModel`: an encoder of token sequences, pooled and read out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fairlead.errors import ClashError, field_error, require_choice, require_integer
from fairlead.models.base import ExampleShape, Model

Pooling = Literal["last", "mean", "none"]


@dataclass(frozen=True)
class TokenModel(Model, ABC):
    """Family of causal models of token sequences: asks for an encoder and its width.

    Inputs are whole numbers (length,) below `vocabulary` (None: as many as the data have). `pooling` says
    what is read out: the "last" position, the "mean" of all, or with "none" every position by itself, which
    makes a language model with outputs (length, classes). `padding` is the token, if there is one, that fills
    up short sequences at their end: it is left out of "last" and "mean", and being causal, the encoder lets
    nothing of it reach earlier positions; targets there should be -100.
    """

    _: KW_ONLY
    vocabulary: int | None = None
    pooling: Pooling = "last"
    padding: int | None = None

    def __post_init__(self) -> None:
        if self.vocabulary is not None:
            require_integer(self, "vocabulary", at_least=1)
        require_choice(self, "pooling", ("last", "mean", "none"))
        if self.padding is not None:
            require_integer(self, "padding", at_least=0)
        self.require_encoder()

    @abstractmethod
    def require_encoder(self) -> None:
        """Refuse settings of the encoder that are not allowed."""

    @abstractmethod
    def encoder(self, vocabulary: int, length: int) -> nn.Module:
        """A module from tokens (batch, length) to features (batch, length, width)."""

    @property
    @abstractmethod
    def encoder_width(self) -> int:
        """Features per position that the encoder gives."""

    def build(self, shape: ExampleShape) -> nn.Module:
        name = type(self).__name__
        if len(shape.inputs) != 1 or shape.tokens is None:
            kind = "real" if shape.tokens is None else "whole"
            raise ClashError(
                f"{name} needs sequences of tokens, whole numbers of shape (length,), got inputs of {kind} "
                f"numbers of shape {shape.inputs}."
            )
        vocabulary = shape.tokens if self.vocabulary is None else self.vocabulary
        if vocabulary < shape.tokens:
            largest = shape.tokens - 1
            raise field_error(self, "vocabulary", f"above the largest token, {largest}", self.vocabulary)
        encoder = self.encoder(vocabulary, shape.inputs[0])
        return _Readout(encoder, self.encoder_width, shape.outputs, self.pooling, self.padding)


class _Readout(nn.Module):
    """linear(Σ_t w_t h_t), with weights w that pick the last position or spread over all."""

    def __init__(
        self, encoder: nn.Module, width: int, outputs: int, pooling: Pooling, padding: int | None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling, self.padding = pooling, padding
        self.readout = nn.Linear(width, outputs)
        nn.init.xavier_uniform_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        features: Tensor = self.encoder(tokens)
        if self.pooling != "none":
            # A weighted sum: indexing by length would scatter in the backward pass, in no fixed order.
            features = (features * self._weights(tokens, features.dtype)[..., None]).sum(1)
        outputs: Tensor = self.readout(features)
        return outputs

    def _weights(self, tokens: Tensor, dtype: torch.dtype) -> Tensor:
        """(batch, length); all zero for a sequence of nothing but padding."""
        valid = torch.ones_like(tokens) if self.padding is None else (tokens != self.padding).to(tokens.dtype)
        count = valid.sum(1, keepdim=True)
        if self.pooling == "mean":
            return valid.to(dtype) / count.clamp(min=1)
        return (torch.arange(1, tokens.shape[1] + 1, device=tokens.device) == count).to(dtype)
