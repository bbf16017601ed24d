"""The client consensus test against closed forms, and its verdicts where the right answer is known."""

from __future__ import annotations

import math

import pytest
import torch

import fairlead as fl
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.clients.synthetic import LinearRegressionProblem
from fairlead.diagnostics import (
    ConsensusReport,
    client_gradients,
    consensus_test,
    drift_price,
    near_optimum,
    objective_value,
)
from fairlead.errors import FieldError

KEY = fl.Key.from_seed(0)


def regression_world(problem: LinearRegressionProblem) -> fl.SimulatedWorld:
    return fl.SimulatedWorld(problem.task(), problem.data(), weights=problem.weights, dtype=torch.float64)


def quadratic_world(problem: QuadraticProblem, start: float = 1.0) -> fl.SimulatedWorld:
    return fl.SimulatedWorld(
        problem.task(start), problem.data(), weights=problem.weights, dtype=torch.float64
    )


def scalar_clients(curvatures: list[float], minima: list[float]) -> QuadraticProblem:
    """F_c(x) = ½ a_c (x − m_c)² up to a constant, uniform weights."""
    hessians = torch.tensor(curvatures, dtype=torch.float64)[:, None, None]
    linear = (torch.tensor(curvatures) * torch.tensor(minima)).double()[:, None]
    return QuadraticProblem(
        hessians, linear, torch.full((len(minima),), 1 / len(minima), dtype=torch.float64)
    )


