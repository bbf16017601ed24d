"""Softmax regression by plain SGD: all local steps of all clients in one call of a compiled kernel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairlead.numerics.native import compiled, has_numba
from fairlead.task import cross_entropy
from fairlead.worlds.engines import softmax_kernels as kernel_numba
from fairlead.worlds.engines.base import LocalJobs, LocalResults, Objective, PlainSGD, sgd_only
from fairlead.worlds.engines.lanes import pack
from fairlead.worlds.engines.stacked import dense_layers


@dataclass(frozen=True, eq=False)
class LinearWork:
    """The local work of m clients whose model is one linear layer, as flat arrays.

    Step k of job j uses the rows `rows[starts[j] + k·batch_sizes[j]:][:batch_sizes[j]]`, and descends

        mean of −log softmax(W x/scale + b)[y] + ½ λ‖(W, b)‖² + ½ μ‖(W, b) − anchor‖².
    """

    inputs: Tensor
    """(examples, width), in the type of `anchor` or as bytes."""
    input_scale: float
    """What inputs are divided by: 255 for bytes, else 1."""
    targets: Tensor
    """(examples,) classes."""
    rows: Tensor
    """All jobs' row numbers one after the other, -1 for padding."""
    starts: Tensor
    """(m,) where each job's row numbers begin."""
    batch_sizes: Tensor
    """(m,), padding included."""
    num_steps: Tensor
    """(m,)."""
    lrs: Tensor
    """(longest,) float64."""
    anchor: Tensor
    """(d,): W row by row, then b if there is one."""
    num_classes: int
    weight_decay: float
    """λ."""
    mu: float
    """μ."""


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


def linear_runs(objective: Objective, jobs: LocalJobs) -> LocalResults | None:
    """The local work of every job, or None where no kernel applies.

    Kernels are for one linear layer with cross-entropy, trained by SGD without momentum and clipping, with
    no correction but `Proximal`: on a CPU by Numba if it is installed, in float32 or float64; on a GPU by
    Triton, in float32.
    """
    resident = objective.data.inputs.device == jobs.anchor.device
    descent, layer = sgd_only(jobs.steps.solver), _only_layer(objective)
    if not jobs.steps.batches or not resident or descent is None or layer is None:
        return None
    device, dtype = jobs.anchor.device.type, jobs.anchor.dtype
    size = layer.in_features, layer.out_features
    if device == "cpu" and dtype in (torch.float32, torch.float64) and kernel_numba.fits(*size):
        run = kernel_numba.run_natively
    elif device == "cuda" and dtype == torch.float32 and find_spec("triton") is not None:
        from fairlead.worlds.engines import softmax_triton as kernel_triton

        if not kernel_triton.fits(*size, jobs.anchor.device):
            return None
        run = kernel_triton.run_on_gpu
    else:
        return None
    delta, loss = run(_work_of(objective, jobs, layer, descent))
    return LocalResults(delta, loss, jobs.buffers.expand(len(jobs), -1))


def _only_layer(objective: Objective) -> nn.Linear | None:
    """The linear layer that is the whole model, if cross-entropy with classes follows it."""
    layers = None if objective.draws_noise or objective.model.pipeline.steps else dense_layers(objective)
    targets = objective.data.targets
    classes = objective.loss is cross_entropy and targets.ndim == 1 and targets.dtype == torch.int64
    if layers is None or len(layers) != 1 or not classes:
        return None
    return layers[0] if isinstance(layers[0], nn.Linear) else None


def _work_of(objective: Objective, jobs: LocalJobs, layer: nn.Linear, descent: PlainSGD) -> LinearWork:
    inputs = objective.data.inputs
    counts = torch.tensor([batches.numel() for batches in jobs.steps.batches])
    return LinearWork(
        inputs=inputs.flatten(1),
        input_scale=255.0 if inputs.dtype == torch.uint8 else 1.0,
        targets=objective.data.targets,
        rows=torch.cat([batches.flatten() for batches in jobs.steps.batches]),
        starts=counts.cumsum(0) - counts,
        batch_sizes=torch.tensor([batches.shape[1] for batches in jobs.steps.batches]),
        num_steps=torch.tensor(jobs.steps.num_steps),
        lrs=jobs.steps.step_lrs,
        anchor=jobs.anchor,
        num_classes=layer.out_features,
        weight_decay=descent.weight_decay,
        mu=descent.mu,
    )
