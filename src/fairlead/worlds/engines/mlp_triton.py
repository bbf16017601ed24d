"""Plain steps of many clients' networks with one hidden layer: three Triton kernels, where torch launches thirty."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from fairlead.numerics.kernels_triton import padded
from fairlead.worlds.engines.base import PlainSGD
from fairlead.worlds.engines.dense import Affine
from fairlead.worlds.engines.lanes import LaneSchedule

_PARTS = 4
"""Into which the sum over the inputs of a hidden unit is split: a GPU has more processors than blocks of units."""
_OUTPUTS, _INPUTS, _SCORED = 32, 64, 16
"""A block of a layer's weights, and the examples that are scored together."""


@dataclass(frozen=True, eq=False)
class MlpDescent:
    """One step of SGD on the cross-entropy of softmax(V max(W x + b, 0) + c), for several clients at once.

    Weights are stepped where their gradient is summed, W ← W − η (Eᵀ X + λ W + μ (W − anchor)) for errors E and
    inputs X with a row for each example, so that no gradient is ever written. Kernels read a tick of the schedule at
    a counter that only the device knows, and examples where they lie. Products have the precision of float32, by three
    of TF32 each, unless torch's may be in TF32.
    """

    below: Affine
    """W and b."""
    above: Affine
    """V and c."""
    examples: Tensor
    """(n, inputs), float32 or bytes."""
    targets: Tensor
    """(n,) classes."""
    descent: PlainSGD

    def step_(
        self, params: Tensor, anchor: Tensor, schedule: LaneSchedule, counter: Tensor, losses: Tensor
    ) -> None:
        """Step the lanes of `params` (width, d) at the tick `counter`, and write their `losses` (ticks, lanes)."""
        width, (_, lanes, batch) = len(params), schedule.rows.shape
        inputs, units, classes = self.below.inputs, self.below.outputs, self.above.outputs
        partial = params.new_empty((_PARTS, width, batch, units))
        hidden, hidden_error = params.new_empty((2, width, batch, units))
        error, each_loss = params.new_empty((width, batch, classes)), params.new_empty((width, batch))
        common = (params, params.stride(0), schedule.rows, counter, lanes, batch, inputs, units)
        precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"
        examples = min(padded(batch), 64)
        _project[(width, triton.cdiv(units, _OUTPUTS), _PARTS * triton.cdiv(batch, examples))](
            *common, self.examples, partial, EXAMPLES=examples, PRECISION=precision
        )
        _score[(width, triton.cdiv(batch, _SCORED))](
            *(*common, partial, self.targets, schedule.weight),
            *(hidden, hidden_error, error, each_loss, classes),
            CLASSES=padded(classes),
            PRECISION=precision,
            num_stages=1,
        )
        blocks_below = triton.cdiv(units, _OUTPUTS) * triton.cdiv(inputs, _INPUTS)
        blocks_above = triton.cdiv(classes, _OUTPUTS) * triton.cdiv(units, _INPUTS)
        # Blocks first: the other axes of a grid end at 65,535.
        _descend[(blocks_below + blocks_above, width)](
            *(*common, self.examples, hidden, hidden_error, error, each_loss, losses, anchor, schedule.lr),
            *(self.descent.weight_decay, self.descent.mu, classes, blocks_below),
            PULLED=any(self.descent),
            EXAMPLES=examples,
            PRECISION=precision,
            num_stages=1,
        )


@triton.jit  # type: ignore[untyped-decorator]
def _values(source: tl.tensor, at: tl.tensor, inside: tl.tensor) -> tl.tensor:
    """Numbers of examples, bytes as fractions of 255."""
    values = tl.load(source + at, mask=inside, other=0)
    if values.dtype == tl.uint8:
        values = values.to(tl.float32) / 255.0
    return values


