"""FedNova where other libraries get it wrong: the length of its step.

With H = 0 client i has the constant gradient −e_i, so that a linear solver moves by η‖a_i‖₁ e_i and every
normalized update is η e_i: FedNova's step is η·τ_eff·Σ p_i e_i for any solver, whatever the work.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from affine_oracles import effective_steps

import fairlead as fl
from fairlead.errors import ClashError
from fairlead.theory.quadratics import LocalWork


def constant_gradients(linear: list[list[float]], weights: list[float] | None = None) -> fl.SimulatedWorld:
    """Clients that all move along e_i, from the origin."""
    return world_of(linear, weights, fl.EqualWork())


def world_of(linear: list[list[float]], weights: list[float] | None, work: fl.WorkModel) -> fl.SimulatedWorld:
    n, d = len(linear), len(linear[0])
    zeros = torch.zeros((n, d, d)).tolist()
    source = fl.Quadratics(linear=linear, hessians=zeros, weights=weights, start=0.0)  # type: ignore[arg-type]
    problem = source.problem(fl.Key.from_seed(0))
    return fl.SimulatedWorld(
        problem.task(0.0), problem.data(), weights=problem.weights, work=work, dtype=torch.float64
    )


def one_step(algorithm: fl.Algorithm, world: fl.SimulatedWorld) -> list[float]:
    federation = fl.Federation(algorithm, world)
    list(federation.train(1))
    return [float(x) for x in federation.params]


def test_the_step_is_the_arithmetic_mean_of_the_work() -> None:
    """p = (½, ½), a = (1, 10), unit normalized gradients: τ_eff = 5.5; a canceled τ_eff gives 1.82 or 1."""
    world = world_of([[1.0], [1.0]], None, fl.FixedSteps((1, 10)))
    assert one_step(fl.presets.fednova(lr=1.0), world) == pytest.approx([5.5], abs=1e-12)


def test_zero_updates_leave_the_model_unchanged() -> None:
    """A server that scales the model instead of the update would not keep x = 0.7."""
    problem = fl.Quadratics(linear=((0.0,), (0.0,)), hessians=(((0.0,),), ((0.0,),))).problem(
        fl.Key.from_seed(0)
    )
    world = fl.SimulatedWorld(
        problem.task(0.7), problem.data(), work=fl.FixedSteps((1, 10)), dtype=torch.float64
    )
    assert one_step(fl.presets.fednova(lr=1.0), world) == [0.7]


def test_a_cohort_of_ten_in_a_hundred_takes_a_whole_step() -> None:
    """Equal τ = 5 and unit gradients: the step is 5, not 5·(K/N) and not 5·(N/K)."""
    world = constant_gradients([[1.0]] * 100)
    assert one_step(fl.presets.fednova(lr=1.0, steps=5, cohort_size=10), world) == pytest.approx([5.0])


def test_weights_enter_once() -> None:
    """p = (¼, ¾), a = (4, 2), e_1 ⟂ e_2: τ_eff = 2.5, so the step is 2.5·(¼, ¾)."""
    world = world_of([[1.0, 0.0], [0.0, 1.0]], [1.0, 3.0], fl.FixedSteps((4, 2)))
    assert one_step(fl.presets.fednova(lr=1.0), world) == pytest.approx([0.625, 1.875])


SOLVERS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "momentum": {"momentum": 0.6},
    "nesterov": {"momentum": 0.6, "nesterov": True},
    "proximal": {"mu": 0.7},
    "decayed": {"decay": 0.8},
    "all at once": {"momentum": 0.6, "nesterov": True, "mu": 0.7, "decay": 0.8},
}


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("tau_eff", ["work", "steps", 3.0])
def test_every_solver_is_normalized_by_its_own_work(name: str, tau_eff: Any) -> None:
    """Two orthogonal constant gradients with 2 and 7 steps: both coordinates move by η·τ_eff/2.

    Normalizing momentum by τ, as one released code does, would move the second further than the first.
    """
    setting = SOLVERS[name]
    works = [LocalWork(0.1, steps, **setting) for steps in (2, 7)]
    optimizer = fl.SGD(0.1, momentum=works[0].momentum, nesterov=works[0].nesterov)
    solver = fl.LocalSolver(
        optimizer,
        corrections=(fl.Proximal(works[0].mu),),
        step_schedule=fl.Exponential(works[0].decay),
    )
    expected = {"work": float(effective_steps(works).mean()), "steps": 4.5}.get(tau_eff, tau_eff)
    world = world_of([[1.0, 0.0], [0.0, 1.0]], None, fl.FixedSteps((2, 7)))
    step = one_step(fl.Algorithm(solver, aggregator=fl.FedNova(tau_eff)), world)
    assert step == pytest.approx([0.1 * expected / 2] * 2, abs=1e-13)


def test_lost_clients_do_not_shorten_the_step() -> None:
    """One of two clients is lost: the other alone has p̂ = 1 and τ_eff = its own work."""
    world = world_of([[1.0], [1.0]], None, fl.FixedSteps((3, 10)))
    world = fl.SimulatedWorld(
        world.task,
        world.clients,
        work=fl.FixedSteps((3, 10)),
        link=fl.ScriptedLink(((0,),)),
        dtype=torch.float64,
    )
    assert one_step(fl.presets.fednova(lr=1.0), world) == pytest.approx([3.0])


def test_a_client_that_is_not_linear_is_refused() -> None:
    with pytest.raises(ClashError, match="FedNova needs the effective number of local steps"):
        fl.Algorithm(fl.LocalSolver(fl.Adam(0.1)), aggregator=fl.FedNova())
