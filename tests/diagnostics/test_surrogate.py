"""Theory's Ω against the coefficients that samplers and aggregators really produce, for every preset."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from constructed import expected_shares
from numpy.typing import NDArray
from rehearsal import SETTINGS, WEIGHTS, Setting, long_run
from torch import Tensor

import fairlead as fl
from fairlead.aggregators.weighted import FedNova, WeightedMean
from fairlead.algorithm import Algorithm
from fairlead.diagnostics import Surrogate, implied_surrogate, predicted_consistency
from fairlead.presets import METHODS
from fairlead.records import Conditions, Participation
from fairlead.samplers.base import Sampler
from fairlead.theory.prediction import outcomes, random_outcomes

WITH_REPLACEMENT = {
    "anonymous_fednova",
    "communication_aware_fedavg",
    "communication_aware_fednova",
    "fedacs",
    "fedacs_estimated",
    "fedvarp_stale",
    "importance_sampling",
    "optimal_sampling",
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "feddyn": {"alpha": 1.0},
    "fedprox": {"mu": 2.0},
    "fedcm": {"alpha": 0.4},
    "ditto": {"mu": 0.5},
}
RESTORED = {"scaffold", "fednova_vr", "feddyn"}
PARETO = {"fedaware", "fedaware_published", "fedaware_ridge", "fedmgda_plus"}
OWN_PARAMETERS = {"fedper", "fedrep", "fedbn"}
ELSEWHERE = {"pfedme", "per_fedavg"}
"""Clients take gradients elsewhere than at their model, so that no ‖a_i‖ is known."""
TIMED = {"fedbuff"}
"""Follows the time that clients take, unknown here: `tests/reference/test_fedbuff_events.py` has it."""
ROBUST = {"coordinate_median", "geometric_median", "krum", "multi_krum", "norm_bounded_mean", "trimmed_mean"}
BY_LOSS = {"power_of_choice"}
"""No theory of participation: it depends on the losses."""
SAMPLED = {
    "fedavg",
    "fednova",
    "uniform_sampling",
    "mifa",
    "fedvarp",
    "fedau",
    "fedaware_na",
    "fedcm",
    "fedawe",
    "vrlsgd",
}


def built(name: str, cohort_size: int | None = None) -> Algorithm:
    size = 3 if name in WITH_REPLACEMENT else cohort_size
    return METHODS[name].build(lr=0.1, steps=1, cohort_size=size, **ARGUMENTS.get(name, {}))


def theory(algorithm: Algorithm, setting: Setting) -> Tensor:
    weights = implied_surrogate(algorithm, [setting.conditions(algorithm)]).weights
    assert weights is not None
    return weights


def assert_agreement(algorithm: Algorithm, setting: Setting) -> None:
    """Theory within 5.5 standard errors of measurement, and not worse than a few percent in any case."""
    exact = not any(setting.drop) and isinstance(algorithm.sampler, fl.FullParticipation)
    found, expected = long_run(algorithm, setting, 63 if exact else 441), theory(algorithm, setting)
    gap = (found.weights - expected).abs()
    assert bool((gap <= 5.5 * found.error + 1e-9).all()), (found.weights, expected, found.error)
    assert float(gap.max()) < (1e-9 if exact else 0.05)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(
    "name", sorted(set(METHODS) - RESTORED - PARETO - ROBUST - OWN_PARAMETERS - ELSEWHERE - BY_LOSS - TIMED)
)
def test_theory_foresees_what_every_preset_weighs(name: str, setting: str) -> None:
    assert_agreement(built(name), SETTINGS[setting])


@pytest.mark.parametrize("setting", ["work", "both"])
@pytest.mark.parametrize("name", sorted(SAMPLED))
def test_theory_foresees_what_presets_weigh_when_half_the_clients_are_asked(name: str, setting: str) -> None:
    assert_agreement(built(name, cohort_size=2), SETTINGS[setting])


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", sorted(RESTORED))
def test_methods_that_restore_the_weights_have_them_by_design(name: str, setting: str) -> None:
    assert torch.equal(theory(built(name), SETTINGS[setting]), WEIGHTS)


@pytest.mark.parametrize("name", sorted(PARETO | ROBUST | OWN_PARAMETERS))
def test_methods_without_weights_say_what_they_tend_to(name: str) -> None:
    algorithm = METHODS[name].build(lr=0.1)
    found = implied_surrogate(algorithm, [SETTINGS["both"].conditions(algorithm)])
    assert found.weights is None
    assert "no weighted sum of the clients' objectives" in found.explanation


BOTH = SETTINGS["both"]
RATE = 1 - torch.tensor(BOTH.drop, dtype=torch.float64)
WORK = torch.tensor(BOTH.steps, dtype=torch.float64)
GOLDEN: dict[str, Tensor] = {
    "importance_sampling": WEIGHTS * RATE * WORK,
    "uniform_sampling": WEIGHTS * RATE * WORK,
    "optimal_sampling": WEIGHTS * RATE * WORK,
    "full_participation": WEIGHTS * RATE * WORK,
    "anonymous_fednova": WEIGHTS * RATE,
    "communication_aware_fedavg": WEIGHTS * WORK,
    "communication_aware_fednova": WEIGHTS,
    "fedacs": WEIGHTS,
    "fedacs_estimated": WEIGHTS,
    "fedvarp": WEIGHTS * WORK,
    "mifa": WEIGHTS * WORK,
    "fedaware_na": WEIGHTS * WORK,
    "vrlsgd": WEIGHTS * WORK,
    "fedawe": WEIGHTS * WORK,
    "fedavg": expected_shares(WEIGHTS, RATE) * WORK,
}


@pytest.mark.parametrize("name", GOLDEN)
def test_theory_is_the_papers_table(name: str) -> None:
    """Weng 2025's table of mean coefficients times ‖a‖₁; FedAvg's mean over arrivals by all 2^N patterns."""
    assert torch.allclose(theory(built(name), BOTH), GOLDEN[name] / GOLDEN[name].sum(), rtol=1e-12)


def test_fedau_falls_short_where_its_cut_off_ends_intervals() -> None:
    """E[u_i]π_i = 1 − (1 − π_i)^K: with K = 1 nothing is corrected, without a cut-off everything is."""
    cut, free = (fl.presets.fedau(lr=0.1, steps=1, cutoff=cutoff) for cutoff in (1, None))
    for algorithm, mass in ((cut, WEIGHTS * RATE * WORK), (free, WEIGHTS * WORK)):
        assert torch.allclose(theory(algorithm, BOTH), mass / mass.sum(), rtol=1e-12)


def test_fedcm_mixes_weights_with_and_without_work() -> None:
    share = expected_shares(WEIGHTS, RATE)
    mixed = 0.4 * share * WORK / (share @ WORK) + 0.6 * share / share.sum()
    assert torch.allclose(theory(built("fedcm"), BOTH), mixed, rtol=1e-12)


def told(number: int, cohort_size: int | None = None) -> Surrogate:
    """Theory of FedAvg for clients of equal weight whose arrival rates go from 0.3 to 0.9."""
    rates = torch.linspace(0.3, 0.9, number, dtype=torch.float64)
    same = torch.ones_like(rates)
    return implied_surrogate(
        built("fedavg", cohort_size), [Conditions(0, same / number, lambda: same, lambda: rates)]
    )


def distance(one: Tensor | None, other: Tensor) -> float:
    """½ Σ |Ω_i − Ω'_i| of weights that need not have sum 1."""
    assert one is not None
    return float((one / one.sum() - other / other.sum()).abs().sum() / 2)


