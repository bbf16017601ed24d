"""The speed of a method: effective steps, the factors of FedNova's Theorem 1, and learning rates for equal steps.

With calibrated learning rates, different participation rules take the same expected step (Weng 2025 I.2).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.errors import FieldError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.base import Constant
from fairlead.records import Conditions
from fairlead.text import ClientNames, called
from fairlead.theory.prediction import mean_step


@dataclass(frozen=True)
class ConvergenceFactors:
    """Effective step lengths and the factors of the bound (49) of Wang 2021.

        x⁺ − x ≈ −η τ_eff Σ Ω_i ∇F_i = −η_eff T_eff Σ Ω_i ∇F_i
        τ_eff = Σ C_i‖a_i‖₁,   η_eff = η Σ C_i,   T_eff = τ_eff/Σ C_i
        A = N τ_eff Σ Ω²‖a‖₂²/‖a‖₁²,   A' = τ_eff Σ (Ω²/ω)‖a‖₂²/‖a‖₁²
        B = Λ Σ Ω(τ − 1)‖a‖₂²/‖a‖₁,    C = Λ² max τ(τ − 1)
        bound: 4(F̃⁰ − F̃*)/(η τ_eff T) + 4ηLσ²A/N + 6η²L²σ²B + 12η²L²κ²C

    Symbols: C_i the mean coefficient of client i, τ_i its local steps, Λ the largest entry of any a. τ_eff is
    that of Wang 2021, η_eff and T_eff those of Weng 2025; η is the clients' learning rate, and the server's is
    not in them. A' belongs to sampling with replacement (Theorem 3). FedAvg with equal weights has
    A = A' = 1.

    Differs from the paper: Λ is not 1 for momentum (Wang 2021 §V); with a schedule by step it is an upper
    bound. Steps that vary enter by their means.
    """

    tau_eff: float
    effective_lr: float
    effective_steps: float
    slowdown: float
    """τ̄/τ_eff with the unweighted mean τ̄ of the local steps (Wang 2021)."""
    a: float
    a_sampled: float
    b: float
    c: float


def convergence_factors(
    solver: LocalSolver,
    num_steps: Tensor,
    coefficients: Tensor,
    surrogate: Tensor,
    weights: Tensor,
    *,
    longest: int | None = None,
    round: int = 0,
) -> ConvergenceFactors | None:
    """The factors for clients that take τ local steps and count with mean coefficients C; all (N,).

    Clients without steps or without weight are left out. None if no client remains, or if the solver is
    not linear in the gradient. `longest` is the largest τ where τ are means.

    >>> from fairlead import SGD
    >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> share = torch.tensor([0.2, 0.8], dtype=torch.float64)
    >>> found = convergence_factors(LocalSolver(SGD(0.1), steps=1), torch.tensor([1, 4]), half, share, half)
    >>> found.tau_eff, found.slowdown, found.c
    (2.5, 1.0, 12.0)
    """
    kept = (num_steps > 0) & (weights > 0)
    steps = num_steps[kept].to(torch.float64)
    fewer, more = (
        solver.accumulation(number.to(torch.int64), round) for number in (steps.floor(), steps.ceil())
    )
    if fewer is None or more is None or not len(steps):
        return None
    # A mean between two whole numbers is read as some rounds of either.
    part = steps - steps.floor()
    l1 = torch.lerp(fewer.l1, more.l1, part)
    l2 = torch.lerp(fewer.l2.square(), more.l2.square(), part).sqrt()
    mean, share, asked = coefficients[kept], surrogate[kept], weights[kept]
    most = int(steps.max()) if longest is None else longest
    largest = _largest_entry(solver, most, round)
    tau_eff, scale = float(mean @ l1), float(mean.sum())
    spread = (l2 / l1).square()
    return ConvergenceFactors(
        tau_eff=tau_eff,
        effective_lr=solver.optimizer.lr_at(round) * scale,
        effective_steps=tau_eff / scale if scale > 0 else 0.0,
        slowdown=float(steps.mean()) / tau_eff if tau_eff > 0 else float("inf"),
        a=len(steps) * tau_eff * float(share.square() @ spread),
        a_sampled=tau_eff * float((share.square() / asked) @ spread),
        b=largest * float((share * (steps - 1)) @ (l2.square() / l1)),
        c=largest**2 * most * (most - 1),
    )


def _largest_entry(solver: LocalSolver, longest: int, round: int) -> float:
    """Λ = max a_j. Without a schedule, each step more adds one entry, and ‖a‖₁ grows by just that."""
    steady = replace(solver, step_schedule=Constant())
    norms = steady.accumulation(torch.arange(longest + 1), round)
    assert norms is not None
    factor = max(solver.step_schedule.factor(step) for step in range(longest))
    return factor * float(norms.l1.diff().max())


@dataclass(frozen=True)
class ConsistencyCondition:
    """Condition (13) of Weng 2025: (1 − q_i)‖a_i‖₁ is the same for all clients.

    Where it holds, every regular way to sample and average minimizes the intended objective.
    """

    holds: bool
    ratio: float
    """Largest over smallest (1 − q_i)‖a_i‖₁; inf if updates of a client never arrive."""
    most: tuple[int, ...]
    """Clients furthest above the mean."""
    least: tuple[int, ...]
    """Clients furthest below the mean."""

    def __str__(self) -> str:
        return self.told()

    def told(self, names: ClientNames | None = None) -> str:
        """Whether it holds, and the clients that violate it most, by name where they have one."""
        if self.holds:
            return (
                "The product of work and arrival rate is the same for all clients: plain averaging would be "
                "consistent here."
            )
        most, least = (
            ", ".join(called(client, names) for client in clients) for clients in (self.most, self.least)
        )
        return (
            f"The product of work and arrival rate differs by a factor of {self.ratio:.3g} between clients (most: "
            f"{most}; least: {least})."
        )


def consistency_condition(
    arrival: Tensor, work: Tensor, weights: Tensor, named: int = 3
) -> ConsistencyCondition:
    """Whether (1 − q_i)‖a_i‖₁ is constant over the clients of positive weight, and which clients violate it most."""
    clients = weights.nonzero().flatten()
    through = (arrival * work)[clients]
    mean = float(weights[clients] @ through)
    low, high = float(through.min()), float(through.max())
    order = through.argsort(stable=True)
    least = [int(clients[i]) for i in order[:named] if through[i] < mean * (1 - 1e-9)]
    most = [int(clients[i]) for i in order.flip(0)[:named] if through[i] > mean * (1 + 1e-9)]
    ratio = high / low if low > 0 else float("inf")
    return ConsistencyCondition(high - low <= 1e-9 * high, ratio, tuple(most), tuple(least))


def condition_of(rounds: list[Conditions]) -> ConsistencyCondition | None:
    """Condition (13) for the means over some rounds; None where work or arrival rates are not known."""
    through = []
    for conditions in rounds:
        arrival, work = conditions.arrival, conditions.effective_steps
        if arrival is None or work is None:
            return None
        through.append(arrival * work)
    mean = torch.stack(through).mean(0)
    return consistency_condition(torch.ones_like(mean), mean, rounds[0].weights)


PerClient = Tensor | NDArray[np.float64] | Sequence[float]


def step_length(
    algorithm: Algorithm, *, weights: PerClient, arrival: PerClient, effective_steps: PerClient
) -> float:
    """Local gradient steps that a round of an algorithm is worth on average: its step is η times that long.

        Σ C_i‖a_i‖₁, with C_i the mean coefficient of client i in large cohorts, which gives

        Σ ω(1−q)‖a‖₁                rules that correct no links, and FedNova as Weng 2025 has it
        Σ ω‖a‖₁                     c-a-FedAvg, c-a-FedNova, FedVARP, MIFA, FedAU
        1/Σ [ω/((1−q)‖a‖₁)]         FedACS

    Symbols: ω `weights`, 1 − q `arrival`, ‖a‖₁ `effective_steps`, one number per client. Clients of weight 0 do
    not count.

    Differs from the paper for FedAU: Weng 2025 counts it with the rules that correct no links, because its
    weights are hard to predict.
    """
    share, chance, work = _columns(weights, arrival, effective_steps)
    return mean_step(algorithm, Conditions.known(0, share, work, chance))


def calibrated_lr(
    algorithm: Algorithm,
    lr: float,
    *,
    weights: PerClient,
    arrival: PerClient,
    effective_steps: PerClient | Callable[[float], PerClient],
) -> float:
    """The learning rate with which an algorithm takes steps as long as importance sampling does with `lr`.

        η · step_length(algorithm) = lr · Σ ω(1−q)‖a‖₁

    The methods then differ in the direction of their steps, not in the length (Weng 2025 I.2). Where conditions
    change from round to round, a rate for their means does not do that: FedACS in the dynamic setting of Weng 2025 then
    steps about 0.7 times as far as FedAvg. `Algorithm.calibrate` does it in every round. For a proximal solver ‖a‖₁
    depends on the learning rate: give `effective_steps` as a function of it, and the equation is solved by iteration.

    >>> from fairlead import SGD, LocalSolver, Proximal, presets
    >>> facts = {"weights": [0.5, 0.5], "arrival": [1.0, 0.5], "effective_steps": [1.0, 4.0]}
    >>> fedacs = presets.fedacs(lr=0.1, steps=1, cohort_size=2)
    >>> round(calibrated_lr(fedacs, 0.1, **facts), 4)
    0.1125
    >>> steps = torch.tensor([1, 4])
    >>> def work(lr: float) -> Tensor:
    ...     return LocalSolver(SGD(lr), steps=1, corrections=[Proximal(1.0)]).accumulation(steps, 0).l1
    >>> round(calibrated_lr(fedacs, 0.1, **{**facts, "effective_steps": work}), 4)
    0.108
    """

    def work_at(rate: float) -> PerClient:
        return effective_steps(rate) if callable(effective_steps) else effective_steps

    share, chance, work = _columns(weights, arrival, work_at(lr))
    target = lr * float((share * chance) @ work)
    current = lr
    for _ in range(500):
        length = step_length(algorithm, weights=weights, arrival=arrival, effective_steps=work_at(current))
        previous, current = current, target / length
        if math.isclose(previous, current, rel_tol=1e-13):
            return previous
    raise FieldError(
        f"No learning rate gives this algorithm the step length of importance sampling with lr={lr:g}: the local "
        "solver saturates. Use a smaller lr."
    )


def _columns(weights: PerClient, arrival: PerClient, work: PerClient) -> tuple[Tensor, Tensor, Tensor]:
    columns = [torch.as_tensor(values, dtype=torch.float64) for values in (weights, arrival, work)]
    if len({column.shape for column in columns}) != 1:
        raise FieldError(
            "weights, arrival and effective_steps must have one number per client each, got "
            f"{', '.join(str(len(column)) for column in columns)}."
        )
    share, chance, steps = columns
    counts = share > 0
    if not bool(counts.any()) or not bool((~counts | ((chance > 0) & (steps > 0))).all()):
        raise FieldError("Clients of positive weight must have arrival and effective_steps above 0.")
    return share / share.sum(), chance, steps
