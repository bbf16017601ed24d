"""Lanes keep the kernels of convolutions channels last, and nobody else sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fairlead as fl
from fairlead.errors import EngineError
from fairlead.parameters import FlatModule
from fairlead.worlds.engines import graphs
from fairlead.worlds.engines.base import Engine, LaneOrder, LocalJobs, LocalSteps
from fairlead.worlds.engines.graphs import GraphEngine
from fairlead.worlds.engines.lane_gradients import Branches
from fairlead.worlds.engines.lanes import LaneBlock, LaneSchedule
from fairlead.worlds.engines.paths import BatchedEngine


class Standardized(nn.Conv2d):
    """Asks for its kernel in one piece."""

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.weight.view(len(self.weight), -1)
        kernel = (rows - rows.mean(1, keepdim=True)).view(self.weight.shape)
        return nn.functional.conv2d(inputs, kernel, self.bias)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, (2, 3)), nn.Tanh(), Standardized(4, 5, 3), nn.Flatten(), nn.Linear(5 * 5 * 4, 3)
    )


def test_vectors_go_there_and_back() -> None:
    model = FlatModule(network())
    order = LaneOrder(model)
    vectors = torch.randn(2, sum(model.sizes))
    assert torch.equal(order.restored(order.arranged(vectors)), vectors)
    assert not torch.equal(order.arranged(vectors), vectors)


def test_parameters_by_name_are_those_of_the_model() -> None:
    """Of plain convolutions channels last, and all in the memory of the vector."""
    model = FlatModule(network())
    order, params = LaneOrder(model), model.initial_params()
    vector = order.arranged(params)
    named = order.named(vector)
    for name, values in model.unflatten(params).items():
        assert torch.equal(named[name], values)
    assert named["0.weight"].is_contiguous(memory_format=torch.channels_last)
    assert named["2.weight"].is_contiguous()
    for values in named.values():
        values.zero_()
    assert not vector.any()


class Weighed(nn.Module):
    """Looks at a kernel as a matrix, which a turned one is not."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.head = nn.Conv2d(3, 4, 3), nn.Linear(144, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.head(self.convolution(inputs).tanh().flatten(1))
        return scores * self.convolution.weight.view(4, -1).square().mean()


class Counting(Weighed):
    """Writes into a buffer."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.add_(1.0)
        scores: Tensor = self.head(self.convolution(inputs).tanh().flatten(1))
        return scores


def dropping() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Dropout(0.3), nn.Conv2d(4, 5, 3), nn.Flatten(), nn.Linear(80, 3)
    )


def data() -> fl.ClientData:
    draw, sizes = torch.Generator().manual_seed(2), (7, 3, 12, 5)
    return fl.ClientData.from_lists(
        [torch.randn((n, 3, 8, 8), generator=draw, dtype=torch.float64) for n in sizes],
        [torch.randint(0, 3, (n,), generator=draw) for n in sizes],
    )


def federation(module: nn.Module, engine: Engine | None) -> fl.Federation:
    """With memory, broadcast vectors and momentum, which lanes must keep in the order of the parameters."""
    solver = fl.LocalSolver(
        fl.SGD(0.05, momentum=0.9, weight_decay=0.01),
        epochs=2,
        batch_size=4,
        corrections=(fl.ControlVariates(), fl.Proximal(0.1)),
    )
    world = fl.SimulatedWorld(fl.Task(module), data(), engine="loop", dtype=torch.float64)
    world.executor.engine = world.engine if engine is None else engine
    return fl.Federation(fl.Algorithm(solver, sampler=fl.UniformWithoutReplacement(3)), world)


@pytest.mark.usefixtures("captured_on_cpu", "traced_only")
@pytest.mark.parametrize("make", [network, dropping, Weighed, Counting])
@pytest.mark.parametrize(
    "engine",
    [BatchedEngine(2, "branches"), GraphEngine(2, "branches"), GraphEngine(2, "branches", compiled=True)],
    ids=["batched", "captured", "compiled"],
)
def test_branches_train_as_the_loop_does(make: Callable[[], nn.Module], engine: Engine) -> None:
    module = make()
    loop, lanes = federation(module, None), federation(module, engine)
    for run in (loop, lanes):
        list(run.train(4))
    assert torch.allclose(loop.params, lanes.params, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("make", "turned"), [(network, True), (dropping, True), (Weighed, False)])
def test_kernels_are_turned_where_the_model_can_take_it(make: Callable[[], nn.Module], turned: bool) -> None:
    world = fl.SimulatedWorld(fl.Task(make()), data(), dtype=torch.float64)
    assert (Branches().gradient(world.objective, torch.zeros(0)).order is not None) == turned


@pytest.mark.usefixtures("captured_on_cpu")
def test_a_model_that_cannot_be_compiled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that one version of torch cannot compile are compiled by the next, so the compiler refuses here."""

    def refuse(graph: Any, inputs: Any) -> Any:
        raise NotImplementedError("no kernel for this device")

    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda step, **options: compiler(step, backend=refuse, **options))

    def first_step(objective: Any, gradient_of: Any, jobs: Any, batch_size: int) -> int:
        schedule = LaneSchedule.empty(1, 1, batch_size, like=jobs.anchor, draws_noise=objective.draws_noise)
        LaneBlock(objective, gradient_of, jobs, schedule, 1).step(schedule.at(0, 1))
        return 1

    monkeypatch.setattr(graphs, "bytes_per_lane", first_step)
    run = federation(Weighed(), GraphEngine(2, "branches", compiled=True))
    with pytest.raises(
        EngineError,
        match=r"Weighed cannot be compiled: .*no kernel for this device.*Leave SimulatedWorld.compile out",
    ):
        list(run.train(1))


def test_all_lanes_begin_alike() -> None:
    """Where devices read 16 bytes at once, whatever the number of parameters."""
    world = fl.SimulatedWorld(fl.Task(Weighed()), data())
    params = world.objective.model.initial_params()
    assert len(params) % 4
    solver = fl.LocalSolver(fl.SGD(0.1, momentum=0.9), corrections=(fl.ControlVariates(),))
    jobs = LocalJobs(
        clients=[0],
        steps=LocalSteps(
            solver=solver,
            batches=[torch.zeros((1, 1), dtype=torch.int64)],
            noise=[torch.zeros(2, dtype=torch.int64)],
            step_lrs=torch.ones(1, dtype=torch.float64),
        ),
        anchor=params,
        buffers=torch.zeros(0),
        shared={"control_mean": torch.zeros_like(params)},
        memory={"control": torch.zeros((1, len(params)))},
    )
    schedule = LaneSchedule.empty(1, 3, 1, like=params, draws_noise=False)
    gradient_of = Branches().gradient(world.objective, torch.zeros(0))
    block = LaneBlock(world.objective, gradient_of, jobs, schedule, 3)
    held = [block.gradient, block.state.local, *block.state.optimizer.values(), *block.state.memory.values()]
    assert len(held) == 4
    assert [row.data_ptr() % 16 for rows in held for row in rows] == [0] * 12