class TestAgainstLinearRegression:
    """Wang 2024 §5.1 gives G_c in closed form: (1/H) Σ_{h<H} (I − ηA_c)^h [A_c(w − w*) − b_c]."""

    problem = fl.SyntheticRegression(num_clients=30, num_examples=4, dim=3).problem(KEY)

    @pytest.mark.parametrize("away", [0.0, 0.7])
    def test_all_figures_away_from_the_optimum_too(self, away: float) -> None:
        point = self.problem.optimum + away
        lr, weights = 0.9, self.problem.weights
        report = consensus_test(regression_world(self.problem), point, lr, steps=(1, 3, 7), centered=False)
        gradients = self.problem.gradients(point)
        for drift in report.drifts:
            pseudo = self.problem.pseudo_gradients(point, lr, drift.steps)
            apart = pseudo - gradients
            assert drift.average == pytest.approx(float((weights @ pseudo).norm()), abs=1e-12)
            assert drift.gap == pytest.approx(float((weights @ apart).norm()), abs=1e-12)
            assert drift.bound**2 == pytest.approx(float(weights @ apart.square().sum(1)), abs=1e-12)
            assert drift.gap <= drift.bound
        assert report.gradient_norm == pytest.approx(float((weights @ gradients).norm()), abs=1e-12)
        spread = weights @ (gradients - weights @ gradients).square().sum(1)
        assert report.dissimilarity**2 == pytest.approx(float(spread))

    def test_at_the_optimum_the_left_side_of_7_is_rho(self) -> None:
        """E_c ∇F_c(w*) = 0, so ‖E_c[G_c − ∇F_c]‖ = ‖E_c G_c‖, centered or not."""
        world, optimum = regression_world(self.problem), self.problem.optimum
        for centered in (True, False):
            report = consensus_test(world, optimum, 0.9, steps=(5,), centered=centered)
            (drift,) = report.drifts
            assert drift.gap == pytest.approx(drift.average, rel=1e-9)
            assert drift.average == pytest.approx(self.problem.drift(0.9, 5), rel=1e-9)

    def test_centring_is_the_test_of_tilted_clients(self) -> None:
        """F_c(y) − ⟨∇F(w), y⟩ has b_c + ∇F(w) for b_c in the closed form, and w as its exact optimum."""
        point, lr = self.problem.optimum + 0.4, 0.8
        gradients = self.problem.gradients(point)
        mean = self.problem.weights @ gradients
        eye = torch.eye(3, dtype=torch.float64)
        powers = [torch.linalg.matrix_power(eye - lr * self.problem.curvatures, h) for h in range(4)]
        pseudo = (sum(powers[1:], powers[0]) / 4 @ (gradients - mean)[..., None]).squeeze(-1)
        (drift,) = consensus_test(regression_world(self.problem), point, lr, steps=(4,)).drifts
        assert drift.average == pytest.approx(float((self.problem.weights @ pseudo).norm()), rel=1e-9)
        assert drift.average == pytest.approx(drift.gap, rel=1e-9)

    def test_the_share_leaves_out_what_a_client_has_in_common_with_itself(self) -> None:
        """Σ_{i≠j} ⟨D_i, D_j⟩/(M(M − 1)) over (1/M) Σ‖D_i‖², by two loops."""
        point = self.problem.truth
        apart = self.problem.pseudo_gradients(point, 0.9, 6) - self.problem.gradients(point)
        count = len(apart)
        pairs = sum(float(apart[i] @ apart[j]) for i in range(count) for j in range(count) if i != j) / (
            count * (count - 1)
        )
        square = pairs / float(apart.square().sum(1).mean())
        world = regression_world(self.problem)
        (drift,) = consensus_test(world, point, 0.9, steps=(6,), centered=False).drifts
        assert drift.share == pytest.approx(math.sqrt(max(square, 0.0)), rel=1e-9)
        assert drift.low <= drift.share <= drift.high

    def test_rho_falls_as_the_root_of_the_number_of_clients(self) -> None:
        """Wang 2024 §5.1: E_c b_c is a mean of M independent zero-mean vectors, so ρ(w*) ~ M^(−1/2)."""
        sizes = (8, 64)
        logs = []
        for num_clients in sizes:
            squares = []
            for seed in range(8):
                source = fl.SyntheticRegression(num_clients=num_clients, num_examples=3, dim=5)
                problem = source.problem(fl.Key.from_seed(seed))
                world = regression_world(problem)
                report = consensus_test(world, problem.truth, 0.9, steps=(3,), centered=False, resamples=20)
                squares.append(report.drifts[0].average ** 2)
            logs.append(math.log(sum(squares) / len(squares)) / 2)
        slope = (logs[-1] - logs[0]) / (math.log(sizes[-1]) - math.log(sizes[0]))
        assert slope == pytest.approx(-0.5, abs=0.15)

    def test_local_gd_contracts_as_theorem_3_says(self) -> None:
        """w⁺ − w* = P(w − w*) − ηH E_c G_c(w*) with P = E_c(I − ηA_c)^H.

        Without noise E_c G_c(w*) = 0. The library's own FedAvg with full batches must follow, and ‖P‖ must
        fall with H at the same η.
        """
        problem = fl.SyntheticRegression(num_clients=20, noise=0.0, dim=3).problem(KEY)
        world = regression_world(problem)
        previous = 1.0
        for steps in (1, 4, 16):
            algorithm = fl.presets.fedavg(lr=0.9, steps=steps, batch_size=None)
            run = fl.Federation(algorithm, world)
            error = run.params - problem.truth
            contraction = problem.contraction(0.9, steps)
            for _ in run.train(3):
                error = contraction @ error
            assert torch.allclose(run.params - problem.truth, error, atol=1e-10)
            norm = float(torch.linalg.matrix_norm(contraction, 2))
            assert norm < previous
            previous = norm

    def test_full_batches_by_number_are_local_gd(self) -> None:
        world = regression_world(self.problem)
        exact = consensus_test(world, self.problem.optimum, 0.9, steps=(2, 6))
        batched = consensus_test(world, self.problem.optimum, 0.9, steps=(2, 6), batch_size=4)
        for one, other in zip(exact.drifts, batched.drifts, strict=True):
            assert one.average == pytest.approx(other.average, rel=1e-9)
            assert one.bound == pytest.approx(other.bound, rel=1e-9)

    def test_batches_add_noise_that_one_step_shows_alone(self) -> None:
        """One full-batch step has G = ∇F and no drift; one example has its own gradient for G."""
        world = regression_world(self.problem)
        noisy = consensus_test(world, self.problem.optimum, 0.9, steps=(1, 5), batch_size=1, seed=3)
        exact = consensus_test(world, self.problem.optimum, 0.9, steps=(1, 5), seed=3)
        assert exact.drifts[0].bound == pytest.approx(0.0, abs=1e-12)
        assert noisy.drifts[0].bound > 0.1
        again = consensus_test(world, self.problem.optimum, 0.9, steps=(1, 5), batch_size=1, seed=3)
        assert again == noisy


