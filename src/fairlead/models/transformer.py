"""Transformers."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor, nn

from fairlead.errors import field_error, require_integer, require_number
from fairlead.models.base import MOST_LAYERS
from fairlead.models.tokens import Pooling, TokenModel


@dataclass(frozen=True)
class TextTransformer(TokenModel):
    """A small GPT-2: learnt positions, causal attention, layer normalisation before each half of a block.

        x ← x + attention(norm(x)),  x ← x + W₂ gelu(W₁ norm(x)),  `layers` times; then linear(pool(norm(x)))

    For classification by the mean over positions, or with `pooling="none"` as a language model. With V
    tokens, length T and width w it has (V + T)·w + layers·(12w² + 13w) + 2w + (w + 1)·classes parameters;
    without its readout, at GPT-2's sizes, GPT-2's 124,439,808. The encoder's weights start from N(0, 0.02²),
    those that write into the residual stream divided by √(2·layers).

    *Differs from the paper*: GPT-2 also drops attention weights, and shares the embedding with the readout.
    Pythia, which FedAWARE's authors fine-tune, rotates positions and runs both halves of a block at once.
    """

    width: int = 128
    heads: int = 4
    layers: int = 2
    dropout: float = 0.0
    _: KW_ONLY
    pooling: Pooling = "mean"

    references = ("radford2019gpt2",)

    def require_encoder(self) -> None:
        for field in ("width", "heads", "layers"):
            require_integer(self, field, at_least=1, at_most=MOST_LAYERS if field == "layers" else None)
        if self.width % self.heads:
            raise field_error(self, "width", f"a multiple of heads={self.heads}", self.width)
        require_number(self, "dropout", at_least=0, below=1)

    def encoder(self, vocabulary: int, length: int) -> nn.Module:
        encoder = nn.Sequential(
            _Embedding(vocabulary, length, self.width),
            nn.Dropout(self.dropout),
            *(_Block(self.width, self.heads, self.dropout) for _ in range(self.layers)),
            nn.LayerNorm(self.width),
        )
        for name, parameter in encoder.named_parameters():
            if parameter.ndim > 1:
                into_stream = name.endswith(("project.weight", "contract.weight"))
                nn.init.normal_(parameter, 0.0, 0.02 / math.sqrt(2 * self.layers) if into_stream else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        return encoder

    @property
    def encoder_width(self) -> int:
        return self.width


class _Embedding(nn.Module):
    """What a token is plus where it stands."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.empty(length, width))

    def forward(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.token(tokens) + self.position
        return embedded


class _Block(nn.Module):
    """Attention, then two dense layers, each added to the stream."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.Sequential(
            nn.LayerNorm(width), _CausalAttention(width, heads), nn.Dropout(dropout)
        )
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout(dropout)

    def forward(self, stream: Tensor) -> Tensor:
        stream = stream + self.attention(stream)
        change: Tensor = self.dropout(self.contract(self.activation(self.expand(self.norm(stream)))))
        return stream + change


class _CausalAttention(nn.Module):
    """softmax(q kᵀ/√(w/heads)) v over the positions up to one's own.

    Written out: torch's fused attention has no batching rule for clients on the CPU.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mix = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, stream: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.mix(stream).chunk(3, dim=-1)
        )
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        length = stream.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=stream.device).triu(1)
        attention = scores.masked_fill(future, -math.inf).softmax(-1)
        mixed: Tensor = self.project((attention @ value).transpose(1, 2).flatten(2))
        return mixed
