"""Every preset against a loop transcription of its paper, over rounds in which everything is uneven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from transcriptions import TRANSCRIPTIONS, Array, Script, aware_projection

from fairlead.algorithm import Algorithm
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.conditions.links import BernoulliLink, LinkModel, ScriptedLink
from fairlead.conditions.work import ScriptedWork
from fairlead.federation import Federation
from fairlead.presets import METHODS
from fairlead.samplers.fixed import ScriptedSampler
from fairlead.transforms.projections import AwareProjection
from fairlead.worlds.simulated import SimulatedWorld

TOLERANCE = 1e-10
CLIENTS, DIM = 4, 3

COHORTS = (
    (0, 1, 2),
    (1, 1, 3),
    (2, 0, 2, 0),
    (3, 1),
    (0, 1, 2, 3),
    (3, 3, 3, 2),
    (1, 0),
    (0, 1, 2, 3),
    (2, 2),
)
STEPS = tuple(tuple(1 + (3 * r + 2 * i + r * i) % 5 for i in range(CLIENTS)) for r in range(len(COHORTS)))
ARRIVALS = ((0, 2), (1, 3), (0, 1, 2, 3), (2,), (0, 1, 3), (2, 3), (0, 1, 2, 3), (1, 2, 3), (0, 2))
RATES = (0.9, 0.5, 0.75, 0.6)
"""Round 0 loses one update, round 3 loses all, rounds 1, 2, 5 and 8 draw clients repeatedly."""

CASES: dict[str, list[dict[str, Any]]] = {
    "anonymous_fednova": [{}, {"momentum": 0.6}],
    "apfl": [{}, {"mix": 0.9}],
    "communication_aware_fedavg": [{}],
    "communication_aware_fednova": [{}, {"momentum": 0.6, "nesterov": True}],
    "coordinate_median": [{}, {"server_lr": 0.7, "momentum": 0.6}],
    "ditto": [{"mu": 0.5}, {"mu": 2.0, "personal_steps": 3, "personal_lr": 0.1}],
    "fedacs": [{}],
    "fedacs_estimated": [{}],
    "fedadagrad": [{}, {"initial_v": 0.3, "beta1": 0.5, "server_lr": 0.2}],
    "fedadam": [{}, {"initial_v": 1e-8, "beta1": 0.5, "beta2": 0.7, "eps": 0.1}],
    "fedams": [{"option": 1}, {"option": 1, "eps": 0.05}, {"option": 2}, {"option": 2, "eps": 0.1}],
    "fedau": [{}, {"cutoff": 2}, {"cutoff": None}],
    "fedavg": [{}, {"momentum": 0.6}, {"momentum": 0.6, "nesterov": True}],
    "fedavg_compressed": [
        {"share": 0.4},
        {"share": 1.0, "bits": 3},
        {"share": 0.5, "bits": 4},
        {"share": 1.0},
    ],
    "fedavg_finetuned": [{}],
    "fedavgm": [{}, {"server_momentum": 0.5, "server_lr": 0.7}],
    "fedaware": [
        {},
        {"alpha": 0.3, "first_visit": "scaled", "server_lr": 0.7},
        {"retention": 0.8, "start": "all_seen"},
        {"start": "zero", "rows": "unit"},
        {"rows": "unit"},
        {"rows": "equal", "server_lr": 0.5},
    ],
    "fedaware_na": [{}, {"alpha": 0.3, "first_visit": "scaled"}, {"retention": 0.3, "server_lr": 0.7}],
    "fedaware_published": [{}, {"alpha": 0.3, "server_lr": 0.4}],
    "fedaware_ridge": [{}, {"rho": 0.2, "alpha": 0.3, "server_lr": 0.4}, {"rows": "equal", "server_lr": 0.5}],
    "fedawe": [{}, {"echo": 0.6}],
    "fedbn": [{"own": ()}],
    "fedbuff": [{}, {"server_lr": 0.7, "momentum": 0.6}],
    "fedcm": [{}, {"alpha": 0.4, "server_lr": 0.8}, {"alpha": 0.3, "momentum": 0.6}],
    "fedexp": [{}, {"eps": 0.3, "momentum": 0.6}],
    "feddyn": [{"alpha": 0.5}, {"alpha": 2.0, "momentum": 0.6}],
    "fedmgda_plus": [{"server_lr": 0.3}, {"epsilon": 0.0}, {"epsilon": 1.0}],
    "fednova": [
        {},
        {"tau_eff": "steps", "mu": 0.7},
        {"tau_eff": 2.5},
        {"momentum": 0.9, "server_momentum": 0.9},
        {"momentum": 0.5, "nesterov": True, "mu": 0.3},
    ],
    "fednova_vr": [{}, {"momentum": 0.6, "tau_eff": "steps"}, {"tau_eff": 1.5}],
    "fedper": [{"own": ()}],
    "fedprox": [{"mu": 0.8}, {"mu": 0.2, "momentum": 0.6}],
    "fedrep": [{"own": ()}, {"own": (), "personal_steps": 3}],
    "fedvarp": [{}, {"server_lr": 0.6}],
    "fedvarp_stale": [{}],
    "fedyogi": [{}, {"initial_v": 1e-8, "beta1": 0.5, "beta2": 0.7, "eps": 0.1}],
    "full_participation": [{}],
    "geometric_median": [{}, {"server_lr": 0.7, "smoothing": 0.05}],
    "importance_sampling": [{}],
    "krum": [{}, {"hostile": 0.4, "keep": 2, "server_lr": 0.7}],
    "mifa": [{}],
    "multi_krum": [{}, {"hostile": 0.0, "momentum": 0.6}],
    "norm_bounded_mean": [{}, {"bound": 0.4}, {"bound": 50.0, "server_lr": 0.7}],
    "optimal_sampling": [],
    "per_fedavg": [{}, {"inner_lr": 0.7, "server_lr": 0.6}, {"delta": 0.01, "inner_lr": 0.2}],
    "pfedme": [{"mu": 2.0}, {"mu": 1.5, "inner_lr": 0.1, "inner_steps": 3, "server_lr": 0.7}],
    "power_of_choice": [{}],
    "scaffold": [{}, {"estimate": "anchor"}, {"server_lr": 0.7, "momentum": 0.6}],
    "trimmed_mean": [{}, {"trim": 0.4, "server_lr": 0.7}, {"trim": 0.01}],
    "uniform_sampling": [{}],
    "vrlsgd": [{}, {"momentum": 0.6}],
}
"""Arguments of each preset; `optimal_sampling` is compared with its own sampler only."""

WITH_COHORT_SIZE = {
    "anonymous_fednova",
    "communication_aware_fedavg",
    "communication_aware_fednova",
    "fedacs",
    "fedacs_estimated",
    "fedvarp_stale",
    "importance_sampling",
    "optimal_sampling",
    "power_of_choice",
}


def federation() -> tuple[QuadraticProblem, Tensor]:
    """Four clients with different curvature, in three dimensions, of unequal weight."""
    generator = np.random.default_rng(7)
    frames = np.linalg.qr(generator.normal(size=(CLIENTS, DIM, DIM)))[0]
    eigenvalues = generator.uniform(0.2, 1.0, (CLIENTS, 1, DIM))
    hessians = (frames * eigenvalues) @ frames.transpose(0, 2, 1)
    weights = np.array([0.1, 0.4, 0.2, 0.3])
    problem = QuadraticProblem(
        torch.from_numpy(hessians),
        torch.from_numpy(generator.normal(size=(CLIENTS, DIM))),
        torch.from_numpy(weights),
    )
    return problem, torch.from_numpy(generator.normal(size=DIM))


def run(
    algorithm: Algorithm, rounds: int, engine: Literal["loop", "batched"], link: LinkModel
) -> tuple[Array, Federation]:
    """The library's models after each round, and the federation that made them."""
    problem, start = federation()
    world = SimulatedWorld(
        problem.task(start),
        problem.data(),
        work=ScriptedWork(STEPS),
        link=link,
        weights=problem.weights,
        engine=engine,
        lanes=2,
        dtype=torch.float64,
    )
    training = Federation(algorithm, world, seed=3)
    path = [training.params.numpy() for _ in training.train(rounds)]
    return np.array(path), training


