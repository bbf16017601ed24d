"""Quadratic clients in closed form, where thousands of rounds are cheap, and the biases of all methods on them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import product
from math import lcm, prod
from typing import Any

import torch
from torch import Tensor, nn

from fairlead.algorithm import Algorithm
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.conditions.links import LinkModel
from fairlead.conditions.work import FixedSteps, WorkModel
from fairlead.corrections.drift import Proximal
from fairlead.federation import Federation
from fairlead.local_solver import LocalSolver
from fairlead.presets import METHODS
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Conditions, Evaluation, Population, WorkOrder
from fairlead.reproductions.claims import Claim, Less, TableCell
from fairlead.reproductions.reproduction import Computation, Request
from fairlead.theory.quadratics import LocalWork, response
from fairlead.worlds.base import World
from fairlead.worlds.simulated import SimulatedWorld

Reach = Callable[[Tensor], Tensor]
"""κ of clients that take the given numbers of local steps."""


@dataclass(frozen=True, eq=False)
class Balls:
    """F_i(x) = ½‖x − e_i‖² with equal weights: the quadratics of Wang 2021 Fig. 2 and Weng 2025 Figs. 4 and 7."""

    centers: Tensor
    """e, (N, d) float64."""
    work: WorkModel
    link: LinkModel

    @property
    def weights(self) -> Tensor:
        return torch.full((len(self.centers),), 1 / len(self.centers), dtype=torch.float64)

    @property
    def everyone(self) -> Tensor:
        return torch.arange(len(self.centers))

    @property
    def optimum(self) -> Tensor:
        return self.centers.mean(0)

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
        layout = {"x": balls.centers.shape[1]}
        self._population = Population(balls.weights, layout, torch.device("cpu"), torch.float64)

    @property
    def population(self) -> Population:
        return self._population

    @property
    def description(self) -> str:
        return f"{self.balls.centers} {self.start} {self.balls.work!r} {self.balls.link!r}"

    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        return self.start, self.start.new_zeros(0)

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        everyone = self.balls.everyone

        arrival = partial(self.balls.arrival, everyone, round, key)
        steps = partial(self.balls.steps, everyone, solver, round, key)

        def work() -> Tensor | None:
            return solver.effective_steps(steps(), round)

        return Conditions(round, self.balls.weights, work, arrival, forecast_steps=steps)

    def work(self, order: WorkOrder) -> ClientUpdates:
        cohort, solver, key = order.cohort, order.solver, order.key
        arrives = self.balls.link.arrives(cohort.clients, order.round, key.fold("link"))
        clients = cohort.clients[arrives]
        steps = self.balls.steps(clients, solver, order.round, key)
        delta = self.reach(steps)[:, None] * (self.balls.centers[clients] - order.anchor)
        effective_steps = solver.effective_steps(steps, order.round)
        lr = solver.optimizer.lr_at(order.round)
        return ClientUpdates.of(cohort, arrives, delta, steps, effective_steps, lr=lr)

    def module(self, params: Tensor, buffers: Tensor) -> nn.Module:
        return nn.Identity()

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> Evaluation:
        losses = (params - self.balls.centers).square().sum(1) / 2
        return Evaluation(float(self.balls.weights @ losses), {})


_CENTERS = ((2.0, -1.0), (-2.0, 0.5), (0.5, 2.5))
_CAUSES: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {
    "unequal work": ((4, 1, 2), (1.0, 1.0, 1.0)),
    "unequal links": ((2, 2, 2), (1.0, 0.5, 0.25)),
    "both": ((4, 1, 2), (1.0, 0.5, 0.25)),
}
_REACHED, _MISSED = 0.15, 0.2
"""Distances to the optimum; the clients' own optima are three units apart."""

_DRAWN: dict[str, Any] = {"cohort_size": 4_000}
"""So many draws with replacement that their noise is too small to be seen."""
_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg": ("fedavg", {}),
    "FedAvgM": ("fedavgm", {"server_momentum": 0.5}),
    "FedProx": ("fedprox", {"mu": 0.5}),
    "IS": ("importance_sampling", _DRAWN),
    "c-a-FedAvg": ("communication_aware_fedavg", _DRAWN),
    "FedAU": ("fedau", {}),
    "FedVARP": ("fedvarp", {}),
    "MIFA": ("mifa", {}),
    "FedNova": ("fednova", {}),
    "c-a-FedNova": ("communication_aware_fednova", _DRAWN),
    "FedACS": ("fedacs", _DRAWN),
    "FedCM": ("fedcm", {"alpha": 0.5}),
    "VRLSGD": ("vrlsgd", {}),
    "FedAWE": ("fedawe", {}),
    "SCAFFOLD": ("scaffold", {}),
    "FedNova-VR": ("fednova_vr", {}),
    "FedDyn": ("feddyn", {"alpha": 1.0}),
}
_TINY, _LARGE = 0.05, 0.1
"""Learning rates: methods with corrections on the clients are slow to simulate, and exact at any."""


