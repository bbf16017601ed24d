"""Closed forms give the numbers of the simulation that they stand in for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import fairlead as fl
from fairlead.reproductions.closed_form import ClosedFormWorld, reach_of
from fairlead.settings import fedacs_quadratics_dynamic
from fairlead.theory.quadratics import LocalWork

SOLVERS = {
    "plain": LocalWork(0.05, 1),
    "proximal": LocalWork(0.05, 1, mu=1.0),
    "decayed": LocalWork(0.05, 1, decay=0.9),
    "momentum": LocalWork(0.05, 1, momentum=0.3),
}


@pytest.mark.parametrize("preset", ["importance_sampling", "fedacs", "anonymous_fednova", "fedau"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_rounds_agree_with_the_simulated_world(preset: str, solver: str) -> None:
    """Same sampler, work and links by the same keys; only the local steps are summed up in advance."""
    local = SOLVERS[solver]
    setting = fedacs_quadratics_dynamic()
    algorithm = fl.presets.method_named(preset).build(lr=local.lr, steps=1, batch_size=None, cohort_size=6)
    algorithm = replace(
        algorithm,
        solver=replace(
            algorithm.solver,
            optimizer=fl.SGD(local.lr, momentum=local.momentum),
            corrections=(fl.Proximal(local.mu),) if local.mu else (),
            step_schedule=fl.Exponential(local.decay),
        ),
    )
    centers = torch.randn((20, 3), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    start = torch.ones(3, dtype=torch.float64)
    problem = fl.Quadratics(linear=tuple(map(tuple, centers.tolist()))).problem(fl.Key.from_seed(0))
    simulated = fl.SimulatedWorld(
        problem.task(start),
        problem.data(),
        work=setting.work,
        link=setting.link,
        weights="uniform",
        dtype=torch.float64,
    )
    closed = ClosedFormWorld(centers, setting.work, setting.link, reach_of(local), start)
    ends = []
    for world in (simulated, closed):
        federation = fl.Federation(algorithm, world, seed=4)
        for _ in federation.train(3):
            pass
        ends.append(federation.params)
    assert torch.allclose(ends[0], ends[1], atol=1e-12)
    assert float((ends[0] - start).norm()) > 0.05