def test_12_lossy_links_are_enumerated_and_13_are_sampled() -> None:
    """They have 4,096 and 8,192 patterns, and the ratio of means would be off by O(1/13)."""
    assert (told(12).exactness, told(13).exactness) == ("exact", "sampled")
    rates = torch.linspace(0.3, 0.9, 13, dtype=torch.float64)
    exact = expected_shares(torch.full_like(rates, 1 / 13), rates)
    assert 0 < distance(told(13).weights, exact) < 0.003
    assert distance(rates, exact) > 0.006


@pytest.mark.parametrize(("number", "cohort_size"), [(2000, None), (1000, 10)])
def test_the_ratio_of_means_is_left_to_large_cohorts_and_to_clients_that_hardly_arrive(
    number: int, cohort_size: int | None
) -> None:
    assert told(number, cohort_size).exactness == "large cohorts"


def constant(values: NDArray[np.float64]) -> Callable[[], Tensor]:
    """A forecast that is known."""
    return lambda: torch.from_numpy(values)


def test_sampling_foresees_fednova_under_work_that_changes() -> None:
    """τ_eff p̂_i, the share of client i in a round, averaged over all 255 patterns of arrivals and 40 rounds.

    For τ_eff = Σ p̂_j‖a_j‖₁ the mean of the product is far from the product of the means, ∝ ω_i(1 − q_i).
    """
    omega = np.array([1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0]) / 54
    rates = np.linspace(1.0, 0.4, 8)
    steps = np.random.default_rng(5).integers(1, 7, (40, 8)).astype(np.float64)
    patterns = np.array(list(product((0.0, 1.0), repeat=8)))[1:]
    chance = np.prod(patterns * rates + (1 - patterns) * (1 - rates), axis=1)
    share = patterns * omega / (patterns @ omega)[:, None]
    exact = torch.from_numpy(np.mean([chance @ (share * (share @ work)[:, None]) for work in steps], axis=0))
    rounds = [
        Conditions(round, torch.from_numpy(omega), constant(work), constant(rates))
        for round, work in enumerate(steps)
    ]
    found = implied_surrogate(built("fednova"), rounds)
    assert found.exactness == "sampled"
    assert distance(found.weights, exact) < 0.005
    assert distance(torch.from_numpy(omega * rates), exact) > 0.02


