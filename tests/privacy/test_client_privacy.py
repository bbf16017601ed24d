"""Clipping and noise in the round: what they do to the model, what they promise, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fairlead as fl
from fairlead.errors import ClashError, FieldError
from fairlead.experiments.spec import from_toml, to_toml
from fairlead.testing import check_algorithm

PRIVACY = fl.ClientPrivacy(clip=0.5, noise_multiplier=0.8, delta=1e-5)
PROBLEM = fl.Quadratics(num_clients=4, dim=3, spread=3.0, weights=(1.0, 2.0, 3.0, 4.0)).problem(
    fl.Key.from_seed(1)
)
SOLVER = fl.LocalSolver(fl.SGD(0.2), steps=2)


def world(**more: Any) -> fl.SimulatedWorld:
    return fl.SimulatedWorld(
        PROBLEM.task(), PROBLEM.data(), weights=PROBLEM.weights, dtype=torch.float64, **more
    )


def private(sampler: fl.Sampler, privacy: fl.ClientPrivacy | None = PRIVACY, **more: Any) -> fl.Algorithm:
    return fl.Algorithm(SOLVER, sampler, fl.WeightedMean(over="asked"), privacy=privacy, **more)


def raw_updates(clients: Sequence[int]) -> Tensor:
    """What the clients send in the first round, read off runs in which one of them is alone."""
    rows = []
    for client in clients:
        alone = fl.Algorithm(SOLVER, fl.ScriptedSampler(((client,),), importance="draws"))
        federation = fl.Federation(alone, world(), seed=3)
        start = federation.params.clone()
        next(federation.train(1))
        rows.append(federation.params - start)
    return torch.stack(rows)


SAMPLERS: dict[str, tuple[fl.Sampler, float]] = {
    "everyone": (fl.FullParticipation(), 1.0),
    "poisson": (fl.PoissonSampling(0.6), 1 / 0.6),
    "fixed": (fl.UniformWithoutReplacement(2), 4 / 2),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_round_is_the_clipped_sum_and_the_keyed_noise(name: str) -> None:
    """direction − Σ w_i Δ_i min(1, C/‖Δ_i‖) is z·C·w_max·N(0, I) from the key of this purpose and round."""
    sampler, scale = SAMPLERS[name]
    federation = fl.Federation(private(sampler), world(), seed=3)
    start = federation.params.clone()
    (record,) = federation.train(1)
    rows = raw_updates(record.arrived)
    lengths = rows.norm(dim=1)
    assert len(rows) == 0 or float(lengths.max()) > PRIVACY.clip, "the example must have something to clip"
    weights = scale * PROBLEM.weights[list(record.arrived)]
    expected = (weights * (PRIVACY.clip / lengths).clamp(max=1)) @ rows
    ages = [0] * len(rows)
    key = fl.Key.from_seed(3).fold("privacy", 0, *record.arrived, *record.num_steps, *ages)
    generator = key.generator()
    noise = 0.8 * 0.5 * scale * 0.4 * torch.from_numpy(generator.standard_normal(3))
    assert torch.allclose(federation.params - start, expected + noise, atol=1e-13)
    assert record.facts["noise_scale"] == pytest.approx(0.8 * 0.5 * scale * 0.4)
    assert record.coefficients == pytest.approx((weights * (PRIVACY.clip / lengths).clamp(max=1)).tolist())


def test_no_client_moves_the_sum_by_more_than_its_bound() -> None:
    """One client sends 10⁹ times its update or nothing: the models differ by C·w at most, noise being equal."""

    class Shouting(fl.SimulatedWorld):
        factor = 1.0

        def work(self, order: fl.WorkOrder) -> fl.ClientUpdates:
            updates = super().work(order)
            louder = torch.ones(len(updates), 1, dtype=torch.float64)
            louder[updates.clients == 3] = self.factor
            return replace(updates, delta=updates.delta * louder)

    ends = []
    for factor in (0.0, 1.0, 1e9, -1e9):
        here = Shouting(PROBLEM.task(), PROBLEM.data(), weights=PROBLEM.weights, dtype=torch.float64)
        here.factor = factor
        federation = fl.Federation(private(fl.FullParticipation()), here, seed=0)
        next(federation.train(1))
        ends.append(federation.params)
    bound = PRIVACY.clip * 0.4
    moved = [float((end - ends[0]).norm()) for end in ends[1:]]
    assert max(moved) <= bound * (1 + 1e-9)
    assert moved[1] == pytest.approx(bound)
    # Replace-one neighbors may differ by twice as much.
    assert float((ends[2] - ends[3]).norm()) == pytest.approx(2 * bound)


def test_noise_has_the_scale_and_independence_that_the_account_takes_for_granted() -> None:
    """150 rounds without arrivals move the model by noise alone: its mean square is (z C w_max)² by a z-test."""
    link = fl.BernoulliLink(1.0)
    federation = fl.Federation(private(fl.FullParticipation()), world(link=link), seed=5)
    path = [federation.params.clone()]
    for record in federation.train(150):
        assert record.arrived == ()
        path.append(federation.params.clone())
    steps = torch.stack(path).diff(dim=0) / (0.8 * 0.5 * 0.4)
    count = steps.numel()
    assert abs(float(steps.square().sum()) - count) < 4.5 * (2 * count) ** 0.5
    assert abs(float(steps.sum())) < 4.5 * count**0.5
    assert abs(float((steps[1:] * steps[:-1]).sum())) < 4.5 * count**0.5


def test_a_round_done_again_with_other_arrivals_has_other_noise() -> None:
    """Else the difference of the two models would be the update of the client that is missing, without noise."""
    noises = []
    for arrivals in ((0, 1, 2, 3), (0, 1, 2)):
        here = world(link=fl.ScriptedLink((arrivals,)))
        ends = []
        for privacy in (PRIVACY, replace(PRIVACY, noise_multiplier=1e-12)):
            federation = fl.Federation(private(fl.FullParticipation(), privacy), here, seed=3)
            next(federation.train(1))
            ends.append(federation.params)
        noises.append(ends[0] - ends[1])
    assert not torch.allclose(noises[0], noises[1], atol=1e-3)


def test_a_round_done_again_has_other_noise_each_time() -> None:
    """Else what differs in the same clients' updates would differ in the two models, without noise."""

    class Restarted(fl.SimulatedWorld):
        times = 0

        def conditions(self, round: int, solver: fl.LocalSolver, key: fl.Key) -> fl.Conditions:
            return replace(super().conditions(round, solver, key), repeated=(0,) * self.times)

    ends = []
    for times in (0, 1, 2):
        here = Restarted(PROBLEM.task(), PROBLEM.data(), weights=PROBLEM.weights, dtype=torch.float64)
        here.times = times
        federation = fl.Federation(private(fl.FullParticipation()), here, seed=3)
        list(federation.train(2))
        ends.append(federation.params)
    assert min(float((ends[i] - ends[j]).norm()) for i, j in ((0, 1), (0, 2), (1, 2))) > 1e-3


