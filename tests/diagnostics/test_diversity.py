"""Diversity, cosines and consensus by hand, by identity and on runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import fairlead as fl
from fairlead.diagnostics import (
    client_coherence,
    client_gradients,
    consensus_dynamics,
    cosine_matrix,
    gradient_diversity,
    local_update_diversity,
    running_elud,
    surrogate_diversity,
)
from fairlead.errors import FieldError
from fairlead.numerics.minimum_norm import shortest_in_hull
from fairlead.round_record import update_statistics

KEY = fl.Key.from_seed(0)
SEEDS = st.integers(0, 2**32 - 1)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def draw_weights(seed: int, count: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(count)))


class TestDiversity:
    def test_by_hand(self) -> None:
        """Rows (1, 0) and (0, 3) with weights ¼, ¾: Σλ‖g‖² = ¼ + 27/4 = 7, G = (¼, 9/4), ‖G‖² = 82/16."""
        rows = torch.tensor([[1.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
        weights = torch.tensor([0.25, 0.75], dtype=torch.float64)
        assert gradient_diversity(rows, weights) == pytest.approx(math.sqrt(7 / (82 / 16)))
        assert local_update_diversity(rows, weights) == pytest.approx(math.sqrt(7 / (82 / 16)))
        assert gradient_diversity(rows) == pytest.approx(math.sqrt(5 / 2.5))
        swapped = torch.tensor([0.75, 0.25], dtype=torch.float64)
        assert surrogate_diversity(rows, weights, swapped) == pytest.approx(math.sqrt(7 / (18 / 16)))

    @given(SEEDS, st.integers(1, 6), st.integers(1, 4))
    def test_lud_is_one_plus_the_relative_spread(self, seed: int, count: int, dim: int) -> None:
        """δ² = 1 + Σλ‖g_i − G‖²/‖G‖², hence at least 1."""
        rows, weights = draw(seed, count, dim), draw_weights(seed, count)
        mean = weights @ rows
        spread = float(weights @ (rows - mean).square().sum(1))
        expected = math.sqrt(1 + spread / float(mean.square().sum()))
        assert local_update_diversity(rows, weights) == pytest.approx(expected, rel=1e-9)
        assert gradient_diversity(rows, weights) >= 1.0

    def test_lud_over_draws_adds_the_variance_to_the_denominator(self) -> None:
        """E‖G‖² = V(G) + ‖E G‖², estimated over 50 draws of 4 clients."""
        draws, weights = draw(0, 50, 4, 3) + 0.5, draw_weights(1, 4)
        means = torch.einsum("i,tij->tj", weights, draws)
        center = means.mean(0)
        below = (means - center).square().sum(1).mean() + center.square().sum()
        above = torch.einsum("i,tij->", weights, draws.square()) / len(draws)
        assert local_update_diversity(draws, weights) == pytest.approx(math.sqrt(float(above / below)))

    def test_equal_rows_have_diversity_one_and_canceling_ones_infinity(self) -> None:
        assert gradient_diversity(torch.ones(5, 3)) == pytest.approx(1.0)
        assert gradient_diversity(torch.tensor([[1.0], [-1.0]])) == math.inf
        assert gradient_diversity(torch.zeros(3, 2)) == 1.0

    @given(SEEDS)
    def test_the_bound_by_dissimilarity(self, seed: int) -> None:
        """D ≤ √(1 + σ²/‖∇f‖²) for every σ² ≥ max‖∇f_i − ∇f‖² (Zeng 2023)."""
        rows, weights = draw(seed, 5, 3), draw_weights(seed, 5)
        mean = weights @ rows
        largest = float((rows - mean).square().sum(1).max())
        bound = math.sqrt(1 + largest / float(mean.square().sum()))
        assert gradient_diversity(rows, weights) <= bound * (1 + 1e-12)

    @given(SEEDS)
    def test_surrogate_diversity_under_the_shortest_vectors_weights(self, seed: int) -> None:
        """The shortest vector of the hull is no longer than any mean, so D̃ ≥ D ≥ 1."""
        rows, weights = draw(seed, 4, 6) + 1.0, draw_weights(seed, 4)
        shortest = shortest_in_hull(rows @ rows.mT).weights
        plain = gradient_diversity(rows, weights)
        assert surrogate_diversity(rows, weights, shortest) >= plain * (1 - 1e-9)
        assert surrogate_diversity(rows, weights, weights) == pytest.approx(plain)

    def test_surrogate_diversity_may_fall_below_one(self) -> None:
        """All of λ̃ on the longest row: D̃ = √(½·1 + ½·9)/3 < 1, against Zeng 2023's claim."""
        rows = torch.tensor([[1.0], [3.0]])
        even, longest = torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0])
        assert surrogate_diversity(rows, even, longest) == pytest.approx(math.sqrt(5) / 3)
        assert surrogate_diversity(torch.tensor([[1.0], [0.0]]), even, longest) == math.inf

    def test_misfits_are_refused(self) -> None:
        with pytest.raises(FieldError, match=r"one number per row \(2\)"):
            gradient_diversity(torch.ones(2, 2), torch.ones(3))
        with pytest.raises(FieldError, match="at least 0"):
            gradient_diversity(torch.ones(2, 2), torch.tensor([1.0, -1.0]))