@dataclass(frozen=True)
class _EverySet(LinkModel):
    """Lets every set of clients through in turn, as often as independent links of the given rates would.

    Means over a period are then expectations, without noise. The underscore keeps it out of the parts that specs
    can name.
    """

    rates: tuple[float, ...]

    @cached_property
    def period(self) -> list[tuple[int, ...]]:
        """The sets in their order; rates are whole numbers of halves, quarters or eighths."""
        chances = {
            bits: prod(
                Fraction(rate) if bit else 1 - Fraction(rate)
                for rate, bit in zip(self.rates, bits, strict=True)
            )
            for bits in product((1, 0), repeat=len(self.rates))
        }
        length = lcm(*(chance.denominator for chance in chances.values()))
        sets = [
            tuple(client for client, bit in enumerate(bits) if bit)
            for bits, chance in chances.items()
            for _ in range(int(chance * length))
        ]
        # In threes, which reach every one of a power of two, so that no client is away for long.
        return [sets[place * 3 % length] for place in range(length)]

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return torch.tensor(self.rates, dtype=torch.float64)[clients]

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        present = self.period[round % len(self.period)]
        return torch.isin(clients, torch.tensor(present, dtype=torch.int64))


def _remembers(algorithm: Algorithm) -> bool:
    """Whether clients add more to their gradients than a proximal term."""
    return any(not isinstance(correction, Proximal) for correction in algorithm.solver.corrections)


def _world(algorithm: Algorithm, lr: float, steps: tuple[int, ...], link: _EverySet) -> World:
    """Closed forms where the clients keep no memory, else the simulation."""
    centers = torch.tensor(_CENTERS, dtype=torch.float64)
    if not _remembers(algorithm):
        mu = sum(each.mu for each in algorithm.solver.corrections if isinstance(each, Proximal))
        balls = Balls(centers, FixedSteps(steps), link)
        return ClosedFormWorld(balls, reach_of(LocalWork(lr, 1, mu=mu)), torch.zeros_like(centers[0]))
    weights = torch.full((len(centers),), 1 / len(centers), dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64).expand(len(centers), 2, 2)
    problem = QuadraticProblem(eye, centers, weights)
    return SimulatedWorld(
        problem.task(0.0),
        problem.data(),
        work=FixedSteps(steps),
        link=link,
        weights="uniform",
        dtype=torch.float64,
    )


def _distance(preset: str, arguments: dict[str, Any], cause: str, rounds: int, seed: int) -> float:
    """From the optimum to the mean model of the last period."""
    steps, rates = _CAUSES[cause]
    link = _EverySet(rates)
    trial = METHODS[preset].build(lr=_TINY, steps=1, batch_size=None, **arguments)
    lr = _LARGE if _remembers(trial) else _TINY
    algorithm = METHODS[preset].build(lr=lr, steps=1, batch_size=None, **arguments)
    federation = Federation(algorithm, _world(algorithm, lr, steps, link), seed)
    path = [federation.params for _ in federation.train(rounds // 3 if _remembers(trial) else rounds)]
    end = torch.stack(path[-len(link.period) :]).mean(0)
    return float((end - torch.tensor(_CENTERS, dtype=torch.float64).mean(0)).norm())


def _table(request: Request, seed: int) -> Mapping[TableCell, float]:
    rounds = 480 if request.scale == "full" else 96
    return {
        TableCell(row, cause): _distance(preset, arguments, cause, rounds, seed)
        for row, (preset, arguments) in _ROWS.items()
        for cause in _CAUSES
    }


def _claims() -> tuple[Claim, ...]:
    """A method reaches the optimum where it corrects what is unequal, and misses it elsewhere."""
    unequal = {"unequal work": {"work"}, "unequal links": {"links"}, "both": {"work", "links"}}
    found: list[Claim] = []
    for row, (preset, _) in _ROWS.items():
        for cause, parts in unequal.items():
            cell = TableCell(row, cause)
            reached = parts <= set(METHODS[preset].corrects)
            found.append(Less(cell, _REACHED) if reached else Less(_MISSED, cell))
    return tuple(found)


BIAS_TABLE = Computation(
    name="bias_table",
    reference="weng2025fedacs",
    where="§3-4 and Wang 2021 (5): surrogate weights",
    claim="Averaging converges to an objective that weights clients by their steps and arrivals. Each method removes "
    "the bias it is designed for, and only FedACS, c-a-FedNova, control variates and FedDyn remove both.",
    claims=_claims(),
    differences=(
        "Weng 2025 groups FedVarp with the rules that correct nothing; it removes the bias of links.",
        "Wang 2021 groups SCAFFOLD with VRLSGD; it has no bias under unequal steps.",
    ),
    compute=_table,
    measured=f"distance from the limit of a method to the optimum of the requested objective, which counts as reached "
    f"below {_REACHED} and as missed above {_MISSED}; the clients' own optima are three apart",
    what="3 clients with 4, 1 and 2 steps and arrival rates 1, 1/2 and 1/4; every set of arrivals in turn",
)
