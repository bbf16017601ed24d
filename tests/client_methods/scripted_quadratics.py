"""A small federation of quadratics on which client-side methods are followed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.client_table import table_in
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.conditions.links import LinkModel, PerfectLink, ScriptedLink
from fairlead.conditions.work import FixedSteps, WorkModel
from fairlead.federation import Federation
from fairlead.worlds.simulated import SimulatedWorld

LOSSY = ScriptedLink(((0, 1, 2), (0,), (1, 2), (0, 1), (), (2,), (0, 1, 2), (1,)))
"""Every client is lost now and then, and once all are."""


def vectors(rows: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


PROBLEM = QuadraticProblem(
    hessians=torch.stack([torch.diag(row) for row in vectors([[1.0, 0.4], [0.5, 0.9], [0.8, 0.6]])]),
    linear=vectors([[2.0, -1.0], [-1.5, 0.5], [0.5, 2.0]]),
    weights=torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64),
)


def federation(
    algorithm: Algorithm,
    *,
    problem: QuadraticProblem = PROBLEM,
    work: WorkModel | None = None,
    link: LinkModel | None = None,
    start: float = 0.0,
) -> Federation:
    """An algorithm on a quadratic problem, in float64, with unequal work unless told otherwise."""
    world = SimulatedWorld(
        problem.task(start),
        problem.data(),
        work=work or FixedSteps((1, 3, 6)),
        link=link or PerfectLink(),
        weights=problem.weights,
        dtype=torch.float64,
    )
    return Federation(algorithm, world, seed=0)


def run(training: Federation, rounds: int) -> Tensor:
    """The model after some more rounds."""
    for _ in training.train(rounds):
        pass
    return training.params


def memory_of(training: Federation, name: str) -> Tensor:
    """What every client remembers under a name, (N, ·)."""
    return table_in(training.state.memory, name).read(torch.arange(training.world.population.num_clients))
