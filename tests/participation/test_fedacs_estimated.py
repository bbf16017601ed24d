"""FedACS when the server is told neither links nor work: what it learns, and where it ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from lossy_quadratics import Array, ChangingLinks, ClosedFormWorld, long_run, time_average, updates_of

from fairlead import presets
from fairlead.client_table import tensor_in
from fairlead.conditions.links import BernoulliLink
from fairlead.federation import Federation
from fairlead.randomness import Key
from fairlead.records import Cohort, Conditions, Population
from fairlead.samplers.adaptive import FedACSEstimated

OMEGA = np.array([0.1, 0.3, 0.2, 0.4])
RATES = (1.0, 0.8, 0.5, 0.3)
STEPS = np.array([4, 1, 6, 2])
CENTERS = np.array([[4.0, 0.0], [0.0, 3.0], [-4.0, 1.0], [1.0, -5.0]])
LR, K = 0.04, 8
KAPPA = 1 - (1 - LR) ** STEPS


def world(*spells: tuple[int, tuple[float, ...]], secretive: bool) -> ClosedFormWorld:
    """½‖x − e_i‖² with τ_i steps and drifting Bernoulli links; a secretive world tells the server nothing."""
    return ClosedFormWorld(
        torch.from_numpy(CENTERS),
        torch.from_numpy(OMEGA),
        torch.from_numpy(STEPS),
        ChangingLinks(spells),
        secretive=secretive,
    )


def point(mass: Array) -> Array:
    mean: Array = mass @ CENTERS / mass.sum()
    return mean


def test_estimated_version_ends_where_the_oracle_does() -> None:
    """Both reach Σ ω_i(κ_i/τ_i)e_i normalized, the point that FedACS has at this learning rate.

    That point is within 0.1 of x* = Σ ω_i e_i. Tolerance: 5 standard errors of the time average, which stay
    below 0.1 in each coordinate, while FedAvg, by either aggregation, is over 8 of its own and 0.9 away.
    """
    told, untold = world((0, RATES), secretive=False), world((0, RATES), secretive=True)
    target = point(OMEGA * KAPPA / STEPS)
    assert np.linalg.norm(target - point(OMEGA)) < 0.1
    oracle = long_run(presets.fedacs(lr=LR, steps=1, cohort_size=K), told, rounds=1000, burn_in=100)
    found = long_run(
        presets.fedacs_estimated(lr=LR, steps=1, cohort_size=K), untold, rounds=1000, burn_in=500
    )
    assert max(oracle.error.max(), found.error.max()) < 0.1
    assert np.all(oracle.z_scores(target) < 5)
    assert np.all(found.z_scores(target) < 5)
    assert np.all(np.abs(found.mean - oracle.mean) < 5 * np.hypot(found.error, oracle.error))
    for fedavg in (
        presets.importance_sampling(lr=LR, steps=1, cohort_size=K),
        presets.fedavg(lr=LR, steps=1),
    ):
        biased = long_run(fedavg, untold, rounds=500, burn_in=100)
        assert biased.z_scores(target).max() > 8
        assert np.linalg.norm(biased.mean - target) > 0.9


def test_posterior_mean_finds_the_arrival_rates() -> None:
    """After n questions a client's rate is known to √(r(1 − r)/n), and its work is the last report."""
    run = Federation(
        presets.fedacs_estimated(lr=LR, steps=1, cohort_size=K), world((0, RATES), secretive=True)
    )
    for _ in run.train(600):
        pass
    arrived, lost = (tensor_in(run.state.sampler, name).numpy() for name in ("arrived", "lost"))
    rate, questions = np.array(RATES), arrived + lost - 2
    estimate = arrived / (arrived + lost)
    assert np.all(questions > 40)
    assert np.all(np.abs(estimate - rate) < 4.5 * np.sqrt(rate * (1 - rate) / questions) + 1 / questions)
    assert torch.equal(tensor_in(run.state.sampler, "work"), torch.from_numpy(STEPS).to(torch.float64))


def test_forgetting_follows_links_that_change() -> None:
    """Rates are reversed after 1000 rounds. With ρ = 0.02 the estimates follow, without they are left behind.

    The moving average has variance ρ/(2 − ρ)·r(1 − r) once 150 questions have washed out the past
    (0.98^150 = 0.05). The model follows too: over the last 700 rounds the forgetful sampler stays at
    FedACS's point, the other is pulled away from it.
    """
    after = tuple(reversed(RATES))
    drifting = world((0, RATES), (1000, after), secretive=True)
    target, rate = point(OMEGA * KAPPA / STEPS), np.array(after)
    means, estimates = {}, {}
    for forget in (0.02, 0.0):
        algorithm = presets.fedacs_estimated(lr=LR, steps=1, cohort_size=K, forget=forget)
        run = Federation(algorithm, drifting, seed=1)
        for _ in run.train(1500):
            pass
        path = np.array([run.params.numpy() for _ in run.train(700)])
        means[forget] = time_average(path)
        arrived, lost = (tensor_in(run.state.sampler, name).numpy() for name in ("arrived", "lost"))
        estimates[forget] = arrived / (arrived + lost)
    spread = np.sqrt(0.02 / 1.98 * rate * (1 - rate))
    assert np.all(np.abs(estimates[0.02] - rate) < 4.5 * spread + 0.02)
    assert np.abs(estimates[0.0] - rate).max() > 0.2
    assert np.all(means[0.02].z_scores(target) < 5)
    assert means[0.0].z_scores(target).max() > 8


def everyone(*clients: int) -> Cohort:
    ids = torch.tensor(clients)
    return Cohort(ids, torch.ones_like(ids), torch.full((len(ids),), 1 / len(ids), dtype=torch.float64))


