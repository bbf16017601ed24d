"""The batched engine: several clients at once, in lanes that take the next client when one ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairlead.local_solver import LocalState
from fairlead.worlds.engines.base import Engine, LocalJobs, LocalResults, Objective
from fairlead.worlds.engines.lanes import LanePlan, pack
from fairlead.worlds.engines.stacked import StackedLosses, stacked_losses


@dataclass(frozen=True)
class BatchedEngine(Engine):
    """Trains up to `lanes` clients side by side.

    A lane holds one client's parameters, optimizer state and memory; all lanes step together. Clients
    are packed longest first, and the busy lanes are always a prefix of all lanes, so no step is spent
    on a client that has ended. Short batches are padded with rows of weight zero.
    """

    lanes: int = 16

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalResults:
        anchor = jobs.anchor
        plan = pack(jobs.num_steps, self.lanes)
        schedule = _Schedule.build(plan, jobs, anchor)
        losses_of = stacked_losses(objective, jobs.buffers)
        objective.model.module.train()

        delta = anchor.new_zeros((len(jobs.batches), len(anchor)))
        state = jobs.solver.start(
            anchor.repeat(len(plan.loads), 1),
            {name: rows[: len(plan.loads)].clone() for name, rows in jobs.memory.items()},
            jobs.shared,
        )
        # Lanes are written in place, so nothing may share their memory: a correction may well start
        # from what it remembers.
        state = LocalState(
            state.local.clone(), {name: rows.clone() for name, rows in state.optimizer.items()}, state.memory
        )
        step_losses = anchor.new_zeros((plan.loads[0] if plan.loads else 0, len(plan.loads)))
        starting, ending = plan.starting(), plan.ending()
        for start, end, width in plan.segments():
            for slot in starting.get(start, ()):
                _place(state, slot.lane, jobs, slot.job)
            busy = _first_lanes(state, width)
            for tick in range(start, end):
                loss, gradient = _stacked_gradient(losses_of, objective, busy.local, schedule.at(tick, width))
                busy = jobs.solver.step(busy, gradient, anchor, jobs.shared, schedule.lrs[tick, :width])
                step_losses[tick, :width] = loss
            _store(state, busy, width)
            for slot in ending[end]:
                delta[slot.job] = state.local[slot.lane] - anchor
        loss = anchor.new_zeros(len(jobs.batches))
        for slot in plan.slots:
            loss[slot.job] = step_losses[slot.start : slot.end, slot.lane].mean()
        return LocalResults(delta, loss, jobs.buffers.expand(len(jobs.batches), -1))


@dataclass(frozen=True)
class _Batch:
    """What the busy lanes use at one tick."""

    rows: Tensor
    """(width, B) row numbers, padding included."""
    weight: Tensor
    """(width, B) 1/size for examples of the batch, 0 for padding."""
    noise: Tensor
    """(width,) keys of the dropout masks."""


@dataclass(frozen=True)
class _Schedule:
    """Everything that lanes read at each tick, made before the round starts and copied once."""

    rows: Tensor
    weight: Tensor
    noise: Tensor
    lrs: Tensor

    @staticmethod
    def build(plan: LanePlan, jobs: LocalJobs, like: Tensor) -> _Schedule:
        ticks, lanes = (plan.loads[0] if plan.loads else 0), len(plan.loads)
        widest = max((batches.shape[1] for batches in jobs.batches), default=1)
        # NumPy, whose assignments cost a fraction of torch's: there are some for every client.
        drawn = np.full((ticks, lanes, widest), -1, dtype=np.int64)
        noise = np.zeros((ticks, lanes), dtype=np.int64)
        lrs, step_lrs = np.zeros((ticks, lanes, 1)), jobs.step_lrs.numpy()
        for slot in plan.slots:
            batches, span = jobs.batches[slot.job].numpy(), slice(slot.start, slot.end)
            drawn[span, slot.lane, : batches.shape[1]] = batches
            noise[span, slot.lane] = jobs.noise[slot.job][: len(batches)]
            lrs[span, slot.lane, 0] = step_lrs[: len(batches)]
        rows = torch.from_numpy(drawn)
        valid = rows >= 0
        weight = valid.to(like.dtype) / valid.sum(2, keepdim=True).clamp(min=1)
        # Padding repeats an example of the same batch, whose loss is finite if the batch's is.
        rows = torch.where(valid, rows, rows[..., :1])
        device = like.device
        return _Schedule(
            rows.to(device),
            weight.to(device),
            torch.from_numpy(noise).to(device),
            torch.from_numpy(lrs).to(like),
        )

    def at(self, tick: int, width: int) -> _Batch:
        return _Batch(self.rows[tick, :width], self.weight[tick, :width], self.noise[tick, :width])


def _stacked_gradient(
    losses_of: StackedLosses, objective: Objective, local: Tensor, batch: _Batch
) -> tuple[Tensor, Tensor]:
    """Mean loss (L,) and gradient (L, d) of every lane: one backward pass over the summed loss."""
    leaf = local.detach().requires_grad_()
    inputs, targets = objective.data.inputs[batch.rows], objective.data.targets[batch.rows]
    noise = batch.noise if objective.draws_noise else None
    loss = (losses_of(leaf, inputs, targets, noise) * batch.weight).sum(1)
    return loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]


def _place(state: LocalState, lane: int, jobs: LocalJobs, job: int) -> None:
    """Put a client at its start into a lane."""
    memory = {name: rows[job] for name, rows in jobs.memory.items()}
    fresh = jobs.solver.start(jobs.anchor, memory, jobs.shared)
    state.local[lane] = fresh.local
    for name, row in fresh.optimizer.items():
        state.optimizer[name][lane] = row
    for name, row in fresh.memory.items():
        state.memory[name][lane] = row


def _first_lanes(state: LocalState, width: int) -> LocalState:
    def cut(rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: values[:width] for name, values in rows.items()}

    return LocalState(state.local[:width], cut(state.optimizer), cut(state.memory))


def _store(state: LocalState, busy: LocalState, width: int) -> None:
    state.local[:width] = busy.local
    for name, rows in busy.optimizer.items():
        state.optimizer[name][:width] = rows
