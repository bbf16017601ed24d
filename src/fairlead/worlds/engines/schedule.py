"""What lanes read at every tick, made before a round starts and sent to the device once."""

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
    noise: Tensor | None
    """(width,) keys of augmentation and dropout, None where the model uses neither."""
    lr: Tensor
    """(width, 1)."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """The ticks of a round, (ticks, lanes, ...) each."""

    rows: Tensor
    weight: Tensor
    noise: Tensor | None
    lr: Tensor

    @staticmethod
    def empty(ticks: int, lanes: int, batch_size: int, like: Tensor, *, draws_noise: bool) -> Schedule:
        """Room for a schedule, on the device of `like`; every lane reads example 0 with weight 0."""
        return Schedule(
            torch.zeros((ticks, lanes, batch_size), dtype=torch.int64, device=like.device),
            like.new_zeros((ticks, lanes, batch_size)),
            torch.zeros((ticks, lanes), dtype=torch.int64, device=like.device) if draws_noise else None,
            like.new_zeros((ticks, lanes, 1)),
        )

    def at(self, tick: int, width: int) -> Tick:
        """What the first lanes read at a tick."""
        return Tick(
            self.rows[tick, :width],
            self.weight[tick, :width],
            None if self.noise is None else self.noise[tick, :width],
            self.lr[tick, :width],
        )

    def at_counter(self, counter: Tensor, width: int) -> Tick:
        """The same for a tick that only the device knows, (1,) int64."""

        def now(part: Tensor) -> Tensor:
            return part[:, :width].index_select(0, counter)[0]

        noise = None if self.noise is None else now(self.noise)
        return Tick(now(self.rows), now(self.weight), noise, now(self.lr))

    def fill(self, plan: LanePlan, jobs: LocalJobs) -> None:
        """Take over the ticks of a plan, of which there may be fewer than room is for."""
        lanes, batch_size = self.rows.shape[1:]
        # NumPy, whose assignments cost a fraction of torch's: there are some for every client.
        drawn = np.full((plan.ticks, lanes, batch_size), -1, dtype=np.int64)
        lr, step_lrs = np.zeros((plan.ticks, lanes, 1)), jobs.step_lrs.numpy()
        for slot in plan.slots:
            batches, span = jobs.batches[slot.job].numpy(), slice(slot.start, slot.end)
            steps, width = batches.shape
            drawn[span, slot.lane, :width] = batches
            lr[span, slot.lane, 0] = step_lrs[:steps]
        # Sent without waiting: memory of this kind has been read when the call returns.
        ticks, device = slice(plan.ticks), self.rows.device
        if self.noise is not None:
            noise = np.zeros((plan.ticks, lanes), dtype=np.int64)
            for slot in plan.slots:
                keys = jobs.noise[slot.job].numpy()
                noise[slot.start : slot.end, slot.lane] = keys[: slot.end - slot.start]
            self.noise[ticks] = torch.from_numpy(noise).to(device, non_blocking=True)
        self.lr[ticks] = torch.from_numpy(lr).to(device, non_blocking=True)
        rows = torch.from_numpy(drawn).to(device, non_blocking=True)
        used = rows >= 0
        self.weight[ticks] = used / used.sum(-1, keepdim=True).clamp(min=1).double()
        # Padding repeats an example of the same batch, whose loss is finite if the batch's is.
        self.rows[ticks] = torch.where(used, rows, rows[..., :1]).clamp(min=0)
