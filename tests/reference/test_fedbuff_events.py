"""FedBuff in simulation: an independent loop over events, resume, refusals, and which clients count how much."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from transcriptions import Script
from transcriptions.buffered import buffered

import fairlead as fl
from fairlead.clients.quadratics import Quadratics
from fairlead.errors import ClashError, FieldError
from fairlead.records import Conditions, NotKnown
from fairlead.samplers.buffered import BufferedSampling

CLIENTS, ROUNDS, SEED = 6, 40, 3
SPEEDS = (1.0, 1.3, 1.7, 2.3, 4.1, 9.7)
"""Seconds per step."""
STEPS = tuple(tuple(1 + (3 * r + 2 * i + r * i) % 5 for i in range(CLIENTS)) for r in range(ROUNDS))
LOSSY = tuple(tuple(i for i in range(CLIENTS) if (5 * r + 3 * i + r * i) % 7 > 1) for r in range(ROUNDS))
EVERYBODY = (tuple(range(CLIENTS)),) * ROUNDS


def federation(
    algorithm: fl.Algorithm,
    *,
    speeds: tuple[float, ...] | None = SPEEDS,
    steps: tuple[tuple[int, ...], ...] = STEPS,
    link: fl.LinkModel | None = None,
    weights: tuple[float, ...] | None = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
    engine: Literal["loop", "batched"] = "batched",
) -> fl.Federation:
    count = len(weights or speeds or SPEEDS)
    problem = Quadratics(num_clients=count, dim=3, weights=weights).problem(fl.Key.from_seed(1))
    world = fl.SimulatedWorld(
        problem.task(),
        problem.data(),
        weights=problem.weights,
        work=fl.ScriptedWork(steps),
        link=link,
        devices=None if speeds is None else fl.FixedDevices(step_seconds=speeds, latency=0.25),
        engine=engine,
        lanes=2,
        dtype=torch.float64,
    )
    return fl.Federation(algorithm, world, seed=SEED)


def expected_steps(run: fl.Federation, arrivals: Any, speeds: tuple[float, ...] | None, **own: Any) -> Any:
    """The steps of the transcription, whose candidates are the keyed draws of the sampler."""
    problem = Quadratics(num_clients=CLIENTS, dim=3, weights=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)).problem(
        fl.Key.from_seed(1)
    )
    script = Script(
        hessians=problem.hessians.numpy(),
        linear=problem.linear.numpy(),
        weights=problem.weights.numpy(),
        start=run.params.numpy(),
        cohorts=(),
        steps=STEPS,
        arrivals=arrivals,
    )
    key, sampler = fl.Key.from_seed(SEED), run.algorithm.sampler

    def candidates(version: int, at_work: Collection[int]) -> list[int]:
        busy = torch.zeros(CLIENTS, dtype=torch.bool)
        busy[list(at_work)] = True
        drawn = sampler.draw(
            {"busy": busy}, Conditions(version, problem.weights), key.fold("sampler", version)
        ).clients
        order = key.fold("queue", version).uniform(drawn).argsort()
        return [int(client) for client in drawn[order]]

    def seconds(version: int, client: int) -> float:
        return 1.0 if speeds is None else STEPS[version][client] * speeds[client] + 0.25

    return buffered(script, seconds=seconds, candidates=candidates, **own)


@pytest.mark.parametrize("engine", ["loop", "batched"])
@pytest.mark.parametrize(
    ("concurrency", "buffer_size", "own"),
    [
        (6, 2, {}),
        (6, 4, {"server_lr": 0.7, "exponent": 1.0}),
        (3, 2, {}),
        (2, 4, {"momentum": 0.6}),
        (4, 1, {"max_staleness": 2}),
        (6, 6, {}),
    ],
)
@pytest.mark.parametrize(("speeds", "arrivals"), [(SPEEDS, EVERYBODY), (SPEEDS, LOSSY), (None, EVERYBODY)])
def test_an_independent_event_loop_gives_the_same_steps(
    concurrency: int,
    buffer_size: int,
    own: dict[str, Any],
    speeds: tuple[float, ...] | None,
    arrivals: Any,
    engine: Literal["loop", "batched"],
) -> None:
    """40 steps with unequal speeds, work and weights, with and without losses: models, ages, refusals and clock."""
    algorithm = fl.presets.fedbuff(lr=0.1, cohort_size=concurrency, buffer_size=buffer_size, **own)
    run = federation(
        algorithm, speeds=speeds, link=fl.ScriptedLink(arrivals, (0.5,) * CLIENTS), engine=engine
    )
    expected = expected_steps(
        run, arrivals, speeds, lr=0.1, concurrency=concurrency, buffer_size=buffer_size, **own
    )
    clock = 0.0
    for record, step in zip(run.train(ROUNDS), expected, strict=True):
        np.testing.assert_allclose(run.params.numpy(), step.model, rtol=0, atol=1e-10)
        ages = {client: record.late.get(client, 0) for client in record.arrived}
        assert ages == step.ages
        assert record.facts["staleness"] == pytest.approx(np.mean([*ages.values()] or [0]))
        assert [refusal.client for refusal in record.refused] == step.refused
        assert {str(refusal.reason) for refusal in record.refused} <= {"stale"}
        if speeds is not None:
            clock += record.virtual_seconds or 0.0
            assert clock == pytest.approx(step.time)
    # Equally fast clients may all arrive together.
    assert speeds is None or any(record.late for record in run.records) == (buffer_size < 6)


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    """With clients at work, whose updates wait in the checkpoint."""
    algorithm = fl.presets.fedbuff(lr=0.1, cohort_size=4, buffer_size=2)
    whole, begun, resumed = (federation(algorithm) for _ in range(3))
    list(whole.train(15))
    list(begun.train(7))
    assert begun.records[-1].facts["in_flight"] == 3.0
    begun.save(tmp_path)
    resumed.resume(tmp_path)
    list(resumed.train(8))
    assert torch.equal(whole.params, resumed.params)
    assert whole.records[7:] == resumed.records


@pytest.mark.parametrize("speeds", [None, (1.0,) * CLIENTS, SPEEDS])
def test_a_buffer_of_all_clients_is_fedavg(speeds: tuple[float, ...] | None) -> None:
    """`BufferedSampling`: "Reduces to `FullParticipation` for K = N"."""
    one = federation(fl.presets.fedbuff(lr=0.1, buffer_size=CLIENTS), speeds=speeds)
    other = federation(fl.presets.fedavg(lr=0.1), speeds=speeds)
    for mine, plain in zip(one.train(10), other.train(10), strict=True):
        assert torch.equal(one.params, other.params)
        assert (mine.asked, mine.arrived, mine.coefficients) == (
            plain.asked,
            plain.arrived,
            plain.coefficients,
        )
        assert mine.virtual_seconds == pytest.approx(plain.virtual_seconds)


def test_equally_fast_clients_in_full_buffers_are_a_uniform_cohort() -> None:
    """`BufferedSampling`: "to `UniformWithoutReplacement` for C = K and equally fast clients"."""
    equal = (tuple([2] * CLIENTS),)
    run = federation(
        fl.presets.fedbuff(lr=0.1, cohort_size=3, buffer_size=3), speeds=(1.0,) * CLIENTS, steps=equal
    )
    records = list(run.train(400))
    assert all(not record.late and record.asked == record.arrived for record in records)
    assert all(len(record.arrived) == 3 for record in records)
    # Each is drawn with probability 1/2: five standard errors.
    counts = np.bincount([client for record in records for client in record.arrived])
    assert np.abs(counts / 400 - 0.5).max() < 5 * 0.5 / np.sqrt(400)
    # The model is that of FedAvg with the same cohorts.
    cohorts = tuple(record.arrived for record in records)
    scripted = fl.Algorithm(run.algorithm.solver, fl.ScriptedSampler(cohorts, importance="weights"))
    twin = federation(scripted, speeds=(1.0,) * CLIENTS, steps=equal)
    list(twin.train(400))
    assert torch.allclose(run.params, twin.params, rtol=0, atol=1e-12)


def test_without_an_exponent_updates_keep_their_length() -> None:
    """`StalenessWeighted`: "Reduces to `inner` in rounds that wait for their clients, and for α = 0"."""
    sampler, solver = BufferedSampling(4, 2), fl.LocalSolver(fl.SGD(0.1))
    for aggregator in (fl.WeightedMean(), fl.FedNova()):
        one, other = (
            federation(fl.Algorithm(solver, sampler, part))
            for part in (fl.StalenessWeighted(aggregator, exponent=0.0), aggregator)
        )
        list(one.train(12))
        list(other.train(12))
        assert torch.equal(one.params, other.params)
        waiting, plain = (
            federation(fl.Algorithm(solver, aggregator=part))
            for part in (fl.StalenessWeighted(aggregator), aggregator)
        )
        list(waiting.train(4))
        list(plain.train(4))
        assert torch.equal(waiting.params, plain.params)


def measured(run: fl.Federation, rounds: int) -> tuple[Tensor, Tensor]:
    """Share of the rounds in which each client arrived, and the mean age of its updates."""
    found = list(run.train(rounds))
    ages = [[r.late.get(i, 0) for r in found if i in r.arrived] for i in range(len(run.conditions.weights))]
    shares, means = [len(own) / rounds for own in ages], [sum(own) / max(len(own), 1) for own in ages]
    return torch.tensor(shares, dtype=torch.float64), torch.tensor(means, dtype=torch.float64)


@pytest.mark.parametrize(
    ("clients", "concurrency", "buffer_size"), [(6, None, 2), (6, 3, 2), (12, 4, 2), (6, 2, 4), (6, None, 6)]
)
def test_predicted_participation_and_weights_are_those_of_a_long_run(
    clients: int, concurrency: int | None, buffer_size: int
) -> None:
    """Fast clients count more. Arrivals within 12 %, much of it chance; ages within 0.1 rounds and 3 %."""
    speeds = SPEEDS if clients == 6 else tuple(1 + 0.83 * i for i in range(clients))
    algorithm = fl.presets.fedbuff(lr=0.001, cohort_size=concurrency, buffer_size=buffer_size)
    run = federation(algorithm, speeds=speeds, steps=((1,) * clients,), weights=(1.0,) * clients)
    shares, ages = measured(run, 1200)
    theory = algorithm.sampler.participation(run.conditions)
    assert not isinstance(theory, NotKnown)
    assert theory.asked is not None
    assert theory.age is not None
    assert float((theory.asked / shares - 1).abs().max()) < 0.12
    assert torch.allclose(theory.age, ages, rtol=0.03, atol=0.1)
    report = run.consistency()
    assert report.surrogate is not None
    assert report.predicted is not None
    assert report.predicted.weights is not None
    assert float((report.predicted.weights - report.surrogate).abs().max()) < 0.015
    ratio = float(report.surrogate[0] / report.surrogate[-1])
    assert ratio == pytest.approx(1.0) if buffer_size == clients else ratio > 2


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (
            {"solver": fl.LocalSolver(fl.SGD(0.1), corrections=(fl.ControlVariates(),))},
            "ControlVariates keeps vectors",
        ),
        ({"aggregator": fl.StaleFedVARP()}, "StaleFedVARP takes updates that have not arrived yet for lost"),
        ({"calibrate": "clients"}, 'write calibrate="server"'),
    ],
)
def test_parts_that_need_whole_rounds_are_refused(parts: dict[str, Any], sentence: str) -> None:
    given = {"solver": fl.LocalSolver(fl.SGD(0.1)), "sampler": BufferedSampling(), **parts}
    with pytest.raises(ClashError, match=sentence):
        fl.Algorithm(**given)


def test_bad_values_are_refused() -> None:
    with pytest.raises(FieldError, match=r"BufferedSampling.buffer_size must be .* got 0"):
        fl.presets.fedbuff(lr=0.1, buffer_size=0)
    with pytest.raises(FieldError, match="leave the argument replacement out"):
        fl.presets.fedbuff(lr=0.1, cohort_size=2, replacement=True)
    with pytest.raises(ClashError, match="FullFirstRound would ask more clients"):
        fl.FullFirstRound(BufferedSampling())
    with pytest.raises(ClashError, match="FirstArrivals ends rounds"):
        federation(fl.presets.fedbuff(lr=0.1), link=fl.FirstArrivals(2))