def script(
    cohorts: tuple[tuple[int, ...], ...],
    arrivals: tuple[tuple[int, ...], ...],
    importance: Literal["draws", "weights", "uniform"],
) -> Script:
    """The same federation for the transcriptions."""
    problem, start = federation()
    return Script(
        hessians=problem.hessians.numpy(),
        linear=problem.linear.numpy(),
        weights=problem.weights.numpy(),
        start=start.numpy(),
        cohorts=cohorts,
        steps=tuple(STEPS[r % len(STEPS)] for r in range(len(cohorts))),
        arrivals=arrivals,
        arrival_rates=RATES,
        importance=importance,
    )


def arguments(name: str, **own: Any) -> dict[str, Any]:
    """Arguments of a preset, with the draws that some of them insist on."""
    return {"lr": 0.3, **own} | ({"cohort_size": 3} if name in WITH_COHORT_SIZE else {})


def test_every_preset_has_a_transcription_and_a_case() -> None:
    """No method is forgotten: the three tables name the same presets."""
    assert set(TRANSCRIPTIONS) == set(METHODS)
    assert set(CASES) == set(METHODS)


@pytest.mark.parametrize("engine", ["loop", "batched"])
@pytest.mark.parametrize("importance", ["draws", "weights"])
@pytest.mark.parametrize(
    ("name", "own"), [(name, own) for name, cases in CASES.items() for own in cases], ids=str
)
def test_preset_matches_its_transcription(
    name: str,
    own: dict[str, Any],
    importance: Literal["draws", "weights"],
    engine: Literal["loop", "batched"],
) -> None:
    """Nine rounds with repeated draws, uneven steps, lost updates and one empty round, to 1e-10."""
    algorithm = replace(
        METHODS[name].build(**arguments(name, **own)), sampler=ScriptedSampler(COHORTS, importance=importance)
    )
    path, _ = run(algorithm, len(COHORTS), engine, ScriptedLink(ARRIVALS, RATES))
    expected = TRANSCRIPTIONS[name](script(COHORTS, ARRIVALS, importance), lr=0.3, **own)
    np.testing.assert_allclose(path, expected, rtol=0, atol=TOLERANCE)
    followed = name == "fedvarp_stale"
    assert np.array_equal(path[3], path[2]) is not followed, (
        "an empty round must leave the model, but for (114)"
    )
    assert np.abs(np.diff(path[4:], axis=0)).max(1).min() > 1e-6, "every other round must move it"


