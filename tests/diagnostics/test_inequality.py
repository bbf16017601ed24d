"""Do clients differ, or is it chance? Against closed forms, and by how often the verdicts err."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fairlead.diagnostics.clients import Inequality, Readings, arrival_inequality, inequality_of

EQUAL = torch.full((20,), 1 / 20, dtype=torch.float64)


def exact(values: list[float], weights: list[float]) -> Inequality:
    return inequality_of(
        torch.tensor(values), torch.zeros(len(values)), torch.tensor(weights, dtype=torch.float64), 5
    )


def test_known_values_have_the_weighted_coefficient_of_variation() -> None:
    """x = (1, 2, 5), ω = (½, ¼, ¼): x̄ = 2.25, variance = ½·1.25² + ¼·.25² + ¼·2.75² = 2.6875."""
    found = exact([1.0, 2.0, 5.0], [0.5, 0.25, 0.25])
    assert found.cv == pytest.approx(math.sqrt(2.6875) / 2.25)
    assert [found.chance, found.lasting] == pytest.approx([0.0, found.cv])
    assert found.at_most == pytest.approx(found.cv)
    assert (found.p_value, found.verdict, found.confidence) == (0.0, "unequal", "high")
    assert found.extremes == (1.0, 5.0)


def test_plain_averaging_misplaces_at_most_half_of_the_coefficient_of_variation() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        omega, x = rng.dirichlet(np.ones(7)), rng.uniform(0.1, 3, 7)
        mass = omega * x / (omega @ x)
        assert np.abs(omega - mass).sum() / 2 <= exact(x.tolist(), omega.tolist()).cv / 2 + 1e-12


def test_a_small_known_spread_counts_as_equal() -> None:
    assert exact([1.0, 1.04], [0.5, 0.5]).verdict == "equal"
    assert exact([1.0, 1.2], [0.5, 0.5]).verdict == "unequal"


def test_clients_of_weight_zero_and_clients_never_seen_do_not_count() -> None:
    found = exact([1.0, 1.0, 9.0, math.nan], [0.48, 0.47, 0.0, 0.05])
    assert (found.cv, found.verdict) == (0.0, "equal")
    assert found.covered == pytest.approx(0.95)
    assert exact([1.0, 1.0, 1.0, math.nan], [0.4, 0.3, 0.1, 0.2]).verdict == "unknown"


def test_clients_that_all_have_nothing_are_equal() -> None:
    assert exact([0.0, 0.0], [0.5, 0.5]).verdict == "equal"


@pytest.mark.parametrize("values", [[1.0], [math.nan, 2.0]])
def test_fewer_than_two_clients_say_nothing(values: list[float]) -> None:
    found = exact(values, [1 / len(values)] * len(values))
    assert (found.verdict, found.confidence) == ("unknown", "none")


def test_the_p_value_is_that_of_a_chi_square_test() -> None:
    """Two clients, errors of 1, values 0.5 and 2.5: Q = 2, and P(χ²₁ ≥ 2) = erfc(1) = 0.1573."""
    found = inequality_of(torch.tensor([0.5, 2.5]), torch.ones(2), torch.tensor([0.5, 0.5]), 3)
    assert found.p_value == pytest.approx(math.erfc(1.0))


def test_readings_have_pooled_errors() -> None:
    """Readings (1, 3) and (4, 6): pooled variance 2, both means with an error of 1, cv = 1.5/3.5."""
    readings = Readings(2)
    for values in ([1.0, 4.0], [3.0, 6.0]):
        readings.add(torch.arange(2), torch.tensor(values))
    found = readings.inequality(torch.tensor([0.5, 0.5], dtype=torch.float64))
    assert found.values.tolist() == [2.0, 5.0]
    assert [found.cv, found.chance] == pytest.approx([1.5 / 3.5, 1 / 3.5])


def test_one_reading_each_says_nothing() -> None:
    readings = Readings(20)
    readings.add(torch.arange(20), torch.arange(20) + 1.0)
    assert readings.inequality(EQUAL).verdict == "unknown"


def test_readings_that_never_vary_are_known() -> None:
    """In tenths, whose squares do not add up exactly."""
    readings = Readings(20)
    for _ in range(7):
        readings.add(torch.arange(20), 0.1 * (torch.arange(20) + 1.0))
    found = readings.inequality(EQUAL)
    assert (found.chance, found.verdict, found.confidence) == (0.0, "unequal", "high")


def counted(rates: list[float], asked: int, seed: int) -> Inequality:
    arrived = np.random.default_rng(seed).binomial(asked, rates)
    number = torch.full((len(rates),), float(asked), dtype=torch.float64)
    return arrival_inequality(number, torch.from_numpy(arrived).double(), EQUAL, asked)


def test_equal_rates_are_seldom_called_unequal_and_unequal_ones_found() -> None:
    """At a risk of 1 %, 200 draws of equal clients err at most 8 times (P < 1e-3)."""
    verdicts = [counted([0.7] * 20, 60, seed).verdict for seed in range(200)]
    assert verdicts.count("unequal") <= 8
    assert {counted([0.3] * 10 + [0.9] * 10, 60, seed).verdict for seed in range(20)} == {"unequal"}


def test_a_few_questions_that_were_all_answered_are_no_certainty() -> None:
    assert counted([1.0] * 20, 1, 0).verdict == "unknown"
    assert counted([1.0] * 20, 60, 0).verdict == "equal"
