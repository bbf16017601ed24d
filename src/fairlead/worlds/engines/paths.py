"""The map of engines: every path by which local steps are computed, and the engine that takes the first to fit."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

from fairlead.worlds.engines.base import Engine, LanePath, LocalJobs, LocalReturns, Objective, Path, WholePath
from fairlead.worlds.engines.dense import ClosedForm, MlpTriton, dense_layers
from fairlead.worlds.engines.dense_cpu import DenseCpu
from fairlead.worlds.engines.dense_numba import DenseNumba
from fairlead.worlds.engines.lane_gradients import STACKED, Branches
from fairlead.worlds.engines.lanes import LaneBlock, LaneSchedule, pack
from fairlead.worlds.engines.loop import LoopEngine, heavy_steps, on_cores
from fairlead.worlds.engines.softmax_kernels import SoftmaxTriton

Backend = Literal["stacked", "branches"]
"""Whether lanes share batched products, or each has a forward and backward pass of its own."""


PATHS: tuple[Path, ...] = (
    DenseNumba(),
    SoftmaxTriton(),
    DenseCpu(),
    MlpTriton(),
    ClosedForm(),
    *STACKED,
    Branches(),
    LoopEngine(),
)
"""Fastest first. A new path is one entry here."""
# `LoopEngine` stands here for the record only: `choose_engine` decides between loop and batched.


def path_for(backend: Backend, device: str, objective: Objective, jobs: LocalJobs) -> Path:
    """The first path for lanes of this back end on this kind of device that takes the jobs."""
    engine = "batched" if backend == "stacked" else backend
    possible = (path for path in PATHS if path.engine == engine and device in path.devices)
    return next(path for path in possible if not path.missing() and path.refusal(objective, jobs) is None)


@dataclass(frozen=True)
class BatchedEngine(Engine):
    """Trains up to `lanes` clients side by side.

    A lane holds one client's parameters, optimizer state and memory; all lanes step together. Clients
    are packed longest first, and the busy lanes are always a prefix of all lanes, so no step is spent
    on a client that has ended. Short batches are padded with rows of weight zero. The `backend` says how
    gradients of several lanes are computed.
    """

    lanes: int = 16
    backend: Backend = "stacked"

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalReturns:
        path = path_for(self.backend, "cpu", objective, jobs)
        if isinstance(path, WholePath):
            return path.run(objective, jobs)
        assert isinstance(path, LanePath)
        objective.model.module.train()
        plan = pack(jobs.steps.num_steps, self.lanes)
        widest = max((batches.shape[1] for batches in jobs.steps.batches), default=1)
        draws_noise, device = objective.draws_noise, jobs.anchor.device
        schedule = LaneSchedule.of(plan, jobs.steps, widest, jobs.anchor.dtype, draws_noise=draws_noise)
        schedule = schedule.each(lambda part: part.to(device))
        gradient_of = path.gradient(objective, jobs.buffers)
        block = LaneBlock(objective, gradient_of, jobs, schedule, len(plan.loads))
        ran = path.ran(jobs.anchor, len(plan.loads))

        def advance(start: int, end: int, width: int) -> None:
            for tick in range(start, end):
                block.losses[tick, :width] = block.step(schedule.at(tick, width))

        light = dense_layers(objective) is not None and not heavy_steps(jobs)
        # Small products are slower on several cores, which wait for each other.
        with on_cores(1) if light and device.type == "cpu" else nullcontext():
            return block.run(plan, jobs, advance, ran)
