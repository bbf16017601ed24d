"""‖a‖₁ and ‖a‖₂ of every linear solver against the closed forms of Wang 2021 §IV.

With j = 0, ..., τ − 1 the accumulation vectors are
    SGD              1
    proximal         (1 − α)^(τ−1−j),  α = ημ
    decayed lr       γ^j
    momentum         (1 − ρ^(τ−j))/(1 − ρ)
    Nesterov         (1 − ρ^(τ−j+1))/(1 − ρ)
    dampening        (1 − δ)·momentum
and the norms below are their sums, written in closed form where the sum is geometric.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from affine_oracles import accumulation
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import fairlead as fl
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.errors import FieldError
from fairlead.optimizers.base import OptimizerState
from fairlead.theory.quadratics import LocalWork

STEPS = range(1, 10)
ETA, MU, GAMMA, RHO, DELTA = 0.1, 0.7, 0.9, 0.6, 0.3
ALPHA = ETA * MU


def norms(solver: fl.LocalSolver, num_steps: int, round: int = 0) -> tuple[float, float]:
    found = solver.accumulation(torch.tensor([num_steps]), round)
    assert found is not None
    return float(found.l1), float(found.l2)


def momentum_vector(tau: int) -> list[float]:
    return [(1 - RHO ** (tau - j)) / (1 - RHO) for j in range(tau)]


CASES: dict[str, tuple[fl.LocalSolver, Callable[[int], float], Callable[[int], float]]] = {
    "sgd": (fl.LocalSolver(fl.SGD(ETA)), lambda t: t, lambda t: math.sqrt(t)),
    "proximal": (
        fl.LocalSolver(fl.SGD(ETA), corrections=(fl.Proximal(MU),)),
        lambda t: (1 - (1 - ALPHA) ** t) / ALPHA,
        lambda t: math.sqrt((1 - (1 - ALPHA) ** (2 * t)) / (1 - (1 - ALPHA) ** 2)),
    ),
    "decayed": (
        fl.LocalSolver(fl.SGD(ETA), step_schedule=fl.Exponential(GAMMA)),
        lambda t: (1 - GAMMA**t) / (1 - GAMMA),
        lambda t: math.sqrt((1 - GAMMA ** (2 * t)) / (1 - GAMMA**2)),
    ),
    "momentum": (
        fl.LocalSolver(fl.SGD(ETA, momentum=RHO)),
        lambda t: (t - RHO * (1 - RHO**t) / (1 - RHO)) / (1 - RHO),
        lambda t: math.sqrt(sum(a * a for a in momentum_vector(t))),
    ),
    "nesterov": (
        fl.LocalSolver(fl.SGD(ETA, momentum=RHO, nesterov=True)),
        lambda t: (t - RHO**2 * (1 - RHO**t) / (1 - RHO)) / (1 - RHO),
        lambda t: math.sqrt(sum(((1 - RHO ** (t - j + 1)) / (1 - RHO)) ** 2 for j in range(t))),
    ),
    "dampened": (
        fl.LocalSolver(fl.SGD(ETA, momentum=RHO, dampening=DELTA)),
        lambda t: (1 - DELTA) * (t - RHO * (1 - RHO**t) / (1 - RHO)) / (1 - RHO),
        lambda t: (1 - DELTA) * math.sqrt(sum(a * a for a in momentum_vector(t))),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_norms_are_those_of_the_closed_form(name: str) -> None:
    solver, l1, l2 = CASES[name]
    for tau in STEPS:
        assert norms(solver, tau) == pytest.approx((l1(tau), l2(tau)), abs=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_combinations_use_the_impulse_response(nesterov: bool) -> None:
    """Momentum, proximal term and decayed lr at once, against the composed 2 x 2 step maps."""
    solver = fl.LocalSolver(
        fl.SGD(ETA, momentum=RHO, nesterov=nesterov),
        corrections=(fl.Proximal(MU),),
        step_schedule=fl.Exponential(GAMMA),
    )
    for tau in STEPS:
        a = accumulation(LocalWork(ETA, tau, momentum=RHO, nesterov=nesterov, mu=MU, decay=GAMMA))
        assert norms(solver, tau) == pytest.approx((float(a.sum()), float(a.norm())), abs=1e-12)


def test_a_swing_beyond_the_proximal_minimum_counts_as_way_back() -> None:
    """ρ = ½, α = ημ = ½: v ← v/2 + g − y/2, y ← y + v, in units of η and with the gradient's sign.

    An impulse gives y = 1, 1, ½, 0, −¼, so that five steps along gradients of 1 lead to 2¼ and not to 2¾.
    """
    solver = fl.LocalSolver(fl.SGD(0.5, momentum=0.5), corrections=(fl.Proximal(1.0),))
    assert norms(solver, 5) == pytest.approx((2.25, math.sqrt(2.3125)), abs=1e-12)


def test_fednova_divides_by_the_way_and_not_by_the_swings() -> None:
    """Clients with nearly constant gradients move by Σ_j a_j times them: normalized, all count by ω.

    F_i = ½h‖x − e_i‖² with h = 1e-4 and 3, 12 and 40 steps of proximal momentum, for which Σ|a_j| is
    2.3 times as large at 40 steps: the mean of the e_i is at rest up to O(h²).
    """
    linear = torch.tensor([[2.0], [-1.0], [5.0]], dtype=torch.float64)
    curvature = torch.full((3, 1, 1), 1e-4, dtype=torch.float64)
    problem = QuadraticProblem(curvature, 1e-4 * linear, torch.full((3,), 1 / 3, dtype=torch.float64))
    world = fl.SimulatedWorld(
        problem.task(2.0), problem.data(), work=fl.FixedSteps((3, 12, 40)), dtype=torch.float64
    )
    run = fl.Federation(fl.presets.fednova(lr=0.05, momentum=0.9, mu=1.0), world)
    for _ in run.train(1):
        pass
    assert run.params.item() == pytest.approx(2.0, abs=1e-6)


def test_a_solver_that_is_thrown_back_is_refused() -> None:
    """ημ = 2: every other step returns to the anchor, and nothing could be divided by that."""
    solver = fl.LocalSolver(fl.SGD(1.0), corrections=(fl.Proximal(2.0),))
    with pytest.raises(FieldError, match="LocalSolver with lr=1 does not follow a constant gradient"):
        norms(solver, 4)


@pytest.mark.parametrize("name", CASES)
def test_long_work_has_the_same_closed_forms(name: str) -> None:
    """Beyond the first steps the norms of a steady solver come from one impulse, in K operations."""
    solver, l1, l2 = CASES[name]
    for tau in (64, 65, 300):
        assert norms(solver, tau) == pytest.approx((l1(tau), l2(tau)), rel=1e-12)


class _Numbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the numbers that torch's operations produce."""

    produced = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.produced += result.numel() if isinstance(result, Tensor) else 0
        return result


