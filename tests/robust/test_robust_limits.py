"""Where robust aggregators come to rest: location estimates of the clients' optima, in closed form.

Clients F_i(x) = ½(x − e_i)² that take one step of rate η move by Δ_i = η(e_i − x), so that the aggregate is zero
where the location estimate of e_i − x is: at the weighted median, at the trimmed mean, and for bounded updates
at Huber's estimate, the root of Σ ω_i·clamp(e_i − x, ±b/η).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.diagnostics import predicted_consistency
from fairlead.testing.rounds import make_updates

OPTIMA = np.array([0.0, 1.0, 2.0, 4.0, 30.0])
WEIGHTS = np.array([0.15, 0.25, 0.2, 0.3, 0.1])
LR = 0.5


def world() -> fl.SimulatedWorld:
    problem = QuadraticProblem(
        torch.ones((5, 1, 1), dtype=torch.float64),
        torch.from_numpy(OPTIMA)[:, None],
        torch.from_numpy(WEIGHTS),
    )
    return fl.SimulatedWorld(problem.task(), problem.data(), weights=problem.weights, dtype=torch.float64)


def limit(algorithm: fl.Algorithm) -> float:
    federation = fl.Federation(algorithm, world())
    for _ in federation.train(80):
        pass
    return float(federation.params)


def huber(bound: float) -> float:
    """The root of Σ ω_i·clamp(e_i − x, ±bound), which falls as x grows: by bisection."""
    low, high = OPTIMA.min(), OPTIMA.max()
    for _ in range(200):
        x = (low + high) / 2
        low, high = (x, high) if WEIGHTS @ np.clip(OPTIMA - x, -bound, bound) > 0 else (low, x)
    return float(low)


def test_the_median_rests_at_the_median_of_the_optima() -> None:
    """Weights up to 0.4, 0.6 at optima 1 and 2: half of the weight is passed at 2. The mean would be 4.85."""
    assert float(WEIGHTS @ OPTIMA) == pytest.approx(4.85)
    assert limit(fl.presets.coordinate_median(lr=LR, steps=1)) == pytest.approx(2.0, abs=1e-9)


def test_the_geometric_median_of_numbers_is_their_median() -> None:
    """`GeometricMedian`: "Reduces to the weighted median for models with one parameter.\""""
    found = limit(fl.presets.geometric_median(lr=LR, steps=1, smoothing=1e-9))
    assert found == pytest.approx(2.0, abs=1e-7)


def test_the_trimmed_mean_rests_at_the_trimmed_mean_of_the_optima() -> None:
    """β = 0.2 leaves 0 of e = 0, 0.2 of 1, 0.2 of 2, 0.2 of 4 and 0 of 30, of 0.6 in all: 7/3."""
    assert limit(fl.presets.trimmed_mean(trim=0.2, lr=LR, steps=1)) == pytest.approx(7 / 3, abs=1e-9)


@pytest.mark.parametrize("bound", [0.5, 1.0, 3.0])
def test_bounded_updates_rest_at_hubers_estimate(bound: float) -> None:
    found = limit(fl.presets.norm_bounded_mean(bound=bound, lr=LR, steps=1))
    assert found == pytest.approx(huber(bound / LR), abs=1e-4)


def test_a_bound_that_nobody_reaches_is_fedavg() -> None:
    bounded, plain = fl.presets.norm_bounded_mean(bound=1e3, lr=LR), fl.presets.fedavg(lr=LR)
    assert limit(bounded) == limit(plain) == pytest.approx(4.85)


def test_the_trimmed_mean_tends_to_the_mean_and_to_the_median() -> None:
    """Of the same rows: β = 10⁻¹² cuts nothing that counts, β = 0.4999 leaves the middle."""
    generator = torch.Generator().manual_seed(0)
    updates = _updates(torch.randn((5, 4), generator=generator, dtype=torch.float64))
    little, much = (_direction(fl.TrimmedMean(trim), updates) for trim in (1e-12, 0.4999))
    assert torch.allclose(little, _direction(fl.WeightedMean(), updates), atol=1e-9)
    assert torch.allclose(much, _direction(fl.CoordinateMedian(), updates), atol=1e-9)


def _updates(delta: torch.Tensor) -> fl.ClientUpdates:
    everyone = list(range(len(delta)))
    return make_updates(everyone, everyone, torch.from_numpy(WEIGHTS), delta)


def _direction(aggregator: fl.Aggregator, updates: fl.ClientUpdates) -> torch.Tensor:
    return aggregator.aggregate(updates, {}, fl.Conditions(0, torch.from_numpy(WEIGHTS))).direction


@pytest.mark.parametrize(
    "name",
    ["coordinate_median", "geometric_median", "krum", "multi_krum", "trimmed_mean", "norm_bounded_mean"],
)
def test_the_consistency_report_says_what_they_tend_to(name: str) -> None:
    algorithm = fl.presets.METHODS[name].build(lr=0.1)
    report = predicted_consistency(algorithm, world())
    assert report.predicted is not None
    assert report.predicted.weights is None
    assert "minimizes no weighted sum of the clients' objectives" in str(report)
    federation = fl.Federation(algorithm, world())
    assert len(list(federation.train(2))) == 2
    assert federation.consistency().surrogate is None
    assert federation.notice is None


class _WithStatistics(fl.SimulatedWorld):
    """Five clients that upload running statistics 1, 2, 3, 4 and 10⁹."""

    def initial_model(self, key: fl.Key) -> tuple[torch.Tensor, torch.Tensor]:
        return super().initial_model(key)[0], torch.zeros(1, dtype=torch.float64)

    def work(self, order: fl.WorkOrder) -> fl.ClientUpdates:
        updates = super().work(replace(order, buffers=order.buffers[:0]))
        statistics = torch.tensor([[1.0], [2.0], [3.0], [4.0], [1e9]], dtype=torch.float64)
        return replace(updates, buffers=statistics)


@pytest.mark.parametrize(("robust", "expected"), [(True, 3.0), (False, 1e8 + 2.45)])
def test_running_statistics_are_medians_too(robust: bool, expected: float) -> None:
    """The median by weight is 3; the mean 0.15·1 + 0.25·2 + 0.2·3 + 0.3·4 + 0.1·10⁹ = 10⁸ + 2.45."""
    plain = world()
    here = _WithStatistics(plain.task, plain.clients, weights=plain.population.weights, dtype=torch.float64)
    algorithm = fl.presets.coordinate_median(lr=LR) if robust else fl.presets.fedavg(lr=LR)
    federation = fl.Federation(algorithm, here)
    next(federation.train(1))
    assert float(federation.state.buffers) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("trim", [0.0, 0.5, -0.1, float("nan")])
def test_trim_must_leave_something(trim: float) -> None:
    with pytest.raises(
        fl.errors.FieldError, match=r"TrimmedMean\.trim must be a finite number above 0 and below"
    ):
        fl.TrimmedMean(trim)


@pytest.mark.parametrize("bound", [0.0, -1.0, "mean"])
def test_bounds_are_lengths_or_the_median(bound: float) -> None:
    with pytest.raises(fl.errors.FieldError, match=r"NormBoundedMean\.bound must be"):
        fl.NormBoundedMean(bound)
