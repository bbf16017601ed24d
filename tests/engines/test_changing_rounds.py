"""Rounds that differ in clients, steps and batch sizes: what an engine keeps between them must not show."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import fairlead as fl
from fairlead.worlds.base import EngineName

SIZES = (40, 3, 17, 9, 1, 25, 60, 12)


def clients() -> fl.ClientData:
    draw = torch.Generator().manual_seed(5)
    return fl.ClientData.from_lists(
        [torch.randn((n, 4), generator=draw, dtype=torch.float64) for n in SIZES],
        [torch.randint(0, 3, (n,), generator=draw) for n in SIZES],
    )


def trained(engine: EngineName, solver: fl.LocalSolver, device: torch.device) -> fl.Federation:
    """Cohorts that grow and shrink, with work and batch sizes drawn anew in every round."""
    world = fl.SimulatedWorld(
        fl.Task(fl.MLP(hidden=(6,))),
        clients(),
        work=fl.RandomEpochsAndBatches(1, 6, min_batch_size=1),
        engine=engine,
        lanes=5,
        device=device,
        dtype=torch.float64,
    )
    cohorts = ((4,), (0, 1, 2), (3,), tuple(range(8)), (5, 6), (0, 7), tuple(range(8)), (1,))
    federation = fl.Federation(fl.Algorithm(solver, sampler=fl.ScriptedSampler(cohorts)), world)
    list(federation.train(len(cohorts)))
    return federation


@pytest.mark.parametrize("engine", ["batched", "branches"])
@pytest.mark.parametrize(
    "solver",
    [
        fl.LocalSolver(fl.SGD(0.1)),
        fl.LocalSolver(fl.SGD(0.1, momentum=0.9), corrections=(fl.ControlVariates(), fl.Proximal(0.1))),
        fl.LocalSolver(fl.Adam(0.01)),
    ],
    ids=["plain", "remembering", "adaptive"],
)
def test_changing_rounds(engine: EngineName, solver: fl.LocalSolver, device: torch.device) -> None:
    loop, lanes = trained("loop", solver, device), trained(engine, solver, device)
    assert torch.allclose(loop.params, lanes.params, rtol=1e-11, atol=1e-12)
    for one, other in zip(loop.records, lanes.records, strict=True):
        assert one.num_steps == other.num_steps
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-11)


@pytest.mark.parametrize("engine", ["batched", "branches"])
def test_two_solvers_share_a_world(engine: EngineName, device: torch.device) -> None:
    """A world may serve several algorithms in turn, and then the first again."""
    plain = fl.LocalSolver(fl.SGD(0.1), epochs=2, batch_size=4)
    heavy = replace(plain, optimizer=fl.SGD(0.1, momentum=0.5))
    worlds = [
        fl.SimulatedWorld(
            fl.Task(fl.MLP(hidden=(6,))), clients(), engine=name, device=device, dtype=torch.float64
        )
        for name in ("loop", engine)
    ]
    for solver in (plain, heavy, plain):
        finals = []
        for world in worlds:
            federation = fl.Federation(fl.Algorithm(solver), world)
            list(federation.train(2))
            finals.append(federation.params)
        loop, lanes = finals
        assert torch.allclose(loop, lanes, rtol=1e-11, atol=1e-12)
