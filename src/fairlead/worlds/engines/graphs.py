"""The graph engine: the batched engine's steps on a CUDA device, captured once and replayed."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.errors import EngineError
from fairlead.local_solver import LocalSolver
from fairlead.memory.budget import available_bytes
from fairlead.optimizers.base import Constant
from fairlead.worlds.engines.augmented import AugmentedInputs
from fairlead.worlds.engines.base import (
    AsyncEngine,
    LaneGradient,
    LanePath,
    LocalJobs,
    LocalReturns,
    LocalSteps,
    Objective,
    WholePath,
)
from fairlead.worlds.engines.lane_gradients import LaneConvolutions, stacked_path
from fairlead.worlds.engines.lanes import LaneBlock, LanePlan, LaneSchedule, pack
from fairlead.worlds.engines.paths import Backend, path_for

_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256)
_WIDER = 128
"""Beyond these, widths are multiples of this."""
_KEPT = 16
"""How many sizes of lanes are kept captured where there is room: batches whose size is drawn anew have many."""
_LONG_STEPS, _SHORT_STEPS = (1,), (8, 4, 2, 1)
"""How many steps are captured together, most first. Steps of three kernels leave the host too little time for the next
round if it must ask for each of them."""
_WARM_UP = 2
_COMPILED = 100_000
_FEWEST_TICKS = 256


@dataclass(frozen=True, eq=False)
class GraphEngine(AsyncEngine):
    """Trains up to `lanes` clients side by side in captured CUDA graphs.

    A graph is a step of the first lanes, for each of a few widths, or several steps where they are short; a device
    counter tells it which tick of the schedule to read, so the host only replays and never waits within a
    round. Idle lanes may step too: their content is undefined.
    """

    lanes: int = 16
    backend: Backend = "stacked"
    compiled: bool = False
    _captured: "dict[_Kind, _CapturedLanes]" = field(default_factory=dict, init=False, repr=False)
    _augmented: dict[Objective, AugmentedInputs] = field(default_factory=dict, init=False, repr=False)

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalReturns:
        ahead = self._ahead(objective, jobs.steps)
        if ahead is not None:
            objective, jobs = ahead.load(jobs)
        sizes = [_roomy_batch(jobs.steps.solver, rows.shape[1]) for rows in jobs.steps.batches]
        if len(set(sizes)) == 1 or isinstance(path_for(self.backend, "cuda", objective, jobs), WholePath):
            return self._run(objective, jobs)
        # Side by side, small batches would be padded to the size of the largest.
        groups = [[job for job, own in enumerate(sizes) if own == size] for size in sorted(set(sizes))]
        joined = LocalReturns.joined([self._run(objective, jobs.some(group)) for group in groups])
        places = torch.tensor([job for group in groups for job in group]).argsort().to(joined.delta.device)
        return joined._replace(
            delta=joined.delta[places],
            loss=joined.loss[places],
            buffers=joined.buffers[places],
            kept=None if joined.kept is None else joined.kept[places],
        )

    def _run(self, objective: Objective, jobs: LocalJobs) -> LocalReturns:
        """Work whose batches are all of about one size."""
        kind = _Kind.of(objective, jobs.steps)
        known = self._captured.get(kind)
        # Work of a kind that was captured has its path already.
        path = path_for(self.backend, "cuda", objective, jobs) if known is None else known.path
        if isinstance(path, WholePath):
            return path.run(objective, jobs)
        assert isinstance(path, LanePath)
        if not objective.model.module.training:
            objective.model.module.train()
        captured = self._take_lanes(kind, path, jobs)
        plan, schedule = captured.planned(jobs.steps)
        captured.make_room(plan, jobs)
        captured.load(jobs, schedule)

        compiler = "torch.compile" if self.compiled and path.backend == "torch" else path.backend
        ran = path.ran(jobs.anchor, len(plan.loads), how=f"{compiler}, CUDA graph")
        results = captured.block.run(plan, jobs, captured.advance, ran)
        # Only now, since a capture that failed leaves its pool of memory in no known state; the latest is last.
        self._captured[kind] = captured
        return results

    def prepare(self, objective: Objective, steps: LocalSteps) -> None:
        ahead = self._augmented.get(objective)
        if ahead is not None and ahead.fits(steps):
            objective, steps = ahead.room, ahead.steps(steps)
        captured = self._captured.get(_Kind.of(objective, steps))
        if captured is not None:
            captured.planned(steps)

    def _ahead(self, objective: Objective, steps: LocalSteps) -> AugmentedInputs | None:
        """Room for the inputs of these steps, augmented before them; None if there is nothing to change or no room."""
        if not objective.model.pipeline.steps:
            return None
        if objective not in self._augmented:
            self._augmented.clear()
            lanes = self.backend == "stacked" and isinstance(stacked_path(objective), LaneConvolutions)
            self._augmented[objective] = AugmentedInputs(objective, by_kernel=lanes)
        ahead = self._augmented[objective]
        return ahead if ahead.fits(steps) else None

    def _take_lanes(self, kind: "_Kind", path: LanePath, jobs: LocalJobs) -> "_CapturedLanes":
        """Lanes that were captured for such work before, or new ones."""
        if kind in self._captured:
            return self._captured.pop(kind)
        # Room for examples that was outgrown does not come back, nor do graphs that read it.
        for other in [other for other in self._captured if other.objective is not kind.objective]:
            del self._captured[other]
        while self._captured and (len(self._captured) >= _KEPT or not _roomy_device(jobs.anchor.device)):
            del self._captured[next(iter(self._captured))]
        if self.compiled:
            # What was compiled for lanes holds on to them until it is collected, for which no full device asks.
            gc.collect()
        return _CapturedLanes(kind, path, jobs, self)


class _Kind(NamedTuple):
    """Work of the same kind uses the same graphs."""

    objective: Objective
    solver: LocalSolver
    batch_size: int

    @staticmethod
    def of(objective: Objective, steps: LocalSteps) -> "_Kind":
        widest = max((rows.shape[1] for rows in steps.batches), default=1)
        # Learning rates are among the numbers of a step, so that a solver whose rate changes keeps its graphs.
        solver = replace(steps.solver, optimizer=replace(steps.solver.optimizer, lr=0.0, schedule=Constant()))
        return _Kind(objective, solver, _roomy_batch(steps.solver, widest))


class _CapturedLanes:
    """Lanes for one kind of work with a graph per width, made anew when a round needs more room."""

    def __init__(self, kind: _Kind, path: LanePath, jobs: LocalJobs, engine: GraphEngine) -> None:
        self._kind, self.path = kind, path
        self._buffers = jobs.buffers.clone()
        self._counter = torch.zeros(1, dtype=torch.int64, device=jobs.anchor.device)
        self._gradient_of = path.gradient(kind.objective, self._buffers, compiled=engine.compiled)
        self._descent = path.kernels(kind.objective, kind.solver)
        self._lengths = _LONG_STEPS if self._descent is None else _SHORT_STEPS
        # Branches are compiled one by one, since a compiler cannot follow them to their streams, and what solvers
        # make of all their gradients as a whole.
        self._compiled, self._branches = engine.compiled, engine.backend == "branches"
        # A function, not a method of these lanes, in which they would hold on to themselves.
        self._whole_step: Callable[[_CapturedLanes, int], None] = _CapturedLanes._step
        if self._compiled and not self._branches and self._descent is None:
            self._whole_step = torch.compile(_CapturedLanes._step, dynamic=False, fullgraph=True)
        self._planned: dict[LocalSteps, tuple[LanePlan, LaneSchedule]] = {}
        per_lane = self._bytes_per_lane(jobs)
        self.most_lanes = lanes_that_fit(engine.lanes, per_lane, jobs)
        self._allocate(jobs, ticks=0, lanes=0)

    def _bytes_per_lane(self, jobs: LocalJobs) -> int:
        """Of the first step that is taken, in which a model that cannot be compiled shows."""
        objective, batch_size = self._kind.objective, self._kind.batch_size
        try:
            with _compiling_without_limit(self._compiled):
                return bytes_per_lane(objective, self._gradient_of, jobs, batch_size)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(getattr(error, "inner_exception", error)).strip().splitlines()[0].rstrip(".:")
            raise EngineError(
                f"{type(objective.model.module).__name__} cannot be compiled: {reason}. Leave SimulatedWorld.compile "
                "out."
            ) from error

    def planned(self, steps: LocalSteps) -> tuple[LanePlan, LaneSchedule]:
        """Who works when in which lane, and what the lanes then read, where the device fetches it without a detour.

        The last plan is kept until the next one: it may be made ahead of its round.
        """
        if steps not in self._planned:
            plan, draws_noise = pack(steps.num_steps, self.most_lanes), self._kind.objective.draws_noise
            dtype = self.block.losses.dtype
            schedule = LaneSchedule.of(plan, steps, self._kind.batch_size, dtype, draws_noise=draws_noise)
            if self._counter.is_cuda:
                schedule = schedule.each(Tensor.pin_memory)
            self._planned = {steps: (plan, schedule)}
        return self._planned[steps]

    def make_room(self, plan: LanePlan, jobs: LocalJobs) -> None:
        """Room for a plan, and the graphs of its widths."""
        ticks, lanes = self.block.losses.shape
        if plan.ticks > ticks or len(plan.loads) > lanes:
            self._allocate(
                jobs,
                ticks=max(2 * plan.ticks, _FEWEST_TICKS, ticks),
                lanes=max(_next_width(len(plan.loads), self.most_lanes), lanes),
            )
        for width in sorted({self._roomy(width) for _, _, width in plan.segments} - self._graphs.keys()):
            self._graphs[width] = {length: self._capture(width, length) for length in self._lengths}

    def load(self, jobs: LocalJobs, schedule: LaneSchedule) -> None:
        """Take over the vectors of a round, and what its lanes read."""
        self._buffers.copy_(jobs.buffers)
        self.block.load(jobs, schedule)
        self._counter.zero_()

    def advance(self, start: int, end: int, width: int) -> None:
        """Step at least as many lanes from one tick to another, by as few graphs as will do."""
        graphs, left = self._graphs[self._roomy(width)], end - start
        for length, graph in graphs.items():
            for _ in range(left // length):
                graph.replay()
            left %= length

    def _allocate(self, jobs: LocalJobs, ticks: int, lanes: int) -> None:
        # First, so that what graphs of smaller lanes hold is free for larger ones.
        self._graphs: dict[int, dict[int, torch.cuda.CUDAGraph]] = {}
        # One for all widths, since no two run at once and nothing they leave there is read again.
        self._pool = torch.cuda.graph_pool_handle()
        objective, batch_size = self._kind.objective, self._kind.batch_size
        schedule = LaneSchedule.empty(
            ticks, lanes, batch_size, like=jobs.anchor, draws_noise=objective.draws_noise
        )
        self.block = LaneBlock(
            objective, self._gradient_of, jobs, schedule, lanes, compiled=self._compiled and self._branches
        )

    def _roomy(self, width: int) -> int:
        return _next_width(width, self.block.losses.shape[1])

    def _capture(self, width: int, length: int) -> torch.cuda.CUDAGraph:
        """Record some steps of lanes in which no client has been placed yet."""
        self._counter.zero_()
        side = torch.cuda.Stream(self._counter.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._advance(width)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with _uncollected(), torch.cuda.graph(graph, pool=self._pool):
            for _ in range(length):
                self._advance(width)
        return graph

    def _advance(self, width: int) -> None:
        with _compiling_without_limit(self._compiled):
            self._whole_step(self, width)

    def _step(self, width: int) -> None:
        block, counter = self.block, self._counter
        if self._descent is not None:
            self._descent.step_(
                block.state.local[:width], block.anchor, block.schedule, counter, block.losses
            )
        else:
            loss = block.step(block.schedule.at_counter(counter, width))
            block.losses[:, :width].index_copy_(0, counter, loss[None])
        counter += 1


@contextmanager
def _compiling_without_limit(compiled: bool) -> Iterator[None]:
    """Steps are compiled for every width, and torch counts those of all runs of a process together."""
    if not compiled:
        # Its compiler alone takes torch two seconds to load.
        yield
        return
    # By their first names, which all versions of torch know.
    with torch._dynamo.config.patch(cache_size_limit=_COMPILED, accumulated_cache_size_limit=_COMPILED):
        yield


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage within the block: graphs of others that were in it cannot be given back during a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _roomy_device(device: torch.device) -> bool:
    """Whether as much of a device's memory is free as this process holds."""
    return device.type != "cuda" or available_bytes(device) > torch.cuda.memory_reserved(device)