class TestPrice:
    @pytest.mark.parametrize("steps", [1, 6])
    def test_on_linear_regression(self, steps: int) -> None:
        """F(w) − F(w_opt) = ½ e'Āe with e = w − w_opt; Local GD in closed form says where w is."""
        problem = fl.SyntheticRegression(num_clients=12, num_examples=4, dim=3).problem(KEY)
        world = regression_world(problem)
        optimum = near_optimum(world, params=problem.optimum, iterations=1)
        error = problem.local_gd(optimum.params, 0.9, steps, rounds=4) - problem.optimum
        curvature = torch.einsum("c,cij->ij", problem.weights, problem.curvatures)
        price = drift_price(world, optimum, 0.9, steps=steps, rounds=4)
        assert price == pytest.approx(0.5 * float(error @ curvature @ error), rel=1e-6, abs=1e-12)
        assert (price > 1e-6) == (steps > 1)

    def test_it_is_what_fedavg_does(self) -> None:
        """The library's own rounds from the same point lead to the same objective, test set or not."""
        problem = fl.SyntheticRegression(num_clients=12, num_examples=4, dim=3).problem(KEY)
        data = problem.data()
        world = fl.SimulatedWorld(
            problem.task(problem.optimum), data, weights=problem.weights, test=data, dtype=torch.float64
        )
        optimum = near_optimum(world, params=problem.optimum, iterations=1)
        run = fl.Federation(fl.presets.fedavg(lr=0.9, steps=5, batch_size=None), world)
        for _ in run.train(3):
            pass
        rise = objective_value(world, run.params) - objective_value(world, problem.optimum)
        assert drift_price(world, optimum, 0.9, steps=5, rounds=3) == pytest.approx(rise, rel=1e-5)


class TestVerdicts:
    def test_clients_of_one_kind_need_no_more_than_fedavg(self) -> None:
        problem = fl.SyntheticRegression(num_clients=80, dim=3).problem(KEY)
        report = consensus_test(regression_world(problem), problem.optimum, 0.9, steps=(2, 8))
        assert report.verdict == "FedAvg is enough here"
        assert str(report).startswith("FedAvg is enough here: the average drift is about")

    @pytest.mark.parametrize("point", [0.5, -3.0])
    def test_identical_clients_need_no_more_than_fedavg_wherever_they_are_tested(self, point: float) -> None:
        """All F_c are the same: Local GD is gradient descent, and centring leaves nothing that drifts."""
        world = quadratic_world(scalar_clients([1.0] * 12, [0.5] * 12))
        report = consensus_test(world, torch.tensor([point], dtype=torch.float64), 0.3, steps=(5,))
        assert report.verdict == "FedAvg is enough here"
        assert report.drifts[0].bound == pytest.approx(0.0, abs=1e-12)

    def test_opposite_clients_with_unequal_curvature_drift(self) -> None:
        """Half with a = 1 and minimum 1, half with a = 0.01 and minimum −99: x* = 0, ∇F_c = ∓1.

        κ = (1/H) Σ_{h<H} (1 − ηa)^h gives D = ∓(κ − 1), so gap = |κ₁ − κ₂|/2 and
        bound² = ((κ₁ − 1)² + (κ₂ − 1)²)/2; κ₂ ≈ 1 makes the ratio about 1/√2.
        """
        world = quadratic_world(scalar_clients([1.0] * 15 + [0.01] * 15, [1.0] * 15 + [-99.0] * 15))
        optimum = near_optimum(world, iterations=30)
        report = consensus_test(world, optimum.params, 0.5, steps=(2, 10))
        for drift in report.drifts:
            steep, flat = (
                sum((1 - 0.5 * a) ** h for h in range(drift.steps)) / drift.steps for a in (1.0, 0.01)
            )
            bound = math.sqrt(((steep - 1) ** 2 + (flat - 1) ** 2) / 2)
            assert drift.ratio == pytest.approx(abs(steep - flat) / 2 / bound, rel=1e-6)
        assert report.verdict == "drift matters"
        assert report.gradient_norm < 1e-6

    def test_opposite_clients_with_equal_curvature_agree(self) -> None:
        world = quadratic_world(scalar_clients([0.5] * 20, [1.0, -1.0] * 10))
        report = consensus_test(world, near_optimum(world, iterations=30).params, 0.5, steps=(10,))
        assert report.verdict == "FedAvg is enough here"
        assert report.drifts[0].ratio == pytest.approx(0.0, abs=1e-6)

    def test_too_few_clients_say_nothing(self) -> None:
        world = quadratic_world(scalar_clients([1.0, 0.01], [1.0, -99.0]))
        report = consensus_test(world, near_optimum(world, iterations=30).params, 0.5, steps=(10,))
        assert report.verdict == "not enough data to say"
        assert "2 effective clients" in report.reason

    def test_many_clients_with_most_weight_on_one_are_few(self) -> None:
        problem = scalar_clients([1.0] * 20 + [0.01] * 20, [1.0] * 20 + [-99.0] * 20)
        weights = torch.ones(40, dtype=torch.float64)
        weights[0] = 100.0
        heavy = QuadraticProblem(problem.hessians, problem.linear, weights / weights.sum())
        world = quadratic_world(heavy)
        assert (
            consensus_test(world, near_optimum(world, iterations=30).params, 0.5).verdict
            == "not enough data to say"
        )

    def test_far_from_an_optimum_nothing_is_said(self) -> None:
        """At x = 100 the gradient left over is about 50 times the clients' dissimilarity there."""
        world = quadratic_world(scalar_clients([1.0, 1.01] * 10, [1.0, -1.0] * 10))
        report = consensus_test(world, torch.tensor([100.0], dtype=torch.float64), 0.5)
        assert report.verdict == "not enough data to say"
        assert "not an optimum" in report.reason

    def test_an_interval_around_the_threshold_says_nothing(self) -> None:
        """The ratio of the drifting federation is about 0.7: a threshold there cannot be decided."""
        world = quadratic_world(scalar_clients([1.0] * 8 + [0.01] * 8, [1.0] * 8 + [-99.0] * 8))
        report = consensus_test(
            world, near_optimum(world, iterations=30).params, 0.5, steps=(10,), threshold=0.7
        )
        assert report.verdict == "not enough data to say"
        assert "on both sides" in report.reason

    def test_one_step_has_no_drift(self) -> None:
        world = quadratic_world(scalar_clients([1.0] * 12, [1.0, 0.0] * 6))
        report = consensus_test(world, near_optimum(world, iterations=30).params, 0.5, steps=(1,))
        assert report.verdict == "not enough data to say"


