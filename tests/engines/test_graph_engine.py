"""What the graph engine keeps between rounds, with steps replayed as they are where no GPU captures them."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fairlead as fl
from fairlead.errors import EngineError
from fairlead.worlds.base import DataPlace
from fairlead.worlds.device import HostData
from fairlead.worlds.engines import graphs
from fairlead.worlds.engines.base import LocalJobs, LocalSteps
from fairlead.worlds.engines.graphs import GraphEngine, _next_width, _roomy_batch, lanes_that_fit
from fairlead.worlds.engines.lanes import LanePlan, LaneSchedule
from fairlead.worlds.engines.paths import Backend

SIZES = (40, 3, 17, 9, 1, 25, 60, 12)
COHORTS = ((4,), (0, 1, 2), (3,), tuple(range(8)), (5, 6), (0, 7), tuple(range(8)), (1,))


def federation(
    solver: fl.LocalSolver,
    engine: GraphEngine | None,
    work: fl.WorkModel | None = None,
    data_on: DataPlace = "device",
) -> fl.Federation:
    """Cohorts that grow and shrink; None is the loop engine."""
    draw = torch.Generator().manual_seed(5)
    data = fl.ClientData.from_lists(
        [torch.randn((n, 4), generator=draw, dtype=torch.float64) for n in SIZES],
        [torch.randint(0, 3, (n,), generator=draw) for n in SIZES],
    )
    task = fl.Task(fl.MLP(hidden=(6,)))
    world = fl.SimulatedWorld(
        task, data, work=work, engine="loop", lanes=5, dtype=torch.float64, data_on=data_on
    )
    world.executor.engine = world.engine if engine is None else engine
    return fl.Federation(fl.Algorithm(solver, sampler=fl.ScriptedSampler(COHORTS)), world)


def assert_same(one: fl.Federation, other: fl.Federation) -> None:
    assert torch.allclose(one.params, other.params, rtol=1e-11, atol=1e-12)
    losses = [[record.train_loss for record in run.records] for run in (one, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-11)


@pytest.mark.usefixtures("captured_on_cpu")
@pytest.mark.parametrize("backend", ["stacked", "branches"])
@pytest.mark.parametrize(
    "solver",
    [
        fl.LocalSolver(fl.SGD(0.1)),
        fl.LocalSolver(fl.SGD(0.1, momentum=0.9), corrections=(fl.ControlVariates(), fl.Proximal(0.1))),
        fl.LocalSolver(fl.Adam(0.01)),
    ],
    ids=["plain", "remembering", "adaptive"],
)
def test_rounds_that_differ_in_all_their_sizes(backend: Backend, solver: fl.LocalSolver) -> None:
    """Batches of 1 to 60: more kinds of lanes than are kept, some of which are then made anew."""
    work = fl.RandomEpochsAndBatches(1, 6, min_batch_size=1)
    engine = GraphEngine(5, backend)
    loop, lanes = federation(solver, None, work), federation(solver, engine, work)
    for run in (loop, lanes):
        list(run.train(len(COHORTS)))
    assert_same(loop, lanes)
    assert len(engine._captured) <= graphs._KEPT


@pytest.mark.full
@pytest.mark.usefixtures("captured_on_cpu")
def test_compiled_steps_are_traced_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """For more solvers and widths than torch compiles by itself; without a back end, which would need C++ here."""
    compiler, compiled = torch.compile, list[Any]()

    def trace(step: Any, **options: Any) -> Any:
        compiled.append(step)
        assert options == {"dynamic": False, "fullgraph": True}
        return compiler(step, backend="aot_eager", **options)

    monkeypatch.setattr(torch, "compile", trace)
    solvers = [
        fl.LocalSolver(fl.SGD(0.1, weight_decay=0.01), epochs=2, batch_size=8),
        fl.LocalSolver(
            fl.SGD(0.1, momentum=0.9), epochs=2, batch_size=8, corrections=(fl.ControlVariates(),)
        ),
        fl.LocalSolver(fl.Adam(0.01), epochs=2, batch_size=8, corrections=(fl.Proximal(0.1),)),
    ]
    for solver in solvers:
        loop, lanes = federation(solver, None), federation(solver, GraphEngine(5, "stacked", compiled=True))
        for run in (loop, lanes):
            list(run.train(4))
        assert_same(loop, lanes)
    assert len(compiled) == len(solvers)


@pytest.mark.usefixtures("captured_on_cpu")
def test_a_long_round_after_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One lane: the round of client 4 needs 3 ticks and makes room for 6, that of clients 0 to 2 needs 180."""
    monkeypatch.setattr(graphs, "_FEWEST_TICKS", 4)
    solver = fl.LocalSolver(fl.SGD(0.1, momentum=0.5), epochs=3, batch_size=1)
    loop, lanes = federation(solver, None), federation(solver, GraphEngine(1, "stacked"))
    for run in (loop, lanes):
        list(run.train(2))
    assert_same(loop, lanes)


