"""Quadratic clients whose local work is known in closed form, so that thousands of rounds are cheap."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairlead.client_table import PartState
from fairlead.conditions.links import LinkModel
from fairlead.conditions.work import WorkModel
from fairlead.local_solver import LocalSolver
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Conditions, Evaluation, Population, WorkOrder
from fairlead.theory.quadratics import LocalWork, response
from fairlead.worlds.base import World

Reach = Callable[[Tensor], Tensor]
"""κ of clients that take the given numbers of local steps."""


@dataclass(frozen=True, eq=False)
class Balls:
    """F_i(x) = ½‖x − e_i‖² with equal weights: the quadratics of Wang 2021 Fig. 2 and Weng 2025 Figs. 4 and 7."""

    centres: Tensor
    """e, (N, d) float64."""
    work: WorkModel
    link: LinkModel

    @property
    def weights(self) -> Tensor:
        return torch.full((len(self.centres),), 1 / len(self.centres), dtype=torch.float64)

    @property
    def everyone(self) -> Tensor:
        return torch.arange(len(self.centres))

    @property
    def optimum(self) -> Tensor:
        return self.centres.mean(0)

    def steps(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> Tensor:
        """Local steps of the given clients, which hold one example each."""
        return self.work.workload(
            clients, torch.ones_like(clients), solver, round, key.fold("work")
        ).num_steps

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        """1 − q of the given clients."""
        rates = self.link.arrival(clients, round, key.fold("link"))
        assert rates is not None
        return rates


def reach_of(work: LocalWork) -> Reach:
    """κ with y − x = κ(e − x) after τ steps of the given kind, from the oracle for a Hessian of 1."""
    one = torch.ones((1, 1), dtype=torch.float64)
    known: dict[int, float] = {}

    def reach(steps: Tensor) -> Tensor:
        for number in set(steps.tolist()) - set(known):
            known[number] = float(response(one, LocalWork(**{**vars(work), "num_steps": number})))
        return torch.tensor([known[number] for number in steps.tolist()], dtype=torch.float64)

    return reach


class ClosedFormWorld(World):
    """Clients of `Balls` that move by κ_i(e_i − x); samplers, links and aggregators are the library's own.

    For solvers without memory: an algorithm's corrections other than a proximal term, which is part of κ, have
    no effect here.
    """

    def __init__(self, balls: Balls, reach: Reach, start: Tensor) -> None:
        self.balls, self.reach, self.start = balls, reach, start
        layout = {"x": balls.centres.shape[1]}
        self._population = Population(balls.weights, layout, torch.device("cpu"), torch.float64)

    @property
    def population(self) -> Population:
        return self._population

    @property
    def description(self) -> str:
        return f"{self.balls.centres} {self.start} {self.balls.work!r} {self.balls.link!r}"

    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        return self.start, self.start.new_zeros(0)

    def initial_memory(self, solver: LocalSolver) -> PartState:
        return {}

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        everyone = self.balls.everyone

        def work() -> Tensor | None:
            return solver.effective_steps(self.balls.steps(everyone, solver, round, key), round)

        return Conditions(round, self.balls.weights, work, lambda: self.balls.arrival(everyone, round, key))

    def work(self, order: WorkOrder) -> ClientUpdates:
        cohort, solver, key = order.cohort, order.solver, order.key
        arrives = self.balls.link.arrives(cohort.clients, order.round, key.fold("link"))
        clients = cohort.clients[arrives]
        steps = self.balls.steps(clients, solver, order.round, key)
        delta = self.reach(steps)[:, None] * (self.balls.centres[clients] - order.anchor)
        effective_steps = solver.effective_steps(steps, order.round)
        lr = solver.optimizer.lr_at(order.round)
        return ClientUpdates.of(cohort, arrives, delta, steps, effective_steps, lr=lr)

    def commit(
        self,
        memory: PartState,
        updates: ClientUpdates,
        solver: LocalSolver,
        params: Tensor,
        direction: Tensor,
    ) -> PartState:
        return memory

    def module(self, params: Tensor, buffers: Tensor) -> nn.Module:
        return nn.Identity()

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> Evaluation:
        losses = (params - self.balls.centres).square().sum(1) / 2
        return Evaluation(float(self.balls.weights @ losses), {})
