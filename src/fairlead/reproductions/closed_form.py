"""Quadratic clients in closed form, where thousands of rounds are cheap: the biases of all methods, and bounds."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from itertools import product
from math import lcm, prod
from typing import Any

import torch
from torch import Tensor, nn

from fairlead.algorithm import Algorithm
from fairlead.clients.quadratics import QuadraticProblem, Quadratics
from fairlead.conditions.links import LinkModel, ScriptedLink
from fairlead.conditions.work import FixedSteps, WorkModel
from fairlead.corrections.drift import Proximal
from fairlead.experiments.experiment import Experiment
from fairlead.federation import Federation
from fairlead.local_solver import LocalSolver
from fairlead.presets import METHODS
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Conditions, Evaluation, Population, WorkOrder
from fairlead.reproductions.claims import Claim, Less, TableCell
from fairlead.reproductions.reproduction import SCALES, Computation, Request, words
from fairlead.theory.quadratics import LocalWork, response, responses
from fairlead.worlds.base import World
from fairlead.worlds.simulated import SimulatedWorld

Reach = Callable[[Tensor], Tensor]
"""κ of clients that take the given numbers of local steps."""


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
    """Clients with F_i(x) = ½‖x − e_i‖² and equal weights, which move by κ_i(e_i − x).

    They are the quadratics of Wang 2021 Fig. 2 and Weng 2025 Figs. 4 and 7. Symbols: e `centers` (N, d) float64, κ
    `reach`. The run starts at the optimum unless `start` is given. Samplers, links and aggregators are the library's
    own.

    For solvers without memory: an algorithm's corrections other than a proximal term, which is part of κ, have
    no effect here.
    """

    def __init__(
        self, centers: Tensor, work: WorkModel, link: LinkModel, reach: Reach, start: Tensor | None = None
    ) -> None:
        self.centers, self.reach, self._work, self._link = centers, reach, work, link
        self.optimum = centers.mean(0)
        self.start = self.optimum if start is None else start
        weights = torch.full((len(centers),), 1 / len(centers), dtype=torch.float64)
        self._population = Population(weights, {"x": centers.shape[1]}, torch.device("cpu"), torch.float64)

    @property
    def population(self) -> Population:
        return self._population

    @property
    def description(self) -> str:
        return f"{self.centers} {self.start} {self._work!r} {self._link!r}"

    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        return self.start, self.start.new_zeros(0)

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        everyone = torch.arange(len(self.centers))
        arrival = partial(self._link.arrival, everyone, round, key.fold("link"))
        steps = partial(self._steps, everyone, solver, round, key)

        def work() -> Tensor | None:
            return solver.effective_steps(steps(), round)

        return Conditions(round, self._population.weights, work, arrival, forecast_steps=steps)

    def _steps(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> Tensor:
        """Local steps of the given clients, which hold one example each."""
        return self._work.workload(
            clients, torch.ones_like(clients), solver, round, key.fold("work")
        ).num_steps

    def work(self, order: WorkOrder) -> ClientUpdates:
        cohort, solver, key = order.cohort, order.solver, order.key
        arrives = self._link.arrives(cohort.clients, order.round, key.fold("link"))
        clients = cohort.clients[arrives]
        steps = self._steps(clients, solver, order.round, key)
        delta = self.reach(steps)[:, None] * (self.centers[clients] - order.anchor)
        effective_steps = solver.effective_steps(steps, order.round)
        lr = solver.optimizer.lr_at(order.round)
        return ClientUpdates.of(cohort, arrives, delta, steps, effective_steps, lr=lr)

    def module(self, params: Tensor, buffers: Tensor) -> nn.Module:
        return nn.Identity()

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> Evaluation:
        losses = (params - self.centers).square().sum(1) / 2
        return Evaluation(float(self._population.weights @ losses), {})


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


def every_set(rates: tuple[float, ...]) -> ScriptedLink:
    """Lets every set of clients through in turn, as often as independent links of the given rates would.

    Means over a period are then expectations, without noise. Rates are whole numbers of halves, quarters or eighths.
    """
    chances = {
        bits: prod(
            Fraction(rate) if bit else 1 - Fraction(rate) for rate, bit in zip(rates, bits, strict=True)
        )
        for bits in product((1, 0), repeat=len(rates))
    }
    length = lcm(*(chance.denominator for chance in chances.values()))
    sets = [
        tuple(client for client, bit in enumerate(bits) if bit)
        for bits, chance in chances.items()
        for _ in range(int(chance * length))
    ]
    # In threes, which reach every one of a power of two, so that no client is away for long.
    return ScriptedLink(tuple(sets[place * 3 % length] for place in range(length)), rates)


def _remembers(algorithm: Algorithm) -> bool:
    """Whether clients add more to their gradients than a proximal term."""
    return any(not isinstance(correction, Proximal) for correction in algorithm.solver.corrections)


def _world(algorithm: Algorithm, lr: float, steps: tuple[int, ...], link: ScriptedLink) -> World:
    """Closed forms where the clients keep no memory, else the simulation."""
    if not _remembers(algorithm):
        mu = sum(each.mu for each in algorithm.solver.corrections if isinstance(each, Proximal))
        centers, reach = torch.tensor(_CENTERS, dtype=torch.float64), reach_of(LocalWork(lr, 1, mu=mu))
        return ClosedFormWorld(centers, FixedSteps(steps), link, reach, torch.zeros_like(centers[0]))
    problem = Quadratics(linear=_CENTERS).problem(Key.from_seed(0))
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
    link = every_set(rates)
    trial = METHODS[preset].build(lr=_TINY, steps=1, batch_size=None, **arguments)
    lr = _LARGE if _remembers(trial) else _TINY
    algorithm = METHODS[preset].build(lr=lr, steps=1, batch_size=None, **arguments)
    federation = Federation(algorithm, _world(algorithm, lr, steps, link), seed)
    path = [federation.params for _ in federation.train(rounds // 3 if _remembers(trial) else rounds)]
    end = torch.stack(path[-len(link.arrivals) :]).mean(0)
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
    **words("bias_table"),
    claims=_claims(),
    compute=_table,
)


_QUADRATICS = Quadratics(num_clients=10, dim=5, conditioning=10.0, weights=tuple(range(1, 11)))
_MOST, _LONG, _SHORT, _FACTOR = 11, "η_l = 1/K, L = 8K", "η_l = 1/(8KL)", "1 − √s − s"
_DRIFTS = {"Lemma 3.2": ((_MOST,) * 10, 1), "Corollary 3.2": (tuple(range(2, _MOST + 1)), 2)}
"""Local steps of the clients, and the power of K_min beside σ_g²."""


def _slopes(problem: QuadraticProblem, models: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """∇f_i (T, N, d), ζ_i = ‖∇f_i − ∇f‖² (T, N) and ‖∇f‖² (T,) at some models (T, d)."""
    gradients = torch.stack([problem.gradients(model) for model in models])
    mean = problem.weights @ gradients
    return gradients, (gradients - mean[:, None]).square().sum(-1), mean.square().sum(-1)


def _updates(problem: QuadraticProblem, gradients: Tensor, lr: float, steps: tuple[int, ...]) -> Tensor:
    """g_i = x − y_i after local steps of gradient descent, (T, N, d)."""
    reach = responses(problem, [LocalWork(lr, count) for count in steps])
    return torch.einsum("ijk,tik->tij", reach, gradients)


def _drifts(problem: QuadraticProblem, models: Tensor, lr: float, column: str) -> dict[TableCell, float]:
    """Σ λ_i‖y_i − x‖² over the right sides of Lemma 3.2 and Corollary 3.2 of Zeng 2023, the largest of all models.

        5η(6Kσ_g² + 6K‖∇f‖²)   and   5η(6K_min²σ_g² + 6K̃‖∇f‖²) + Σ 30η(K_i − K_min)ζ_i

    Symbols: η `lr`, K̃ = Σ λ_i K_i, σ_g² the largest Σ λ_i ζ_i. Gradients are exact, so that σ_l = 0 and the drift grows
    with every step.
    """
    (gradients, zeta, square), weights = _slopes(problem, models), problem.weights
    found = {}
    for name, (steps, power) in _DRIFTS.items():
        counts = torch.tensor(steps, dtype=torch.float64)
        drift = _updates(problem, gradients, lr, steps).square().sum(-1) @ weights
        apart = counts.min() ** power * (zeta @ weights).max() + zeta @ (counts - counts.min())
        right = 30 * lr * (apart + weights @ counts * square)
        found[TableCell(name, column)] = float((drift / right).max())
    return found


def _path(preset: str, lr: float, rounds: int, seed: int, **arguments: Any) -> tuple[Federation, Tensor]:
    """A finished run, and its models before and after every round, (T + 1, d)."""
    algorithm = METHODS[preset].build(lr=lr, steps=_MOST, batch_size=None, **arguments)
    run = Experiment(_QUADRATICS, algorithm, rounds, seed=seed, evaluate_every=0, dtype="float64").build()
    return run, torch.stack([run.params, *(run.params for _ in run.train())])


def _bounds(request: Request, seed: int) -> Mapping[TableCell, float]:
    """Left over right side of every bound of `BOUNDS`, at most 1 where it holds, and the factor that Theorem 4.1 needs.

        Zeng 2023  mean ‖∇f‖² ≤ 2(f⁰ − fᵀ)/(cT) + mean (√(χ² Σλ_iζ_i) + √((1 + χ²) Σλ_i‖∇f_i − g_i/c‖²))²
        Zeng 2025  mean ‖∇f‖² ≤ 4(f⁰ − f*)/(η_lKT) + 60L²η_l²K²σ_g²

    Symbols: c = η_lK, χ² = Σ (λ_i − λ̃_i)²/λ_i. The first corrects Theorem 4.1, for α = 1 and all clients. It follows
    from f(x − cd) ≤ f − c⟨∇f, d⟩ + ½Lc²‖d‖² with Lc ≤ 1 and d = Σ λ̃_ig_i/c, and from the inequality of Cauchy and
    Schwarz for ∇f − d = Σ (λ_i − λ̃_i)(∇f_i − ∇f) + Σ λ̃_i(∇f_i − g_i/c). The second follows from Lemma A.1 of Zeng
    2025, with σ_l = 0.
    """
    rounds = 20 if request.scale == "smoke" else 200
    problem = _QUADRATICS.problem(Key.from_seed(seed).fold("data"))
    weights, smooth = problem.weights, float(torch.linalg.eigvalsh(problem.hessians).max())
    lr, scale, sharper = 1 / (8 * _MOST * smooth), 1 / (8 * smooth), 8 * _MOST / smooth

    def loss(model: Tensor) -> float:
        return float(model @ (weights @ (problem.gradients(model) - problem.linear))) / 2

    run, models = _path("fedaware", lr, rounds, seed, alpha=1.0)
    sharp = QuadraticProblem(sharper * problem.hessians, sharper * problem.linear, weights)
    figures = _drifts(sharp, models[:1], 1 / _MOST, _LONG)
    figures |= _drifts(problem, models[:-1], lr, _SHORT)
    gradients, zeta, square = _slopes(problem, models[:-1])
    shares = torch.tensor([[record.remembered.get(i, 0.0) for i in range(10)] for record in run.records])
    error = (gradients - _updates(problem, gradients, lr, (_MOST,) * 10) / scale).square().sum(-1) @ weights
    far = (shares / weights - 1).square()
    apart = ((far @ weights) * (zeta @ weights)).sqrt() + ((1 + far @ weights) * error).sqrt()
    right = 2 * (loss(models[0]) - loss(models[-1])) / (scale * rounds) + float(apart.square().mean())
    figures[TableCell("Theorem 4.1", _SHORT)] = float(square.mean()) / right
    figures[TableCell("Theorem 4.1", _FACTOR)] = float((1 - far.sum(1).sqrt() - far.sum(1)).max())
    _, models = _path("fedavg", lr / 3, rounds, seed)
    _, zeta, square = _slopes(problem, models[:-1])
    right = 12 * (loss(models[0]) - loss(problem.optimum)) / (scale * rounds)
    right += 60 * (smooth * scale / 3) ** 2 * float((zeta @ weights).max())
    figures[TableCell("Zeng 2025, Theorem 4.1", "η_l = 1/(24KL)")] = float(square.mean()) / right
    return figures


BOUNDS = Computation(
    **words("zeng2023_bounds"),
    claims=(
        *(Less(TableCell(name, column), 1.0) for column in (_LONG, _SHORT) for name in _DRIFTS),
        Less(0.0, TableCell("Theorem 4.1", _FACTOR)),
        Less(TableCell("Zeng 2025, Theorem 4.1", "η_l = 1/(24KL)"), 1.0),
    ),
    released=tuple(Less(TableCell(name, _SHORT), 1.0) for name in (*_DRIFTS, "Theorem 4.1")),
    released_as="corrected",
    released_at=SCALES,
    compute=_bounds,
)
