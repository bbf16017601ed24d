"""Lanes: clients with unequal numbers of steps packed side by side, their memory, and their schedule."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heapreplace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.local_solver import LocalSolver, LocalState
from fairlead.records import PathRun
from fairlead.worlds.engines.base import (
    LaneBatch,
    LaneGradient,
    LocalJobs,
    LocalReturns,
    LocalSteps,
    Objective,
)


@dataclass(frozen=True)
class Slot:
    """A client's place: which job runs in which lane, from tick `start` up to but not at `end`."""

    job: int
    lane: int
    start: int
    end: int


@dataclass(frozen=True)
class LanePlan:
    """When each job runs. The lanes busy at any tick are always the first ones."""

    slots: tuple[Slot, ...]
    loads: tuple[int, ...]
    """Ticks for which each lane is busy, in descending order."""

    @property
    def ticks(self) -> int:
        return max(self.loads, default=0)

    @cached_property
    def segments(self) -> list[tuple[int, int, int]]:
        """(start, end, width): maximal stretches during which no job begins or ends."""
        edges = sorted({0} | {slot.end for slot in self.slots})
        widths = [sum(load > start for load in self.loads) for start in edges[:-1]]
        return list(zip(edges[:-1], edges[1:], widths, strict=True))


def pack(num_steps: Sequence[int], num_lanes: int) -> LanePlan:
    """Longest job first, each to the lane that is free earliest: a pure function of the jobs.

    >>> pack([2, 5, 3], num_lanes=2).loads
    (5, 5)
    """
    free_at = [(0, lane) for lane in range(min(num_lanes, len(num_steps)))]
    heapify(free_at)
    placed: list[Slot] = []
    for job in sorted(range(len(num_steps)), key=lambda job: (-num_steps[job], job)):
        start, lane = free_at[0]
        end = start + num_steps[job]
        placed.append(Slot(job, lane, start, end))
        heapreplace(free_at, (end, lane))
    by_load = sorted(free_at, key=lambda entry: (-entry[0], entry[1]))
    rank = {lane: position for position, (_, lane) in enumerate(by_load)}
    slots = tuple(Slot(slot.job, rank[slot.lane], slot.start, slot.end) for slot in placed)
    return LanePlan(slots, tuple(load for load, _ in by_load))


