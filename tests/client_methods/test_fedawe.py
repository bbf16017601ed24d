"""FedAWE: work from one's own stale model, echoed for every round missed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from scripted_quadratics import LOSSY, PROBLEM, federation, memory_of, run, vectors

from fairlead.aggregators.weighted import FedNova, WeightedMean
from fairlead.algorithm import Algorithm
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.conditions.links import ScriptedLink
from fairlead.conditions.work import FixedSteps
from fairlead.corrections.drift import VRLSGD, ControlVariates, Proximal
from fairlead.corrections.past_rounds import StaleStart
from fairlead.errors import ClashError, FieldError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.presets import fedavg, fedawe
from fairlead.transforms.projections import AwareProjection, Clip


def test_three_rounds_by_hand() -> None:
    """F_1 = ½x², F_2 = ½(x − 4)², η = ½, one step each, x⁰ = 2, uniform weights; client 2 misses rounds 0, 1.

    Round 0: client 1 from 2 to 1: x = 1. Round 1: from 1 to ½: x = ½.
    Round 2: client 1 from ½ to ¼; client 2 from x⁰ = 2 to 3, echoed three times: 2 + 3·1 = 5.
    x = ½(¼ + 5) = 21/8, which both adopt at version 3.
    """
    problem = QuadraticProblem(
        torch.ones((2, 1, 1), dtype=torch.float64),
        vectors([[0.0], [4.0]]),
        torch.tensor([0.5, 0.5], dtype=torch.float64),
    )
    link = ScriptedLink(((0,), (0,), (0, 1)))
    training = federation(fedawe(lr=0.5), problem=problem, work=FixedSteps((1, 1)), link=link, start=2.0)
    assert [run(training, 1).item() for _ in range(3)] == [1.0, 0.5, 2.625]
    assert memory_of(training, "own_model").tolist() == [[2.625], [2.625]]
    assert memory_of(training, "adopted_at").tolist() == [[3.0], [3.0]]


def test_absent_clients_keep_their_own_model() -> None:
    """Client 2 of the script arrives in rounds 0, 2, 5 and 6, and holds the model that followed the last."""
    training = federation(fedawe(lr=0.1), link=LOSSY)
    models = [run(training, 1) for _ in range(5)]
    assert torch.equal(memory_of(training, "own_model")[2], models[2])
    assert memory_of(training, "adopted_at")[2].item() == 3.0
    assert not torch.equal(models[3], models[2])


def test_full_participation_is_fedavg() -> None:
    """Own model and global one are the same when nobody is ever lost, and t − t_i = 1."""
    torch.testing.assert_close(
        run(federation(fedawe(lr=0.2)), 8), run(federation(fedavg(lr=0.2)), 8), rtol=0, atol=1e-13
    )


def test_bias_of_unequal_links_is_of_the_order_of_the_lr() -> None:
    """With rates 1, ½, ¼ and equal work FedAvg ends 0.5 or more away whatever η; FedAWE's distance halves.

    Gossip keeps Σω_ix_i, so each client moves the mean by ω_i times its echoed steps: one per round
    whatever its rate, up to the O(η) by which the model changes in between.
    """
    periodic = ScriptedLink(((0,), (0, 1), (0,), (0, 1, 2)))

    def gap(lr: float, rounds: int) -> float:
        training = federation(fedawe(lr=lr), work=FixedSteps((2, 2, 2)), link=periodic)
        run(training, rounds)
        cycle = torch.stack([run(training, 1) for _ in range(4)]).mean(0)
        return float(torch.linalg.vector_norm(cycle - PROBLEM.optimum))

    coarse, fine = gap(0.1, 120), gap(0.05, 240)
    assert coarse < 0.15
    assert 1.8 < coarse / fine < 2.3
    plain = run(federation(fedavg(lr=0.05), work=FixedSteps((2, 2, 2)), link=periodic), 240)
    assert torch.linalg.vector_norm(plain - PROBLEM.optimum) > 0.5


def test_senseless_combinations_are_refused() -> None:
    """Uploads are not work alone, so nothing may divide them by steps or read gradients from them."""
    with pytest.raises(ClashError, match=r"StaleStart .* WeightedMean, got FedNova"):
        Algorithm(LocalSolver(SGD(0.1), corrections=(StaleStart(),)), aggregator=FedNova())
    moved: tuple[dict[str, Any], ...] = (
        {"aggregator": WeightedMean(over="asked")},
        {"server": SGD(0.5)},
        {"server": SGD(1.0, momentum=0.5)},
        {"transforms": (Clip(1.0),)},
        {"transforms": (AwareProjection(),)},
    )
    for fields in moved:
        with pytest.raises(ClashError, match="only the mean of arrivals is a model again"):
            replace(fedawe(lr=0.1), **fields)
    for other in (ControlVariates(), VRLSGD()):
        with pytest.raises(ClashError, match=f"StaleStart starts .* {type(other).__name__} in LocalSolver"):
            LocalSolver(SGD(0.1), corrections=(other, StaleStart()))
    assert LocalSolver(SGD(0.1), corrections=(Proximal(0.1), StaleStart())).memory_names == (
        "own_model",
        "adopted_at",
    )
    with pytest.raises(FieldError, match=r"StaleStart.echo must be .* above 0, got -1"):
        StaleStart(-1)


def test_consistency_report_counts_the_echo() -> None:
    """Ω_i ∝ ω_i Σ (rounds since i last arrived)·τ_i, counted over the records."""
    training = federation(fedawe(lr=0.1))
    run(training, 3)
    weights = training.world.population.weights
    mass = torch.zeros_like(weights)
    latest: dict[int, int] = {}
    for record in training.records:
        for client, steps in zip(record.arrived, record.num_steps, strict=True):
            mass[client] += weights[client] * (record.round - latest.get(client, -1)) * steps
            latest[client] = record.round
    surrogate = training.consistency().surrogate
    assert surrogate is not None
    torch.testing.assert_close(surrogate, mass / mass.sum())