def test_runs_repeat_with_their_seed_and_differ_without() -> None:
    def end(seed: int) -> Tensor:
        federation = fl.Federation(private(fl.PoissonSampling(0.5)), world(link=fl.BernoulliLink(0.3)), seed)
        for _ in federation.train(5):
            pass
        return federation.params

    assert torch.equal(end(0), end(0))
    assert not torch.equal(end(0), end(1))


def test_resumed_runs_go_on_with_noise_and_account(tmp_path: Path) -> None:
    algorithm = private(fl.PoissonSampling(0.5))
    whole, begun, resumed = (fl.Federation(algorithm, world(), seed=2) for _ in range(3))
    records = list(whole.train(6))
    assert len(list(begun.train(3))) == 3
    begun.save(tmp_path)
    resumed.resume(tmp_path)
    again = list(resumed.train(3))
    assert torch.equal(whole.params, resumed.params)
    assert [record.facts for record in again] == [record.facts for record in records[3:]]
    assert whole.privacy == resumed.privacy


def test_records_and_statement_tell_the_same_epsilon() -> None:
    federation = fl.Federation(private(fl.PoissonSampling(0.5)), world())
    assert federation.privacy is not None
    assert federation.privacy.epsilon == 0.0
    records = list(federation.train(4))
    spent = [record.facts["epsilon"] for record in records]
    assert spent == sorted(set(spent)), "every round costs something"
    statement = federation.privacy
    assert statement is not None
    assert (statement.epsilon, statement.delta, statement.rounds) == (spent[-1], 1e-5, 4)
    assert f"({statement.epsilon:.3g}, 1e-05)-differentially private" in str(statement)
    assert "zero-out adjacency, Poisson sampling at 0.5" in str(statement)
    assert fl.Federation(private(fl.FullParticipation(), None), world()).privacy is None


