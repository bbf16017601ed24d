"""Networks with one hidden layer, stepped by kernels on a GPU: the loop engine's numbers, for plain solvers alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fairlead as fl
from fairlead.models.augmentation import InputPipeline
from fairlead.parameters import FlatModule
from fairlead.task import PerExample, cross_entropy, squared_error
from fairlead.worlds.engines.base import Engine, LocalJobs, LocalSteps, Objective
from fairlead.worlds.engines.dense import MlpTriton
from fairlead.worlds.engines.graphs import GraphEngine
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.paths import BatchedEngine
from fairlead.worlds.executor import draw_batches

SIZES, STEPS, WIDTH, CLASSES = (70, 1, 40, 130, 9), (5, 3, 6, 4, 1), 21, 5
PLAIN = fl.LocalSolver(fl.SGD(0.3))
BYTES = torch.randint(0, 256, (sum(SIZES), WIDTH), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
IMAGES = 0.1 * torch.randn(sum(SIZES), 3, 10, 10, generator=torch.Generator().manual_seed(2))


def perceptron(*widths: int, bias: bool = True) -> nn.Sequential:
    """Linear layers of these widths with ReLU between them."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in zip((WIDTH, *widths), (*widths, CLASSES), strict=True):
        layers += [nn.Linear(before, after, bias=bias), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def problem(
    device: torch.device,
    model: nn.Module,
    inputs: Tensor | None = None,
    loss: PerExample = cross_entropy,
    dtype: torch.dtype = torch.float32,
) -> Objective:
    """Five clients with 1 to 130 examples of 21 numbers and 5 classes."""
    draw = torch.Generator().manual_seed(0)
    drawn = torch.randn(sum(SIZES), WIDTH, generator=draw) if inputs is None else inputs
    targets = torch.randint(0, CLASSES, (sum(SIZES),), generator=draw)
    if loss is squared_error:
        targets = nn.functional.one_hot(targets).to(dtype)
    data = fl.ClientData(drawn, targets, torch.tensor([0, *SIZES]).cumsum(0))
    module = FlatModule(model, InputPipeline(()))
    return Objective.build(module.to(device, dtype), loss, data.to(device, dtype))


def jobs_of(objective: Objective, solver: fl.LocalSolver, batch_size: int) -> LocalJobs:
    """One job per client, of 1 to 6 steps, with learning rates that change from step to step."""
    offsets, anchor = objective.data.offsets.tolist(), objective.model.initial_params()
    batches = [
        draw_batches(first, size, steps, min(batch_size, size), fl.Key.from_seed(client))
        for client, (first, size, steps) in enumerate(zip(offsets, SIZES, STEPS, strict=False))
    ]
    return LocalJobs(
        clients=range(len(SIZES)),
        steps=LocalSteps(
            solver=solver,
            batches=batches,
            noise=[torch.zeros(steps + 1, dtype=torch.int64) for steps in STEPS],
            step_lrs=torch.linspace(0.3, 0.1, max(STEPS), dtype=torch.float64),
        ),
        anchor=anchor,
        buffers=anchor.new_zeros(0),
        shared={},
        memory={},
    )


@pytest.mark.parametrize("batch_size", [1, 7, 64, 100])
@pytest.mark.parametrize(
    ("model", "inputs", "solver"),
    [
        (perceptron(33), None, PLAIN),
        (perceptron(70), BYTES, fl.LocalSolver(fl.SGD(0.3, weight_decay=0.1))),
        (perceptron(130), None, fl.LocalSolver(fl.SGD(0.3), corrections=(fl.Proximal(0.5),))),
        (perceptron(3), BYTES, PLAIN),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(300, 33), nn.ReLU(), nn.Linear(33, 40)),
            IMAGES,
            fl.LocalSolver(fl.SGD(0.3, weight_decay=0.1), corrections=(fl.Proximal(0.5),)),
        ),
    ],
)
def test_steps_are_those_of_the_loop_engine(
    device: torch.device, model: nn.Module, inputs: Tensor | None, solver: fl.LocalSolver, batch_size: int
) -> None:
    """Within rounding, in units of the largest entry; one lane takes several clients, and padding counts nothing.

    Inputs, hidden units, classes and batches are fewer than blocks of the kernels hold, and more.
    """
    objective = problem(device, model, inputs)
    on_gpu = device.type == "cuda"
    engine: Engine = GraphEngine(lanes=3) if on_gpu else BatchedEngine(lanes=3)
    jobs = jobs_of(objective, solver, batch_size)
    assert (MlpTriton().refusal(objective, jobs) is None) == on_gpu
    wanted, found = LoopEngine().run(objective, jobs), engine.run(objective, jobs)
    assert float((found.delta - wanted.delta).abs().max() / wanted.delta.abs().max()) < 2e-5
    assert torch.allclose(found.loss, wanted.loss, rtol=1e-5)
    again = engine.run(objective, jobs)
    assert torch.equal(again.delta, found.delta)
    assert torch.equal(again.loss, found.loss)


@pytest.mark.parametrize(
    ("model", "solver", "loss", "dtype"),
    [
        (perceptron(8), fl.LocalSolver(fl.SGD(0.3, momentum=0.9)), cross_entropy, torch.float32),
        (perceptron(8), fl.LocalSolver(fl.SGD(0.3), clip=1.0), cross_entropy, torch.float32),
        (perceptron(8), PLAIN, squared_error, torch.float32),
        (perceptron(8), PLAIN, cross_entropy, torch.float64),
        (
            nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh(), nn.Linear(4, CLASSES)),
            PLAIN,
            cross_entropy,
            torch.float32,
        ),
        (nn.Sequential(nn.Linear(WIDTH, 4), nn.Linear(4, CLASSES)), PLAIN, cross_entropy, torch.float32),
        (perceptron(8, 8), PLAIN, cross_entropy, torch.float32),
        (perceptron(8, bias=False), PLAIN, cross_entropy, torch.float32),
        (nn.Sequential(nn.Linear(WIDTH, 200)), PLAIN, cross_entropy, torch.float32),
        (
            nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 129)),
            PLAIN,
            cross_entropy,
            torch.float32,
        ),
    ],
)
def test_other_models_losses_and_solvers_are_left_to_others(
    device: torch.device, model: nn.Module, solver: fl.LocalSolver, loss: PerExample, dtype: torch.dtype
) -> None:
    objective = problem(device, model, loss=loss, dtype=dtype)
    refusal = MlpTriton().refusal(objective, jobs_of(objective, solver, 7))
    assert refusal
    assert "CUDA" not in refusal
