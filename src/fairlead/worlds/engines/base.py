"""The seam between a simulated world and the ways to run its clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.errors import EngineError, FairleadError
from fairlead.local_solver import LocalSolver
from fairlead.parameters import FlatModule
from fairlead.records import Vectors
from fairlead.task import PerExample, refuse_unknown_classes


@dataclass(frozen=True, eq=False)
class Objective:
    """What clients descend: a model, a loss per example and all clients' data, on one device."""

    model: FlatModule
    loss: PerExample
    data: ClientData
    draws_noise: bool

    @staticmethod
    def build(model: FlatModule, loss: PerExample, data: ClientData) -> Objective:
        """An objective whose model and loss have been tried on a few examples."""
        # Two examples at least, since some layers need several to normalise over.
        rows = torch.arange(max(min(len(data.inputs), 3), 2)) % len(data.inputs)
        inputs, targets = data.inputs[rows], data.targets[rows]
        key = torch.zeros((), dtype=torch.int64, device=inputs.device)
        try:
            objective = Objective(model, loss, data, model.draws_noise(inputs))
            noise = key if objective.draws_noise else None
            with torch.no_grad():
                outputs = model.call(model.initial_params(), model.initial_buffers(), inputs, noise)
                refuse_unknown_classes(loss, outputs, data.targets)
                losses = loss(outputs, targets)
        except FairleadError:
            raise
        except (RuntimeError, ValueError, IndexError) as error:
            raise EngineError(
                f"{type(model.module).__name__} or its loss fails on a batch with inputs of shape "
                f"{tuple(inputs.shape)} and targets of shape {tuple(targets.shape)}: {error}"
            ) from error
        if losses.shape != rows.shape:
            raise EngineError(
                f"Task.loss must give one number per example, (batch,) = ({len(rows)},), got shape "
                f'{tuple(losses.shape)}: use reduction="none" and average over all axes but the first.'
            )
        return objective

    def losses(self, params: Tensor, buffers: Tensor, rows: Tensor, noise: Tensor | None) -> Tensor:
        """Loss of each of the given examples at `(d,)` parameters."""
        outputs = self.model.call(params, buffers, self.data.inputs[rows], noise)
        return self.loss(outputs, self.data.targets[rows])

    def gradient(
        self, params: Tensor, buffers: Tensor, rows: Tensor, noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss over the given examples and its gradient (d,); updates `buffers` in place."""
        leaf = params.detach().requires_grad_()
        loss = self.losses(leaf, buffers, rows, noise).mean()
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    def full_gradient(
        self, params: Tensor, buffers: Tensor, client: int, noise: Tensor | None, chunk: int = 1024
    ) -> Tensor:
        """∇F_i(params) over all examples of a client, leaving `buffers` as they are."""
        own = self.data.rows_of(client)
        rows = torch.arange(own.start, own.stop, device=params.device)
        total = torch.zeros_like(params)
        for part in torch.split(rows, chunk):
            total += self.gradient(params, buffers.clone(), part, noise)[1] * len(part)
        return total / max(len(rows), 1)


@dataclass(frozen=True, eq=False)
class LocalJobs:
    """The local work of one round: one entry per client that will arrive, ascending by client."""

    clients: Sequence[int]
    solver: LocalSolver
    anchor: Tensor
    buffers: Tensor
    shared: Vectors
    memory: Vectors
    """(m, ·) each."""
    batches: Sequence[Tensor]
    """Row numbers (K_i, B_i) on the CPU, -1 where a batch is short."""
    noise: Sequence[Tensor]
    """Keys (K_i + 1,) int64 of the dropout at each step, and of the full gradient."""
    step_lrs: Tensor
    """(longest K,) float64."""

    @property
    def num_steps(self) -> list[int]:
        return [len(batches) for batches in self.batches]


class LocalResults(NamedTuple):
    """What engines return, one row per job."""

    delta: Tensor
    loss: Tensor
    """(m,) mean loss over the local steps."""
    buffers: Tensor


class Engine(ABC):
    """Runs clients' local work. All engines give the same numbers up to rounding."""

    @abstractmethod
    def run(self, objective: Objective, jobs: LocalJobs) -> LocalResults:
        """Local work of every job."""