def test_sampling_foresees_cohorts_without_replacement() -> None:
    """Six of twelve clients: all 924 cohorts with all 64 patterns of arrivals in each."""
    omega, rates = np.arange(1.0, 13.0) / 78, np.linspace(0.3, 0.9, 12)
    exact = np.zeros(12)
    patterns = np.array(list(product((0.0, 1.0), repeat=6)))[1:]
    for chosen in map(list, combinations(range(12), 6)):
        chance = np.prod(patterns * rates[chosen] + (1 - patterns) * (1 - rates[chosen]), axis=1)
        exact[chosen] += chance @ (patterns * omega[chosen] / (patterns @ omega[chosen])[:, None])
    known = Conditions(0, torch.from_numpy(omega), constant(np.ones(12)), constant(rates))
    found = implied_surrogate(built("fedavg", cohort_size=6), [known])
    assert found.exactness == "sampled"
    assert distance(found.weights, torch.from_numpy(exact)) < 0.006
    assert distance(torch.from_numpy(omega * rates), torch.from_numpy(exact)) > 0.02


def test_clients_that_are_alike_are_sampled_together() -> None:
    """Twenty clients that lose half of their updates, ten of them asked: Ω = ω, whatever the draws."""
    same = torch.ones(20, dtype=torch.float64)
    known = Conditions(0, same / 20, lambda: same, lambda: same / 2)
    found = implied_surrogate(built("fedavg", cohort_size=10), [known])
    assert found.exactness == "sampled"
    assert distance(found.weights, same) < 1e-12