def test_the_interval_holds_as_often_as_it_says() -> None:
    """Clients of the two kinds of the drifting federation, drawn at random; the true share is its ratio.

    95 % intervals of 30 federations of 30 clients must hold it at least 24 times: P(fewer) < 1e-3.
    """
    steep, flat = (sum((1 - 0.5 * a) ** h for h in range(2)) / 2 for a in (1.0, 0.01))
    truth = abs(steep - flat) / 2 / math.sqrt(((steep - 1) ** 2 + (flat - 1) ** 2) / 2)
    held = 0
    for seed in range(30):
        kinds = fl.Key.from_seed(seed).generator().random(30) < 0.5
        curvatures = [1.0 if kind else 0.01 for kind in kinds]
        world = quadratic_world(scalar_clients(curvatures, [1.0 if kind else -99.0 for kind in kinds]))
        point = torch.zeros(1, dtype=torch.float64)
        report = consensus_test(world, point, 0.5, steps=(2,), centered=False, resamples=200, seed=seed)
        (drift,) = report.drifts
        held += drift.low <= truth <= drift.high
    assert held >= 24


def test_a_number_of_clients_is_a_draw_of_them() -> None:
    problem = fl.SyntheticRegression(num_clients=40, dim=3).problem(KEY)
    world = regression_world(problem)

    def few(seed: int) -> ConsensusReport:
        return consensus_test(world, problem.optimum, 0.9, steps=(3,), clients=12, seed=seed)

    assert few(0).num_clients == 12
    assert few(0) == few(0)
    assert few(0).drifts[0].bound != few(1).drifts[0].bound
    named = consensus_test(world, problem.optimum, 0.9, steps=(3,), clients=[5, 1, 7])
    apart = problem.pseudo_gradients(problem.optimum, 0.9, 3) - problem.gradients(problem.optimum)
    assert named.num_clients == 3
    raw = consensus_test(world, problem.optimum, 0.9, steps=(3,), clients=[5, 1, 7], centered=False)
    assert raw.drifts[0].gap == pytest.approx(float(apart[[1, 5, 7]].mean(0).norm()), rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": ()}, "steps of at least 1"),
        ({"steps": (0, 2)}, "steps of at least 1"),
        ({"lr": 0.0}, "lr above 0"),
        ({"batch_size": 0}, "batch_size of at least 1"),
        ({"threshold": 1.0}, "between 0 and 1"),
        ({"resamples": 3}, "at least 20 resamples"),
        ({"clients": 99}, "at most 12"),
        ({"clients": [12]}, "from 0 to 11"),
        ({"clients": []}, "at least one id"),
        ({"lr": 1e200, "steps": (5,)}, "lower lr"),
    ],
)
def test_senseless_requests_are_refused(change: dict[str, object], message: str) -> None:
    world = quadratic_world(scalar_clients([1.0] * 12, [1.0, 0.0] * 6))
    arguments: dict[str, object] = {"lr": 0.5, **change}
    with pytest.raises(FieldError, match=message):
        consensus_test(world, torch.zeros(1, dtype=torch.float64), **arguments)  # type: ignore[arg-type]