class LaneSchedule(NamedTuple):
    """What lanes read at every tick of a round, (ticks, lanes, ...) each, or at one tick, without the first axis."""

    rows: Tensor
    """(..., B) row numbers, padding included."""
    weight: Tensor
    """(..., B) 1/size for examples of the batch, 0 for padding."""
    noise: Tensor | None
    """(...,) keys of augmentation and dropout, None where the model uses neither."""
    lr: Tensor
    """(..., 1)."""

    @staticmethod
    def empty(ticks: int, lanes: int, batch_size: int, like: Tensor, *, draws_noise: bool) -> "LaneSchedule":
        """Room for a schedule, on the device of `like`; every lane reads example 0 with weight 0."""
        return LaneSchedule(
            torch.zeros((ticks, lanes, batch_size), dtype=torch.int64, device=like.device),
            like.new_zeros((ticks, lanes, batch_size)),
            torch.zeros((ticks, lanes), dtype=torch.int64, device=like.device) if draws_noise else None,
            like.new_zeros((ticks, lanes, 1)),
        )

    def at(self, tick: int, width: int) -> "LaneSchedule":
        """What the first lanes read at a tick."""
        return self.each(lambda part: part[tick, :width])

    def at_counter(self, counter: Tensor, width: int) -> "LaneSchedule":
        """The same for a tick that only the device knows, (1,) int64."""
        return self.each(lambda part: part[:, :width].index_select(0, counter)[0])

    @staticmethod
    def of(
        plan: LanePlan, steps: LocalSteps, batch_size: int, dtype: torch.dtype, *, draws_noise: bool
    ) -> "LaneSchedule":
        """The ticks of a plan, on the host."""
        ticks, lanes, num_steps = plan.ticks, len(plan.loads), sum(steps.num_steps)
        # NumPy, whose operations on few numbers cost a fraction of torch's; all steps in a row before any idle lane.
        drawn = np.full((num_steps, batch_size), -1, dtype=np.int64)
        places, lrs = np.empty(num_steps, dtype=np.int64), np.empty(num_steps)
        noises, step_lrs = np.zeros(num_steps, dtype=np.int64), steps.step_lrs.numpy()
        end = 0
        for slot in plan.slots:
            batches = steps.batches[slot.job].numpy()
            length, width = batches.shape
            start, end = end, end + length
            drawn[start:end, :width] = batches
            places[start:end] = np.arange(slot.start * lanes, slot.end * lanes, lanes) + slot.lane
            lrs[start:end] = step_lrs[:length]
            if draws_noise:
                noises[start:end] = steps.noise[slot.job].numpy()[:length]
        used = drawn >= 0
        weights = np.where(used, 1 / used.sum(1, keepdims=True).clip(min=1), 0.0)
        # Padding repeats an example of the same batch, whose loss is finite if the batch's is.
        filled = np.where(used, drawn, drawn[:, :1].clip(min=0))

        def placed(values: NDArray[Any], dtype: torch.dtype) -> Tensor:
            """What the lanes read, and zeros where they are idle."""
            table = np.zeros((ticks * lanes, *values.shape[1:]), dtype=values.dtype)
            table[places] = values
            return torch.from_numpy(table).to(dtype).view(ticks, lanes, *values.shape[1:])

        return LaneSchedule(
            placed(filled, torch.int64),
            placed(weights, dtype),
            placed(noises, torch.int64) if draws_noise else None,
            placed(lrs[:, None], dtype),
        )

    def each(self, change: Callable[[Tensor], Tensor]) -> "LaneSchedule":
        """With every part changed alike."""
        noise = None if self.noise is None else change(self.noise)
        return LaneSchedule(change(self.rows), change(self.weight), noise, change(self.lr))

    def take(self, other: "LaneSchedule") -> None:
        """Take over the ticks and lanes of another, of which there may be fewer than room is for.

        Sent without waiting: a device reads pinned memory when its turn comes, any other before the call returns.
        """
        ticks, lanes = other.rows.shape[:2]
        for own, its in zip(self, other, strict=True):
            if own is not None and its is not None:
                own[:ticks, :lanes].copy_(its, non_blocking=True)


