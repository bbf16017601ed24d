"""FedAWARE and its projection as short NumPy loops, and the uneven federation that tests compare them on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fairlead.algorithm import Algorithm
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.conditions.links import ScriptedLink
from fairlead.conditions.work import ScriptedWork
from fairlead.federation import Federation
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.samplers.fixed import ScriptedSampler
from fairlead.worlds.simulated import SimulatedWorld

Array = NDArray[np.float64]
CLIENTS, DIM, LR = 4, 6, 0.2
WEIGHTS = np.array([0.1, 0.4, 0.2, 0.3])
COHORTS = ((0, 1), (1, 1, 2), (3, 0), (0, 2, 2), (3, 1, 1, 0), (2, 3), (0, 1, 2, 3), (1,), (2, 0))
ARRIVALS = ((0, 1), (1, 2), (), (0, 2), (0, 1, 3), (3,), (0, 1, 2, 3), (1,), (0, 2))
"""Client 3 is lost in round 2, in which nothing arrives, and first arrives in round 4, when all have."""
STEPS = tuple(tuple(1 + (2 * r + 3 * i + r * i) % 4 for i in range(CLIENTS)) for r in range(len(COHORTS)))
ALL_ARRIVED = 4


def problem() -> QuadraticProblem:
    """Four quadratic clients in six dimensions, so that their updates are independent."""
    generator = np.random.default_rng(11)
    frames = np.linalg.qr(generator.normal(size=(CLIENTS, DIM, DIM)))[0]
    hessians = (frames * generator.uniform(0.3, 1.0, (CLIENTS, 1, DIM))) @ frames.transpose(0, 2, 1)
    linear = generator.normal(size=(CLIENTS, DIM))
    return QuadraticProblem(
        torch.from_numpy(hessians), torch.from_numpy(linear), torch.from_numpy(WEIGHTS.copy())
    )


SOLVER = LocalSolver(SGD(LR), steps=1)
SAMPLER = ScriptedSampler(COHORTS)


def federation(algorithm: Algorithm, engine: Literal["loop", "batched"] = "loop") -> Federation:
    """The scripted federation; the model starts at 2 in every entry."""
    quadratics = problem()
    world = SimulatedWorld(
        quadratics.task(2.0),
        quadratics.data(),
        work=ScriptedWork(STEPS),
        link=ScriptedLink(ARRIVALS),
        weights=quadratics.weights,
        engine=engine,
        lanes=3,
        dtype=torch.float64,
    )
    return Federation(algorithm, world)


def path(run: Federation, rounds: int = len(COHORTS)) -> Array:
    """Models after each round."""
    return np.array([run.params.numpy() for _ in run.train(rounds)])


def shortest(vectors: Array) -> Array:
    """λ of the shortest point in the hull by trying every support, the smallest norm first found wins."""
    best, norm = np.zeros(len(vectors)), np.inf
    for size in range(1, len(vectors) + 1):
        for support in combinations(range(len(vectors)), size):
            chosen = vectors[list(support)]
            y = -np.linalg.pinv((chosen[1:] - chosen[0]).T) @ chosen[0]
            weights = np.append(1 - y.sum(), y)
            square = float(np.sum((weights @ chosen) ** 2))
            if np.all(weights >= 0) and square < norm:
                best, norm = np.zeros(len(vectors)), square
                best[list(support)] = weights
    return best


class Memory(NamedTuple):
    """What a transcription's step is told: memory of the clients that arrived so far, and this round's arrivals."""

    rows: dict[int, Array]
    updates: dict[int, Array]
    """g_i = x − y_i of the arrivals."""
    share: dict[int, float]
    """p̂_i of the arrivals: draws of each among all draws that arrived."""


def transcribed(
    alpha: float, step: Callable[[Memory], Array], first_visit: Literal["update", "scaled"] = "update"
) -> Array:
    """x ← x − step(memory) with m_i ← (1 − α)m_i + αg_i (Zeng 2025 (3)), over the scripted rounds."""
    quadratics = problem()
    hessians, linear = quadratics.hessians.numpy(), quadratics.linear.numpy()
    x, rows, models = np.full(DIM, 2.0), dict[int, Array](), []
    for cohort, arrived, steps in zip(COHORTS, ARRIVALS, STEPS, strict=True):
        received = sorted(set(cohort) & set(arrived))
        updates = {}
        for i in received:
            y = x
            for _ in range(steps[i]):
                y = y - LR * (hessians[i] @ y - linear[i])
            updates[i] = x - y
            fresh = updates[i] if first_visit == "update" else alpha * updates[i]
            rows[i] = (1 - alpha) * rows[i] + alpha * updates[i] if i in rows else fresh
        if received:
            drawn = sum(cohort.count(i) for i in received)
            x = x - step(Memory(rows, updates, {i: cohort.count(i) / drawn for i in received}))
        models.append(x)
    return np.array(models)


def aware_direction(memory: Memory, rows: Literal["raw", "unit"] = "raw") -> Array:
    """Σλ_i m_i over the clients that arrived, the m_i scaled to length 1 first if asked."""
    vectors = np.array([memory.rows[i] for i in sorted(memory.rows)])
    if rows == "unit":
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    direction: Array = shortest(vectors) @ vectors
    return direction


def mean_update(memory: Memory) -> Array:
    """FedAvg's Σ_R p̂_i g_i."""
    total: Array = np.sum([memory.share[i] * g for i, g in memory.updates.items()], axis=0)
    return total
