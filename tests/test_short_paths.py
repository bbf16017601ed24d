"""Names that a reader of the papers asks for first: what clients would send, mean coefficients, χ², shortest points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.plain_data import from_plain, to_plain
from fairlead.presets import METHODS
from fairlead.testing.run_checks import standard_problem


def federation(algorithm: fl.Algorithm, **conditions: object) -> fl.Federation:
    problem = standard_problem()
    world = fl.SimulatedWorld(
        problem.task(),
        problem.data(),
        weights=problem.weights,
        dtype=torch.float64,
        **conditions,  # type: ignore[arg-type]
    )
    return fl.Federation(algorithm, world, seed=2)


def test_client_updates_are_those_that_the_next_round_receives() -> None:
    """Of SCAFFOLD in the middle of a run, over lossy links: the round then applies the rows that arrive."""
    run = federation(
        fl.presets.scaffold(lr=0.1, steps=3), work=fl.RandomSteps(1, 4), link=fl.BernoulliLink(0.4)
    )
    list(run.train(6))
    before = run.params.clone()
    updates = fl.client_updates(run)
    assert torch.equal(run.params, before)
    assert run.state.round == 6
    assert updates.clients.tolist() == [0, 1, 2, 3]
    (record,) = run.train(1)
    assert 0 < len(record.arrived) < 4
    rows, weights = (values[list(record.arrived)] for values in (updates.delta, run.world.population.weights))
    assert torch.allclose(run.params, before + weights @ rows / weights.sum(), atol=1e-14)
    assert record.num_steps == tuple(updates.num_steps[list(record.arrived)].tolist())


def test_client_updates_of_some_clients_are_rows_of_all() -> None:
    run = federation(fl.presets.fedavg(lr=0.1, steps=2))
    everyone, some = fl.client_updates(run), fl.client_updates(run, [3, 1])
    assert some.clients.tolist() == [1, 3]
    assert torch.equal(some.delta, everyone.delta[[1, 3]])
    with pytest.raises(FieldError, match="at least one id from 0 to 3"):
        fl.client_updates(run, [4])


def test_participation_and_mean_coefficients_of_a_federation() -> None:
    """IS with K = 3 draws and lossy links: E[importance] = ω, C = ω(1 − q), P(asked) = 1 − (1 − ω)³."""
    drop = np.array([0.1, 0.3, 0.0, 0.5])
    run = federation(
        fl.presets.importance_sampling(lr=0.1, cohort_size=3), link=fl.BernoulliLink(tuple(drop.tolist()))
    )
    omega = run.world.population.weights.numpy()
    asked = fl.participation(run.algorithm, run.conditions)
    mean = fl.mean_coefficients(run.algorithm, run.conditions)
    assert isinstance(asked, fl.Participation)
    assert isinstance(mean, fl.MeanCoefficients)
    assert asked.asked is not None
    assert asked.importance.numpy() == pytest.approx(omega)
    assert asked.asked.numpy() == pytest.approx(1 - (1 - omega) ** 3)
    assert mean.coefficients.numpy() == pytest.approx(omega * (1 - drop))
    assert mean.exactness == "exact"
    unknown = replace(run.conditions, forecast_arrival=lambda: None)
    assert isinstance(fl.mean_coefficients(run.algorithm, unknown), fl.NotKnown)


def test_divergences_of_the_papers() -> None:
    """λ = (½, ¼, ¼), λ̃ = (¼, ¼, ½). Wang 2021: Σ(λ − λ̃)²/λ̃. Zeng 2023: Σ λ̃/λ and Σ λ̃²/λ²."""
    intended, surrogate = (torch.tensor(v).double() for v in ((0.5, 0.25, 0.25), (0.25, 0.25, 0.5)))
    assert fl.chi_square(intended, surrogate) == pytest.approx(0.0625 / 0.25 + 0.0625 / 0.5)
    assert fl.zeng_chi(intended, surrogate) == pytest.approx((0.5 + 1 + 2, 0.25 + 1 + 4))
    assert fl.zeng_chi(intended, intended) == (3.0, 3.0)
    s = float(((surrogate / intended - 1) ** 2).sum())
    chi, chi_square = fl.zeng_chi(intended, surrogate)
    assert s == pytest.approx(3 + chi_square - 2 * chi), "the appendix of Zeng 2023: N + χ² − 2χ"
    assert fl.zeng_chi(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])) == (float("inf"), float("inf"))
    assert fl.zeng_chi(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0])) == (1.0, 1.0)


def test_the_shortest_vector_of_two_is_the_projection() -> None:
    """λ₁ = ⟨v₂, v₂ − v₁⟩/‖v₁ − v₂‖² within the segment."""
    rows = torch.tensor([[3.0, 1.0], [-1.0, 2.0]], dtype=torch.float64)
    gap = rows[0] - rows[1]
    first = float(-(rows[1] @ gap) / (gap @ gap))
    point = fl.shortest_in_hull(rows @ rows.T)
    assert point.weights.tolist() == pytest.approx([first, 1 - first])


def test_presets_take_schedules_and_dampening() -> None:
    """v ← 0.5v + (1 − 0.25)g on F = ½x² from 0 to e = 1, steps of lr 0.1·0.5ᵗ·0.8ᵏ, as in NumPy."""
    problem = fl.Quadratics(linear=((1.0,),)).problem(fl.Key.from_seed(0))
    algorithm = fl.presets.fedavg(
        lr=0.1,
        steps=3,
        momentum=0.5,
        dampening=0.25,
        schedule=fl.Exponential(0.5),
        step_schedule=fl.Exponential(0.8),
    )
    run = fl.Federation(algorithm, fl.SimulatedWorld(problem.task(), problem.data(), dtype=torch.float64))
    x = float(run.params)
    for round, _ in enumerate(run.train(3)):
        v = 0.0
        for step in range(3):
            v = 0.5 * v + 0.75 * (x - 1.0)
            x -= 0.1 * 0.5**round * 0.8**step * v
        assert float(run.params) == pytest.approx(x, abs=1e-14)


def test_a_spec_gives_presets_schedules() -> None:
    spec = """
        rounds = 2
        [clients]
        type = "Quadratics"
        num_clients = 3
        [algorithm]
        preset = "scaffold"
        lr = 0.1
        steps = 2
        dampening = 0.5
        momentum = 0.9
        schedule = { type = "Milestones", times = [1], gamma = 0.1 }
        step_schedule = { type = "Exponential", gamma = 0.9 }
    """
    solver = fl.from_toml(fl.Experiment, spec).algorithm.solver
    assert (
        solver
        == METHODS["scaffold"]
        .build(
            lr=0.1,
            steps=2,
            dampening=0.5,
            momentum=0.9,
            schedule=fl.Milestones((1,), 0.1),
            step_schedule=fl.Exponential(0.9),
        )
        .solver
    )


def test_a_script_may_tell_the_server_any_arrival_rates() -> None:
    """c-a-FedAvg divides by the rates it is told, FedACS draws by them, and the list decides who arrives."""
    rates = (0.5, 0.25, 1.0, 0.8)
    link = fl.ScriptedLink(((0, 1), (2,), ()), rates)
    run = federation(fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)), aggregator=fl.CommunicationAware()), link=link)
    records = list(run.train(3))
    assert [record.arrived for record in records] == [(0, 1), (2,), ()]
    omega = run.world.population.weights
    assert records[0].coefficients == pytest.approx((float(omega[0]) / 0.5, float(omega[1]) / 0.25))
    assert run.conditions.arrival is not None
    assert run.conditions.arrival.tolist() == list(rates)
    assert from_plain(fl.ScriptedLink, to_plain(link)) == link
    with pytest.raises(FieldError, match=r"ScriptedLink\.rates must be probabilities from 0 to 1, got 1\.5"):
        fl.ScriptedLink(((0,),), 1.5)
    with pytest.raises(FieldError, match=r"ScriptedLink\.rates must have one entry per client \(4\), got 2"):
        federation(fl.presets.fedavg(lr=0.1), link=fl.ScriptedLink(((0,),), (0.5, 0.5)))


def test_a_script_may_give_any_importance() -> None:
    sampler = fl.ScriptedSampler(((2, 0, 2), (), (1,)), ((0.5, 0.1, 0.25), (), (3.0,)))
    run = federation(fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)), sampler, fl.WeightedMean(over="asked")))
    records = list(run.train(4))
    assert [record.asked for record in records] == [(0, 2), (), (1,), (0, 2)]
    assert [record.coefficients for record in records] == [(0.1, 0.75), (), (3.0,), (0.1, 0.75)]
    assert records[0].multiplicity == (1, 2)
    assert from_plain(fl.ScriptedSampler, to_plain(sampler)) == sampler


@pytest.mark.parametrize(
    "importance", [((0.5,),), ((0.5, -1.0), ()), ((0.5, float("nan")), ()), (0.5, 0.5), "both", 3]
)
def test_importance_that_does_not_fit_the_list_is_refused(importance: object) -> None:
    with pytest.raises(FieldError, match=r"ScriptedSampler\.importance must be"):
        fl.ScriptedSampler(((0, 1), ()), importance)  # type: ignore[arg-type]
