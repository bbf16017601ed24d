"""How much memory a lane takes on an accelerator, and how many lanes fit."""

from __future__ import annotations

import torch

from fairlead.errors import EngineError
from fairlead.memory_budget import available_bytes
from fairlead.worlds.engines.base import LaneGradient, LocalJobs, Objective
from fairlead.worlds.engines.lane_block import LaneBlock
from fairlead.worlds.engines.schedule import Schedule

_UPDATE_COPIES = 4
"""Rows of d numbers per client that a round holds beside the lanes: its update, and what is made of it."""
_USABLE = 0.9


def bytes_per_lane(objective: Objective, gradient_of: LaneGradient, jobs: LocalJobs, batch_size: int) -> int:
    """Peak memory of one client's step: its state, its gradient and all that lies between them."""
    device = jobs.anchor.device
    before = torch.cuda.memory_allocated(device)
    schedule = Schedule.empty(1, 1, batch_size, like=jobs.anchor, draws_noise=objective.draws_noise)
    block = LaneBlock(objective, gradient_of, jobs, schedule, num_lanes=1)
    # Twice, since convolutions try several algorithms the first time, with more memory than the best needs.
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats(device)
        block.step(schedule.at(0, 1))
    return torch.cuda.max_memory_allocated(device) - before


def lanes_that_fit(wanted: int, per_lane: int, jobs: LocalJobs) -> int:
    """As many lanes as are wanted, or fewer if the device has no room for them."""
    device = jobs.anchor.device
    free = available_bytes(device)
    results = _UPDATE_COPIES * len(jobs) * jobs.anchor.nbytes
    fitting = int(_USABLE * (free - results) / max(per_lane, 1))
    if fitting < 1:
        raise EngineError(
            f"A local step of one client takes about {per_lane / 2**30:.1f} GiB and a round's updates "
            f"{results / 2**30:.1f} GiB, of which the device has {free / 2**30:.1f} GiB free: use smaller "
            'batches or cohorts, or precision="bfloat16".'
        )
    return min(wanted, fitting)
