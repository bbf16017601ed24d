"""Padding never leaks: what a client does is what a plain training loop would do with its own examples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fairlead as fl
from fairlead.errors import NonFiniteError
from fairlead.worlds.executor import draw_batches

SIZES = (7, 1, 0, 4, 3)
POISON = 1e6


def poisoned_data() -> fl.ClientData:
    """Clients with 7, 1, 0 and 4 examples, and a last one whose examples are huge."""
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn((n, 4), generator=draw, dtype=torch.float64) for n in SIZES]
    inputs[-1] = inputs[-1] * POISON
    return fl.ClientData.from_lists(inputs, [torch.randint(0, 3, (n,), generator=draw) for n in SIZES])


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def plain_training(client: int, steps: int, batch_size: int, lr: float) -> tuple[Tensor, float]:
    """Displacement and mean loss of one client by torch.optim, on the batches that the key names."""
    data, model = poisoned_data(), make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
    start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    size = int(data.sizes[client])
    stream = fl.Key.from_seed(0).fold("batches", 0, client)
    losses = []
    for rows in draw_batches(int(data.offsets[client]), size, steps, min(batch_size, size), stream):
        rows = rows[rows >= 0]
        loss = F.cross_entropy(model(data.inputs[rows]), data.targets[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    return nn.utils.parameters_to_vector(model.parameters()).detach() - start, sum(losses) / steps


def worked(engine: Any, batch_size: int, lanes: int = 5) -> fl.ClientUpdates:
    """What all clients send after 1 to 5 epochs' worth of steps, the poisoned one beside the others."""
    world = fl.SimulatedWorld(
        fl.Task(make_model()),
        poisoned_data(),
        work=fl.FixedSteps((6, 3, 1, 5, 4)),
        engine=engine,
        lanes=lanes,
        dtype=torch.float64,
    )
    solver = fl.LocalSolver(fl.SGD(0.1, momentum=0.5), batch_size=batch_size)
    state = fl.Federation(fl.Algorithm(solver), world).state
    weights = world.population.weights
    cohort = fl.Cohort(torch.arange(5), torch.ones(5).long(), weights)
    return world.work(
        fl.WorkOrder(
            0, solver, state.params, state.buffers, state.shared, cohort, state.memory, fl.Key.from_seed(0)
        )
    )


@pytest.mark.parametrize("engine", ["loop", "batched"])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 32])
def test_every_client_does_what_a_plain_loop_does(engine: Any, batch_size: int) -> None:
    """Batches of 3 leave partial ones of 1; 32 is more than anyone has; client 1 has a single example."""
    updates = worked(engine, batch_size)
    assert updates.clients.tolist() == [0, 1, 3, 4]
    assert updates.num_steps.tolist() == [6, 3, 5, 4]
    for row, client, steps, loss in zip(
        updates.delta, updates.clients.tolist(), updates.num_steps.tolist(), updates.loss, strict=True
    ):
        delta, mean_loss = plain_training(client, steps, batch_size, lr=0.1)
        scale = max(1.0, float(delta.abs().max()))
        assert torch.allclose(row, delta, rtol=1e-12, atol=1e-12 * scale)
        assert float(loss) == pytest.approx(mean_loss, rel=1e-12)


def test_a_neighbor_in_the_next_lane_changes_nothing() -> None:
    """Alone in its lane or beside a client with inputs of 1e6, a client's update is the same."""
    together, alone = worked("batched", 3, lanes=5), worked("batched", 3, lanes=1)
    healthy = together.clients < 4
    assert torch.allclose(together.delta[healthy], alone.delta[healthy], rtol=1e-12, atol=1e-13)
    assert float(together.delta[healthy].abs().max()) < 10.0


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_infinite_losses_stay_with_their_client(engine: Any) -> None:
    """A client whose loss overflows must not turn the others' padding of weight zero into NaN."""

    def overflowing(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none") + outputs.square().sum(1) ** 30

    torch.manual_seed(1)
    model = nn.Linear(4, 3).double()
    nn.utils.vector_to_parameters(
        0.01 * nn.utils.parameters_to_vector(model.parameters()), model.parameters()
    )
    world = fl.SimulatedWorld(
        fl.Task(model, loss=overflowing),
        poisoned_data(),
        engine=engine,
        work=fl.FixedSteps((2, 2, 2, 2, 2)),
        dtype=torch.float64,
    )
    federation = fl.Federation(fl.presets.fedavg(lr=1e-3, batch_size=3), world)
    with pytest.raises(NonFiniteError, match=r"In round 1 the updates of clients \[4\] are not finite"):
        next(federation.train(1))


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_a_client_without_examples_never_answers(engine: Any) -> None:
    world = fl.SimulatedWorld(
        fl.Task(make_model()), poisoned_data(), weights=[1, 1, 0, 1, 0], engine=engine, dtype=torch.float64
    )
    federation = fl.Federation(
        fl.Algorithm(fl.LocalSolver(fl.SGD(0.1), epochs=2), fl.ScriptedSampler(((0, 1, 2), (2,)))), world
    )
    first, second = federation.train(2)
    assert (first.asked, first.arrived) == ((0, 1, 2), (0, 1))
    assert (second.asked, second.arrived, second.step_norm) == ((2,), (), 0.0)