def test_private_algorithms_keep_the_contract_of_algorithms() -> None:
    """The same bits again and after a checkpoint, the same numbers on both engines, and a spec that reads back."""
    check_algorithm(private(fl.PoissonSampling(0.7)), rounds=4)


def test_a_spec_can_ask_for_privacy() -> None:
    text = """
    preset = "uniform_sampling"
    lr = 0.1
    cohort_size = 2
    secure_aggregation = true
    [privacy]
    clip = 1.0
    noise_multiplier = 1.1
    delta = 1e-6
    """
    algorithm = from_toml(fl.Algorithm, text)
    assert algorithm.privacy == fl.ClientPrivacy(1.0, 1.1, 1e-6)
    assert algorithm.secure_aggregation
    assert from_toml(fl.Algorithm, to_toml(algorithm)) == algorithm


@pytest.mark.parametrize(
    "sampler",
    [
        fl.WeightedWithReplacement(2),
        fl.FedACS(2),
        fl.FedACSEstimated(2),
        fl.OptimalSampling(2),
        fl.FullFirstRound(fl.PoissonSampling(0.5)),
        fl.ScriptedSampler(((0, 1),)),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_samplers_without_an_account_are_refused(sampler: fl.Sampler) -> None:
    with pytest.raises(ClashError, match=f"ClientPrivacy has no accounting for {type(sampler).__name__}"):
        private(sampler)


@pytest.mark.parametrize(
    "aggregator",
    [
        fl.WeightedMean(),
        fl.FedNova(over="asked"),
        fl.CommunicationAware(),
        fl.FedAU(),
        fl.FedVARP(),
        fl.FedAWARE(),
        fl.CoordinateMedian(),
    ],
    ids=lambda aggregator: type(aggregator).__name__,
)
def test_aggregators_whose_sensitivity_is_not_known_are_refused(aggregator: fl.Aggregator) -> None:
    with pytest.raises(ClashError, match=r"write aggregator=WeightedMean\(over='asked'\)"):
        fl.Algorithm(SOLVER, aggregator=aggregator, privacy=PRIVACY)


def test_leaks_beside_the_noised_sum_are_refused() -> None:
    with pytest.raises(ClashError, match="AwareProjection needs single updates, which have no noise"):
        private(fl.FullParticipation(), transforms=(fl.AwareProjection(),))
    leaking = replace(SOLVER, corrections=(fl.ControlVariates(),))
    with pytest.raises(ClashError, match="ControlVariates broadcasts a sum of uploads"):
        fl.Algorithm(leaking, aggregator=fl.WeightedMean(over="asked"), privacy=PRIVACY)
    assert private(fl.FullParticipation(), transforms=(fl.Clip(1.0),)).privacy == PRIVACY


def test_a_model_with_running_statistics_is_refused() -> None:
    inputs = [torch.randn((4, 3), generator=torch.Generator().manual_seed(client)) for client in range(3)]
    clients = fl.ClientData.from_lists(inputs, [torch.zeros(4, dtype=torch.int64)] * 3)

    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    here = fl.SimulatedWorld(fl.Task(model), clients)
    with pytest.raises(ClashError, match="averages running statistics without noise"):
        fl.Federation(private(fl.FullParticipation()), here)


def test_delta_must_mean_something() -> None:
    with pytest.raises(ClashError, match=r"ClientPrivacy\.delta must be below 1/4 for 4 clients, got 0\.25"):
        fl.Federation(private(fl.FullParticipation(), replace(PRIVACY, delta=0.25)), world())


@pytest.mark.parametrize(
    ("field", "value"),
    [("clip", 0.0), ("noise_multiplier", 0.0), ("delta", 0.0), ("delta", 1.0), ("clip", float("inf"))],
)
def test_fields_are_checked(field: str, value: float) -> None:
    with pytest.raises(FieldError, match=rf"ClientPrivacy\.{field} must be a finite number above 0"):
        replace(PRIVACY, **{field: value})


def test_the_consistency_report_knows_that_clipping_hides_the_weights() -> None:
    federation = fl.Federation(private(fl.FullParticipation()), world())
    assert len(list(federation.train(2))) == 2
    report = federation.consistency()
    assert report.surrogate is None
    assert "ClientPrivacy clips long updates" in str(report)
