"""`LaneBlock`: the memory of all lanes, and one step of the first few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.local_solver import LocalSolver, LocalState
from fairlead.worlds.engines.base import LaneBatch, LaneGradient, LocalJobs, LocalResults, Objective
from fairlead.worlds.engines.lanes import LanePlan, Slot
from fairlead.worlds.engines.schedule import Schedule, Tick


class LaneBlock:
    """Parameters, optimizer state and memory of the clients in all lanes, at fixed addresses.

    A client is placed into a lane before its first step and read out after its last; what a lane holds
    otherwise is of no importance. Everything is written in place, so that captured steps find it.
    """

    def __init__(
        self,
        objective: Objective,
        gradient_of: LaneGradient,
        jobs: LocalJobs,
        schedule: Schedule,
        num_lanes: int,
        *,
        compiled: bool = False,
    ) -> None:
        self._objective, self._gradient_of = objective, gradient_of
        self.solver: LocalSolver = jobs.steps.solver
        # Compiled, all that a solver does to a vector is one pass over it; for every width by itself, so that no bit
        # depends on what was compiled before.
        self._take_step = self.solver.step_
        if compiled:
            self._take_step = torch.compile(self.solver.step_, dynamic=False)
        self.anchor = self._arranged(jobs.anchor).clone()
        self.shared = {name: self._arranged(vector).clone() for name, vector in jobs.shared.items()}
        self.schedule = schedule
        memory = {
            name: _aligned_zeros((num_lanes, rows.shape[1]), rows) for name, rows in jobs.memory.items()
        }
        fresh = self.solver.start(self.anchor.repeat(num_lanes, 1), memory, self.shared)
        # Copies, since a correction may start from what it remembers.
        optimizer = {
            name: _aligned_zeros(rows.shape, rows).copy_(rows) for name, rows in fresh.optimizer.items()
        }
        local = _aligned_zeros(fresh.local.shape, fresh.local).copy_(fresh.local)
        self.state = LocalState(local, optimizer, memory)
        self.gradient = _aligned_zeros(local.shape, local)
        self.losses = self.anchor.new_zeros((len(schedule.rows), num_lanes))

    def run(self, plan: LanePlan, jobs: LocalJobs, advance: Callable[[int, int, int], None]) -> LocalResults:
        """Let lanes work by a plan; `advance(start, end, width)` must step the first lanes tick by tick."""
        delta = self.anchor.new_zeros((len(jobs), len(self.anchor)))
        starting, ending = plan.starting(), plan.ending()
        held, learnt = self.state.local.unbind(), delta.unbind()
        for start, end, width in plan.segments:
            if start in starting:
                self._place(starting[start], jobs)
            advance(start, end, width)
            for slot in ending[end]:
                torch.sub(held[slot.lane], self.anchor, out=learnt[slot.job])
        order = self._gradient_of.order
        delta = delta if order is None else order.restored(delta)
        loss = _LossRuns.of(plan, delta.device).means(self.losses[: plan.ticks, : len(plan.loads)])
        return LocalResults(delta, loss, jobs.buffers.expand(len(jobs), -1))

    def load(self, jobs: LocalJobs, schedule: Schedule) -> None:
        """Take over the vectors of a round, and what its lanes read."""
        self.anchor.copy_(self._arranged(jobs.anchor))
        for name, vector in jobs.shared.items():
            self.shared[name].copy_(self._arranged(vector))
        self.schedule.take(schedule)

    def _arranged(self, vectors: Tensor) -> Tensor:
        """Vectors of the model in the order of the lanes; what a client remembers may also be a single number."""
        order = self._gradient_of.order
        return vectors if order is None or vectors.shape[-1] == 1 else order.arranged(vectors)

    def _place(self, slots: Sequence[Slot], jobs: LocalJobs) -> None:
        """Put clients at their start into their lanes."""
        # Stacked rather than indexed by a list, which would be sent from the host and wait for the device.
        memory = {
            name: self._arranged(torch.stack([rows[slot.job] for slot in slots]))
            for name, rows in jobs.memory.items()
        }
        fresh = self.solver.start(self.anchor.expand(len(slots), -1), memory, self.shared)
        for places, lanes in _neighbours(slots):
            self.state.local[lanes] = fresh.local[places]
            for name, rows in fresh.optimizer.items():
                self.state.optimizer[name][lanes] = rows[places]
            for name, rows in fresh.memory.items():
                self.state.memory[name][lanes] = rows[places]

    def step(self, tick: Tick) -> Tensor:
        """One local step of as many lanes as the tick has; their losses (width,)."""
        width, data = len(tick.rows), self._objective.data
        rows = tick.rows.flatten()
        batch = LaneBatch(
            data.inputs.index_select(0, rows).view(*tick.rows.shape, *data.inputs.shape[1:]),
            data.targets.index_select(0, rows).view(*tick.rows.shape, *data.targets.shape[1:]),
            tick.weight,
            tick.noise,
        )
        gradient = self.gradient[:width]
        busy = LocalState(
            self.state.local[:width],
            {name: rows[:width] for name, rows in self.state.optimizer.items()},
            {name: rows[:width] for name, rows in self.state.memory.items()},
        )
        loss = self._gradient_of(busy.local, batch, gradient)
        self._take_step(busy, gradient, self.anchor, self.shared, tick.lr)
        return loss


def _neighbours(slots: Sequence[Slot]) -> Iterator[tuple[slice, slice]]:
    """Places of slots that follow each other in lanes that do, and these lanes: one copy serves them all."""
    first = 0
    for place in range(1, len(slots) + 1):
        if place == len(slots) or slots[place].lane != slots[place - 1].lane + 1:
            start = slots[first].lane
            yield slice(first, place), slice(start, start + place - first)
            first = place


_ALIGNED = 64
"""Bytes at whose multiples lanes begin. A device reads 16 at once where they are aligned, of which Triton is sure where
lanes lie a multiple of 16 numbers apart. What is compiled for the first lane also takes copies of all others that do
not begin as it does."""


def _aligned_zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros (..., d) whose rows all begin at such a multiple."""
    if len(shape) < 2:
        return like.new_zeros(shape)
    numbers = _ALIGNED // like.element_size()
    return like.new_zeros((*shape[:-1], -(-shape[-1] // numbers) * numbers))[..., : shape[-1]]


class _LossRuns(NamedTuple):
    """Where the losses of each job stand among those of all lanes, lane by lane."""

    lengths: Tensor
    """Ticks of each job, and of each lane's idle time after its last job."""
    places: Tensor
    """(m,) which of these runs is a job's."""

    @staticmethod
    def of(plan: LanePlan, device: torch.device) -> _LossRuns:
        jobs = [(slot.lane, slot.start, slot.end - slot.start, slot.job) for slot in plan.slots]
        idle = [(lane, load, plan.ticks - load, -1) for lane, load in enumerate(plan.loads)]
        runs = sorted(jobs + idle)
        place_of = {job: place for place, (*_, job) in enumerate(runs)}
        lengths = [length for _, _, length, _ in runs]
        places = [place_of[job] for job in range(len(plan.slots))]
        sent = (torch.tensor(n, dtype=torch.int64).to(device, non_blocking=True) for n in (lengths, places))
        return _LossRuns(*sent)

    def means(self, losses: Tensor) -> Tensor:
        """Mean loss of every job over its steps, (m,), from losses (ticks, lanes)."""
        if not len(self.places):
            return losses.new_zeros(0)
        columns = losses.T.flatten()
        return torch.segment_reduce(columns, "mean", lengths=self.lengths, unsafe=True)[self.places]
