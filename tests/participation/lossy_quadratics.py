"""Federations of quadratics with unequal work and lossy links, for the tests of this folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairlead.algorithm import Algorithm
from fairlead.conditions.links import PerfectLink
from fairlead.federation import Federation
from fairlead.local_solver import LocalSolver
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Cohort, Conditions, Evaluation, Population, WorkOrder
from fairlead.worlds.base import World

Array = NDArray[np.float64]


class Links(Protocol):
    """What a world needs to know of its links."""

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor | None: ...

    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor: ...


@dataclass(frozen=True)
class ChangingLinks:
    """Independent links whose arrival rates change at given rounds: (first round, rates) in order."""

    spells: tuple[tuple[int, tuple[float, ...]], ...]

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        rates = next(rates for first, rates in reversed(self.spells) if first <= round)
        return torch.tensor(rates, dtype=torch.float64)[clients]

    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return key.fold(round).uniform(clients) < self.arrival(clients, round, key)


class ClosedFormWorld(World):
    """Clients F_i(x) = ½‖x − e_i‖² that take τ_i steps of SGD.

    Each step multiplies y − e_i by 1 − η, so Δ_i = κ_i(e_i − x) with κ_i = 1 − (1 − η)^τ_i. No gradient is
    ever computed, which makes thousands of rounds cheap. `secretive` hides work and arrival rates.
    """

    def __init__(
        self,
        centers: Tensor,
        weights: Tensor,
        steps: Tensor,
        link: Links | None = None,
        *,
        secretive: bool = False,
    ) -> None:
        self.centers, self.steps = centers, steps
        self.link: Links = link or PerfectLink()
        self.secretive = secretive
        layout = {"x": centers.shape[1]}
        self._population = Population(weights, layout, torch.device("cpu"), torch.float64)

    @property
    def population(self) -> Population:
        return self._population

    @property
    def description(self) -> str:
        return f"{self.centers} {self.steps} {self.link!r}"

    def module(self, params: Tensor, buffers: Tensor) -> nn.Module:
        return nn.Identity()

    def kappa(self, lr: float) -> Tensor:
        return 1 - (1 - lr) ** self.steps.to(torch.float64)

    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        return self.centers.new_zeros(self.centers.shape[1]), self.centers.new_zeros(0)

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        if self.secretive:
            return Conditions(round, self.population.weights)
        everyone = torch.arange(len(self.steps))

        def work() -> Tensor | None:
            norms = solver.accumulation(self.steps, round)
            return None if norms is None else norms.l1

        def arrival() -> Tensor | None:
            return self.link.arrival(everyone, round, key.fold("link"))

        return Conditions(round, self.population.weights, work, arrival)

    def work(self, order: WorkOrder) -> ClientUpdates:
        cohort = order.cohort
        arrives = self.link.arrives(cohort.clients, order.round, order.key.fold("link"))
        clients, lr = cohort.clients[arrives], order.solver.optimizer.lr_at(order.round)
        delta = self.kappa(lr)[clients, None] * (self.centers[clients] - order.anchor)
        return updates_of(cohort, clients, delta, self.steps[clients], lr=lr)

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> Evaluation:
        losses = (params - self.centers).square().sum(1) / 2
        return Evaluation(float(self.population.weights @ losses), {})


def updates_of(
    cohort: Cohort, clients: Tensor, delta: Tensor, steps: Tensor, *, lr: float = 1.0
) -> ClientUpdates:
    """What arrives from clients that ran plain SGD, so that ‖a‖₁ = τ."""
    arrived = torch.isin(cohort.clients, clients)
    return ClientUpdates.of(cohort, arrived, delta, steps, steps.to(torch.float64), lr=lr)


@dataclass(frozen=True, eq=False)
class LongRun:
    """The time average of a run after a burn-in, with the standard error that batch means give it."""

    mean: Array
    error: Array

    def z_scores(self, target: Array) -> Array:
        scores: Array = np.abs(self.mean - target) / self.error
        return scores


def time_average(path: Array) -> LongRun:
    """The mean of a path of models; 20 batches give the error."""
    batches = path.reshape(20, len(path) // 20, -1).mean(1)
    return LongRun(path.mean(0), batches.std(0, ddof=1) / np.sqrt(20))


def long_run(algorithm: Algorithm, world: World, *, rounds: int, burn_in: int, seed: int = 0) -> LongRun:
    """Average the model over `rounds` rounds after `burn_in` others."""
    federation = Federation(algorithm, world, seed)
    for _ in federation.train(burn_in):
        pass
    return time_average(np.array([federation.params.numpy() for _ in federation.train(rounds)]))
