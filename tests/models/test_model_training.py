"""Models in rounds: both engines agree, and something is learned."""

from __future__ import annotations

import pytest
import torch
from model_cases import Case, every_model
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.clients.data import ClientData
from fairlead.clients.images import Digits
from fairlead.federation import Federation
from fairlead.local_solver import LocalSolver
from fairlead.models.base import Model
from fairlead.models.convolutional import (
    VGG11,
    DropoutCNN,
    FedAvgCNN,
    FiveLayerCNN,
    PooledCNN,
    ResNet18,
    UnpooledCNN,
)
from fairlead.models.sequences import CharLSTM, TextTransformer, WindowCNN
from fairlead.optimizers.descent import SGD, Adam
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Cohort, WorkOrder
from fairlead.task import Task
from fairlead.worlds.base import EngineName
from fairlead.worlds.simulated import SimulatedWorld

SIZES = (3, 5, 4)
"""With batches of 2: clients of 2, 3 and 2 steps, short batches among them."""


def updates(case: Case, engine: EngineName) -> ClientUpdates:
    world = SimulatedWorld(Task(case.model), case.clients(SIZES), engine=engine, lanes=2, dtype=torch.float64)
    key = Key.from_seed(0)
    anchor, buffers = world.initial_model(key)
    everyone = torch.arange(len(SIZES))
    cohort = Cohort(everyone, torch.ones_like(everyone), torch.ones(len(SIZES), dtype=torch.float64))
    solver = LocalSolver(SGD(lr=0.1, momentum=0.5), epochs=1, batch_size=2)
    return world.work(WorkOrder(0, solver, anchor, buffers, {}, cohort, {}, key))


@every_model
def test_both_engines_give_equal_updates(case: Case) -> None:
    """In float64 to 1e-13: rounding alone stays near 1e-15, and random inputs leave no ties.

    A tie of a ReLU or of a max-pool that fell the other way would show from 1e-6 upwards.
    """
    loop, batched = updates(case, "loop"), updates(case, "batched")
    assert bool((loop.delta.abs().amax(1) > 1e-4).all())
    torch.testing.assert_close(batched.delta, loop.delta, rtol=0, atol=1e-13)
    torch.testing.assert_close(batched.loss, loop.loss, rtol=0, atol=1e-13)


def enlarged(images: Tensor, factor: int) -> Tensor:
    return images.repeat_interleave(factor, 1).repeat_interleave(factor, 2)


def losses_before_and_after(model: Model, inputs: Tensor, targets: Tensor, lr: float) -> tuple[float, float]:
    """Over two rounds of two clients with ten steps of Adam each."""
    clients = ClientData.from_lists([inputs[::2], inputs[1::2]], [targets[::2], targets[1::2]])
    solver = LocalSolver(Adam(lr), steps=10, batch_size=16)
    run = Federation(Algorithm(solver), SimulatedWorld(Task(model), clients), seed=0)
    before = run.evaluate().loss
    list(run.train(rounds=2))
    return before, run.evaluate().loss


@pytest.mark.parametrize(
    ("model", "factor"),
    [
        (FedAvgCNN(hidden=32), 1),
        (FiveLayerCNN(), 3),
        (DropoutCNN(), 1),
        (PooledCNN(), 1),
        (UnpooledCNN(), 1),
        (VGG11(width=8), 4),
        (ResNet18(groups=4, width=8), 1),
        (WindowCNN(), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Model) else None,
)
def test_zeros_and_ones_are_told_apart(model: Model, factor: int) -> None:
    """Real digits, enlarged where a model needs it; for WindowCNN their rows are moments of 8 sensors."""
    pool = Digits().pool()
    rows = (pool.targets < 2).nonzero()[:64, 0]
    before, after = losses_before_and_after(
        model, enlarged(pool.inputs[rows], factor), pool.targets[rows], 0.003
    )
    assert after < 0.5 * before


@pytest.mark.parametrize(
    "model",
    [CharLSTM(hidden=32, pooling="none"), TextTransformer(width=32, pooling="none")],
    ids=lambda model: type(model).__name__,
)
def test_a_cycle_of_tokens_is_learned(model: Model) -> None:
    """Each token is the one before plus 2, modulo 5; log 5 = 1.61 without knowing that."""
    texts = (torch.arange(64)[:, None] + 2 * torch.arange(9)) % 5
    _, after = losses_before_and_after(model, texts[:, :-1], texts[:, 1:], 0.02)
    assert after < 0.8
