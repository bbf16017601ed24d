"""Small stacks of dense layers by plain SGD on a CPU: all local steps of clients in one call of a compiled loop."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairlead.numerics.native import compiled, has_numba
from fairlead.task import cross_entropy, squared_error
from fairlead.worlds.engines.base import (
    NOT_SGD_ONLY,
    LocalJobs,
    LocalReturns,
    Objective,
    WholePath,
    constant_terms,
    flat_batches,
    sgd_only,
)
from fairlead.worlds.engines.dense import Affine, affine_layers, dense_layers
from fairlead.worlds.engines.lanes import pack

_STRIDE = 16
"""Rows of weights and examples are padded with zeros to a multiple of this, so that loops end evenly."""
_LARGEST = 16_384
"""Weights of a layer above which products of a library are faster."""
_LINEAR, _RELU, _TANH, _SIGMOID = range(4)
_KINDS: dict[type[nn.Module], int] = {nn.ReLU: _RELU, nn.Tanh: _TANH, nn.Sigmoid: _SIGMOID}


class DenseNumba(WholePath):
    """Steps written out as loops, which a compiler turns into one function: nothing is launched within a round.

    Every job is run whole by one thread, so that the number of threads does not change a bit. Threads take jobs as
    lanes do, the longest first.
    """

    name, engine, devices, backend = "dense kernel", "batched", ("cpu",), "numba"
    takes_only = (
        "small linear layers with ReLU, tanh or sigmoid between, cross-entropy or squared error, by SGD without "
        "momentum or clipping, in full precision"
    )

    def missing(self) -> str | None:
        return None if has_numba() else "Numba is not installed"

    def refusal(self, objective: Objective, jobs: LocalJobs) -> str | None:
        stack, device = _stack_of(objective), jobs.anchor.device
        if stack is None:
            return (
                "the model is no stack of linear layers with elementwise ones between, or its loss is another"
            )
        if torch.is_autocast_enabled("cpu"):
            return "products are rounded"
        if sgd_only(jobs.steps.solver) is None:
            return NOT_SGD_ONLY
        if not jobs.steps.batches:
            return "there is nothing to do"
        if {device.type, objective.data.inputs.device.type} != {"cpu"}:
            return "the model and the examples are not all on a CPU"
        if max(layer.outputs * layer.inputs for layer in stack[0]) > _LARGEST:
            return f"a layer has more than {_LARGEST} weights, for which products of a library are faster"
        is_precise = jobs.anchor.dtype in (torch.float32, torch.float64)
        return None if is_precise else "the parameters are not float32 or float64"

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalReturns:
        stack, descent, anchor = _stack_of(objective), sgd_only(jobs.steps.solver), jobs.anchor
        assert stack is not None
        assert descent is not None
        layers, kinds = stack
        inputs, targets = objective.data.inputs.flatten(1), objective.data.targets
        are_classes = objective.loss is cross_entropy
        weights, biases = _padded(layers, anchor.expand(len(jobs), -1))
        terms = _padded(layers, constant_terms(jobs).expand(len(jobs), -1))
        loss, batches = anchor.new_zeros(len(jobs)), flat_batches(jobs)
        arrays = [
            tensor.numpy()
            for tensor in (
                inputs,
                targets if are_classes else targets.new_empty(0, dtype=torch.int64),
                anchor.new_empty((0, 0)) if are_classes else targets.reshape(len(targets), -1).to(anchor),
                *(batches.rows, batches.starts, batches.sizes, batches.num_steps),
                jobs.steps.step_lrs.to(anchor),
                anchor.new_tensor([255.0 if inputs.dtype == torch.uint8 else 1.0, descent.kept]),
                torch.tensor([layers[0].inputs, *(layer.outputs for layer in layers)]),
                torch.tensor(kinds),
                torch.tensor([layer.bias is not None for layer in layers]),
                *(weights, biases, *terms, loss),
            )
        ]
        num_threads = min(torch.get_num_threads(), len(jobs))
        shares: list[list[int]] = [[] for _ in range(num_threads)]
        for slot in pack(jobs.steps.num_steps, num_threads).slots:
            shares[slot.lane].append(slot.job)
        train = compiled(_train_jobs)

        def train_share(share: list[int]) -> None:
            train(np.array(share), *arrays)

        if num_threads == 1:
            train_share(shares[0])
        else:
            with ThreadPoolExecutor(num_threads) as threads:
                list(threads.map(train_share, shares))
        ran = self.ran(anchor, num_threads, precision=str(anchor.dtype).removeprefix("torch."))
        delta = _restored(layers, weights, biases) - anchor
        return LocalReturns(delta, loss, jobs.buffers.expand(len(jobs), -1), (ran,))


def _stack_of(objective: Objective) -> tuple[list[Affine], list[int]] | None:
    """Linear layers and the kind of elementwise layer after each; None for any other model or loss."""
    model, targets = objective.model, objective.data.targets
    found = None if objective.draws_noise or model.pipeline.steps else dense_layers(objective)
    classes = objective.loss is cross_entropy and targets.ndim == 1 and targets.dtype == torch.int64
    if found is None or not (classes or objective.loss is squared_error):
        return None
    kinds: list[int] = []
    for layer in found:
        if isinstance(layer, nn.Linear):
            kinds.append(_LINEAR)
        elif kinds and kinds[-1] == _LINEAR and type(layer) in _KINDS:
            kinds[-1] = _KINDS[type(layer)]
        elif type(layer) is not nn.Identity:
            return None
    # Outputs are scores or numbers.
    return (affine_layers(model, found), kinds) if kinds and kinds[-1] == _LINEAR else None


def _width(layer: Affine) -> int:
    """Its inputs with the padding."""
    return -(-layer.inputs // _STRIDE) * _STRIDE


def _padded(layers: list[Affine], vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Weights layer by layer, their rows padded, and biases (0 where there is none), of vectors (m, d)."""
    weights, biases = [], []
    for layer in layers:
        padded = vectors.new_zeros((len(vectors), layer.outputs, _width(layer)))
        padded[:, :, : layer.inputs] = layer.weights_in(vectors)
        weights.append(padded.flatten(1))
        none = vectors.new_zeros((len(vectors), layer.outputs))
        biases.append(none if layer.bias is None else vectors[:, layer.bias])
    return torch.cat(weights, 1), torch.cat(biases, 1)


