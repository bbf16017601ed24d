"""Every participation method against a NumPy transcription: repeats, losses, unequal work, an empty round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from lossy_quadratics import Array

from fairlead import presets
from fairlead.aggregators.weighted import CommunicationAware, FedNova
from fairlead.algorithm import Algorithm
from fairlead.clients.quadratics import Quadratics
from fairlead.conditions.links import ScriptedLink
from fairlead.conditions.work import ScriptedWork
from fairlead.corrections.drift import Proximal
from fairlead.federation import Federation
from fairlead.randomness import Key
from fairlead.samplers.adaptive import FedACS, FedACSEstimated, OptimalSampling
from fairlead.samplers.base import Sampler
from fairlead.samplers.fixed import ScriptedSampler
from fairlead.worlds.simulated import SimulatedWorld

LR, RHO, MU, K = 0.1, 0.5, 0.3, 4
OMEGA = np.array([0.1, 0.4, 0.3, 0.2])
RATES = (0.9, 0.5, 0.7, 0.4)
COHORTS = ((0, 1, 1, 3), (2, 2, 2, 0), (1, 3, 0, 2), (0, 0, 1, 3), (3, 3, 1, 2), (1, 1, 2, 2), (0, 1, 2, 3))
ARRIVALS = ((0, 1, 3), (0,), (1, 2), (), (0, 1, 2, 3), (2,), (0, 3))
WORK = ((1, 3, 2, 4), (2, 1, 5, 1), (3, 3, 1, 2), (1, 1, 1, 1), (4, 2, 2, 1), (2, 2, 3, 3), (1, 4, 2, 5))
ROUNDS = len(COHORTS)

PROBLEM = Quadratics(num_clients=4, dim=3, conditioning=4.0).problem(Key.from_seed(1))
HESSIANS, LINEAR = PROBLEM.hessians.numpy(), PROBLEM.linear.numpy()

Draw = Callable[[int], dict[int, float]]
"""Importance of the distinct clients asked in a round."""
Direction = Callable[[int, dict[int, float], dict[int, Array]], Array]
"""Direction from the round, the importance of those asked and the updates that arrived."""


def local_update(client: int, steps: int, x: Array) -> Array:
    """y − x after proximal momentum SGD: v ← ρv + ∇F_i(y) + μ(y − x), y ← y − ηv."""
    y, v = x, np.zeros_like(x)
    for _ in range(steps):
        v = RHO * v + HESSIANS[client] @ y - LINEAR[client] + MU * (y - x)
        y = y - LR * v
    delta: Array = y - x
    return delta


def work_of(steps: int) -> float:
    """‖a‖₁: the same solver against a gradient of 1 everywhere."""
    y = v = 0.0
    for _ in range(steps):
        v = RHO * v + 1 - MU * y
        y = y + LR * v
    return y / LR


def transcribe(draw: Draw, direction: Direction) -> Array:
    """The models after every round; one without arrivals tells `direction` so, and leaves the model unless (114)."""
    x, path = np.ones(3), []
    for round in range(ROUNDS):
        asked = draw(round)
        updates = {i: local_update(i, WORK[round][i], x) for i in asked if i in ARRIVALS[round]}
        move = direction(round, asked, updates)
        if updates or direction.__qualname__.startswith("fedvarp_stale"):
            x = x + move
        path.append(x)
    return np.array(path)


def scripted_draw(round: int) -> dict[int, float]:
    cohort = COHORTS[round]
    return {i: cohort.count(i) / K for i in sorted(set(cohort))}


def combine(coefficient: Callable[[int], float], updates: dict[int, Array]) -> Array:
    return sum((coefficient(i) * delta for i, delta in updates.items()), np.zeros(3))


def anonymous(round: int, asked: dict[int, float], updates: dict[int, Array]) -> Array:
    """Weng 2025 (18)."""
    return combine(lambda i: asked[i], updates)


def communication_aware(round: int, asked: dict[int, float], updates: dict[int, Array]) -> Array:
    """Weng 2025 (113)."""
    return combine(lambda i: asked[i] / RATES[i], updates)


def anonymous_fednova(round: int, asked: dict[int, float], updates: dict[int, Array]) -> Array:
    """Weng 2025 (116): T_eff is a mean over all clients, not over those that arrived."""
    a = np.array([work_of(steps) for steps in WORK[round]])
    mass = OMEGA * np.array(RATES)
    return combine(lambda i: asked[i] * (mass @ a / mass.sum()) / a[i], updates)


def communication_aware_fednova(round: int, asked: dict[int, float], updates: dict[int, Array]) -> Array:
    """1/(1 − q) and Σω‖a‖/‖a_i‖."""
    a = np.array([work_of(steps) for steps in WORK[round]])
    return combine(lambda i: asked[i] / RATES[i] * (OMEGA @ a) / a[i], updates)


def communication_aware_shares(round: int, asked: dict[int, float], updates: dict[int, Array]) -> Array:
    """Wang 2021 (20) with p̂ ∝ c_i/(1 − q_i) over the arrivals, τ_eff = Σp̂‖a‖."""
    mass = {i: asked[i] / RATES[i] for i in updates}
    total = sum(mass.values())
    tau = sum(mass[i] / total * work_of(WORK[round][i]) for i in updates)
    return combine(lambda i: tau * mass[i] / total / work_of(WORK[round][i]), updates)


def fedau(cutoff: float) -> Direction:
    """Wang & Ji, Algorithm 2, with ω for 1/N; every client counts in every round, the empty one too."""
    weight, intervals, waited = np.ones(4), np.zeros(4), np.zeros(4)

    def direction(round: int, asked: dict[int, float], updates: dict[int, Array]) -> Array:
        move = combine(lambda i: OMEGA[i] * weight[i], updates)
        for i in range(4):
            waited[i] += 1
            if i in updates or waited[i] == cutoff:
                if intervals[i] == 0:
                    weight[i] = waited[i]
                else:
                    weight[i] = (intervals[i] * weight[i] + waited[i]) / (intervals[i] + 1)
                intervals[i] += 1
                waited[i] = 0
        return move

    return direction


def fedvarp() -> Direction:
    """v = Σp̂(Δ_i − y_i) + Σω_j y_j with the mean over all memories recomputed in every round."""
    memory = np.zeros((4, 3))

    def direction(round: int, asked: dict[int, float], updates: dict[int, Array]) -> Array:
        total = sum(asked[i] for i in updates)
        fresh = {i: delta - memory[i] for i, delta in updates.items()}
        move: Array = combine(lambda i: asked[i] / total, fresh) + OMEGA @ memory
        for i, delta in updates.items():
            memory[i] = delta
        return move

    return direction


def fedvarp_stale() -> Direction:
    """Weng 2025 (114)."""
    memory = np.zeros((4, 3))

    def direction(round: int, asked: dict[int, float], updates: dict[int, Array]) -> Array:
        for i, delta in updates.items():
            memory[i] = delta
        return combine(lambda i: asked[i], {i: memory[i] for i in asked})

    return direction


def mifa() -> Direction:
    """y_i ← Δ_i, then Σω_j y_j."""
    memory = np.zeros((4, 3))

    def direction(round: int, asked: dict[int, float], updates: dict[int, Array]) -> Array:
        for i, delta in updates.items():
            memory[i] = delta
        move: Array = OMEGA @ memory
        return move

    return direction


def with_prox_momentum(algorithm: Algorithm) -> Algorithm:
    return replace(algorithm, solver=replace(algorithm.solver, corrections=(Proximal(MU),)))


def preset(name: str, **own: object) -> Algorithm:
    clients = {"lr": LR, "momentum": RHO, "steps": 1, "cohort_size": K}
    if name == "full_participation":
        del clients["cohort_size"]
    return with_prox_momentum(presets.method_named(name).build(**clients, **own))


def run(algorithm: Algorithm, engine: Literal["loop", "batched"]) -> Array:
    world = SimulatedWorld(
        PROBLEM.task(),
        PROBLEM.data(),
        work=ScriptedWork(WORK),
        link=ScriptedLink(ARRIVALS, RATES),
        weights=torch.from_numpy(OMEGA),
        engine=engine,
        dtype=torch.float64,
    )
    federation = Federation(algorithm, world, seed=SEED)
    return np.array([federation.params.numpy() for _ in federation.train(ROUNDS)])


SEED = 4
SHARES = replace(preset("communication_aware_fednova"), aggregator=CommunicationAware(FedNova()))
SCRIPTED: dict[str, tuple[Algorithm, Callable[[], Direction]]] = {
    "importance_sampling": (preset("importance_sampling"), lambda: anonymous),
    "communication_aware_fedavg": (preset("communication_aware_fedavg"), lambda: communication_aware),
    "anonymous_fednova": (preset("anonymous_fednova"), lambda: anonymous_fednova),
    "communication_aware_fednova": (
        preset("communication_aware_fednova"),
        lambda: communication_aware_fednova,
    ),
    "communication_aware_shares": (SHARES, lambda: communication_aware_shares),
    "fedau": (preset("fedau", cutoff=2), lambda: fedau(2)),
    "fedau_uncut": (preset("fedau", cutoff=None), lambda: fedau(np.inf)),
    "fedvarp": (preset("fedvarp"), fedvarp),
    "fedvarp_stale": (preset("fedvarp_stale"), fedvarp_stale),
    "mifa": (preset("mifa"), mifa),
}


@pytest.mark.parametrize("engine", ["loop", "batched"])
@pytest.mark.parametrize("name", SCRIPTED)
def test_method_matches_its_transcription(name: str, engine: Literal["loop", "batched"]) -> None:
    """Seven scripted rounds of proximal momentum SGD, cohorts with repeats, the fourth round empty."""
    algorithm, direction = SCRIPTED[name]
    scripted = replace(algorithm, sampler=ScriptedSampler(COHORTS))
    expected = transcribe(scripted_draw, direction())
    np.testing.assert_allclose(run(scripted, engine), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_full_participation_matches_its_transcription(engine: Literal["loop", "batched"]) -> None:
    """Weng 2025 (21): Σ_R ω_i Δ_i over all that arrive."""
    expected = transcribe(lambda round: dict(enumerate(OMEGA)), anonymous)
    np.testing.assert_allclose(run(preset("full_participation"), engine), expected, rtol=0, atol=1e-10)


def inverse_transform(probabilities: Array, round: int) -> list[int]:
    """K draws by walking along the cumulated probabilities, from the run's own stream of uniforms."""
    uniforms = Key.from_seed(SEED).fold("sampler", round).generator().random(K)
    total = probabilities.sum()
    return [next(i for i in range(4) if probabilities[: i + 1].sum() / total > u) for u in uniforms]