class TestGradientsAndOptima:
    def test_client_gradients_are_exact(self) -> None:
        problem = fl.Quadratics(num_clients=6, dim=3, conditioning=4.0).problem(KEY)
        point = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
        world = quadratic_world(problem)
        assert torch.allclose(client_gradients(world, point), problem.gradients(point))
        assert torch.allclose(
            client_gradients(world, point, clients=[4, 2]), problem.gradients(point)[[2, 4]]
        )

    def test_the_optimum_is_found_and_its_gradient_reported(self) -> None:
        problem = fl.Quadratics(num_clients=6, dim=4, conditioning=20.0).problem(KEY)
        world = quadratic_world(problem)
        found = near_optimum(world)
        assert torch.allclose(found.params, problem.optimum, atol=1e-6)
        left = problem.weights @ problem.gradients(found.params)
        assert found.gradient_norm == pytest.approx(float(left.norm()), abs=1e-12)
        values = 0.5 * torch.einsum("j,ijk,k->i", found.params, problem.hessians, found.params)
        values = values - problem.linear @ found.params
        assert found.loss == pytest.approx(float(problem.weights @ values))
        early = near_optimum(world, iterations=1)
        assert early.gradient_norm > 1e-3
        assert early.evaluations < found.evaluations

    def test_weights_on_one_client_find_its_own_optimum(self) -> None:
        problem = fl.Quadratics(num_clients=3, dim=2, conditioning=3.0).problem(KEY)
        own = torch.linalg.solve(problem.hessians, problem.linear)
        for only, expected in zip(torch.eye(3, dtype=torch.float64), own, strict=True):
            found = near_optimum(quadratic_world(problem), weights=only)
            assert torch.allclose(found.params, expected, atol=1e-6)

    def test_dropout_is_off_and_running_statistics_stay(self) -> None:
        module = torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2)
        )
        inputs = torch.randn((24, 3), generator=torch.Generator().manual_seed(0))
        data = fl.ClientData(inputs, (inputs[:, 0] > 0).long(), torch.arange(0, 25, 2))
        world = fl.SimulatedWorld(fl.Task(module), data)
        params, buffers = world.initial_model(KEY)
        before = buffers.clone()
        first = client_gradients(world, params, buffers=buffers)
        report = consensus_test(world, params, 0.1, steps=(1, 3), buffers=buffers, centered=False)
        assert torch.equal(first, client_gradients(world, params, buffers=buffers))
        assert torch.equal(buffers, before)
        assert report.drifts[0].bound == pytest.approx(0.0, abs=1e-7)

    def test_misfits_are_refused(self) -> None:
        world = quadratic_world(scalar_clients([1.0, 1.0], [0.0, 1.0]))
        with pytest.raises(FieldError, match="iterations of at least 1"):
            near_optimum(world, iterations=0)
        with pytest.raises(FieldError, match="one number per client"):
            near_optimum(world, weights=torch.ones(3))