@pytest.mark.usefixtures("captured_on_cpu")
def test_a_schedule_is_written_once_and_ahead_of_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all rounds but the first, before which there are no lanes."""
    written: list[int] = []
    write = LaneSchedule.of

    def counted(plan: LanePlan, *rest: Any, **more: Any) -> LaneSchedule:
        written.append(len(plan.slots))
        return write(plan, *rest, **more)

    monkeypatch.setattr(LaneSchedule, "of", counted)
    run = federation(fl.LocalSolver(fl.SGD(0.1), batch_size=4), GraphEngine(5, "stacked"))
    by_round = [len(written) for _ in run.train(len(COHORTS))]
    assert written == [len(cohort) for cohort in COHORTS]
    assert by_round == [*range(2, len(COHORTS) + 1), len(COHORTS)]


@pytest.mark.usefixtures("captured_on_cpu")
def test_a_round_without_arrivals_captures_nothing() -> None:
    """And so decides nothing about the rounds that follow."""
    engine = GraphEngine(5, "stacked")
    run = federation(fl.LocalSolver(fl.SGD(0.1)), engine)
    start, none = run.params.clone(), torch.zeros(0, dtype=torch.int64)
    nobody = fl.Cohort(none, none, none.double())
    order = fl.WorkOrder(0, run.algorithm.solver, start, run.state.buffers, {}, nobody, {}, run.key)
    updates = run.world.work(order)
    assert updates.delta.shape == (0, len(start))
    assert not engine._captured


@pytest.mark.usefixtures("captured_on_cpu")
def test_several_steps_in_a_graph_are_those_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients with 1 to 60 steps end at ticks that graphs of five, three and one must add up to."""
    monkeypatch.setattr(graphs, "_LONG_STEPS", (5, 3, 1))
    solver = fl.LocalSolver(fl.SGD(0.1, momentum=0.5), epochs=1, batch_size=1)
    loop, lanes = federation(solver, None), federation(solver, GraphEngine(2, "stacked"))
    for run in (loop, lanes):
        list(run.train(2))
    assert_same(loop, lanes)