@triton.jit  # type: ignore[untyped-decorator]
def _project(
    vectors: tl.tensor, stride: tl.tensor, rows: tl.tensor, counter: tl.tensor, lanes: tl.tensor,
    batch: tl.tensor, inputs: tl.tensor, units: tl.tensor, source: tl.tensor, partial: tl.tensor,
    EXAMPLES: tl.constexpr, PRECISION: tl.constexpr, UNITS: tl.constexpr = _OUTPUTS,
    SUMMED: tl.constexpr = _INPUTS, PARTS: tl.constexpr = _PARTS,
) -> None:  # fmt: skip
    """X Wᵀ over a part of the inputs, for a block of examples and hidden units."""
    lane = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    part, block = tl.program_id(2) % PARTS, tl.program_id(2) // PARTS
    place = block * EXAMPLES + tl.arange(0, EXAMPLES)
    own, used, real = vectors + lane * stride, unit < units, place < batch
    row = tl.load(rows + (tl.load(counter) * lanes + lane) * batch + place, mask=real, other=0)
    share = tl.cdiv(tl.cdiv(inputs, SUMMED), PARTS) * SUMMED
    total = tl.zeros((EXAMPLES, UNITS), tl.float32)
    for begin in range(part * share, min((part + 1) * share, inputs), SUMMED):
        column = begin + tl.arange(0, SUMMED)
        filled = column < inputs
        values = _values(source, row[:, None] * inputs + column[None, :], real[:, None] & filled[None, :])
        weights = tl.load(
            own + unit[None, :] * inputs + column[:, None], mask=used[None, :] & filled[:, None], other=0.0
        )
        total = tl.dot(values, weights, total, input_precision=PRECISION)
    at = ((part * tl.num_programs(0) + lane) * batch + place)[:, None] * units + unit[None, :]
    tl.store(partial + at, total, mask=real[:, None] & used[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _activated(
    partial: tl.tensor, bias: tl.tensor, example: tl.tensor, unit: tl.tensor, units: tl.tensor,
    apart: tl.tensor, inside: tl.tensor, PARTS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """max(X Wᵀ + b, 0) from its parts, which lie `apart`."""
    at = example[:, None] * units + unit[None, :]
    total = tl.load(bias + unit, mask=unit < units, other=0.0)[None, :]
    for part in tl.static_range(PARTS):
        total += tl.load(partial + part * apart + at, mask=inside, other=0.0)
    # As torch's, which lets NaN pass.
    return tl.where(total < 0, 0.0, total)


@triton.jit  # type: ignore[untyped-decorator]
def _score(
    vectors: tl.tensor, stride: tl.tensor, rows: tl.tensor, counter: tl.tensor, lanes: tl.tensor,
    batch: tl.tensor, inputs: tl.tensor, units: tl.tensor, partial: tl.tensor, targets: tl.tensor,
    weight: tl.tensor, hidden: tl.tensor, hidden_error: tl.tensor, error: tl.tensor, each_loss: tl.tensor,
    classes: tl.tensor, CLASSES: tl.constexpr, PRECISION: tl.constexpr, EXAMPLES: tl.constexpr = _SCORED,
    UNITS: tl.constexpr = _INPUTS, PARTS: tl.constexpr = _PARTS,
) -> None:  # fmt: skip
    """Of a block of examples: −w log p[y], its gradient by scores, w (p − 1[y]), and by what hidden units receive."""
    lane = tl.program_id(0).to(tl.int64)
    output, place = tl.arange(0, CLASSES), tl.program_id(1) * EXAMPLES + tl.arange(0, EXAMPLES)
    bias = vectors + lane * stride + inputs * units
    above = bias + units
    used, real, example = output < classes, place < batch, lane * batch + place
    apart = tl.num_programs(0).to(tl.int64) * batch * units
    planned = (tl.load(counter) * lanes + lane) * batch + place
    row = tl.load(rows + planned, mask=real, other=0)
    target = tl.load(targets + row, mask=real, other=0)
    share = tl.load(weight + planned, mask=real, other=0.0)
    scores = tl.zeros((EXAMPLES, CLASSES), tl.float32)
    for begin in range(0, units, UNITS):
        unit = begin + tl.arange(0, UNITS)
        inside = real[:, None] & (unit < units)[None, :]
        values = _activated(partial, bias, example, unit, units, apart, inside, PARTS)
        tl.store(hidden + example[:, None] * units + unit[None, :], values, mask=inside)
        weights = tl.load(
            above + output[None, :] * units + unit[:, None],
            mask=used[None, :] & (unit < units)[:, None],
            other=0.0,
        )
        scores = tl.dot(values, weights, scores, input_precision=PRECISION)
    scores += tl.load(above + classes * units + output, mask=used, other=0.0)[None, :]
    scores = tl.where(used[None, :], scores, float("-inf"))
    scores -= tl.max(scores, 1)[:, None]
    powers = tl.exp(scores)
    mass = tl.sum(powers, 1)
    hit = output[None, :] == target[:, None]
    tl.store(each_loss + example, share * (tl.log(mass) - tl.sum(tl.where(hit, scores, 0.0), 1)), mask=real)
    errors = share[:, None] * (powers / mass[:, None] - tl.where(hit, 1.0, 0.0))
    tl.store(error + example[:, None] * classes + output[None, :], errors, mask=real[:, None] & used[None, :])
    for begin in range(0, units, UNITS):
        unit = begin + tl.arange(0, UNITS)
        inside = real[:, None] & (unit < units)[None, :]
        weights = tl.load(
            above + output[:, None] * units + unit[None, :],
            mask=used[:, None] & (unit < units)[None, :],
            other=0.0,
        )
        passed = tl.dot(errors, weights, input_precision=PRECISION)
        # Summed again, since a program may not yet read its own stores.
        values = _activated(partial, bias, example, unit, units, apart, inside, PARTS)
        tl.store(
            hidden_error + example[:, None] * units + unit[None, :],
            tl.where(values <= 0, 0.0, passed),
            mask=inside,
        )


@triton.jit  # type: ignore[untyped-decorator]
def _descend_block(
    weights_at: tl.tensor, anchor_at: tl.tensor, source: tl.tensor, error: tl.tensor, source_rows: tl.tensor,
    lane: tl.tensor, batch: tl.tensor, inputs: tl.tensor, outputs: tl.tensor, block: tl.tensor,
    lr: tl.tensor, decay: tl.tensor, mu: tl.tensor, GATHERED: tl.constexpr, PULLED: tl.constexpr,
    EXAMPLES: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """W ← W − η (Eᵀ X + λ W + μ (W − anchor)) for a block of a layer's weights, and the same for their biases."""
    across = tl.cdiv(inputs, INPUTS)
    output = block // across * OUTPUTS + tl.arange(0, OUTPUTS)
    column = block % across * INPUTS + tl.arange(0, INPUTS)
    used, filled = output < outputs, column < inputs
    inside, at = used[:, None] & filled[None, :], output[:, None] * inputs + column[None, :]
    bias_at, leads = inputs * outputs + output, used & (block % across == 0)
    # Asked for before the products, which wait for what they read themselves.
    weights = tl.load(weights_at + at, mask=inside, other=0.0)
    bias = tl.load(weights_at + bias_at, mask=leads, other=0.0)
    total = tl.zeros((OUTPUTS, INPUTS), tl.float32)
    bias_total = tl.zeros((OUTPUTS,), tl.float32)
    for begin in range(0, batch, EXAMPLES):
        place = begin + tl.arange(0, EXAMPLES)
        real, example = place < batch, lane * batch + place
        row = example
        if GATHERED:
            row = tl.load(source_rows + place, mask=real, other=0)
        values = _values(source, row[:, None] * inputs + column[None, :], real[:, None] & filled[None, :])
        errors = tl.load(
            error + example[None, :] * outputs + output[:, None],
            mask=real[None, :] & used[:, None],
            other=0.0,
        )
        total = tl.dot(errors, values, total, input_precision=PRECISION)
        bias_total += tl.sum(errors, 1)
    if PULLED:
        start = tl.load(anchor_at + at, mask=inside, other=0.0)
        total += decay * weights + mu * (weights - start)
        bias_start = tl.load(anchor_at + bias_at, mask=leads, other=0.0)
        bias_total += decay * bias + mu * (bias - bias_start)
    tl.store(weights_at + at, weights - lr * total, mask=inside)
    tl.store(weights_at + bias_at, bias - lr * bias_total, mask=leads)


@triton.jit  # type: ignore[untyped-decorator]
def _descend(
    vectors: tl.tensor, stride: tl.tensor, rows: tl.tensor, counter: tl.tensor, lanes: tl.tensor,
    batch: tl.tensor, inputs: tl.tensor, units: tl.tensor, source: tl.tensor, hidden: tl.tensor,
    hidden_error: tl.tensor, error: tl.tensor, each_loss: tl.tensor, losses: tl.tensor, anchor: tl.tensor,
    lrs: tl.tensor, decay: tl.tensor, mu: tl.tensor, classes: tl.tensor, blocks_below: tl.tensor,
    PULLED: tl.constexpr, EXAMPLES: tl.constexpr, PRECISION: tl.constexpr, OUTPUTS: tl.constexpr = _OUTPUTS,
    INPUTS: tl.constexpr = _INPUTS,
) -> None:  # fmt: skip
    """A block of the weights of one layer or the other, and the loss of the batch."""
    block, lane = tl.program_id(0), tl.program_id(1).to(tl.int64)
    now = tl.load(counter) * lanes + lane
    own, lr, planned = vectors + lane * stride, tl.load(lrs + now), rows + now * batch
    if block < blocks_below:
        _descend_block(
            own, anchor, source, hidden_error, planned, lane, batch, inputs, units, block, lr, decay, mu,
            True, PULLED, EXAMPLES, OUTPUTS, INPUTS, PRECISION,
        )  # fmt: skip
    else:
        above = (inputs + 1) * units
        _descend_block(
            own + above, anchor + above, hidden, error, planned, lane, batch, units, classes,
            block - blocks_below, lr, decay, mu, False, PULLED, EXAMPLES, OUTPUTS, INPUTS, PRECISION,
        )  # fmt: skip
        if block == blocks_below:
            loss = 0.0
            for begin in range(0, batch, EXAMPLES):
                place = begin + tl.arange(0, EXAMPLES)
                loss += tl.sum(tl.load(each_loss + lane * batch + place, mask=place < batch, other=0.0))
            tl.store(losses + now, loss)