def _next_width(width: int, most: int) -> int:
    """The smallest of the widths to capture that has room for as many lanes."""
    wider = -(-width // _WIDER) * _WIDER
    return min(next((captured for captured in _WIDTHS if captured >= width), wider), most)


def _roomy_batch(solver: LocalSolver, size: int) -> int:
    """Room for a batch, in few sizes: each one is captured anew."""
    usual = solver.batch_size
    if usual is not None and size <= usual:
        return usual
    power = 1 << max(size - 1, 0).bit_length()
    return power * 3 // 4 if size <= power * 3 // 4 else power


_UPDATE_COPIES = 4
"""Rows of d numbers per client that a round holds beside the lanes: its update, and what is made of it."""
_USABLE = 0.9


def bytes_per_lane(objective: Objective, gradient_of: LaneGradient, jobs: LocalJobs, batch_size: int) -> int:
    """Peak memory of one client's step: its state, its gradient and all that lies between them."""
    device = jobs.anchor.device
    before = torch.cuda.memory_allocated(device)
    schedule = LaneSchedule.empty(1, 1, batch_size, like=jobs.anchor, draws_noise=objective.draws_noise)
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
            f"{results / 2**30:.1f} GiB, but the device has only {free / 2**30:.1f} GiB free: use smaller "
            'batches or cohorts, or precision="bfloat16".'
        )
    return min(wanted, fitting)