@pytest.mark.usefixtures("captured_on_cpu")
def test_a_round_that_failed_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second width cannot be captured at the first attempt: nothing of it is left when the user goes on."""
    capture: Any = graphs._CapturedLanes._capture
    widths: list[int] = []

    def failing_once(lanes: Any, width: int, length: int) -> Any:
        widths.append(width)
        if len(widths) == 2:
            raise RuntimeError("out of memory")
        return capture(lanes, width, length)

    solver = fl.LocalSolver(fl.SGD(0.1), epochs=2, batch_size=4, corrections=(fl.ControlVariates(),))
    loop, lanes = federation(solver, None), federation(solver, GraphEngine(5, "stacked"))
    list(loop.train(4))
    monkeypatch.setattr(graphs._CapturedLanes, "_capture", failing_once)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(lanes.train(4))
    assert len(lanes.records) == 1
    list(lanes.train(3))
    assert_same(loop, lanes)


@pytest.mark.usefixtures("captured_on_cpu")
def test_graphs_do_not_keep_room_that_was_outgrown() -> None:
    """Data on the host: client 4 has 1 example, clients 0, 1 and 2 have 60 and need more room."""
    solver = fl.LocalSolver(fl.SGD(0.1), batch_size=4)
    loop, lanes = (federation(solver, engine, data_on="host") for engine in (None, GraphEngine(5, "stacked")))
    rooms: list[weakref.ref[Any]] = []
    assert isinstance(lanes.world, fl.SimulatedWorld)
    # The trial of the model made room for all clients of so small a world.
    lanes.world.executor.host_data = HostData(lanes.world.objective)
    run = lanes.world.engine.run

    def noting(objective: Any, jobs: LocalJobs) -> Any:
        rooms.append(weakref.ref(objective))
        return run(objective, jobs)

    object.__setattr__(lanes.world.engine, "run", noting)
    list(lanes.train(4))
    list(loop.train(4))
    assert_same(loop, lanes)
    assert rooms[-1]() is not None
    gc.collect()
    assert rooms[0]() is None


@pytest.mark.usefixtures("captured_on_cpu")
@pytest.mark.parametrize("roomy", [True, False])
def test_lanes_are_kept_while_there_is_room(roomy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every size of batches, or for the last alone."""
    monkeypatch.setattr(graphs, "_roomy_device", lambda _: roomy)
    engine = GraphEngine(5, "stacked")
    run = federation(fl.LocalSolver(fl.SGD(0.1)), engine, fl.RandomEpochsAndBatches(1, 2, min_batch_size=1))
    sizes = set[int]()
    for _ in run.train(len(COHORTS)):
        sizes |= {kind.batch_size for kind in engine._captured}
    assert len(sizes) > 1
    assert len(engine._captured) == (len(sizes) if roomy else 1)