@pytest.mark.parametrize(
    ("name", "cohort_size", "importance"),
    [
        ("fedavg", None, "weights"),
        ("fedavg", 3, "uniform"),
        ("full_participation", None, "weights"),
        ("uniform_sampling", 3, "uniform"),
        ("importance_sampling", 5, "draws"),
        ("optimal_sampling", 5, "draws"),
        ("power_of_choice", 2, "draws"),
        ("fedacs", 5, "draws"),
        ("fedacs_estimated", 5, "draws"),
    ],
)
def test_preset_with_its_own_sampler(
    name: str, cohort_size: int | None, importance: Literal["draws", "weights", "uniform"]
) -> None:
    """The draws that the library's sampler made, replayed: the importance it gave them must fit."""
    clients = {} if cohort_size is None else {"cohort_size": cohort_size}
    algorithm = METHODS[name].build(lr=0.3, **clients)
    link = BernoulliLink(tuple(1 - rate for rate in RATES))
    path, training = run(algorithm, 12, "batched", link)
    cohorts = tuple(
        tuple(i for i, count in zip(record.asked, record.multiplicity, strict=True) for _ in range(count))
        for record in training.records
    )
    arrivals = tuple(record.arrived for record in training.records)
    expected = TRANSCRIPTIONS[name](script(cohorts, arrivals, importance), lr=0.3)
    np.testing.assert_allclose(path, expected, rtol=0, atol=TOLERANCE)
    assert cohort_size is None or len(set(cohorts)) > 1, "the sampler must have had something to draw"


def test_aware_projection_matches_its_transcription() -> None:
    """Proposition 3.1 over FedAvgM, whose momentum v ← βv + Σp̂g never sees the projection."""
    algorithm = replace(
        METHODS["fedavgm"].build(lr=0.3, server_momentum=0.5, server_lr=0.8),
        sampler=ScriptedSampler(COHORTS),
        transforms=(AwareProjection(alpha=0.4),),
    )
    path, _ = run(algorithm, len(COHORTS), "batched", ScriptedLink(ARRIVALS, RATES))
    v = np.zeros(DIM)

    def base(g: dict[int, Array], share: dict[int, float]) -> Array:
        nonlocal v
        v = 0.5 * v + sum((share[i] * g[i] for i in g), np.zeros(DIM))
        return 0.8 * v

    expected = aware_projection(script(COHORTS, ARRIVALS, "draws"), base, alpha=0.4, lr=0.3)
    np.testing.assert_allclose(path, expected, rtol=0, atol=TOLERANCE)
