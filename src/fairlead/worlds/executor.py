"""Execution of a round's local work: the role `ClientExecutor`, and `LocalExecutor` for this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.corrections.base import LocalOutcome, LocalResult
from fairlead.local_solver import LocalSolver
from fairlead.randomness import Key
from fairlead.records import Broadcast, PathRun, Vectors, WorkOrder
from fairlead.worlds.arithmetic import Arithmetic
from fairlead.worlds.batches import LocalDraw
from fairlead.worlds.engines.base import AsyncEngine, Engine, LocalJobs, LocalSteps, Objective
from fairlead.worlds.host_data import HostData


@dataclass(frozen=True, eq=False)
class ClientBlock:
    """Clients of a round whose updates will arrive, ascending, and the local work of each."""

    clients: Tensor
    """(m,) ids."""
    sizes: Tensor
    """(m,) examples held."""
    num_steps: Tensor
    """(m,) local steps, at least 1."""
    batch_sizes: Tensor
    """(m,)"""
    memory: Vectors
    """(m, ·) each."""

    def __len__(self) -> int:
        return len(self.clients)

    def cut(self, most: int | None) -> Iterator[ClientBlock]:
        """The same clients in blocks of `most`, the last of which may be smaller; None leaves them together.

        A pure function of the clients, since the bits of a client may depend on the clients that train beside it.
        """
        if most is None or len(self) <= most:
            yield self
            return
        for first in range(0, len(self), most):
            part = slice(first, first + most)
            yield ClientBlock(
                self.clients[part],
                self.sizes[part],
                self.num_steps[part],
                self.batch_sizes[part],
                {name: rows[part] for name, rows in self.memory.items()},
            )


class LocalReturns(NamedTuple):
    """Results of local work, one row per client."""

    delta: Tensor
    """(m, d) local − anchor."""
    loss: Tensor
    """(m,) mean loss over the local steps."""
    buffers: Tensor
    """(m, b) running statistics after local work."""
    anchor_gradient: Tensor | None
    """(m, d) ∇F_i at the anchor; None if no correction needs it."""
    ran: tuple[PathRun, ...]
    """How it was computed."""

    @staticmethod
    def empty(order: WorkOrder, num_clients: int) -> LocalReturns:
        """Uninitialized rows for so many clients."""
        anchor, buffers = order.anchor, order.buffers
        delta = anchor.new_empty((num_clients, len(anchor)))
        return LocalReturns(
            delta,
            anchor.new_empty(num_clients),
            buffers.new_empty((num_clients, len(buffers))),
            torch.empty_like(delta) if order.solver.needs_anchor_gradient else None,
            (),
        )

    @staticmethod
    def joined(parts: Sequence[LocalReturns]) -> LocalReturns:
        """All parts, concatenated."""
        if len(parts) == 1:
            return parts[0]
        gradients = [part.anchor_gradient for part in parts if part.anchor_gradient is not None]
        return LocalReturns(
            torch.cat([part.delta for part in parts]),
            torch.cat([part.loss for part in parts]),
            torch.cat([part.buffers for part in parts]),
            torch.cat(gradients) if gradients else None,
            PathRun.tally(run for part in parts for run in part.ran),
        )


def finish_work(
    order: Broadcast,
    memory: Vectors,
    num_steps: Tensor,
    effective_steps: Tensor | None,
    returns: LocalReturns,
) -> LocalResult:
    """What the corrections make of local work: updates, client memory and extra uploads."""
    solver = order.solver
    if not solver.corrections:
        return LocalResult(returns.delta, {}, {})

    def column(values: Tensor) -> Tensor:
        # Sent without waiting for work that a device still has before it; pageable, and so read at once.
        return values.to(returns.delta, non_blocking=True)[:, None]

    outcome = LocalOutcome(
        round=order.round,
        anchor=order.anchor,
        delta=returns.delta,
        num_steps=column(num_steps),
        effective_steps=None if effective_steps is None else column(effective_steps),
        lr=solver.optimizer.lr_at(order.round),
        anchor_gradient=returns.anchor_gradient,
    )
    return solver.after_steps(outcome, memory, order.shared)


class ClientExecutor(ABC):
    """Does the local work of clients. All executors of a world give the same bits."""

    @abstractmethod
    def train(self, order: WorkOrder, block: ClientBlock) -> LocalReturns:
        """Local work of all clients in a block, whose memory comes with the block."""


class LocalExecutor(ClientExecutor):
    """This process: an engine on one device, with examples on that device or copied there by `host_data`.

    The engine receives clients in blocks of at most `block` (None: all at once).
    """

    def __init__(
        self,
        objective: Objective,
        engine: Engine,
        arithmetic: Arithmetic,
        *,
        host_data: HostData | None = None,
        block: int | None = None,
    ) -> None:
        self.objective, self.engine, self.arithmetic = objective, engine, arithmetic
        self.host_data, self.block = host_data, block
        self._drawn_ahead: dict[LocalDraw, LocalSteps] = {}

    def train(self, order: WorkOrder, block: ClientBlock) -> LocalReturns:
        if not len(block):
            return LocalReturns.empty(order, 0)
        return LocalReturns.joined([self._train(order, part) for part in block.cut(self.block)])

    def prepare(self, round: int, solver: LocalSolver, key: Key, block: ClientBlock) -> None:
        """Draw the batches of the next round's first block, and plan it.

        The batches and the plan stay in memory until the round. Only for data on the device: rows of data on the host
        are known when they are loaded.
        """
        first = next(block.cut(self.block))
        draw = self._draw(round, solver, key, first, self.objective.data.offsets[first.clients])
        steps = draw.steps()
        self._drawn_ahead = {draw: steps}
        if isinstance(self.engine, AsyncEngine):
            self.engine.prepare(self.objective, steps)

    def _draw(
        self, round: int, solver: LocalSolver, key: Key, block: ClientBlock, first_rows: Tensor
    ) -> LocalDraw:
        return LocalDraw(
            solver,
            key,
            round,
            clients=tuple(block.clients.tolist()),
            first_rows=tuple(first_rows.tolist()),
            sizes=tuple(block.sizes.tolist()),
            num_steps=tuple(block.num_steps.tolist()),
            batch_sizes=tuple(block.batch_sizes.tolist()),
            draws_noise=self.objective.draws_noise,
        )

    def _train(self, order: WorkOrder, block: ClientBlock) -> LocalReturns:
        if self.host_data is None:
            objective, first_rows = self.objective, self.objective.data.offsets[block.clients]
        else:
            objective, first_rows = self.host_data.load(block.clients)
        draw = self._draw(order.round, order.solver, order.key, block, first_rows)
        jobs = LocalJobs(
            clients=draw.clients,
            steps=self._drawn_ahead.pop(draw) if draw in self._drawn_ahead else draw.steps(),
            anchor=order.anchor,
            buffers=order.buffers,
            shared=order.shared,
            memory=block.memory,
        )
        with self.arithmetic.on(objective.device):
            return run_jobs(self.engine, objective, jobs, first_rows, block.sizes)


def run_jobs(
    engine: Engine, objective: Objective, jobs: LocalJobs, first_rows: Tensor, sizes: Tensor
) -> LocalReturns:
    """The local work of clients whose `sizes` examples begin at `first_rows` of the objective's data."""
    results = engine.run(objective, jobs)
    gradients = None
    if jobs.steps.solver.needs_anchor_gradient:
        gradients = _anchor_gradients(objective, jobs, first_rows, sizes)
    return LocalReturns(results.delta, results.loss, results.buffers, gradients, (results.ran,))


def _anchor_gradients(objective: Objective, jobs: LocalJobs, first_rows: Tensor, sizes: Tensor) -> Tensor:
    rows = [
        objective.mean_gradient(
            jobs.anchor,
            jobs.buffers,
            torch.arange(first, first + size, device=jobs.anchor.device),
            noise[-1].to(jobs.anchor.device) if objective.draws_noise else None,
        )
        for first, size, noise in zip(first_rows.tolist(), sizes.tolist(), jobs.steps.noise, strict=True)
    ]
    return torch.stack(rows)
