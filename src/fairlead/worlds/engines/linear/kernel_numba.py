"""All local steps of clients with a softmax regression, as one loop that Numba compiles."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.native import compiled, has_numba
from fairlead.worlds.engines.lanes import pack
from fairlead.worlds.engines.linear.work import LinearWork

_STRIDE = 16
"""Rows of weights and examples are padded with zeros to a multiple of this, so that loops end evenly."""
_LARGEST = 16_384
"""Weights above which batched products are faster than this loop."""


def fits(width: int, num_classes: int) -> bool:
    """Whether a layer is small enough for this to pay, and Numba, an extra, is installed."""
    return width * num_classes <= _LARGEST and has_numba()


def run_natively(work: LinearWork) -> tuple[Tensor, Tensor]:
    """Displacements (m, d) and mean losses (m,) of all jobs.

    Every job is run whole by one thread, so that the number of threads does not change a bit. Threads take
    jobs as lanes do, the longest first.
    """
    num_jobs, classes, width = len(work.num_steps), work.num_classes, work.inputs.shape[1]
    start = work.anchor.new_zeros((classes, -(-width // _STRIDE) * _STRIDE))
    start[:, :width] = work.anchor[: classes * width].view(classes, width)
    biased = len(work.anchor) > classes * width
    start_bias = work.anchor[classes * width :] if biased else work.anchor.new_zeros(classes)
    weights, bias = start.repeat(num_jobs, 1, 1), start_bias.repeat(num_jobs, 1)
    loss = work.anchor.new_zeros(num_jobs)
    constants = loss.new_tensor([work.input_scale, work.weight_decay, work.mu])
    arrays = [
        tensor.numpy()
        for tensor in (
            *(work.inputs, work.targets, work.rows, work.starts, work.batch_sizes, work.num_steps),
            *(work.lrs.to(loss), constants, start, start_bias, weights, bias, loss),
        )
    ]
    num_threads = min(torch.get_num_threads(), num_jobs)
    shares: list[list[int]] = [[] for _ in range(num_threads)]
    for slot in pack(work.num_steps.tolist(), num_threads).slots:
        shares[slot.lane].append(slot.job)
    train = compiled(_train_jobs)

    def train_share(jobs: list[int]) -> None:
        train(np.array(jobs), *arrays, biased)

    if num_threads == 1:
        train_share(shares[0])
    else:
        with ThreadPoolExecutor(num_threads) as threads:
            list(threads.map(train_share, shares))
    moved = (weights - start)[:, :, :width].flatten(1)
    return torch.cat([moved, bias - start_bias], 1) if biased else moved, loss


def _train_jobs(
    jobs: NDArray[np.int64],
    inputs: NDArray[Any],
    targets: NDArray[np.int64],
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    batch_sizes: NDArray[np.int64],
    num_steps: NDArray[np.int64],
    lrs: NDArray[Any],
    constants: NDArray[Any],
    start: NDArray[Any],
    start_bias: NDArray[Any],
    all_weights: NDArray[Any],
    all_biases: NDArray[Any],
    loss: NDArray[Any],
    biased: bool,
) -> None:
    """Plain descent on softmax cross-entropy, one job after the other, in place."""
    scale, decay, mu = constants
    number = lrs.dtype.type
    classes, padded = start.shape
    largest = batch_sizes.max()
    examples = np.zeros((largest, padded), lrs.dtype)
    errors = np.zeros((classes, largest), lrs.dtype)
    scores = np.zeros(classes, lrs.dtype)
    gradient = np.zeros(padded, lrs.dtype)
    for job in jobs:
        weights, bias = all_weights[job], all_biases[job]
        place = starts[job]
        for step in range(num_steps[job]):
            size = 0
            for b in range(place, place + batch_sizes[job]):
                size += rows[b] >= 0
            share = number(1) / number(size)
            step_loss = number(0)
            used = 0
            for b in range(place, place + batch_sizes[job]):
                # A target of -100 has no loss but counts in the mean, as in torch.
                if rows[b] < 0 or targets[rows[b]] < 0:
                    continue
                row, label = rows[b], targets[rows[b]]
                if scale == 1:
                    for j in range(inputs.shape[1]):
                        examples[used, j] = inputs[row, j]
                else:
                    for j in range(inputs.shape[1]):
                        examples[used, j] = number(inputs[row, j]) / scale
                top = number(-np.inf)
                for c in range(classes):
                    product = number(0)
                    for j in range(padded):
                        product += weights[c, j] * examples[used, j]
                    scores[c] = product + bias[c]
                    top = max(top, scores[c])
                mass = number(0)
                for c in range(classes):
                    errors[c, used] = np.exp(scores[c] - top)
                    mass += errors[c, used]
                step_loss += np.log(mass) + top - scores[label]
                for c in range(classes):
                    errors[c, used] *= share / mass
                errors[label, used] -= share
                used += 1
            loss[job] += step_loss * share / number(num_steps[job])
            for c in range(classes):
                bias_gradient = decay * bias[c] + mu * (bias[c] - start_bias[c])
                for j in range(padded):
                    gradient[j] = decay * weights[c, j] + mu * (weights[c, j] - start[c, j])
                for b in range(used):
                    error = errors[c, b]
                    bias_gradient += error
                    for j in range(padded):
                        gradient[j] += error * examples[b, j]
                for j in range(padded):
                    weights[c, j] -= lrs[step] * gradient[j]
                if biased:
                    bias[c] -= lrs[step] * bias_gradient
            place += batch_sizes[job]
