"""What lanes read at every tick, made before a round starts and copied to the device once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlead.worlds.engines.base import LocalJobs
from fairlead.worlds.engines.lanes import LanePlan


class Tick(NamedTuple):
    """What the busy lanes use at one tick."""

    rows: Tensor
    """(width, B) row numbers, padding included."""
    weight: Tensor
    """(width, B) 1/size for examples of the batch, 0 for padding."""
    noise: Tensor
    """(width,) keys of augmentation and dropout."""
    lr: Tensor
    """(width, 1)."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """The ticks of a round, (ticks, lanes, ...) each."""

    rows: Tensor
    weight: Tensor
    noise: Tensor
    lr: Tensor

    @staticmethod
    def empty(ticks: int, lanes: int, batch_size: int, like: Tensor) -> Schedule:
        """Room for a schedule, on the device of `like`; every lane reads example 0 with weight 0."""
        return Schedule(
            torch.zeros((ticks, lanes, batch_size), dtype=torch.int64, device=like.device),
            like.new_zeros((ticks, lanes, batch_size)),
            torch.zeros((ticks, lanes), dtype=torch.int64, device=like.device),
            like.new_zeros((ticks, lanes, 1)),
        )

    @staticmethod
    def build(plan: LanePlan, jobs: LocalJobs, lanes: int, batch_size: int) -> Schedule:
        """The schedule of a plan on the CPU, for at least as many lanes and examples as it needs."""
        # NumPy, whose assignments cost a fraction of torch's: there are some for every client.
        rows = np.zeros((plan.ticks, lanes, batch_size), dtype=np.int64)
        # NumPy has no bfloat16.
        dtype = np.float64 if jobs.anchor.dtype == torch.float64 else np.float32
        weight = np.zeros((plan.ticks, lanes, batch_size), dtype)
        noise = np.zeros((plan.ticks, lanes), dtype=np.int64)
        lr, step_lrs = np.zeros((plan.ticks, lanes, 1), dtype), jobs.step_lrs.numpy()
        for slot in plan.slots:
            batches, span = jobs.batches[slot.job].numpy(), slice(slot.start, slot.end)
            steps, width = batches.shape
            valid = batches >= 0
            # Padding repeats an example of the same batch, whose loss is finite if the batch's is.
            rows[span, slot.lane] = batches[:, :1]
            rows[span, slot.lane, :width] = np.where(valid, batches, batches[:, :1])
            weight[span, slot.lane, :width] = valid / valid.sum(1, keepdims=True)
            noise[span, slot.lane] = jobs.noise[slot.job].numpy()[:steps]
            lr[span, slot.lane, 0] = step_lrs[:steps]
        return Schedule(
            torch.from_numpy(rows),
            torch.from_numpy(weight).to(jobs.anchor.dtype),
            torch.from_numpy(noise),
            torch.from_numpy(lr).to(jobs.anchor.dtype),
        )

    def at(self, tick: int, width: int) -> Tick:
        """What the first lanes read at a tick."""
        return Tick(
            self.rows[tick, :width],
            self.weight[tick, :width],
            self.noise[tick, :width],
            self.lr[tick, :width],
        )

    def at_counter(self, counter: Tensor, width: int) -> Tick:
        """The same for a tick that only the device knows, (1,) int64."""
        parts = (self.rows, self.weight, self.noise, self.lr)
        return Tick(*(part[:, :width].index_select(0, counter)[0] for part in parts))

    def to(self, device: torch.device) -> Schedule:
        return Schedule(*(part.to(device) for part in (self.rows, self.weight, self.noise, self.lr)))

    def fill(self, other: Schedule) -> None:
        """Take over the ticks of another schedule, of which there may be fewer."""
        ticks = len(other.rows)
        for own, new in (
            (self.rows, other.rows),
            (self.weight, other.weight),
            (self.noise, other.noise),
            (self.lr, other.lr),
        ):
            own[:ticks].copy_(new, non_blocking=True)