def _restored(layers: list[Affine], weights: Tensor, biases: Tensor) -> Tensor:
    """Vectors (m, d) of what `_padded` has made of them."""
    pieces: list[Tensor] = []
    outputs = [layer.outputs for layer in layers]
    padded = torch.split(weights, [layer.outputs * _width(layer) for layer in layers], 1)
    for layer, own_weights, own_biases in zip(layers, padded, torch.split(biases, outputs, 1), strict=True):
        pieces.append(own_weights.view(-1, layer.outputs, _width(layer))[:, :, : layer.inputs].flatten(1))
        if layer.bias is not None:
            pieces.append(own_biases)
    return torch.cat(pieces, 1)


def _train_jobs(
    jobs: NDArray[np.int64],
    inputs: NDArray[Any],
    classes: NDArray[np.int64],
    wanted: NDArray[Any],
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    batch_sizes: NDArray[np.int64],
    num_steps: NDArray[np.int64],
    lrs: NDArray[Any],
    constants: NDArray[Any],
    widths: NDArray[np.int64],
    kinds: NDArray[np.int64],
    biased: NDArray[np.bool_],
    all_weights: NDArray[Any],
    all_biases: NDArray[Any],
    weight_terms: NDArray[Any],
    bias_terms: NDArray[Any],
    loss: NDArray[Any],
) -> None:
    """Plain steps w ← w − η (∇ + kept·w + term) on the mean loss of batches, one job after the other, in place."""
    scale, kept = constants
    number = lrs.dtype.type
    num_layers, num_outputs, largest = len(kinds), widths[-1], batch_sizes.max()
    padded = (widths + 15) // 16 * 16
    # The inputs of each layer, and the outputs of the last.
    values = np.zeros((num_layers + 1, largest, padded.max()), lrs.dtype)
    errors, below = np.zeros_like(values[0]), np.zeros_like(values[0])
    gradient = np.zeros(padded.max(), lrs.dtype)
    for job in jobs:
        place = starts[job]
        for step in range(num_steps[job]):
            lr, size, used = lrs[step], 0, 0
            for b in range(place, place + batch_sizes[job]):
                row = rows[b]
                size += row >= 0
                # A target of -100 has no loss but counts in the mean, as in torch.
                if row < 0 or (len(classes) > 0 and classes[row] < 0):
                    continue
                if scale == 1:
                    for j in range(inputs.shape[1]):
                        values[0, used, j] = inputs[row, j]
                else:
                    for j in range(inputs.shape[1]):
                        values[0, used, j] = number(inputs[row, j]) / scale
                used += 1

            at, unit = 0, 0
            for layer in range(num_layers):
                width, outputs, kind = padded[layer], widths[layer + 1], kinds[layer]
                weights = all_weights[job, at : at + outputs * width].reshape(outputs, width)
                for b in range(used):
                    example, scores = values[layer, b], values[layer + 1, b]
                    for o in range(outputs):
                        total, own = number(0), weights[o]
                        for j in range(width):
                            total += own[j] * example[j]
                        scores[o] = total + all_biases[job, unit + o]
                    # In loops of their own: beside a product they would slow it.
                    if kind == _RELU:
                        for o in range(outputs):
                            # So that NaN stays.
                            scores[o] = number(0) if scores[o] < 0 else scores[o]
                    elif kind == _TANH:
                        for o in range(outputs):
                            scores[o] = np.tanh(scores[o])
                    elif kind == _SIGMOID:
                        for o in range(outputs):
                            scores[o] = number(1) / (number(1) + np.exp(-scores[o]))
                at += outputs * width
                unit += outputs

            share, step_loss, used = number(1) / number(size), number(0), 0
            for b in range(place, place + batch_sizes[job]):
                row = rows[b]
                if row < 0 or (len(classes) > 0 and classes[row] < 0):
                    continue
                scores = values[num_layers, used]
                if len(classes) > 0:
                    top, mass = number(-np.inf), number(0)
                    for c in range(num_outputs):
                        top = max(top, scores[c])
                    for c in range(num_outputs):
                        errors[used, c] = np.exp(scores[c] - top)
                        mass += errors[used, c]
                    step_loss += np.log(mass) + top - scores[classes[row]]
                    for c in range(num_outputs):
                        errors[used, c] *= share / mass
                    errors[used, classes[row]] -= share
                else:
                    for c in range(num_outputs):
                        distance = scores[c] - wanted[row, c]
                        step_loss += number(0.5) * distance * distance
                        errors[used, c] = share * distance
                used += 1
            loss[job] += step_loss * share / number(num_steps[job])

            for layer in range(num_layers - 1, -1, -1):
                width, outputs = padded[layer], widths[layer + 1]
                at -= outputs * width
                unit -= outputs
                weights = all_weights[job, at : at + outputs * width].reshape(outputs, width)
                terms = weight_terms[job, at : at + outputs * width].reshape(outputs, width)
                inward = values[layer]
                if layer > 0:
                    # With the weights from before the step; four rows at once save reading and writing sums.
                    for b in range(used):
                        error, under = errors[b], below[b]
                        under[:width] = 0
                        for o in range(0, outputs - 3, 4):
                            e0, e1, e2, e3 = error[o], error[o + 1], error[o + 2], error[o + 3]
                            w0, w1, w2, w3 = weights[o], weights[o + 1], weights[o + 2], weights[o + 3]
                            for j in range(width):
                                under[j] += e0 * w0[j] + e1 * w1[j] + e2 * w2[j] + e3 * w3[j]
                        for o in range(outputs // 4 * 4, outputs):
                            e0, w0 = error[o], weights[o]
                            for j in range(width):
                                under[j] += e0 * w0[j]
                        if kinds[layer - 1] == _RELU:
                            for j in range(width):
                                below[b, j] = number(0) if values[layer, b, j] <= 0 else below[b, j]
                        elif kinds[layer - 1] == _TANH:
                            for j in range(width):
                                below[b, j] *= number(1) - values[layer, b, j] * values[layer, b, j]
                        elif kinds[layer - 1] == _SIGMOID:
                            for j in range(width):
                                below[b, j] *= values[layer, b, j] * (number(1) - values[layer, b, j])
                for o in range(outputs):
                    own, own_terms = weights[o], terms[o]
                    bias_gradient = kept * all_biases[job, unit + o] + bias_terms[job, unit + o]
                    for j in range(width):
                        gradient[j] = kept * own[j] + own_terms[j]
                    for b in range(used):
                        bias_gradient += errors[b, o]
                    for b in range(0, used - 3, 4):
                        e0, e1, e2, e3 = errors[b, o], errors[b + 1, o], errors[b + 2, o], errors[b + 3, o]
                        v0, v1, v2, v3 = inward[b], inward[b + 1], inward[b + 2], inward[b + 3]
                        for j in range(width):
                            gradient[j] += e0 * v0[j] + e1 * v1[j] + e2 * v2[j] + e3 * v3[j]
                    for b in range(used // 4 * 4, used):
                        e0, v0 = errors[b, o], inward[b]
                        for j in range(width):
                            gradient[j] += e0 * v0[j]
                    for j in range(width):
                        own[j] -= lr * gradient[j]
                    if biased[layer]:
                        all_biases[job, unit + o] -= lr * bias_gradient
                errors, below = below, errors
            place += batch_sizes[job]