class TestCosines:
    def test_by_hand(self) -> None:
        """(1, 0), (1, 1), (0, −2) and 0: cosines 1/√2, 0 and −1/√2; a zero row has none."""
        rows = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, -2.0], [0.0, 0.0]])
        half = 1 / math.sqrt(2)
        expected = [[1, half, 0, 0], [half, 1, -half, 0], [0, -half, 1, 0], [0, 0, 0, 0]]
        assert torch.allclose(cosine_matrix(rows), torch.tensor(expected, dtype=torch.float64))
        assert client_coherence(rows) == pytest.approx(0.0, abs=1e-12)

    @given(SEEDS, st.integers(1, 6))
    def test_limits_of_coherence(self, seed: int, count: int) -> None:
        """‖Σu_i‖² = m + 2·coherence lies between 0 and m²."""
        coherence = client_coherence(draw(seed, count, 3))
        assert -count / 2 - 1e-9 <= coherence <= count * (count - 1) / 2 + 1e-9


class TestLiveFigures:
    @given(SEEDS, st.integers(1, 6), st.sampled_from([torch.float32, torch.float64]))
    def test_they_are_the_functions_above(self, seed: int, count: int, dtype: torch.dtype) -> None:
        rows = draw(seed, count, 7).to(dtype)
        importance = draw_weights(seed, count) * 3
        live = update_statistics(rows, importance)()
        weights = importance / importance.sum()
        exact = rows.double()
        mean = exact.mean(0)
        assert live.elud == pytest.approx(local_update_diversity(exact), rel=1e-4)
        assert live.lud == pytest.approx(local_update_diversity(exact, weights), rel=1e-4)
        assert live.consensus == pytest.approx(float((weights @ exact).square().sum()), rel=1e-3, abs=1e-6)
        assert live.coherence == pytest.approx(client_coherence(exact), abs=1e-4)
        assert live.update_norm == pytest.approx(float(exact.norm(dim=1).mean()), rel=1e-5)
        assert live.drift_norm == pytest.approx(float((exact - mean).norm(dim=1).mean()), rel=1e-4, abs=1e-6)

    def test_small_drift_of_large_updates_is_not_rounded_away(self) -> None:
        """Updates 1 ± 1e-5 in 1000 entries: drift 1e-5·√1000, a relative 1e-10 in the squares of float32."""
        rows = torch.ones(2, 1000)
        rows[0] += 2**-16
        rows[1] -= 2**-16
        live = update_statistics(rows, torch.ones(2, dtype=torch.float64))()
        assert live.drift_norm == pytest.approx(2**-16 * math.sqrt(1000), rel=1e-3)

    @pytest.mark.parametrize("scale", [1e-30, 1e30])
    def test_squares_beyond_single_precision(self, scale: float) -> None:
        rows = torch.tensor([[3.0, 0.0], [0.0, 4.0]]) * scale
        live = update_statistics(rows, torch.ones(2, dtype=torch.float64))()
        assert live.update_norm == pytest.approx(3.5 * scale)
        assert live.elud == pytest.approx(math.sqrt(12.5 / 6.25))
        assert live.coherence == pytest.approx(0.0, abs=1e-9)

    def test_nothing_moves(self) -> None:
        live = update_statistics(torch.zeros(3, 2), torch.zeros(3, dtype=torch.float64))()
        assert live == (1.0, 1.0, 0.0, 0.0, 0.0, 0.0)

    def test_updates_that_cancel(self) -> None:
        live = update_statistics(torch.tensor([[1.0], [-1.0]]), torch.ones(2, dtype=torch.float64))()
        assert live == (math.inf, math.inf, 0.0, -1.0, 1.0, 1.0)

    def test_a_round_records_them(self) -> None:
        """One exact step on quadratics moves client i by −η∇F_i, of which everything else follows."""
        problem = fl.Quadratics(num_clients=4, dim=3, weights=(1.0, 2.0, 3.0, 4.0)).problem(KEY)
        world = fl.SimulatedWorld(
            problem.task(), problem.data(), weights=problem.weights, dtype=torch.float64
        )
        run = fl.Federation(fl.presets.fedavg(lr=0.1, steps=1), world)
        gradients = client_gradients(world, run.params)
        (record,) = run.train(1)
        assert record.client_lr == pytest.approx(0.1)
        assert record.lud == pytest.approx(gradient_diversity(gradients, problem.weights))
        assert record.elud == pytest.approx(gradient_diversity(gradients))
        assert record.coherence == pytest.approx(client_coherence(gradients))
        assert record.update_norm == pytest.approx(0.1 * float(gradients.norm(dim=1).mean()))
        assert record.consensus == pytest.approx(0.01 * float((problem.weights @ gradients).square().sum()))

    def test_an_empty_round_has_none(self) -> None:
        problem = fl.Quadratics(num_clients=2).problem(KEY)
        world = fl.SimulatedWorld(problem.task(), problem.data(), link=fl.ScriptedLink(((),)))
        (record,) = fl.Federation(fl.presets.fedavg(lr=0.1), world).train(1)
        figures = (record.lud, record.consensus, record.coherence, record.update_norm, record.drift_norm)
        assert (*figures, record.client_lr, record.elud) == (None,) * 7