def test_long_work_takes_a_number_of_operations_linear_in_its_steps() -> None:
    """A table of K² impulses would take 4·10⁸ numbers."""
    with _Numbers() as numbers:  # type: ignore[no-untyped-call]
        found, _ = norms(CASES["momentum"][0], 20_000)
    assert found == pytest.approx(CASES["momentum"][1](20_000), rel=1e-12)
    assert numbers.produced < 100 * 20_000


@dataclass(frozen=True)
class _Alternating(fl.Optimizer):
    """Linear, but not the same at every step: every other gradient is left out."""

    linear: ClassVar[bool] = True

    def init(self, params: Tensor) -> OptimizerState:
        return {"step": params.new_zeros((*params.shape[:-1], 1))}

    def step(
        self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor
    ) -> tuple[Tensor, OptimizerState]:
        return params - lr * gradient * (1 - state["step"] % 2), {"step": state["step"] + 1}


def test_a_solver_that_is_not_steady_is_probed_step_by_step() -> None:
    assert norms(fl.LocalSolver(_Alternating(ETA)), 151)[0] == pytest.approx(76.0)


def test_one_table_serves_clients_with_different_steps() -> None:
    solver = CASES["momentum"][0]
    steps = torch.tensor([5, 1, 0, 9, 5])
    found = solver.accumulation(steps, 0)
    assert found is not None
    assert found.l1.tolist() == pytest.approx([CASES["momentum"][1](t) if t else 0.0 for t in steps.tolist()])


def test_nobody_asked_has_no_norms() -> None:
    found = fl.LocalSolver(fl.SGD(ETA)).accumulation(torch.tensor([], dtype=torch.int64), 0)
    assert found is not None
    assert len(found.l1) == 0


def test_weight_decay_is_part_of_the_objective_and_not_of_the_work() -> None:
    """A penalty ½λ‖x‖² changes gradients, not how the solver adds them up."""
    plain, decayed = (fl.LocalSolver(fl.SGD(ETA, momentum=RHO, weight_decay=wd)) for wd in (0.0, 0.5))
    assert norms(decayed, 7) == norms(plain, 7)


def test_constant_corrections_do_not_count_as_work() -> None:
    """VR row of the table: y ← y − η(g + b) has the a of the base solver."""
    solver = fl.LocalSolver(fl.SGD(ETA, momentum=RHO), corrections=(fl.ControlVariates(),))
    assert norms(solver, 7) == norms(CASES["momentum"][0], 7)


def test_proximal_work_follows_the_learning_rate_of_the_round() -> None:
    """α = η_tμ: after a decay by 10 the same steps are worth more."""
    optimizer = fl.SGD(ETA, schedule=fl.Milestones((3,), gamma=0.1))
    solver = fl.LocalSolver(optimizer, corrections=(fl.Proximal(MU),))
    expected = [(1 - (1 - a) ** 5) / a for a in (ALPHA, ALPHA / 10)]
    assert [norms(solver, 5, round)[0] for round in (2, 3)] == pytest.approx(expected)


def test_a_learning_rate_of_zero_still_has_work() -> None:
    """As η → 0 the proximal a tends to (1, ..., 1)."""
    solver = fl.LocalSolver(fl.SGD(0.0), corrections=(fl.Proximal(MU),))
    assert norms(solver, 4) == pytest.approx((4.0, 2.0))


@pytest.mark.parametrize(
    "solver", [fl.LocalSolver(fl.Adam(ETA)), fl.LocalSolver(fl.SGD(ETA), clip=1.0)], ids=["adam", "clip"]
)
def test_solvers_that_are_not_linear_have_no_norms(solver: fl.LocalSolver) -> None:
    assert solver.accumulation(torch.tensor([3]), 0) is None
