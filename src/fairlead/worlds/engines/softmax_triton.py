"""All local steps of clients with a softmax regression, as one Triton kernel with a program per client."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fairlead.numerics.kernels_triton import padded
from fairlead.worlds.engines.softmax_kernels import LinearWork

_WIDEST = {16: 1024, 32: 256}
"""Inputs by classes, both padded, beyond which weights and gradient no longer fit into registers."""


def fits(width: int, num_classes: int, device: torch.device) -> bool:
    """Whether one program can hold a layer: its weights in registers, factors of products in shared memory."""
    length, classes = padded(width), padded(num_classes)
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index)
    needed = 4 * length * (classes + _most_examples(length))
    return length <= _WIDEST.get(classes, 0) and needed <= int(properties["max_shared_mem"])


def run_on_gpu(work: LinearWork) -> tuple[Tensor, Tensor]:
    """Displacements (m, d) and mean losses (m,) of all jobs, in float32 without TF32."""
    device, width = work.anchor.device, work.inputs.shape[1]
    batches, num_jobs = work.batches, len(work.batches.num_steps)
    delta, loss = work.anchor.new_empty((num_jobs, len(work.anchor))), work.anchor.new_empty(num_jobs)
    length, classes = padded(width), padded(work.num_classes)
    with torch.cuda.device_of(work.anchor):  # type: ignore[no-untyped-call]
        _kernel[(num_jobs,)](
            *(work.inputs.contiguous(), work.targets, batches.rows.to(device), batches.starts.to(device)),
            *(batches.sizes.to(device, torch.int32), batches.num_steps.to(device, torch.int32)),
            *(work.lrs.to(work.anchor), work.anchor.contiguous(), delta, loss),
            *(len(work.anchor), width, work.num_classes, work.input_scale, work.weight_decay, work.mu),
            BIASED=len(work.anchor) > width * work.num_classes,
            SCALED=work.input_scale != 1,
            PROXIMAL=work.mu != 0,
            CHUNK=min(padded(int(batches.sizes.max())), _most_examples(length)),
            CLASSES=classes,
            WIDTH=length,
            num_warps=4 if length <= 64 else 8,
            num_stages=1,
            enable_fp_fusion=True,
        )
    return delta, loss


def _most_examples(length: int) -> int:
    """How many examples of so many inputs are processed together."""
    return min(max(8192 // length, 16), 64)


def _train_job(
    inputs: tl.tensor, targets: tl.tensor, rows: tl.tensor, starts: tl.tensor, batch_sizes: tl.tensor,
    num_steps: tl.tensor, lrs: tl.tensor, anchor: tl.tensor, delta: tl.tensor, loss: tl.tensor,
    dim: tl.tensor, width: tl.tensor, num_classes: tl.tensor, scale: tl.tensor, decay: tl.tensor,
    mu: tl.tensor, BIASED: tl.constexpr, SCALED: tl.constexpr, PROXIMAL: tl.constexpr, CHUNK: tl.constexpr,
    CLASSES: tl.constexpr, WIDTH: tl.constexpr,
) -> None:  # fmt: skip
    """Plain descent on softmax cross-entropy; the weights stay in registers until the last step."""
    job = tl.program_id(0).to(tl.int64)
    classes, columns, places = tl.arange(0, CLASSES), tl.arange(0, WIDTH), tl.arange(0, CHUNK)
    real, filled = classes < num_classes, columns < width
    inside = real[:, None] & filled[None, :]
    at = classes[:, None] * width + columns[None, :]
    bias_at = num_classes * width + classes
    weights = tl.load(anchor + at, mask=inside, other=0.0)
    bias = tl.zeros((CLASSES,), tl.float32)
    if BIASED:
        bias = tl.load(anchor + bias_at, mask=real, other=0.0)
    first, batch_size, steps = tl.load(starts + job), tl.load(batch_sizes + job), tl.load(num_steps + job)
    total = 0.0
    for step in range(steps):
        gradient = tl.zeros((CLASSES, WIDTH), tl.float32)
        bias_gradient = tl.zeros((CLASSES,), tl.float32)
        step_loss = 0.0
        size = 0.0
        for begin in range(0, batch_size, CHUNK):
            place = begin + places
            row = tl.load(rows + first + place, mask=place < batch_size, other=-1)
            valid = row >= 0
            examples = tl.load(
                inputs + row[:, None] * width + columns[None, :],
                mask=valid[:, None] & filled[None, :],
                other=0,
            ).to(tl.float32)
            if SCALED:
                examples = examples / scale
            label = tl.load(targets + row, mask=valid, other=-1)
            # Full float32, as the other engines: block products use TF32 by default.
            scores = tl.dot(examples, tl.trans(weights), input_precision="ieee") + bias[None, :]
            scores = tl.where(real[None, :], scores, float("-inf"))
            top = tl.max(scores, 1)
            shares = tl.exp(scores - top[:, None])
            mass = tl.sum(shares, 1)
            hit = classes[None, :] == label[:, None]
            score = tl.sum(tl.where(hit, scores, 0.0), 1)
            # A label of -100 has no loss but counts in the mean, as in torch.
            step_loss += tl.sum(tl.where(label >= 0, tl.log(mass) + top - score, 0.0))
            errors = tl.where(label[:, None] >= 0, shares / mass[:, None] - hit.to(tl.float32), 0.0)
            gradient = tl.dot(tl.trans(errors), examples, gradient, input_precision="ieee")
            bias_gradient += tl.sum(errors, 0)
            size += tl.sum(valid.to(tl.float32))
        total += step_loss / size
        gradient = gradient / size + decay * weights
        bias_gradient = bias_gradient / size + decay * bias
        if PROXIMAL:
            gradient += mu * (weights - tl.load(anchor + at, mask=inside, other=0.0))
            if BIASED:
                bias_gradient += mu * (bias - tl.load(anchor + bias_at, mask=real, other=0.0))
        lr = tl.load(lrs + step)
        weights -= lr * gradient
        if BIASED:
            bias -= lr * bias_gradient
        first += batch_size
    tl.store(delta + job * dim + at, weights - tl.load(anchor + at, mask=inside), mask=inside)
    if BIASED:
        tl.store(delta + job * dim + bias_at, bias - tl.load(anchor + bias_at, mask=real), mask=real)
    tl.store(loss + job, total / steps)


_kernel: Any = triton.jit(_train_job)
