"""Lanes keep the kernels of convolutions channels last, and nobody else sees it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import fairlead as fl
from fairlead.parameters import FlatModule
from fairlead.worlds.engines.branches import BranchGradient
from fairlead.worlds.engines.lane_gradients import lane_gradient
from fairlead.worlds.engines.lane_order import LaneOrder


class Standardised(nn.Conv2d):
    """Asks for its kernel in one piece."""

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.weight.view(len(self.weight), -1)
        kernel = (rows - rows.mean(1, keepdim=True)).view(self.weight.shape)
        return nn.functional.conv2d(inputs, kernel, self.bias)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, (2, 3)), nn.Tanh(), Standardised(4, 5, 3), nn.Flatten(), nn.Linear(5 * 5 * 4, 3)
    )


def test_vectors_go_there_and_back() -> None:
    model = FlatModule(network())
    order = LaneOrder(model, torch.device("cpu"))
    vectors = torch.randn(2, sum(model.sizes))
    assert torch.equal(order.restored(order.arranged(vectors)), vectors)
    assert not torch.equal(order.arranged(vectors), vectors)


def test_parameters_by_name_are_those_of_the_model() -> None:
    """Of plain convolutions channels last, and all in the memory of the vector."""
    model = FlatModule(network())
    order, params = LaneOrder(model, torch.device("cpu")), model.initial_params()
    vector = order.arranged(params)
    named = order.named(vector)
    for name, values in model.unflatten(params).items():
        assert torch.equal(named[name], values)
    assert named["0.weight"].is_contiguous(memory_format=torch.channels_last)
    assert named["2.weight"].is_contiguous()
    for values in named.values():
        values.zero_()
    assert not vector.any()


def test_branches_train_as_the_loop_does() -> None:
    """With memory, broadcast vectors and momentum, which lanes must keep in the same order as the parameters."""
    draw = torch.Generator().manual_seed(2)
    sizes = (7, 3, 12, 5)
    data = fl.ClientData.from_lists(
        [torch.randn((n, 3, 8, 8), generator=draw, dtype=torch.float64) for n in sizes],
        [torch.randint(0, 3, (n,), generator=draw) for n in sizes],
    )
    solver = fl.LocalSolver(
        fl.SGD(0.05, momentum=0.9, weight_decay=0.01),
        epochs=2,
        batch_size=4,
        corrections=(fl.ControlVariates(), fl.Proximal(0.1)),
    )
    runs, module = list[fl.Federation](), network()
    for engine in ("loop", "branches"):
        world = fl.SimulatedWorld(fl.Task(module), data, engine=engine, lanes=2, dtype=torch.float64)
        runs.append(fl.Federation(fl.Algorithm(solver, sampler=fl.UniformWithoutReplacement(3)), world))
        list(runs[-1].train(4))
    gradient = lane_gradient("branches", world.objective, torch.zeros(0))
    assert isinstance(gradient, BranchGradient)
    assert gradient.order is not None
    assert torch.allclose(runs[0].params, runs[1].params, rtol=1e-11, atol=1e-12)
