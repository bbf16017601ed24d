"""Recurrent networks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairlead.errors import require_integer
from fairlead.models.base import MOST_LAYERS
from fairlead.models.tokens import TokenModel


@dataclass(frozen=True)
class CharLSTM(TokenModel):
    """LEAF's network for Shakespeare: an embedding and stacked LSTMs that foretell the next character.

        c ← σ(f) c + σ(i) tanh(g),  h ← σ(o) tanh(c),  (i, f, g, o) = W x + U h + b

    Parameters for 80 characters: 80·8 + 4·256·(8 + 256 + 1) + 4·256·(256 + 256 + 1) + 257·80 = 817,872, as in
    LEAF (torch.nn.LSTM keeps a second, redundant bias: 819,920). It starts as LEAF's does: Glorot-uniform
    weights, biases 0 but 1 at the forget gates.

    The LSTM is written in plain operations: torch's fused one cannot be run for many clients at once.
    """

    embedding: int = 8
    hidden: int = 256
    layers: int = 2

    references = ("caldas2018leaf", "mcmahan2017fedavg")

    def require_encoder(self) -> None:
        for field in ("embedding", "hidden", "layers"):
            require_integer(self, field, at_least=1, at_most=MOST_LAYERS if field == "layers" else None)

    def encoder(self, vocabulary: int, length: int) -> nn.Module:
        embedding = nn.Embedding(vocabulary, self.embedding)
        nn.init.xavier_uniform_(embedding.weight)
        widths = [self.embedding, *[self.hidden] * (self.layers - 1)]
        return nn.Sequential(embedding, *(_LSTM(width, self.hidden) for width in widths))

    @property
    def encoder_width(self) -> int:
        return self.hidden


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
