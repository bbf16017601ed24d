"""The graph engine: the batched engine's steps on a CUDA device, captured once and replayed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from fairlead.local_solver import LocalSolver
from fairlead.worlds.engines.base import Engine, LocalJobs, LocalResults, Objective
from fairlead.worlds.engines.lane_block import LaneBlock
from fairlead.worlds.engines.lane_gradients import Backend, lane_gradient
from fairlead.worlds.engines.lanes import LanePlan, pack
from fairlead.worlds.engines.schedule import Schedule

_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256)
_KEPT = 4
"""How many sizes of lanes are kept captured: batches whose size is drawn anew have many."""
_WARM_UP = 2


@dataclass(frozen=True, eq=False)
class GraphEngine(Engine):
    """Trains up to `lanes` clients side by side in captured CUDA graphs.

    One graph is one step of the first lanes, for each of a few widths; a device counter tells it which tick
    of the schedule to read, so the host only says "again" and never waits inside a round. Lanes beyond
    those that are busy may step too: what they hold is of no importance.
    """

    lanes: int = 16
    backend: Backend = "stacked"
    compiled: bool = False
    _captured: dict[tuple[Objective, LocalSolver, int], _CapturedLanes] = field(
        default_factory=dict, repr=False
    )

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalResults:
        objective.model.module.train()
        plan = pack(jobs.num_steps, self.lanes)
        batch_size = _roomy_batch(jobs)
        captured = self._lanes_for(objective, jobs, batch_size, plan)
        captured.prepare({captured.roomy_width(width) for _, _, width in plan.segments()})
        captured.load(jobs, Schedule.build(plan, jobs, captured.lanes, batch_size))

        def advance(start: int, end: int, width: int) -> None:
            graph = captured.graphs[captured.roomy_width(width)]
            for _ in range(start, end):
                graph.replay()

        return captured.block.run(plan, jobs, advance)

    def _lanes_for(
        self, objective: Objective, jobs: LocalJobs, batch_size: int, plan: LanePlan
    ) -> _CapturedLanes:
        """Lanes that were captured for such work before, or new ones with room to spare."""
        key = (objective, jobs.solver, batch_size)
        found = self._captured.pop(key, None)
        if found is None or found.ticks < plan.ticks or found.lanes < len(plan.loads):
            found = _CapturedLanes(
                objective,
                jobs,
                self,
                batch_size,
                ticks=max(2 * plan.ticks, 256, 0 if found is None else found.ticks),
                lanes=_next_width(len(plan.loads), self.lanes),
            )
        # The latest stands last.
        self._captured[key] = found
        while len(self._captured) > _KEPT:
            del self._captured[next(iter(self._captured))]
        return found


class _CapturedLanes:
    """Lanes of one shape with a graph per width."""

    def __init__(
        self,
        objective: Objective,
        jobs: LocalJobs,
        engine: GraphEngine,
        batch_size: int,
        ticks: int,
        lanes: int,
    ) -> None:
        self.ticks, self.lanes = ticks, lanes
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._buffers = jobs.buffers.clone()
        schedule = Schedule.empty(ticks, lanes, batch_size, like=jobs.anchor)
        gradient_of = lane_gradient(engine.backend, objective, self._buffers, compiled=engine.compiled)
        self.block = LaneBlock(objective, gradient_of, jobs, schedule, lanes)
        self._counter = torch.zeros(1, dtype=torch.int64, device=jobs.anchor.device)
        # One for all widths, since no two run at once and nothing they leave there is read again.
        self._pool = torch.cuda.graph_pool_handle()

    def roomy_width(self, width: int) -> int:
        """The smallest width of those captured that has room for as many lanes."""
        return _next_width(width, self.lanes)

    def prepare(self, widths: set[int]) -> None:
        """Capture the widths that are not yet; they step lanes whose clients have not been placed."""
        for width in sorted(widths - self.graphs.keys()):
            self.graphs[width] = self._capture(width)

    def load(self, jobs: LocalJobs, schedule: Schedule) -> None:
        """Take over the vectors and the schedule of a round."""
        self._buffers.copy_(jobs.buffers)
        self.block.load(jobs, schedule)
        self._counter.zero_()

    def _capture(self, width: int) -> torch.cuda.CUDAGraph:
        self._counter.zero_()
        side = torch.cuda.Stream(self._counter.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._step(width)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(width)
        return graph

    def _step(self, width: int) -> None:
        loss = self.block.step(self.block.schedule.at_counter(self._counter, width))
        self.block.losses[:, :width].index_copy_(0, self._counter, loss[None])
        self._counter += 1


def _next_width(width: int, lanes: int) -> int:
    return min(next((captured for captured in _WIDTHS if captured >= width), lanes), lanes)


def _roomy_batch(jobs: LocalJobs) -> int:
    """Room for the largest batch of a round, in few sizes: each one is captured anew."""
    widest = max((batches.shape[1] for batches in jobs.batches), default=1)
    usual = jobs.solver.batch_size
    if usual is not None and widest <= usual:
        return usual
    power = 1 << max(widest - 1, 0).bit_length()
    return power * 3 // 4 if widest <= power * 3 // 4 else power
