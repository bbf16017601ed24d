"""Closed forms for quadratic clients F_i(x) = ½x'H_i x − e_i'x: the fixed point of a run.

One local step is an affine map of the local model and its momentum, and so is a whole round of local
work: y_i − x = K_i(e_i − H_i x). A server that adds Σ c_i (y_i − x) therefore rests where
Σ c_i K_i(e_i − H_i x) = 0. The matrices K_i are built here from the step itself and share no code with
`LocalSolver`: tests use them as an oracle, and they predict the error of a method.

>>> from fairlead import Quadratics
>>> from fairlead.randomness import Key
>>> problem = Quadratics(linear=((0.0,), (4.0,))).problem(Key.from_seed(0))
>>> works = [LocalWork(lr=0.5, num_steps=1), LocalWork(lr=0.5, num_steps=2)]
>>> limit = resting_point(problem, responses(problem, works), problem.weights)
>>> round(float(limit), 6), float(problem.optimum)
(2.4, 2.0)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.corrections.drift import Proximal
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.base import Constant, Exponential
from fairlead.optimizers.descent import SGD
from fairlead.records import Conditions, NotKnown
from fairlead.samplers.fixed import FullParticipation
from fairlead.theory.prediction import averaging, expected_contributions, known_limit


@dataclass(frozen=True)
class LocalWork:
    """Local work of one client in a round: `num_steps` steps of SGD from zero momentum.

        g = ∇F_i(y) + μ(y − x)
        v ← ρ v + (1 − δ) g
        y ← y − η γᵏ v,  or  y ← y − η γᵏ (g + ρ v)  with Nesterov's look-ahead

    Symbols: η `lr`, ρ `momentum`, δ `dampening`, μ `mu`, γ `decay`, k = 0, 1, ... the step.
    """

    lr: float
    num_steps: int
    momentum: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0
    mu: float = 0.0
    decay: float = 1.0


def response(hessian: Tensor, work: LocalWork) -> Tensor:
    """K of one client, (d, d): its update is y − x = K(e − Hx).

    With z = y − x and r = e − Hx the gradient is (H + μI)z − r, so z and v stay linear in r. For plain
    SGD K = [I − (I − ηH)^τ]H⁻¹, with a proximal term [I − (I − η(H + μI))^τ](H + μI)⁻¹.
    """
    eye = torch.eye(len(hessian), dtype=hessian.dtype)
    displacement, velocity = torch.zeros_like(eye), torch.zeros_like(eye)
    for step in range(work.num_steps):
        gradient = (hessian + work.mu * eye) @ displacement - eye
        velocity = work.momentum * velocity + (1 - work.dampening) * gradient
        ahead = gradient + work.momentum * velocity if work.nesterov else velocity
        displacement = displacement - work.lr * work.decay**step * ahead
    return displacement


def responses(problem: QuadraticProblem, works: Sequence[LocalWork]) -> Tensor:
    """K_i of every client, (N, d, d)."""
    return torch.stack([response(h, work) for h, work in zip(problem.hessians, works, strict=True)])


def resting_point(problem: QuadraticProblem, responses: Tensor, coefficients: Tensor) -> Tensor:
    """x with Σ c_i K_i(e_i − H_i x) = 0, for any scale of the coefficients (Wang 2021 (31))."""
    weighted = coefficients[:, None, None] * responses
    linear = torch.einsum("ijk,ik->j", weighted, problem.linear)
    solution: Tensor = torch.linalg.solve((weighted @ problem.hessians).sum(0), linear)
    return solution


def predicted_limit(
    algorithm: Algorithm, problem: QuadraticProblem, num_steps: Sequence[int]
) -> Tensor | None:
    """The fixed point of an algorithm when every client takes the given steps and arrives in every round.

    None where no closed form is known here: samplers that leave clients out, client optimizers other than
    SGD, clipping, transforms, and parts without theory.
    """
    works, steps, weights = _works(algorithm.solver, num_steps), torch.tensor(num_steps), problem.weights
    work = algorithm.solver.effective_steps(steps, 0)
    asks_everyone = isinstance(algorithm.sampler, FullParticipation)
    if works is None or work is None or algorithm.transforms or not asks_everyone:
        return None
    conditions = Conditions.known(0, weights, work, torch.ones_like(work), steps)
    limit = known_limit(algorithm, weights)
    if limit is None:
        expected = expected_contributions(algorithm, [conditions])
        if isinstance(expected, NotKnown):
            return None
        contributions, _ = expected
        others = [part for part in algorithm.solver.corrections if not isinstance(part, Proximal)]
        if not others:
            return resting_point(problem, responses(problem, works), contributions.coefficient)
        limit = others[0].weights_under(contributions, averaging(algorithm))
    if limit is None or limit.weights is None or not limit.exact:
        return None
    return problem.minimizer(limit.weights)


def _works(solver: LocalSolver, num_steps: Sequence[int]) -> list[LocalWork] | None:
    optimizer, schedule = solver.optimizer, solver.step_schedule
    if not isinstance(optimizer, SGD) or optimizer.weight_decay or optimizer.schedule != Constant():
        return None
    if solver.clip is not None or not isinstance(schedule, Constant | Exponential):
        return None
    moving = optimizer.momentum, optimizer.nesterov, optimizer.dampening
    mu = sum(correction.mu for correction in solver.corrections if isinstance(correction, Proximal))
    decay = schedule.gamma if isinstance(schedule, Exponential) else 1.0
    return [LocalWork(optimizer.lr, steps, *moving, mu, decay) for steps in num_steps]