def test_clients_that_never_arrived_count_with_the_least_work_reported() -> None:
    """Reports of 5 and 2 steps from clients 0 and 1; 2 was lost, 3 never asked: both count with 2 steps.

    Beta(1, 1): clients 0 and 1 have rate 2/3, client 2 has 1/3, client 3 still 1/2, so that
    p ∝ (1/(2/3·5), 1/(2/3·2), 1/(1/3·2), 1/(1/2·2)) = (0.3, 0.75, 1.5, 1) for equal weights.
    """
    sampler, layout = FedACSEstimated(1), {"x": 2}
    weights = torch.full((4,), 0.25, dtype=torch.float64)
    state = sampler.init(Population(weights, layout, torch.device("cpu"), torch.float64))
    arrivals = torch.tensor([0, 1])
    updates = updates_of(everyone(0, 1, 2), arrivals, torch.zeros(2, 2), torch.tensor([5, 2]))
    state = sampler.observe(state, Conditions(0, weights), updates.cohort, updates)
    picks = [
        int(sampler.draw(state, Conditions(1, weights), Key.from_seed(s)).clients[0]) for s in range(4000)
    ]
    p = np.array([0.3, 0.75, 1.5, 1.0]) / 3.55
    share = np.bincount(picks, minlength=4) / len(picks)
    assert np.all(np.abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / len(picks)))


def test_a_dead_client_draws_no_more_than_the_floor_allows() -> None:
    """p_dead ≤ (ω/floor)/(ω/floor + Σ others' ω/r̂): 10/(10 + 3) of the draws at floor 0.1, never all."""
    weights = torch.full((4,), 0.25, dtype=torch.float64)
    link = ChangingLinks(((0, (0.0, 1.0, 1.0, 1.0)),))
    dead = ClosedFormWorld(torch.eye(4, dtype=torch.float64), weights, torch.ones(4).long(), link)
    algorithm = presets.fedacs_estimated(lr=LR, steps=1, cohort_size=1)
    run = Federation(replace(algorithm, sampler=FedACSEstimated(1, min_arrival=0.1)), dead)
    for _ in run.train(300):
        pass
    share = np.mean([record.asked[0] == 0 for record in run.train(700)])
    assert abs(share - 10 / 13) < 4.5 * np.sqrt(30 / 169 / 1000)


def test_a_round_that_loses_everything_counts_as_lost() -> None:
    sampler = FedACSEstimated(2)
    weights = torch.full((3,), 1 / 3, dtype=torch.float64)
    before = sampler.init(Population(weights, {"x": 1}, torch.device("cpu"), torch.float64))
    nobody = torch.tensor([], dtype=torch.int64)
    updates = updates_of(everyone(0, 2), nobody, torch.zeros(0, 1), nobody)
    after = sampler.observe(before, Conditions(0, weights), updates.cohort, updates)
    assert tensor_in(after, "lost").tolist() == [2.0, 1.0, 2.0]
    assert tensor_in(after, "arrived").tolist() == [1.0, 1.0, 1.0]
    assert tensor_in(after, "work").tolist() == [0.0, 0.0, 0.0]
    assert tensor_in(before, "lost").tolist() == [1.0, 1.0, 1.0]


def test_planned_work_replaces_reports() -> None:
    """Links still unknown, work known: after the same questions p differs only through the plan."""
    plan = torch.tensor([8.0, 1.0], dtype=torch.float64)
    weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
    conditions = Conditions(0, weights, forecast_work=lambda: plan)
    sampler = FedACSEstimated(1, planned_work=True)
    state = sampler.init(Population(weights, {"x": 1}, torch.device("cpu"), torch.float64))
    picks = [int(sampler.draw(state, conditions, Key.from_seed(s)).clients[0]) for s in range(2000)]
    assert abs(np.mean(picks) - 8 / 9) < 4.5 * np.sqrt(8 / 81 / 2000)


def test_a_million_clients_are_drawn_and_learned() -> None:
    number = 1_000_000
    weights = torch.full((number,), 1 / number, dtype=torch.float64)
    sampler = FedACSEstimated(100)
    state = sampler.init(Population(weights, {"x": 1}, torch.device("cpu"), torch.float64))
    for round in range(3):
        cohort = sampler.draw(state, Conditions(round, weights), Key.from_seed(round))
        arrived = cohort.clients[::2]
        updates = updates_of(cohort, arrived, torch.zeros(len(arrived), 1), torch.full_like(arrived, 3))
        state = sampler.observe(state, Conditions(round, weights), cohort, updates)
    assert int((tensor_in(state, "work") > 0).sum()) >= 140


def test_oracle_and_estimate_agree_on_which_client_needs_asking() -> None:
    """On Bernoulli links the learned frequencies of the draws approach p of (15)."""
    link = BernoulliLink(tuple(1 - rate for rate in RATES))
    secretive = ClosedFormWorld(
        torch.from_numpy(CENTERS), torch.from_numpy(OMEGA), torch.from_numpy(STEPS), link, secretive=True
    )
    run = Federation(presets.fedacs_estimated(lr=LR, steps=1, cohort_size=K), secretive, seed=5)
    for _ in run.train(300):
        pass
    draws = np.zeros(4)
    for record in run.train(500):
        draws[list(record.asked)] += record.multiplicity
    p = OMEGA / (np.array(RATES) * STEPS)
    p = p / p.sum()
    share = draws / draws.sum()
    # 4000 draws give 0.8 % at most; the rates, known to 4 % after 300 rounds, add as much again.
    assert np.all(np.abs(share - p) < 0.04)