class TestWholeRuns:
    def test_running_elud_skips_empty_rounds(self) -> None:
        problem = fl.Quadratics(num_clients=3, dim=2).problem(KEY)
        world = fl.SimulatedWorld(
            problem.task(), problem.data(), link=fl.ScriptedLink(((), (0, 1, 2), (), (0, 2)))
        )
        records = list(fl.Federation(fl.presets.fedavg(lr=0.1, steps=2), world).train(4))
        second, fourth = records[1].elud, records[3].elud
        assert second is not None
        assert fourth is not None
        means = running_elud(records)
        assert math.isnan(means[0])
        assert means[1:] == pytest.approx([second, second, (second + fourth) / 2])

    def test_psi_by_hand(self) -> None:
        """One client, F = ½x², K = 2 steps of η: g = x(1 − (1−η)²), ρ = g², Ψ = mean of ρ/(η²K).

        Round t starts at (1−η)^{2t}.
        """
        problem = fl.Quadratics(linear=((0.0,),)).problem(KEY)
        world = fl.SimulatedWorld(problem.task(), problem.data(), dtype=torch.float64)
        lr = 0.1
        records = list(fl.Federation(fl.presets.fedavg(lr=lr, steps=2), world).train(3))
        rho = [((1 - (1 - lr) ** 2) * (1 - lr) ** (2 * t)) ** 2 for t in range(3)]
        found = consensus_dynamics(records)
        assert found.rho == pytest.approx(rho)
        assert found.applied == pytest.approx(rho)
        psi = sum(rho) / 3 / (lr**2 * 2)
        assert found.psi == pytest.approx(psi)
        assert found.psi_as_printed(0.0) == 0.0
        assert found.psi_as_printed(2.0) == pytest.approx(2 * psi)
        factor = 1 + 4 * 3 / (2 * 0.5) + 2 * 2.0 * 3 / (0.5 * lr * 2 * 4)
        proved = found.psi_as_proved(2.0, smoothness=4.0, gamma=3.0, lr=lr, server_lr=0.5, steps=2)
        assert proved == pytest.approx(factor * psi)

    def test_unequal_steps_use_their_mean(self) -> None:
        problem = fl.Quadratics(linear=((1.0,), (1.0,))).problem(KEY)
        world = fl.SimulatedWorld(
            problem.task(0.0), problem.data(), work=fl.FixedSteps((1, 3)), dtype=torch.float64
        )
        (record,) = fl.Federation(fl.presets.fedavg(lr=0.1), world).train(1)
        mean = (0.1 + (1 - 0.9**3)) / 2
        assert consensus_dynamics([record]).psi == pytest.approx(mean**2 / (0.01 * 2))

    def test_no_arrivals_no_dynamics(self) -> None:
        with pytest.raises(FieldError, match="none among 0"):
            consensus_dynamics([])
