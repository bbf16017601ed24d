"""Softmax regression by plain SGD: all local steps of all clients in one call of a compiled kernel."""

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairlead.numerics.native import compiled, has_numba
from fairlead.task import cross_entropy
from fairlead.worlds.engines.base import NOT_SGD_ONLY, LocalJobs, LocalReturns, Objective, WholePath, sgd_only
from fairlead.worlds.engines.dense import dense_layers
from fairlead.worlds.engines.lanes import pack


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


class _SoftmaxKernel(WholePath, ABC):
    """One linear layer with cross-entropy, trained by plain SGD."""

    engine = "batched"
    takes_only = "softmax regression by plain SGD or Proximal, in full precision"

    def refusal(self, objective: Objective, jobs: LocalJobs) -> str | None:
        layer, device = _only_layer(objective), jobs.anchor.device
        if layer is None:
            return "the model is no linear layer with cross-entropy of classes after it"
        if sgd_only(jobs.steps.solver) is None:
            return NOT_SGD_ONLY
        if not jobs.steps.batches:
            return "there is nothing to do"
        if device.type not in self.devices or objective.data.inputs.device != device:
            return f"the model and the examples are not all on one {self.devices[0]} device"
        return self._misfit(layer.in_features, layer.out_features, jobs.anchor)

    @abstractmethod
    def _misfit(self, width: int, num_classes: int, anchor: Tensor) -> str | None:
        """Why the kernel does not take a layer of this size and type."""

    @abstractmethod
    def _train(self, work: LinearWork) -> tuple[Tensor, Tensor]:
        """Displacements (m, d) and mean losses (m,) of all jobs."""

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalReturns:
        delta, loss = self._train(_work_of(objective, jobs))
        full = str(delta.dtype).removeprefix("torch.")
        lanes = min(torch.get_num_threads(), len(jobs)) if delta.device.type == "cpu" else len(jobs)
        ran = self.ran(jobs.anchor, lanes, precision=full)
        return LocalReturns(delta, loss, jobs.buffers.expand(len(jobs), -1), (ran,))


class SoftmaxNumba(_SoftmaxKernel):
    """On CPUs, by Numba."""

    name, devices, backend = "softmax kernel", ("cpu",), "numba"

    def missing(self) -> str | None:
        return None if has_numba() else "Numba is not installed"

    def _misfit(self, width: int, num_classes: int, anchor: Tensor) -> str | None:
        if width * num_classes > _LARGEST:
            return f"the layer has more than {_LARGEST} weights, for which batched products are faster"
        is_precise = anchor.dtype in (torch.float32, torch.float64)
        return None if is_precise else "the parameters are not float32 or float64"

    def _train(self, work: LinearWork) -> tuple[Tensor, Tensor]:
        return run_natively(work)


class SoftmaxTriton(_SoftmaxKernel):
    """On GPUs, by Triton."""

    name, devices, backend = "softmax kernel", ("cuda",), "triton"

    def _misfit(self, width: int, num_classes: int, anchor: Tensor) -> str | None:
        if anchor.dtype != torch.float32:
            return "the parameters are not float32"
        from fairlead.worlds.engines.softmax_triton import fits

        return None if fits(width, num_classes, anchor.device) else "the layer is too large for one processor"

    def _train(self, work: LinearWork) -> tuple[Tensor, Tensor]:
        from fairlead.worlds.engines.softmax_triton import run_on_gpu

        return run_on_gpu(work)


def _only_layer(objective: Objective) -> nn.Linear | None:
    """The linear layer that is the whole model, if cross-entropy with classes follows it."""
    layers = None if objective.draws_noise or objective.model.pipeline.steps else dense_layers(objective)
    targets = objective.data.targets
    classes = objective.loss is cross_entropy and targets.ndim == 1 and targets.dtype == torch.int64
    if layers is None or len(layers) != 1 or not classes:
        return None
    return layers[0] if isinstance(layers[0], nn.Linear) else None


def _work_of(objective: Objective, jobs: LocalJobs) -> LinearWork:
    inputs, layer, descent = objective.data.inputs, _only_layer(objective), sgd_only(jobs.steps.solver)
    assert layer is not None
    assert descent is not None
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