def counts(draws: list[int]) -> dict[int, float]:
    return {i: draws.count(i) / K for i in sorted(set(draws))}


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_fedacs_matches_its_transcription(engine: Literal["loop", "batched"]) -> None:
    """Weng 2025 Algorithm 1 with the work of each round: p ∝ ω/((1 − q)‖a^{(r)}‖₁)."""

    def draw(round: int) -> dict[int, float]:
        a = np.array([work_of(steps) for steps in WORK[round]])
        return counts(inverse_transform(OMEGA / (np.array(RATES) * a), round))

    expected = transcribe(draw, anonymous)
    np.testing.assert_allclose(run(preset("fedacs"), engine), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", ["loop", "batched"])
@pytest.mark.parametrize("planned", [False, True])
def test_estimated_fedacs_matches_its_transcription(
    planned: bool, engine: Literal["loop", "batched"]
) -> None:
    """Discounted counts of arrivals and losses, averaged reports, the least report for clients that never arrived."""
    sampler = FedACSEstimated(
        K,
        prior_arrived=2.0,
        prior_lost=1.0,
        forget=0.2,
        work_rate=0.5,
        planned_work=planned,
        min_arrival=0.4,
    )
    arrived, lost, reports = [2.0] * 4, [1.0] * 4, dict[int, float]()

    def draw(round: int) -> dict[int, float]:
        p = np.zeros(4)
        for i in range(4):
            rate = max(arrived[i] / (arrived[i] + lost[i]), 0.4)
            work = work_of(WORK[round][i]) if planned else reports.get(i, min(reports.values(), default=1.0))
            p[i] = OMEGA[i] / (rate * work)
        return counts(inverse_transform(p, round))

    def direction(round: int, asked: dict[int, float], updates: dict[int, Array]) -> Array:
        for i in asked:
            arrived[i] = 0.8 * arrived[i] + (i in updates)
            lost[i] = 0.8 * lost[i] + (i not in updates)
        for i in updates:
            own = work_of(WORK[round][i])
            reports[i] = own if i not in reports else 0.5 * reports[i] + 0.5 * own
        return anonymous(round, asked, updates)

    algorithm = replace(preset("fedacs_estimated"), sampler=sampler)
    np.testing.assert_allclose(run(algorithm, engine), transcribe(draw, direction), rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_optimal_sampling_matches_its_transcription(engine: Literal["loop", "batched"]) -> None:
    """Weng 2025 (20) with the last received norms, the largest for the unseen, and a floor of 0.1."""
    norms: dict[int, float] = {}

    def draw(round: int) -> dict[int, float]:
        guess = max(norms.values(), default=1.0)
        score = OMEGA * np.array([norms.get(i, guess) for i in range(4)])
        p = 0.9 * score / score.sum() + 0.1 * OMEGA
        return {i: share * OMEGA[i] / p[i] for i, share in counts(inverse_transform(p, round)).items()}

    def direction(round: int, asked: dict[int, float], updates: dict[int, Array]) -> Array:
        norms.update({i: float(np.linalg.norm(delta)) for i, delta in updates.items()})
        return anonymous(round, asked, updates)

    expected = transcribe(draw, direction)
    np.testing.assert_allclose(run(preset("optimal_sampling"), engine), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("fedacs", FedACS(K)),
        ("fedacs_estimated", FedACSEstimated(K)),
        ("optimal_sampling", OptimalSampling(K)),
    ],
)
def test_presets_draw_with_their_sampler(name: str, sampler: Sampler) -> None:
    assert preset(name).sampler == sampler
