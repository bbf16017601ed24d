"""Sequence models against torch's own layers, and what they make of padding and vocabularies."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from fairlead.clients.data import ClientData
from fairlead.errors import ClashError, FieldError
from fairlead.models.base import ExampleShape
from fairlead.models.sequences import CharLSTM, TextTransformer, TokenModel
from fairlead.task import Task
from fairlead.worlds.simulated import SimulatedWorld

SHAPE = ExampleShape((7,), 5, 11)


def built(model: TokenModel, shape: ExampleShape = SHAPE) -> nn.Module:
    torch.manual_seed(0)
    return model.build(shape).double().eval()


def tokens(*lengths: int, padding: int = 0) -> Tensor:
    """Random texts of the given lengths, never the padding token itself, filled up at their ends."""
    generator = torch.Generator().manual_seed(1)
    texts = torch.randint(1, 11, (len(lengths), 7), generator=generator)
    for row, length in enumerate(lengths):
        texts[row, length:] = padding
    return texts


def test_lstm_equals_torch() -> None:
    """Copied into torch.nn.LSTM, whose gates stand in the same order and whose second bias is set to 0."""
    module = built(CharLSTM(embedding=3, hidden=4, layers=2))
    own = dict(module.named_parameters())
    theirs = nn.LSTM(3, 4, num_layers=2, batch_first=True).double()
    with torch.no_grad():
        for layer in range(2):
            getattr(theirs, f"weight_ih_l{layer}").copy_(own[f"encoder.{layer + 1}.from_input.weight"])
            getattr(theirs, f"weight_hh_l{layer}").copy_(own[f"encoder.{layer + 1}.from_hidden.weight"])
            getattr(theirs, f"bias_ih_l{layer}").copy_(own[f"encoder.{layer + 1}.from_input.bias"])
            getattr(theirs, f"bias_hh_l{layer}").zero_()
        texts = tokens(7, 7, 7)
        hidden, _ = theirs(own["encoder.0.weight"][texts])
        expected = hidden[:, -1] @ own["readout.weight"].T + own["readout.bias"]
        torch.testing.assert_close(module(texts), expected, rtol=0, atol=1e-14)


def test_lstm_starts_with_open_forget_gates() -> None:
    module = built(CharLSTM(embedding=3, hidden=2, layers=1))
    bias = dict(module.named_parameters())["encoder.1.from_input.bias"]
    assert bias.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_transformer_equals_torch() -> None:
    """Copied into torch.nn.TransformerEncoderLayer with normalization first and a causal mask."""
    module = built(TextTransformer(width=8, heads=2, layers=1, pooling="none"))
    own = dict(module.named_parameters())
    block = nn.TransformerEncoderLayer(
        8, 2, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    names = {
        "self_attn.in_proj_weight": "attention.1.mix.weight",
        "self_attn.in_proj_bias": "attention.1.mix.bias",
        "self_attn.out_proj.weight": "attention.1.project.weight",
        "self_attn.out_proj.bias": "attention.1.project.bias",
        "linear1.weight": "expand.weight",
        "linear1.bias": "expand.bias",
        "linear2.weight": "contract.weight",
        "linear2.bias": "contract.bias",
        "norm1.weight": "attention.0.weight",
        "norm1.bias": "attention.0.bias",
        "norm2.weight": "norm.weight",
        "norm2.bias": "norm.bias",
    }
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in own.values():
            # Away from the start, where zero biases would hide that one is missing.
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        for theirs, name in names.items():
            block.get_parameter(theirs).copy_(own[f"encoder.2.{name}"])
        texts = tokens(7, 7)
        stream = own["encoder.0.token.weight"][texts] + own["encoder.0.position"]
        mask = torch.triu(torch.full((7, 7), -math.inf, dtype=torch.float64), 1)
        normed = nn.functional.layer_norm(
            block(stream, src_mask=mask), (8,), own["encoder.3.weight"], own["encoder.3.bias"]
        )
        expected = normed @ own["readout.weight"].T + own["readout.bias"]
        torch.testing.assert_close(module(texts), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "model",
    [CharLSTM(3, 4, pooling="none"), TextTransformer(8, 2, 2, pooling="none")],
    ids=lambda model: type(model).__name__,
)
def test_no_position_sees_later_ones(model: TokenModel) -> None:
    module, texts = built(model), tokens(7)
    changed = texts.clone()
    changed[0, 4] = (texts[0, 4] + 1) % 11
    before, after = module(texts)[0], module(changed)[0]
    torch.testing.assert_close(before[:4], after[:4], rtol=0, atol=0)
    assert float((before[4:] - after[4:]).detach().abs().max()) > 1e-6


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("kind", [CharLSTM, TextTransformer])
def test_padding_does_not_count(kind: type[TokenModel], pooling: Literal["last", "mean"]) -> None:
    """The pooled features are those at the real positions: read out from every position by hand."""
    texts = tokens(3, 7, 1)
    pooled = built(kind(pooling=pooling, padding=0))
    everywhere = built(kind(pooling="none"))
    outputs = everywhere(texts)
    for row, length in enumerate((3, 7, 1)):
        real = outputs[row, :length]
        # The readout is affine, so the mean of its outputs is its output at the mean.
        expected = real[-1] if pooling == "last" else real.mean(0)
        torch.testing.assert_close(pooled(texts)[row], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_a_text_of_padding_alone_is_finite(pooling: Literal["last", "mean"]) -> None:
    outputs = built(TextTransformer(8, 2, 1, pooling=pooling, padding=0))(tokens(0, 2))
    assert bool(torch.isfinite(outputs).all())


def test_the_vocabulary_comes_from_all_data() -> None:
    """Tokens up to 9 in training and 12 in the test set: 13 rows of embedding."""
    train = ClientData.from_lists([torch.tensor([[1, 9], [2, 3]])], [torch.tensor([0, 1])])
    test = ClientData.from_lists([torch.tensor([[12, 0]])], [torch.tensor([1])])
    world = SimulatedWorld(Task(CharLSTM(3, 4)), train, test=test)
    assert world.population.layout["encoder.0.weight"] == 13 * 3


def test_a_vocabulary_that_is_too_small_is_refused() -> None:
    with pytest.raises(FieldError) as error:
        CharLSTM(vocabulary=10).build(SHAPE)
    assert str(error.value) == "CharLSTM.vocabulary must be above the largest token, 10, got 10."


@pytest.mark.parametrize(
    ("shape", "got"),
    [
        (ExampleShape((8,), 2), "real numbers of shape (8,)"),
        (ExampleShape((8, 8), 2, 4), "whole numbers of shape (8, 8)"),
    ],
)
def test_what_is_no_text_is_refused_in_a_sentence(shape: ExampleShape, got: str) -> None:
    with pytest.raises(ClashError) as error:
        TextTransformer().build(shape)
    assert str(error.value) == (
        "TextTransformer needs sequences of tokens, whole numbers of shape (length,), got inputs of "
        + got
        + "."
    )