def test_a_mean_is_not_taken_for_a_sum_where_every_other_client_has_half_of_the_weight() -> None:
    """Doubling every other one of these leaves Σ ω(1 − q) as it is, and so would pass for independence."""
    rates, same = np.array([0.2, 0.2, 0.8, 0.8]), np.ones(4)
    known = Conditions(0, torch.from_numpy(same / 4), constant(same), constant(rates))
    found = implied_surrogate(built("fedavg"), [known]).weights
    exact = expected_shares(torch.from_numpy(same / 4), torch.from_numpy(rates))
    assert distance(found, exact) < 1e-12
    assert distance(torch.from_numpy(rates), exact) > 0.02


def test_draws_that_depend_on_earlier_rounds_are_not_sampled() -> None:
    known = BOTH.told((1.0, 1.0, 1.0, 1.0), 0)
    assert random_outcomes(fl.OptimalSampling(2), known, 5) is None
    assert random_outcomes(fl.FedACSEstimated(2), known, 5) is None
    one, again = (random_outcomes(fl.UniformWithoutReplacement(2), known, 5) for _ in range(2))
    assert one is not None
    assert again is not None
    assert [came.tolist() for _, came in one] == [came.tolist() for _, came in again]


def test_the_ratio_of_means_would_be_refuted_for_few_clients() -> None:
    """5.5 errors, the bound of agreement, tell Weng 2025's ω(1 − q)‖a‖₁ from the mean over arrivals."""
    found, naive = long_run(built("fedavg"), BOTH, 630), WEIGHTS * RATE * WORK
    gap = (found.weights - naive / naive.sum()).abs()
    assert float((gap / found.error).max()) > 5.5


