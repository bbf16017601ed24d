"""Models of sequences: recurrent networks and transformers over tokens, convolutions over time windows."""

import math
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from fairlead.component import BelowOne, NaturalNumber, PositiveCount, WholeRange
from fairlead.errors import ClashError, field_error
from fairlead.models.base import MOST_LAYERS, ExampleShape, Model, Widths

LayerCount = Annotated[int, WholeRange(1, MOST_LAYERS)]
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
    vocabulary: PositiveCount | None = None
    pooling: Pooling = "last"
    padding: NaturalNumber | None = None

    @abstractmethod
    def encoder(self, vocabulary: int, length: int) -> tuple[nn.Module, int]:
        """A module from tokens (batch, length) to features (batch, length, width), and the width."""

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
        encoder, width = self.encoder(vocabulary, shape.inputs[0])
        return TokenReadout(encoder, width, shape.outputs, self.pooling, self.padding)


class TokenReadout(nn.Module):
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


@dataclass(frozen=True)
class CharLSTM(TokenModel):
    """LEAF's network for Shakespeare: an embedding and stacked LSTMs that predict the next character.

        c ← σ(f) c + σ(i) tanh(g),  h ← σ(o) tanh(c),  (i, f, g, o) = W x + U h + b

    Parameters for 80 characters: 80·8 + 4·256·(8 + 256 + 1) + 4·256·(256 + 256 + 1) + 257·80 = 817,872, as in
    LEAF (torch.nn.LSTM keeps a second, redundant bias: 819,920). It starts as LEAF's does: Glorot-uniform
    weights, biases 0 but 1 at the forget gates.

    The LSTM is written in plain operations: torch's fused one cannot be run for many clients at once.
    """

    embedding: PositiveCount = 8
    hidden: PositiveCount = 256
    layers: LayerCount = 2

    references = ("caldas2018leaf", "mcmahan2017fedavg")

    def encoder(self, vocabulary: int, length: int) -> tuple[nn.Module, int]:
        embedding = nn.Embedding(vocabulary, self.embedding)
        nn.init.xavier_uniform_(embedding.weight)
        widths = [self.embedding, *[self.hidden] * (self.layers - 1)]
        return nn.Sequential(embedding, *(_LSTM(width, self.hidden) for width in widths)), self.hidden


class _LSTM(nn.Module):
    """One layer from (batch, length, inputs) to (batch, length, hidden), starting from zero."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.from_input = nn.Linear(inputs, 4 * hidden)
        self.from_hidden = nn.Linear(hidden, 4 * hidden, bias=False)
        # Both are one matrix in the paper, which sets how far its weights reach.
        bound = math.sqrt(6 / (inputs + hidden + 4 * hidden))
        nn.init.uniform_(self.from_input.weight, -bound, bound)
        nn.init.uniform_(self.from_hidden.weight, -bound, bound)
        nn.init.zeros_(self.from_input.bias)
        with torch.no_grad():
            self.from_input.bias[hidden : 2 * hidden] = 1.0

    def forward(self, inputs: Tensor) -> Tensor:
        cell = output = inputs.new_zeros((len(inputs), self.hidden))
        outputs = []
        for step in self.from_input(inputs).unbind(1):
            admit, forget, candidate, emit = (step + self.from_hidden(output)).chunk(4, dim=-1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(admit) * torch.tanh(candidate)
            output = torch.sigmoid(emit) * torch.tanh(cell)
            outputs.append(output)
        return torch.stack(outputs, dim=1)


@dataclass(frozen=True)
class TextTransformer(TokenModel):
    """A small GPT-2: learned positions, causal attention, layer normalization before each half of a block.

        x ← x + attention(norm(x)),  x ← x + W₂ gelu(W₁ norm(x)),  `layers` times; then linear(pool(norm(x)))

    For classification by the mean over positions, or with `pooling="none"` as a language model. With V
    tokens, length T and width w it has (V + T)·w + layers·(12w² + 13w) + 2w + (w + 1)·classes parameters;
    without its readout, at GPT-2's sizes, GPT-2's 124,439,808. The encoder's weights start from N(0, 0.02²),
    those that write into the residual stream divided by √(2·layers).

    *Differs from the paper*: GPT-2 also drops attention weights, and shares the embedding with the readout.
    Pythia, which FedAWARE's authors fine-tune, rotates positions and runs both halves of a block at once.
    """

    width: PositiveCount = 128
    heads: PositiveCount = 4
    layers: LayerCount = 2
    dropout: BelowOne = 0.0
    _: KW_ONLY
    pooling: Pooling = "mean"

    references = ("radford2019gpt2",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise field_error(self, "width", f"a multiple of heads={self.heads}", self.width)

    def encoder(self, vocabulary: int, length: int) -> tuple[nn.Module, int]:
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
        return encoder, self.width


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


@dataclass(frozen=True)
class WindowCNN(Model):
    """Convolutions over the time axis of (time, sensors) windows, such as 3-axis acceleration.

        (conv(channels, kernel) - relu - pool2)* - mean over time - linear(classes)

    Parameters for 3 sensors and 6 classes: (3·5 + 1)·32 + (32·5 + 1)·64 + 65·6 = 11,206.
    """

    channels: Widths = (32, 64)
    kernel: PositiveCount = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel % 2 == 0:
            raise field_error(self, "kernel", "odd, so that a window keeps its length", self.kernel)

    def build(self, shape: ExampleShape) -> nn.Module:
        shortest = 2 ** len(self.channels)
        if len(shape.inputs) != 2 or shape.inputs[0] < shortest:
            raise ClashError(
                f"WindowCNN needs windows of at least {shortest} moments, as (time, sensors), got inputs of "
                f"shape {shape.inputs}."
            )
        width = shape.inputs[1]
        layers: list[nn.Module] = [_TimeLast()]
        for wider in self.channels:
            convolution = nn.Conv1d(width, wider, self.kernel, padding=self.kernel // 2)
            layers += [convolution, nn.ReLU(), nn.MaxPool1d(2)]
            width = wider
        return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, shape.outputs))


class _TimeLast(nn.Module):
    """(batch, time, sensors) to (batch, sensors, time), which is what torch convolves."""

    def forward(self, windows: Tensor) -> Tensor:
        return windows.mT
