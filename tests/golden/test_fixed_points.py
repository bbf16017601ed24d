"""Presets on quadratics converge to the points that theory gives, the biased ones included."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from affine_oracles import effective_steps
from torch import Tensor

import fairlead as fl
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.testing.run_checks import STEPS, check_limit, standard_problem
from fairlead.theory.quadratics import (
    LocalWork,
    response,
    responses,
    resting_point,
)

TWO = fl.Quadratics(linear=((0.0,), (4.0,))).problem(fl.Key.from_seed(0))


def surrogate_weights(weights: Tensor, works: Sequence[LocalWork], arrival: Tensor | None = None) -> Tensor:
    """Ω_i ∝ ω_i(1 − q_i)‖a_i‖₁: the weights of plain averaging as η → 0 (Weng 2025 §3)."""
    mass = weights * effective_steps(works) * (1.0 if arrival is None else arrival)
    return mass / mass.sum()


def fedavg_limit(
    problem: QuadraticProblem, works: Sequence[LocalWork], shares: Tensor | None = None
) -> Tensor:
    """Limit of FedAvg, FedAvgM, FedProx and every server optimizer over their mean update.

    `shares` are the mean coefficients of the clients: ω if not given (full participation, perfect links),
    `received_shares` for the mean over arrivals, ω(1 − q) where a lost update counts as zero.
    """
    return resting_point(problem, responses(problem, works), problem.weights if shares is None else shares)


def fednova_limit(
    problem: QuadraticProblem, works: Sequence[LocalWork], shares: Tensor | None = None
) -> Tensor:
    """Limit of FedNova for any constant τ_eff: the coefficients of FedAvg divided by ‖a_i‖₁.

    A τ_eff that depends on the arrivals is not constant on lossy links, and then this is not the limit.
    """
    shares = problem.weights if shares is None else shares
    return resting_point(problem, responses(problem, works), shares / effective_steps(works))


def limit_of(algorithm: fl.Algorithm) -> float:
    """Where two scalar clients with e = (0, 4) and steps (1, 2) come to rest."""
    world = fl.SimulatedWorld(TWO.task(), TWO.data(), work=fl.FixedSteps((1, 2)), dtype=torch.float64)
    federation = fl.Federation(algorithm, world)
    for record in federation.train(200):
        if record.step_norm < 1e-15:
            break
    return float(federation.params)


def test_fedavg_rests_at_the_work_weighted_point() -> None:
    """κ = 1 − (1 − η)^τ = (½, ¾): x = 4·¾/(½ + ¾) = 2.4 although the optimum is 2."""
    assert limit_of(fl.presets.fedavg(lr=0.5)) == pytest.approx(2.4, abs=1e-12)


def test_fednova_rests_closer_but_not_at_the_optimum() -> None:
    """κ/τ = (½, ⅜): x = 4·⅜/⅞ = 12/7, an O(η) error of the other sign."""
    assert limit_of(fl.presets.fednova(lr=0.5)) == pytest.approx(12 / 7, abs=1e-12)


def test_fedprox_weakens_the_bias_of_unequal_work() -> None:
    """μ = 1, η = ¼: κ = [1 − (1 − η − ημ)^τ]/(1 + μ) = (¼, ⅜), so x = 4·⅜/⅝ = 2.4."""
    assert limit_of(fl.presets.fedprox(lr=0.25, mu=1.0)) == pytest.approx(2.4, abs=1e-12)


def test_client_momentum_strengthens_it() -> None:
    """ρ = ½, η = ½: z₁ = ½; v₂ = −½ + (½ − 1) = −1, z₂ = 1. κ = (½, 1): x = 4/1.5 = 8/3."""
    assert limit_of(fl.presets.fedavg(lr=0.5, momentum=0.5)) == pytest.approx(8 / 3, abs=1e-12)


@pytest.mark.parametrize("estimate", ["path", "anchor"])
def test_scaffold_rests_at_the_optimum(estimate: Any) -> None:
    assert limit_of(fl.presets.scaffold(lr=0.3, estimate=estimate)) == pytest.approx(2.0, abs=1e-9)


def test_the_theory_agrees_with_the_formula_for_plain_and_proximal_descent() -> None:
    """K = [I − (I − ημI − ηH)^τ](H + μI)⁻¹ (ALGORITHMS §1)."""
    problem, eye = standard_problem(), torch.eye(3, dtype=torch.float64)
    for hessian, mu, tau in product(problem.hessians, (0.0, 0.8), (1, 2, 5)):
        shifted = hessian + mu * eye
        power = torch.linalg.matrix_power(eye - 0.3 * shifted, tau)
        expected = (eye - power) @ torch.linalg.inv(shifted)
        assert torch.allclose(response(hessian, LocalWork(0.3, tau, mu=mu)), expected, atol=1e-13)


def test_the_limits_tend_to_the_surrogate_optimum_and_the_optimum() -> None:
    """As η → 0 FedAvg minimizes Σ Ω_i F_i with Ω ∝ ω‖a‖₁, and FedNova Σ ω_i F_i; errors are O(η)."""
    problem = standard_problem()
    gaps = []
    for lr in (1e-3, 1e-4):
        works = [LocalWork(lr, steps, momentum=0.5) for steps in STEPS]
        surrogate = problem.minimizer(surrogate_weights(problem.weights, works))
        gaps.append(
            [
                float((fedavg_limit(problem, works) - surrogate).norm()),
                float((fednova_limit(problem, works) - problem.optimum).norm()),
            ]
        )
    ratios = torch.tensor(gaps)[0] / torch.tensor(gaps)[1]
    assert ratios.tolist() == pytest.approx([10.0, 10.0], rel=0.05)


SOLVERS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "momentum": {"momentum": 0.5},
    "nesterov": {"momentum": 0.5, "nesterov": True},
    "proximal": {"mu": 0.6},
    "decayed": {"decay": 0.8},
    "dampened": {"momentum": 0.5, "dampening": 0.3},
    "proximal momentum, decayed": {"momentum": 0.5, "mu": 0.6, "decay": 0.8},
}


CASES: list[tuple[str, fl.Aggregator]] = [
    *((name, aggregator) for name in SOLVERS for aggregator in (fl.WeightedMean(), fl.FedNova())),
    ("proximal momentum, decayed", fl.FedNova("steps")),
    ("proximal momentum, decayed", fl.FedNova(2.0)),
]


@pytest.mark.parametrize(("name", "aggregator"), CASES, ids=lambda case: str(case))
def test_every_solver_converges_to_its_own_biased_point(name: str, aggregator: fl.Aggregator) -> None:
    works = [LocalWork(0.25, steps, **SOLVERS[name]) for steps in STEPS]
    first = works[0]
    solver = fl.LocalSolver(
        fl.SGD(0.25, momentum=first.momentum, nesterov=first.nesterov, dampening=first.dampening),
        corrections=(fl.Proximal(first.mu),),
        step_schedule=fl.Exponential(first.decay),
    )
    limit = fedavg_limit if isinstance(aggregator, fl.WeightedMean) else fednova_limit
    check_limit(fl.Algorithm(solver, aggregator=aggregator), limit(standard_problem(), works), tolerance=1e-8)


def test_weight_decay_moves_the_optimum_and_nothing_else() -> None:
    """λ adds λI to every H_i; SCAFFOLD then rests at (ΣωH + λI)⁻¹Σωe."""
    problem = standard_problem()
    eye = torch.eye(3, dtype=torch.float64)
    hessian = torch.einsum("i,ijk->jk", problem.weights, problem.hessians) + 0.5 * eye
    expected = torch.linalg.solve(hessian, problem.weights @ problem.linear)
    check_limit(fl.presets.scaffold(lr=0.1, weight_decay=0.5), expected, tolerance=1e-8)


ARRIVAL = torch.tensor([0.9, 0.3, 0.6, 1.0], dtype=torch.float64)


def mean_step(algorithm: fl.Algorithm, start: Tensor) -> Tensor:
    """E[x⁺ − x] at x = start over all 2⁴ sets of arrivals, each run through the library once."""
    problem = standard_problem()
    total = torch.zeros_like(start)
    for arrives in product((False, True), repeat=4):
        chance = torch.where(torch.tensor(arrives), ARRIVAL, 1 - ARRIVAL).prod()
        world = fl.SimulatedWorld(
            problem.task(start),
            problem.data(),
            weights=problem.weights,
            work=fl.FixedSteps(STEPS),
            link=fl.ScriptedLink((tuple(i for i, came in enumerate(arrives) if came),)),
            dtype=torch.float64,
        )
        federation = fl.Federation(algorithm, world)
        list(federation.train(1))
        total += chance * (federation.params - start)
    return total


def received_shares(weights: Tensor, arrival: Tensor) -> Tensor:
    """E[ω_i/Σ_R ω_j; i ∈ R] over all sets R of arrivals."""
    sets = torch.tensor([bits for bits in product((0.0, 1.0), repeat=len(weights)) if any(bits)]).double()
    chances = torch.where(sets > 0, arrival, 1 - arrival).prod(1)
    return chances @ (sets * weights / (sets @ weights)[:, None])


@pytest.mark.parametrize("over", ["received", "asked"])
@pytest.mark.parametrize("normalize", [False, True])
def test_lossy_links_move_the_mean_fixed_point_as_theory_says(over: Any, normalize: bool) -> None:
    """Updates are affine in x and links independent of it, so the stationary mean solves E[step] = 0.

    The mean coefficients are E[p̂_i; i ∈ R] over received updates, and ω_i(1 − q_i) where a lost update counts
    as zero; FedNova with a constant τ_eff divides both by ‖a_i‖₁.
    """
    problem = standard_problem()
    works = [LocalWork(0.1, steps) for steps in STEPS]
    shares = received_shares(problem.weights, ARRIVAL) if over == "received" else problem.weights * ARRIVAL
    aggregator = fl.FedNova(2.0, over) if normalize else fl.WeightedMean(over)
    limit = (fednova_limit if normalize else fedavg_limit)(problem, works, shares)
    algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)), aggregator=aggregator)
    assert float(mean_step(algorithm, limit).norm()) < 1e-13
    assert float(mean_step(algorithm, problem.optimum).norm()) > 1e-3


def test_received_shares_by_hand() -> None:
    """ω = (½, ½), 1 − q = (1, ½): client 1 alone or both, so shares ½·1 + ½·½ = ¾ and ¼."""
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert received_shares(half, torch.tensor([1.0, 0.5], dtype=torch.float64)).tolist() == [0.75, 0.25]


def test_scaffold_is_exact_on_lossy_links() -> None:
    """Control variates roll back with a lost update, so unequal links and work cannot move the limit."""
    problem = standard_problem()
    world = fl.SimulatedWorld(
        problem.task(),
        problem.data(),
        weights=problem.weights,
        work=fl.FixedSteps(STEPS),
        link=fl.BernoulliLink((0.1, 0.7, 0.4, 0.0)),
        dtype=torch.float64,
    )
    federation = fl.Federation(fl.presets.scaffold(lr=0.3), world)
    list(federation.train(250))
    assert torch.allclose(federation.params, problem.optimum, atol=1e-6)


def test_a_resting_point_needs_no_scale() -> None:
    problem = standard_problem()
    matrices = torch.stack([response(h, LocalWork(0.1, 3)) for h in problem.hessians])
    assert torch.allclose(
        resting_point(problem, matrices, problem.weights),
        resting_point(problem, matrices, 7 * problem.weights),
    )