@pytest.mark.parametrize(
    "sampler",
    [
        fl.FullParticipation(),
        fl.UniformWithoutReplacement(2),
        fl.WeightedWithReplacement(3),
        fl.FedACS(2),
        fl.ScriptedSampler(((0, 0, 2),)),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_enumerated_cohorts_have_the_means_that_are_claimed(sampler: Sampler) -> None:
    conditions = BOTH.told((4.0, 1.0, 2.0, 6.0), 0)
    claimed, found = sampler.participation(conditions), sampler.possible_cohorts(conditions, 1000)
    assert isinstance(claimed, Participation)
    assert claimed.asked is not None
    assert found is not None
    assert sum(chance for chance, _ in found) == pytest.approx(1.0)
    importance, asked = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for chance, cohort in found:
        importance[cohort.clients] += chance * cohort.importance
        asked[cohort.clients] += chance
    assert torch.allclose(importance, claimed.importance)
    assert torch.allclose(asked, claimed.asked)


def test_outcomes_are_all_of_them_or_none() -> None:
    conditions = BOTH.told((1.0, 1.0, 1.0, 1.0), 0)
    found = outcomes(fl.FullParticipation(), conditions, 8)
    assert found is not None
    assert [arrived.tolist()[0] for _, _, arrived in found] == [True] * 8
    assert sum(chance for chance, _, _ in found) == pytest.approx(1.0)
    assert outcomes(fl.FullParticipation(), conditions, 7) is None
    assert outcomes(fl.OptimalSampling(2), conditions, 1000) is None


def test_a_script_is_averaged_over_its_rounds() -> None:
    """Client 0 in every second round, client 1 in all: coefficients ½·½ and ½ + ½·½ of equal work."""
    algorithm = Algorithm(
        fl.LocalSolver(fl.SGD(0.1), steps=1), fl.ScriptedSampler(((0, 1), (1,))), WeightedMean("asked")
    )
    equal = torch.ones(2, dtype=torch.float64)
    rounds = [Conditions(round, equal / 2, lambda: equal, lambda: equal) for round in range(2)]
    assert implied_surrogate(algorithm, rounds).weights.tolist() == pytest.approx([0.25, 0.75])  # type: ignore[union-attr]


def test_a_first_round_with_everybody_does_not_count() -> None:
    plain = built("fedavg", cohort_size=2)
    opened = Algorithm(plain.solver, fl.FullFirstRound(plain.sampler), plain.aggregator)
    assert torch.equal(theory(opened, BOTH), theory(plain, BOTH))


def test_a_client_that_never_arrives_has_no_weight() -> None:
    cut_off = Setting((1, 1, 1, 1), (0.0, 0.0, 0.0, 1.0))
    for name in ("fedavg", "mifa", "fedau", "fedvarp_stale", "full_participation"):
        assert theory(built(name), cut_off)[3] == 0.0, name


@cache
def problem() -> Any:
    return fl.Quadratics(num_clients=4, dim=2, weights=(1.0, 2.0, 3.0, 4.0)).problem(fl.Key.from_seed(0))


def world(**conditions: Any) -> fl.SimulatedWorld:
    return fl.SimulatedWorld(
        problem().task(), problem().data(), weights=problem().weights, dtype=torch.float64, **conditions
    )


def test_vrlsgd_has_no_weights_when_work_changes() -> None:
    found = predicted_consistency(built("vrlsgd"), world(work=fl.RandomSteps(1, 5)))
    assert found.predicted_weights is None
    assert "depends on the start" in str(found)


@pytest.mark.parametrize(
    ("algorithm", "conditions", "reason"),
    [
        (built("fedavg"), {"link": fl.ScriptedLink(((0,),))}, "does not know the arrival rates"),
        (Algorithm(fl.LocalSolver(fl.Adam(0.1), steps=1)), {}, "not linear in their gradients"),
        (fl.presets.with_aware(built("fedavg")), {}, "orthogonal"),
        (Algorithm(built("vrlsgd").solver, fl.WeightedWithReplacement(2)), {}, "averaged in proportion to ω"),
        (
            Algorithm(built("fedcm").solver, aggregator=FedNova()),
            {},
            "only for the mean of the received updates",
        ),
        (fl.presets.fedmgda_plus(lr=0.1, epsilon=1.0), {}, "Pareto-stationary"),
        (built("fedavg"), {"link": fl.BernoulliLink(1.0)}, "No update ever arrives"),
    ],
)
def test_what_is_not_known_is_said(algorithm: Algorithm, conditions: dict[str, Any], reason: str) -> None:
    found = predicted_consistency(algorithm, world(**conditions))
    assert found.predicted_weights is None
    assert reason in str(found)


def test_random_work_enters_by_its_mean() -> None:
    """FedAvg's Ω is the mean of ω‖a‖₁ over the very rounds that the run will meet, FedNova's stays ω."""
    place, key = world(work=fl.RandomSteps(1, 9)), fl.Key.from_seed(3)
    fedavg, fednova = (
        predicted_consistency(built(name), place, rounds=40, key=key).predicted_weights
        for name in ("fedavg", "fednova")
    )
    run = fl.Federation(built("fedavg"), place, seed=3)
    list(run.train(40))
    measured = run.consistency().surrogate
    assert measured is not None
    assert fedavg is not None
    assert fednova is not None
    assert torch.allclose(fedavg, measured, rtol=1e-9)
    assert torch.allclose(fednova, problem().weights, atol=0.03)


def test_rounds_must_be_looked_at() -> None:
    with pytest.raises(fl.errors.FieldError, match="at least 1, got 0"):
        predicted_consistency(built("fedavg"), world(), rounds=0)


def test_a_projected_step_keeps_no_promise_of_the_corrections() -> None:
    """Control variates restore ω, but a step projected elsewhere does not go there."""
    algorithm = fl.presets.with_aware(fl.presets.scaffold(lr=0.1, steps=1), alpha=0.5)
    problem = fl.Quadratics(num_clients=3).problem(fl.Key.from_seed(0))
    run = fl.Federation(algorithm, fl.SimulatedWorld(problem.task(), problem.data()))
    list(run.train(2))
    report = run.consistency()
    assert not report.restored
    assert report.surrogate is None
    assert "Pareto-stationary" in str(report)
