"""What lanes read at every tick, made before a round starts and sent to the device once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.worlds.engines.base import LocalSteps
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

    @staticmethod
    def of(
        plan: LanePlan, steps: LocalSteps, batch_size: int, dtype: torch.dtype, *, draws_noise: bool
    ) -> Schedule:
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

        return Schedule(
            placed(filled, torch.int64),
            placed(weights, dtype),
            placed(noises, torch.int64) if draws_noise else None,
            placed(lrs[:, None], dtype),
        )

    def each(self, change: Callable[[Tensor], Tensor]) -> Schedule:
        """With every part changed alike."""
        noise = None if self.noise is None else change(self.noise)
        return Schedule(change(self.rows), change(self.weight), noise, change(self.lr))

    def take(self, other: Schedule) -> None:
        """Take over the ticks and lanes of another, of which there may be fewer than room is for.

        Sent without waiting: a device reads pinned memory when its turn comes, any other before the call returns.
        """
        ticks, lanes = other.rows.shape[:2]
        for own, its in zip(self._parts, other._parts, strict=True):
            own[:ticks, :lanes].copy_(its, non_blocking=True)

    @property
    def _parts(self) -> tuple[Tensor, ...]:
        noise = () if self.noise is None else (self.noise,)
        return (self.rows, self.weight, *noise, self.lr)
