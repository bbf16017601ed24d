"""Cross entropy of many clients at once with its gradient, as one Triton kernel where torch launches nine."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_LARGEST = 16_384
"""Padded classes times padded examples that one program holds."""


def fits(outputs: Tensor) -> bool:
    """Whether the kernel takes outputs (L, classes, B)."""
    _, classes, batch = outputs.shape
    small = triton.next_power_of_2(classes) * triton.next_power_of_2(batch) <= _LARGEST
    return outputs.is_cuda and outputs.dtype == torch.float32 and small


def weighted_cross_entropy(outputs: Tensor, targets: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """−Σ_b w_b log p_b[y_b] (L,) and its gradient w (p − 1[y]) by outputs (L, classes, B)."""
    lanes, classes, batch = outputs.shape
    outputs, loss = outputs.contiguous(), outputs.new_empty(lanes)
    error = torch.empty_like(outputs)
    with torch.cuda.device_of(outputs):  # type: ignore[no-untyped-call]
        _kernel[(lanes,)](
            *(outputs, targets.contiguous(), weight.contiguous(), loss, error, classes, batch),
            CLASSES=triton.next_power_of_2(classes),
            BATCH=triton.next_power_of_2(batch),
        )
    return loss, error


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(
    outputs: tl.tensor,
    targets: tl.tensor,
    weight: tl.tensor,
    loss: tl.tensor,
    error: tl.tensor,
    classes: tl.tensor,
    batch: tl.tensor,
    CLASSES: tl.constexpr,
    BATCH: tl.constexpr,
) -> None:
    lane = tl.program_id(0).to(tl.int64)
    label, example = tl.arange(0, CLASSES)[:, None], tl.arange(0, BATCH)
    real = example < batch
    place = lane * classes * batch + label * batch + example[None, :]
    inside = (label < classes) & real[None, :]
    score = tl.load(outputs + place, mask=inside, other=-float("inf"))
    # Examples that only fill up the block must not divide by zero.
    score = tl.where(real[None, :], score, 0.0)
    share = tl.load(weight + lane * batch + example, mask=real, other=0.0)
    hit = label == tl.load(targets + lane * batch + example, mask=real, other=0)[None, :]
    score = score - tl.max(score, axis=0)[None, :]
    power = tl.exp(score)
    total = tl.sum(power, axis=0)
    reached = tl.sum(tl.where(hit, score, 0.0), axis=0)
    tl.store(loss + lane, tl.sum(share * (tl.log(total) - reached), axis=0))
    gradient = share[None, :] * (power / total[None, :] - tl.where(hit, 1.0, 0.0))
    tl.store(error + place, gradient, mask=inside)
