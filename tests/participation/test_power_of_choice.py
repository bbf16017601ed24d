"""Power-of-Choice against loops: who is asked for a loss, who is selected, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.clients.quadratics import QuadraticProblem

CLIENTS, DIM, LR = 6, 2, 0.2


def problem() -> QuadraticProblem:
    generator = np.random.default_rng(5)
    curvature = torch.from_numpy(generator.uniform(0.3, 1.0, (CLIENTS, DIM)))
    weights = torch.from_numpy(generator.uniform(0.5, 2.0, CLIENTS))
    linear = torch.from_numpy(generator.normal(size=(CLIENTS, DIM)))
    return QuadraticProblem(torch.diag_embed(curvature), linear, weights / weights.sum())


def world(**given: object) -> fl.SimulatedWorld:
    own = problem()
    return fl.SimulatedWorld(own.task(), own.data(), weights=own.weights, dtype=torch.float64, **given)  # type: ignore[arg-type]


def losses(x: torch.Tensor) -> torch.Tensor:
    """F_i(x) = ½x'H_i x − e_i'x, up to the constant that the data hold."""
    own = problem()
    return 0.5 * torch.einsum("j,ijk,k->i", x, own.hessians, x) - own.linear @ x


def test_with_all_clients_as_candidates_the_largest_losses_are_drawn() -> None:
    """Twelve rounds against a NumPy loop: two largest losses of six, one local step each, and their plain mean."""
    algorithm = fl.presets.power_of_choice(lr=LR, steps=1, cohort_size=2, candidates=CLIENTS)
    run = fl.Federation(algorithm, world())
    own, x = problem(), run.params.clone()
    constant = run.world.poll(torch.arange(CLIENTS), x, x[:0], 0).losses - losses(x)
    for record in run.train(12):
        chosen = torch.argsort(losses(x) + constant, descending=True)[:2].sort().values
        assert record.asked == tuple(chosen.tolist())
        gradients = torch.stack([own.hessians[i] @ x - own.linear[i] for i in chosen.tolist()])
        x = x - LR * gradients.mean(0)
        assert torch.allclose(run.params, x, atol=1e-12)
        assert record.facts["polled"] == CLIENTS


def test_the_cohort_has_the_largest_losses_of_its_candidates() -> None:
    sampler = fl.PowerOfChoice(2, candidates=4)
    weights = problem().weights
    for seed in range(50):
        key = fl.Key.from_seed(seed)
        conditions = fl.Conditions(0, weights)
        candidates = sampler.polled({}, conditions, key)
        assert len(set(candidates.tolist())) == 4
        reported = torch.from_numpy(np.random.default_rng(seed).normal(size=4))
        cohort = sampler.draw({}, replace(conditions, poll=fl.Poll(candidates, reported)), key)
        assert set(cohort.clients.tolist()) == set(candidates[reported.argsort()[-2:]].tolist())
        assert cohort.importance.tolist() == [0.5, 0.5]
        silent = torch.where(reported == reported.max(), torch.nan, reported)
        fewer = sampler.draw({}, replace(conditions, poll=fl.Poll(candidates, silent)), key)
        assert set(fewer.clients.tolist()) == set(candidates[reported.argsort()[-3:-1]].tolist())


def test_candidates_are_drawn_by_weight_without_replacement() -> None:
    """The chance of each pair, by summing over both orders: ω_i ω_j/(1 − ω_i) + ω_j ω_i/(1 − ω_j)."""
    weights, draws = np.array([0.1, 0.2, 0.3, 0.4]), 4000
    chances: dict[tuple[int, ...], float] = {}
    for i, j in permutations(range(4), 2):
        pair = tuple(sorted((i, j)))
        chances[pair] = chances.get(pair, 0.0) + weights[i] * weights[j] / (1 - weights[i])
    sampler, conditions = fl.PowerOfChoice(2, candidates=2), fl.Conditions(0, torch.from_numpy(weights))
    counts = dict.fromkeys(chances, 0)
    for seed in range(draws):
        key = fl.Key.from_seed(seed)
        pair = tuple(sampler.polled({}, conditions, key).tolist())
        counts[pair] += 1
        # `PowerOfChoice`: "Reduces to draws by weight without replacement for d = K."
        assert tuple(sampler.draw({}, conditions, key).clients.tolist()) == pair
    for pair, chance in chances.items():
        error = np.sqrt(chance * (1 - chance) / draws)
        assert abs(counts[pair] / draws - chance) < 4.5 * error


def test_polls_are_counted_in_bytes() -> None:
    """Four candidates receive two numbers and send one each; two clients then receive and send two."""
    run = fl.Federation(fl.presets.power_of_choice(lr=LR, steps=1, cohort_size=2), world())
    record = next(run.train(1))
    assert record.bytes_down == 8 * (4 * DIM + 2 * DIM)
    assert record.bytes_up == 8 * (4 * 1 + 2 * DIM)


def test_polls_are_counted_in_seconds() -> None:
    """Latency 1 s, 16 bytes at 8 bytes/s down, 8 at 4 up: a poll lasts 1 + 2 + 2 s and one step of 0.5 s."""
    devices = fl.FixedDevices(step_seconds=0.5, latency=1.0, download=8.0, upload=4.0)
    plain = fl.Algorithm(fl.LocalSolver(fl.SGD(LR), steps=1), fl.UniformWithoutReplacement(2))
    asking = fl.presets.power_of_choice(lr=LR, steps=1, cohort_size=2)
    one, other = (next(fl.Federation(part, world(devices=devices)).train(1)) for part in (plain, asking))
    assert one.virtual_seconds is not None
    assert one.device_seconds is not None
    assert other.virtual_seconds == pytest.approx(one.virtual_seconds + 5.5)
    assert other.device_seconds == pytest.approx(one.device_seconds + 4 * 0.5)


def test_resuming_gives_the_same_bits(tmp_path: Path) -> None:
    algorithm = fl.presets.power_of_choice(lr=LR, steps=2, cohort_size=2, candidates=3)
    whole, first = (fl.Federation(algorithm, world(), seed=4) for _ in range(2))
    expected = list(whole.train(6))
    list(first.train(3))
    first.save(tmp_path)
    resumed = fl.Federation(algorithm, world(), seed=4)
    resumed.resume(tmp_path)
    assert list(resumed.train(3)) == expected[3:]
    assert torch.equal(resumed.params, whole.params)


def test_a_full_first_round_asks_nobody_for_losses() -> None:
    sampler = fl.FullFirstRound(fl.PowerOfChoice(2))
    assert sampler.needs_losses
    records = list(fl.Federation(fl.Algorithm(fl.LocalSolver(fl.SGD(LR)), sampler), world()).train(2))
    assert [len(record.asked) for record in records] == [CLIENTS, 2]
    assert ["polled" in record.facts for record in records] == [False, True]


class _SilentWorld(fl.SimulatedWorld):
    """Clients that cannot be asked."""

    poll = fl.World.poll


def test_worlds_whose_clients_cannot_be_asked_are_refused() -> None:
    own = problem()
    silent = _SilentWorld(own.task(), own.data(), weights=own.weights)
    with pytest.raises(fl.errors.ClashError, match="use a sampler that does not ask"):
        fl.Federation(fl.presets.power_of_choice(lr=LR, cohort_size=2), silent)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: fl.PowerOfChoice(3, candidates=2), r"PowerOfChoice\.candidates must be"),
        (lambda: fl.PowerOfChoice(0), r"PowerOfChoice\.cohort_size must be"),
        (lambda: fl.presets.power_of_choice(lr=LR), "power_of_choice needs cohort_size"),
        (
            lambda: fl.Federation(fl.presets.power_of_choice(lr=LR, cohort_size=2, candidates=9), world()),
            r"PowerOfChoice\.candidates must be at most 6",
        ),
        (
            lambda: replace(fl.presets.power_of_choice(lr=LR, cohort_size=2), secure_aggregation=True),
            "PowerOfChoice needs single updates",
        ),
    ],
    ids=range(5),
)
def test_refused(build: object, told: str) -> None:
    assert callable(build)
    with pytest.raises(fl.errors.FairleadError, match=told):
        build()
