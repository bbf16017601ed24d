"""Local work with plain stacks of dense layers on a CPU: client by client, in closed form."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.local_solver import LocalState
from fairlead.task import cross_entropy
from fairlead.worlds.engines.base import (
    LocalJobs,
    LocalReturns,
    Objective,
    WholePath,
    constant_terms,
    sgd_only,
)
from fairlead.worlds.engines.dense import NOT_DENSE, Activation, Affine, dense_stack
from fairlead.worlds.engines.loop import Workers, heavy_steps

_CHUNK_BYTES = 1 << 21
"""Examples that are gathered at once: the batches of several steps, which are then still in a cache."""
_WORTH_LANES = 4
"""Clients side by side from which lanes are faster where steps are light."""


class DenseCpu(WholePath):
    """Closed form, client by client.

    The weights of one client stay in a core's cache for all its steps, those of many do not. And a plain step is
    part of the product that gives the gradient: W ← (1 − ηλ) W − η E Xᵀ for errors E (outputs, B) and inputs
    X (inputs, B).
    """

    name, engine, devices = "dense, client by client", "batched", ("cpu",)
    takes_only = "models in closed form, where steps are heavy or few clients are busy at once"

    def refusal(self, objective: Objective, jobs: LocalJobs) -> str | None:
        num_steps = jobs.steps.num_steps
        if dense_stack(objective) is None:
            return NOT_DENSE
        if {objective.data.inputs.device.type, jobs.anchor.device.type} != {"cpu"}:
            return "the model and the examples are not all on a CPU"
        if not num_steps:
            return "there is nothing to do"
        if not heavy_steps(jobs) and sum(num_steps) >= _WORTH_LANES * max(num_steps):
            return "so many clients with light steps are faster in lanes"
        return None

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalReturns:
        num_steps = jobs.steps.num_steps
        work, workers = _DenseWork(objective, jobs), Workers.for_jobs(num_steps, heavy=heavy_steps(jobs))
        workers.train(num_steps, work.train)
        ran = (self.ran(jobs.anchor, workers.number),)
        return LocalReturns(work.delta, work.loss, jobs.buffers.expand(len(jobs), -1), ran, kept=work.kept)


class _Layer(NamedTuple):
    """A linear layer of one client, as views that are made once: making one takes as long as a small product."""

    weight: Tensor
    """(outputs, inputs)."""
    turned: Tensor
    """Its transpose."""
    bias: Tensor | None
    """(outputs, 1)."""
    weight_sum: Tensor
    """What the products of errors and inputs are added to: the weights themselves, or their gradient."""
    bias_sum: Tensor | None
    """The same for biases, (outputs,)."""


class _Batch(NamedTuple):
    """The examples of one local step."""

    size: int
    rows: Tensor
    """(B, inputs)."""
    columns: Tensor
    """(inputs, B)."""
    wanted: Tensor
    """(outputs, B)."""
    ones: Tensor
    """(B,)."""


class _Chunk(NamedTuple):
    """The examples of a few local steps."""

    first_step: int
    sizes: list[int]
    inputs: Tensor
    """(examples, inputs)."""
    targets: Tensor
    wanted: Tensor
    """(outputs, examples): outputs minus these are the gradient of the loss, after a softmax for classes."""
    shares: Tensor
    """(examples,) of the mean loss over all local steps."""
    ones: Tensor
    """(examples,)."""

    def batches(self) -> Iterator[_Batch]:
        """The examples step by step; all views are made at once, since one by one takes longer."""
        sizes = self.sizes
        rows, ones = torch.split(self.inputs, sizes), torch.split(self.ones, sizes)
        columns, wanted = torch.split(self.inputs.mT, sizes, 1), torch.split(self.wanted, sizes, 1)
        for parts in zip(sizes, rows, columns, wanted, ones, strict=True):
            yield _Batch(*parts)


class _DenseWork:
    """The jobs of a round; each is trained in its row of `delta`."""

    def __init__(self, objective: Objective, jobs: LocalJobs) -> None:
        stack = dense_stack(objective)
        assert stack is not None
        self._objective, self._jobs, self._stack = objective, jobs, stack
        self._plain = sgd_only(jobs.steps.solver)
        self._terms = (
            constant_terms(jobs) if self._plain and (self._plain.mu or self._plain.shifted) else None
        )
        self._first = next(place for place, layer in enumerate(stack) if isinstance(layer, Affine))
        self._lrs, self._lr_rows = jobs.steps.step_lrs.tolist(), jobs.steps.step_lrs.to(jobs.anchor)[:, None]
        self._classifies = objective.loss is cross_entropy
        self._classes = torch.arange(objective.model.shapes[-1][0])[:, None]
        self.delta = jobs.anchor.new_empty((len(jobs), len(jobs.anchor)))
        self.loss = jobs.anchor.new_zeros(len(jobs))
        self.kept = jobs.room_to_keep()

    def train(self, job: int) -> None:
        """All local steps of one job."""
        jobs, plain = self._jobs, self._plain
        memory = {name: rows[job] for name, rows in jobs.memory.items()}
        start = jobs.steps.solver.start(jobs.anchor, memory, jobs.shared)
        # Copies, since a part may start from its arguments.
        local = self.delta[job].copy_(start.local)
        state = LocalState(local, {name: rows.clone() for name, rows in start.optimizer.items()}, memory)
        gradient = torch.empty_like(local) if plain is None else local
        term = None if self._terms is None else self._terms.expand(len(jobs), -1)[job]
        layers = [_of_client(layer, local, gradient) for layer in self._stack]
        for chunk in self._chunks(job):
            outputs = []
            for step, batch in enumerate(chunk.batches(), chunk.first_step):
                lr, size = self._lrs[step], batch.size
                if plain is None:
                    outputs.append(self._step(layers, batch, 0.0, 1 / size))
                    jobs.steps.solver.step_(state, gradient, jobs.anchor, jobs.shared, self._lr_rows[step])
                    continue
                outputs.append(self._step(layers, batch, 1 - lr * plain.kept, -lr / size))
                if term is not None:
                    local.add_(term, alpha=-lr)
            losses = self._objective.loss(torch.cat(outputs, 1).mT, chunk.targets)
            self.loss[job] += losses.dot(chunk.shares)
        if self.kept is not None:
            self.kept[job] = jobs.steps.solver.kept(state)
        torch.sub(jobs.steps.solver.position(state), jobs.anchor, out=local)

    def _step(self, layers: list[_Layer | Activation], batch: _Batch, kept: float, scale: float) -> Tensor:
        """Outputs (outputs, B) for one batch; sums become `kept` · themselves + `scale` · the summed gradient."""
        columns, needed = batch.columns, []
        for layer in layers:
            if isinstance(layer, Activation):
                columns = layer.forward(columns)
                needed.append(columns)
                continue
            needed.append(columns)
            if layer.bias is None:
                columns = torch.mm(layer.weight, columns)
            else:
                columns = torch.addmm(layer.bias, layer.weight, columns)
        error = columns.softmax(0).sub_(batch.wanted) if self._classifies else columns - batch.wanted
        for place in range(len(layers) - 1, self._first - 1, -1):
            layer = layers[place]
            if isinstance(layer, Activation):
                error = layer.backward(error, needed[place])
                continue
            # With the weights from before the step.
            below = torch.mm(layer.turned, error) if place > self._first else error
            layer.weight_sum.addmm_(error, needed[place].mT if place else batch.rows, beta=kept, alpha=scale)
            if layer.bias_sum is not None:
                layer.bias_sum.addmv_(error, batch.ones, beta=kept, alpha=scale)
            error = below
        return columns

    def _chunks(self, job: int) -> Iterator[_Chunk]:
        data, anchor, batches = self._objective.data, self._jobs.anchor, self._jobs.steps.batches[job]
        valid = batches >= 0
        sizes = valid.sum(1)
        rows, counts = batches[valid], sizes.tolist()
        shares = (1 / (len(batches) * sizes.to(anchor))).repeat_interleave(sizes)
        row_bytes = anchor.element_size() * (data.inputs[0].numel() + 2 * len(self._classes))
        steps = max(1, _CHUNK_BYTES // (batches.shape[1] * row_bytes))
        places = range(0, len(batches), steps)
        examples = [sum(counts[place : place + steps]) for place in places]
        for place, own, own_shares in zip(
            places, torch.split(rows, examples), torch.split(shares, examples), strict=True
        ):
            raw, targets = data.inputs.index_select(0, own), data.targets.index_select(0, own)
            inputs = self._objective.model.pipeline.apply(raw, None, anchor.dtype).flatten(1)
            wanted = targets == self._classes if self._classifies else targets.reshape(len(own), -1).mT
            own_counts, ones = counts[place : place + steps], torch.ones_like(own_shares)
            yield _Chunk(place, own_counts, inputs, targets, wanted.to(anchor.dtype), own_shares, ones)


def _of_client(layer: Affine | Activation, local: Tensor, gradient: Tensor) -> _Layer | Activation:
    if isinstance(layer, Activation):
        return layer
    (weight, bias), (weight_sum, bias_sum) = layer.views(local), layer.views(gradient)
    return _Layer(weight, weight.mT, None if bias is None else bias[:, None], weight_sum, bias_sum)