class LaneBlock:
    """Parameters, optimizer state and memory of the clients in all lanes, at fixed addresses.

    A client is placed into a lane before its first step and read out after its last; the content
    of a lane is undefined otherwise. Everything is written in place, so that captured steps find it.
    """

    def __init__(
        self,
        objective: Objective,
        gradient_of: LaneGradient,
        jobs: LocalJobs,
        schedule: LaneSchedule,
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
            name: _aligned(rows.new_zeros((num_lanes, rows.shape[1]))) for name, rows in jobs.memory.items()
        }
        fresh = self.solver.start(self.anchor.repeat(num_lanes, 1), memory, self.shared)
        # Copies, since a correction may start from its memory.
        optimizer = {name: _aligned(rows) for name, rows in fresh.optimizer.items()}
        self.state = LocalState(_aligned(fresh.local), optimizer, memory)
        self.gradient = _aligned(torch.zeros_like(fresh.local))
        self.losses = self.anchor.new_zeros((len(schedule.rows), num_lanes))

    def run(
        self, plan: LanePlan, jobs: LocalJobs, advance: Callable[[int, int, int], None], ran: PathRun
    ) -> LocalReturns:
        """Let lanes work by a plan; `advance(start, end, width)` must step the first lanes tick by tick."""
        delta = self.anchor.new_zeros((len(jobs), len(self.anchor)))
        starting, ending = defaultdict[int, list[Slot]](list), defaultdict[int, list[Slot]](list)
        for slot in plan.slots:
            starting[slot.start].append(slot)
            ending[slot.end].append(slot)
        held, moved = self.solver.position(self.state).unbind(), delta.unbind()
        kept = jobs.room_to_keep()
        for start, end, width in plan.segments:
            if start in starting:
                self._place(starting[start], jobs)
            advance(start, end, width)
            for slot in ending[end]:
                torch.sub(held[slot.lane], self.anchor, out=moved[slot.job])
                if kept is not None:
                    kept[slot.job] = self.solver.kept(self.state)[slot.lane]
        order = self._gradient_of.order
        delta = delta if order is None else order.restored(delta)
        loss = _mean_losses(plan, self.losses[: plan.ticks, : len(plan.loads)])
        return LocalReturns(delta, loss, jobs.buffers.expand(len(jobs), -1), (ran,), kept=kept)

    def load(self, jobs: LocalJobs, schedule: LaneSchedule) -> None:
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
        for places, lanes in _neighbors(slots):
            self.state.local[lanes] = fresh.local[places]
            for name, rows in fresh.optimizer.items():
                self.state.optimizer[name][lanes] = rows[places]
            for name, rows in fresh.memory.items():
                self.state.memory[name][lanes] = rows[places]

    def step(self, tick: LaneSchedule) -> Tensor:
        """One local step of as many lanes as the tick has; their losses (width,)."""
        width, data = len(tick.rows), self._objective.data
        rows = tick.rows.flatten()
        batch = LaneBatch(
            _selected(data.inputs, rows).view(*tick.rows.shape, *data.inputs.shape[1:]),
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


def pixels_of(images: Tensor) -> Tensor | None:
    """Images (n, C, H, W) that lie in memory pixel by pixel as (n, H, W, P), P ≥ C numbers a pixel; None for others."""
    if images.ndim != 4:
        return None
    num, channels, height, width = images.shape
    by_image, by_channel, by_row, pitch = images.stride()
    shape, strides = (num, height, width, pitch), (height * width * pitch, width * pitch, pitch, 1)
    ends = images.storage_offset() + num * strides[0]
    fits = (by_image, by_row, pitch, by_channel) == strides and pitch >= channels
    if not fits or ends * images.element_size() > images.untyped_storage().nbytes():
        return None
    return images.as_strided(shape, strides)


def _selected(examples: Tensor, rows: Tensor) -> Tensor:
    """Examples of some rows; images that lie in memory pixel by pixel stay so."""
    pixels = pixels_of(examples)
    if pixels is None:
        return examples.index_select(0, rows)
    return pixels.index_select(0, rows)[..., : examples.shape[1]].permute(0, 3, 1, 2)


def _neighbors(slots: Sequence[Slot]) -> Iterator[tuple[slice, slice]]:
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


def _aligned(rows: Tensor) -> Tensor:
    """A copy of rows (..., d) that all begin at such a multiple."""
    if rows.ndim < 2:
        return rows.clone()
    numbers, dim = _ALIGNED // rows.element_size(), rows.shape[-1]
    return rows.new_zeros((*rows.shape[:-1], -(-dim // numbers) * numbers))[..., :dim].copy_(rows)


def _mean_losses(plan: LanePlan, losses: Tensor) -> Tensor:
    """Mean loss of every job over its steps, (m,), from losses (ticks, lanes)."""
    if not plan.slots:
        return losses.new_zeros(0)
    # Lane by lane: the ticks of each job, and of the idle time after the lane's last job.
    jobs = [(slot.lane, slot.start, slot.end - slot.start, slot.job) for slot in plan.slots]
    idle = [(lane, load, plan.ticks - load, -1) for lane, load in enumerate(plan.loads)]
    runs = sorted(jobs + idle)
    place_of = {job: place for place, (*_, job) in enumerate(runs)}
    lengths, places = (
        torch.tensor(numbers, dtype=torch.int64).to(losses.device, non_blocking=True)
        for numbers in (
            [length for _, _, length, _ in runs],
            [place_of[job] for job in range(len(plan.slots))],
        )
    )
    return torch.segment_reduce(losses.T.flatten(), "mean", lengths=lengths, unsafe=True)[places]
