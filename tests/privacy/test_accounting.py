"""ε of sampled Gaussian noise against published values and formulas that share no code with the accountant."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from scipy.special import ndtr, ndtri  # type: ignore[import-untyped]
from torch import Tensor

import fairlead as fl
from fairlead.privacy import Sampling, epsilon, sampling_of


def uniform(num_clients: int) -> Tensor:
    return torch.full((num_clients,), 1 / num_clients, dtype=torch.float64)


def poisson(rate: float) -> Sampling:
    return sampling_of(fl.PoissonSampling(rate), uniform(100))


def log_moments(rate: float, noise: float, order: int) -> float:
    """(α − 1) times the Rényi divergence of a round, for whole α (Mironov, Talwar and Zhang 2019, (6)).

    log Σ_k C(α, k)(1 − q)^(α−k) q^k exp(k(k − 1)/(2z²))
    """
    terms = [
        math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1)
        + (order - k) * math.log1p(-rate) + k * math.log(rate) + k * (k - 1) / (2 * noise**2)
        for k in range(order + 1)
    ]  # fmt: skip
    largest = max(terms)
    return largest + math.log(sum(math.exp(term - largest) for term in terms))


def test_the_published_account_of_mnist() -> None:
    """TensorFlow Privacy's tutorial on MNIST: q = 256/60000, z = 1.1, 60 epochs, δ = 1e-5 give ε = 3.01.

    That figure is the classical conversion ε = ρ(α) + log(1/δ)/(α − 1) of Mironov 2017, Proposition 3. With
    the same moments, the conversion of Canonne, Kamath and Steinke 2020, Proposition 12, which is the better
    one, must be ours: ε = ρ(α) + log((α − 1)/α) − (log δ + log α)/(α − 1).
    """
    rate, noise, delta, rounds = 256 / 60000, 1.1, 1e-5, 60 * 60000 // 256
    rho = {order: rounds * log_moments(rate, noise, order) / (order - 1) for order in range(2, 65)}
    classical = min(spent + math.log(1 / delta) / (order - 1) for order, spent in rho.items())
    assert classical == pytest.approx(3.01, abs=0.005)
    better = min(
        spent + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        for order, spent in rho.items()
    )
    assert epsilon(poisson(rate), noise, delta, rounds) == pytest.approx(better, rel=1e-6)
    assert better < classical


@pytest.mark.parametrize(("noise", "rounds"), [(5.0, 1), (20.0, 50), (100.0, 400)])
def test_without_sampling_rounds_add_up_to_one_gaussian(noise: float, rounds: int) -> None:
    """T rounds are one of multiplier σ = z/√T, whose δ(ε) is known exactly (Balle and Wang 2018, Theorem 8).

        δ(ε) = Φ(1/(2σ) − εσ) − e^ε Φ(−1/(2σ) − εσ)

    The account may not be below the exact ε, and Rényi accounts are known to be within a quarter of it here.
    """
    sigma, delta = noise / math.sqrt(rounds), 1e-6

    def exact_delta(eps: float) -> float:
        upper, lower = 1 / (2 * sigma) - eps * sigma, -1 / (2 * sigma) - eps * sigma
        return float(ndtr(upper) - math.exp(eps) * ndtr(lower))

    low, high = 0.0, 50.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if exact_delta(middle) > delta else (low, middle)
    everyone = sampling_of(fl.FullParticipation(), uniform(10))
    found = epsilon(everyone, noise, delta, rounds)
    assert low <= found <= 1.25 * low


def test_fixed_cohorts_are_accounted_between_replace_one_neighbors() -> None:
    """Wang, Balle and Kasiviswanathan 2019, Theorem 9, bounds every order α, and no sampling bounds it too.

        (α − 1)ρ(α) ≤ log(1 + q² C(α,2) min(4(e^{r(2)} − 1), 2e^{r(2)}) + Σ_{j≥3} 2q^j C(α,j) e^{(j−1)r(j)})

    with r(j) = j/(2s²), s the noise in units of the difference of two sums. Neighbors replace a client, so that
    sums differ by twice its contribution and s = z/2.
    """
    clients, cohort, noise, delta, rounds = 200, 10, 4.0, 1e-5, 30
    rate, s = cohort / clients, noise / 2

    def bound(order: int) -> float:
        r2 = 2 / (2 * s**2)
        total = 1 + rate**2 * math.comb(order, 2) * min(4 * math.expm1(r2), 2 * math.exp(r2))
        for j in range(3, order + 1):
            total += 2 * rate**j * math.comb(order, j) * math.exp((j - 1) * j / (2 * s**2))
        return math.log(total) / (order - 1)

    def converted(rho: float, order: int) -> float:
        return rho + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    amplified = min(converted(rounds * bound(order), order) for order in range(2, 40))
    plain = min(converted(rounds * order / (2 * s**2), order) for order in range(2, 40))
    sampling = sampling_of(fl.UniformWithoutReplacement(cohort), uniform(clients))
    found = epsilon(sampling, noise, delta, rounds)
    assert sampling.adjacency == "replace-one"
    assert 0.8 * amplified <= found <= amplified + 1e-9
    assert found < plain / 2
    # The other adjacency, with the same noise, is the weaker promise.
    assert epsilon(poisson(rate), noise, delta, rounds) < found


def test_privacy_is_spent_round_by_round_and_bought_by_noise_and_sampling() -> None:
    spent = [epsilon(poisson(0.1), 1.0, 1e-5, rounds) for rounds in (0, 1, 10, 100)]
    assert spent[0] == 0.0
    assert all(one < other for one, other in pairwise(spent))
    assert epsilon(poisson(0.1), 2.0, 1e-5, 10) < spent[2]
    assert epsilon(poisson(0.05), 1.0, 1e-5, 10) < spent[2]
    assert epsilon(poisson(0.1), 1.0, 1e-7, 10) > spent[2]


def test_the_largest_importance_is_that_of_any_client() -> None:
    """ω = (0.1, 0.2, 0.7): noise follows the third, asked or not; clients of weight 0 do not count."""
    weights = torch.tensor([0.1, 0.0, 0.2, 0.7], dtype=torch.float64)
    assert sampling_of(fl.FullParticipation(), weights).largest_importance == pytest.approx(0.7)
    assert sampling_of(fl.PoissonSampling(0.5), weights).largest_importance == pytest.approx(1.4)
    assert sampling_of(fl.PoissonSampling(0.3), weights).asked == 0.3, "in float64"
    fixed = sampling_of(fl.UniformWithoutReplacement(2), weights)
    assert fixed.largest_importance == pytest.approx(0.7 * 3 / 2)
    assert fixed.eligible == 3
    assert fixed.asked == pytest.approx(2 / 3)


def test_the_exact_formula_is_right() -> None:
    """δ(ε) of one Gaussian at σ = 1, ε = 1 is the total-variation-like integral, here by quantiles."""
    points = (torch.arange(1_000_000, dtype=torch.float64) + 0.5) / 1_000_000
    x = torch.from_numpy(ndtri(points.numpy())) + 1  # N(1, 1)
    excess = (1 - torch.exp(1 - (x - 0.5))).clamp(min=0).mean()
    assert float(excess) == pytest.approx(float(ndtr(0.5 - 1) - math.e * ndtr(-0.5 - 1)), abs=1e-6)


def test_a_round_done_again_asks_the_same_clients() -> None:
    """Two sums over one Poisson sample are one sampled Gaussian of multiplier z/√2, and cost more than two rounds.

    Without sampling they are two rounds.
    """
    everyone = sampling_of(fl.FullParticipation(), uniform(100))
    assert epsilon(everyone, 5.0, 1e-5, 3, (1, 1)) == pytest.approx(epsilon(everyone, 5.0, 1e-5, 5))
    twice = epsilon(poisson(0.1), 1.0, 1e-5, 1, (0,))
    assert twice == pytest.approx(epsilon(poisson(0.1), math.sqrt(0.5), 1e-5, 1))
    assert twice > epsilon(poisson(0.1), 1.0, 1e-5, 2)
    rates = {
        order: 2 * log_moments(0.1, 1.0, order) + log_moments(0.1, math.sqrt(0.5), order)
        for order in range(2, 65)
    }
    expected = min(
        spent / (order - 1) + math.log1p(-1 / order) - (math.log(1e-5) + math.log(order)) / (order - 1)
        for order, spent in rates.items()
    )
    assert epsilon(poisson(0.1), 1.0, 1e-5, 3, (1,)) == pytest.approx(expected, rel=1e-6)


def test_a_round_that_was_shown_and_is_not_yet_done_again_costs() -> None:
    assert epsilon(poisson(0.1), 1.0, 1e-5, 0) == 0.0
    assert epsilon(poisson(0.1), 1.0, 1e-5, 0, (0,)) >= epsilon(poisson(0.1), 1.0, 1e-5, 1)