@pytest.mark.full
@pytest.mark.usefixtures("captured_on_cpu", "traced_only")
@pytest.mark.parametrize("backend", ["stacked", "branches"])
@pytest.mark.parametrize("compiled", [False, True])
def test_lanes_that_are_not_kept_give_their_memory_back_at_once(
    backend: Backend, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the automatic collection, which knows nothing of a device that is full."""
    made: list[weakref.ref[Any]] = []
    create: Any = graphs._CapturedLanes.__init__

    def noting(lanes: Any, *arguments: Any) -> None:
        made.append(weakref.ref(lanes))
        create(lanes, *arguments)

    # A graph on a device does not hold the lanes that it was recorded from, as its stand-in here would.
    monkeypatch.setattr(
        graphs._CapturedLanes,
        "_capture",
        lambda lanes, *size: SimpleNamespace(replay=partial(_replay, weakref.ref(lanes), *size)),
    )
    monkeypatch.setattr(graphs._CapturedLanes, "__init__", noting)
    monkeypatch.setattr(graphs, "_KEPT", 1)
    work = fl.RandomEpochsAndBatches(1, 2, min_batch_size=1)
    run = federation(fl.LocalSolver(fl.SGD(0.1)), GraphEngine(5, backend, compiled), work)
    gc.disable()
    try:
        list(run.train(len(COHORTS)))
    finally:
        gc.enable()
    assert len(made) > 1
    assert [lanes() is not None for lanes in made] == [False] * (len(made) - 1) + [True]


@pytest.mark.parametrize("enabled", [True, False])
def test_nothing_is_collected_during_a_capture(enabled: bool) -> None:
    """And what the user had said of it holds again after it, whatever happened."""

    def fail() -> None:
        assert not gc.isenabled()
        raise ValueError("capture")

    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ValueError, match="capture"), graphs._uncollected():
            fail()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def _replay(lanes: weakref.ref[Any], width: int, length: int) -> None:
    here = lanes()
    assert here is not None
    for _ in range(length):
        here._advance(width)


@given(st.integers(1, 600), st.integers(0, 600), st.integers(0, 600))
def test_the_width_is_a_function_of_the_busy_lanes(width: int, more: int, still_more: int) -> None:
    """Never of the rounds before: lanes made for a larger round step the same ones, up to twice as many."""
    busy = width + more
    most = busy + still_more
    captured = _next_width(width, most)
    assert width <= captured <= min(most, 2 * width)
    assert _next_width(width, _next_width(busy, most)) == captured


def jobs_with(batch_sizes: list[int], usual: int | None, dim: int = 10) -> LocalJobs:
    """One step of a client for each size of a batch."""
    return LocalJobs(
        clients=range(len(batch_sizes)),
        steps=LocalSteps(
            solver=fl.LocalSolver(fl.SGD(0.1), batch_size=usual),
            batches=[torch.zeros((1, size), dtype=torch.int64) for size in batch_sizes],
            noise=[torch.zeros(2, dtype=torch.int64) for _ in batch_sizes],
            step_lrs=torch.ones(1, dtype=torch.float64),
        ),
        anchor=torch.zeros(dim),
        buffers=torch.zeros(0),
        shared={},
        memory={},
    )


@pytest.mark.parametrize(
    ("size", "usual", "room"),
    [(7, 32, 32), (32, 32, 32), (33, 32, 48), (49, 32, 64), (1, None, 1), (5, None, 6)],
)
def test_room_for_batches_comes_in_few_sizes(size: int, usual: int | None, room: int) -> None:
    """The solver's own size if it suffices, else the next power of two or three quarters of it."""
    assert _roomy_batch(fl.LocalSolver(fl.SGD(0.1), batch_size=usual), size) == room


def test_as_many_lanes_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,400 bytes are free; the updates of two clients with ten numbers of four bytes take 4·2·40 = 320, and
    0.9·(2400 − 320) = 1872 hold six lanes of 300 and none of 3,000."""
    monkeypatch.setattr(graphs, "available_bytes", lambda device: 2400)
    jobs = jobs_with([1, 1], None)
    assert lanes_that_fit(16, 300, jobs) == 6
    assert lanes_that_fit(4, 300, jobs) == 4
    with pytest.raises(
        EngineError, match=r"one client takes about 0\.0 GiB .* use smaller batches or cohorts"
    ):
        lanes_that_fit(16, 3000, jobs)


@pytest.mark.usefixtures("captured_on_cpu")
@pytest.mark.parametrize(
    "work", [None, fl.RandomEpochsAndBatches(1, 3, min_batch_size=1)], ids=["equal", "unequal"]
)
@pytest.mark.parametrize("hidden_dropout", [False, True])
def test_inputs_augmented_before_the_steps_are_those_of_every_step(
    work: fl.WorkModel | None, hidden_dropout: bool
) -> None:
    """Crops, flips and dropout drawn by the same keys: rounds that grow, whose batches differ or not."""
    draw = torch.Generator().manual_seed(5)
    data = fl.ClientData.from_lists(
        [torch.randint(0, 256, (n, 1, 6, 6), generator=draw).to(torch.uint8) for n in SIZES],
        [torch.randint(0, 3, (n,), generator=draw) for n in SIZES],
    )
    model = fl.PooledCNN(channels=(2,), hidden=(3,), dropout=0.5 if hidden_dropout else 0.0)
    task = fl.Task(model, augment=(fl.RandomCrop(2), fl.HorizontalFlip(), fl.Normalize(0.5, 0.2)))
    solver, runs = fl.LocalSolver(fl.SGD(0.1), batch_size=8), []
    for engine in (None, GraphEngine(5, "branches")):
        world = fl.SimulatedWorld(task, data, work=work, engine="loop", dtype=torch.float64)
        world.executor.engine = engine or world.engine
        runs.append(fl.Federation(fl.Algorithm(solver, sampler=fl.ScriptedSampler(COHORTS)), world))
        list(runs[-1].train(len(COHORTS)))
        # Chosen before the rounds, and made anew only when a round needs more room.
        assert engine is None or len(engine._augmented) == 1
    assert_same(*runs)
