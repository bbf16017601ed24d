"""Contracts of algorithms and presets, on small problems with known solutions."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.clients.data import ClientData
from fairlead.clients.quadratics import QuadraticProblem, Quadratics
from fairlead.conditions.links import BernoulliLink
from fairlead.conditions.work import FixedSteps, RandomSteps
from fairlead.errors import FieldError
from fairlead.federation import Federation
from fairlead.models.base import MLP
from fairlead.plain_data import from_plain, to_plain
from fairlead.randomness import Key
from fairlead.records import RoundRecord
from fairlead.task import Task
from fairlead.testing.rounds import fault
from fairlead.theory.quadratics import predicted_limit
from fairlead.worlds.base import EngineName
from fairlead.worlds.simulated import SimulatedWorld

STEPS = (1, 2, 4, 3)
"""Local steps of the clients of `standard_problem` wherever a limit is predicted."""


def standard_problem() -> QuadraticProblem:
    """Four clients in three dimensions with unequal Hessians, optima and weights."""
    source = Quadratics(num_clients=4, dim=3, conditioning=4.0, spread=2.0, weights=(1.0, 2.0, 3.0, 4.0))
    return source.problem(Key.from_seed(3))


def _quadratics(engine: EngineName) -> SimulatedWorld:
    """Random work and lossy links on `standard_problem`."""
    problem, link = standard_problem(), BernoulliLink((0.1, 0.3, 0.0, 0.5))
    world = partial(SimulatedWorld, problem.task(), problem.data(), weights=problem.weights)
    return world(work=RandomSteps(1, 4), link=link, engine=engine, lanes=2, dtype=torch.float64)


def _ragged_classes(engine: EngineName) -> SimulatedWorld:
    """Five clients with 1 to 9 examples, a small network with dropout, random work and lossy links."""
    generator = Key.from_seed(4).generator()
    sizes = (9, 1, 4, 6, 3)
    inputs = [torch.from_numpy(generator.standard_normal((size, 4))) for size in sizes]
    targets = [torch.from_numpy(generator.integers(0, 3, size)) for size in sizes]
    world = partial(
        SimulatedWorld, Task(MLP(hidden=(6,), dropout=0.3)), ClientData.from_lists(inputs, targets)
    )
    return world(
        work=RandomSteps(1, 5), link=BernoulliLink(0.25), engine=engine, lanes=2, dtype=torch.float64
    )


def check_algorithm(algorithm: Algorithm, rounds: int = 6) -> None:
    """Raise an `AssertionError` unless an algorithm runs as every algorithm must.

    On quadratics and on a small network, with random work and lossy links: a second run repeats every bit;
    both engines meet the same cohorts, arrivals and work and agree to 1e-12 in float64; a resumed run is the
    uninterrupted one. And it can be written in a spec and read back.
    """
    plain = to_plain(algorithm, Algorithm)
    if from_plain(Algorithm, plain) != algorithm:
        raise fault(algorithm, f"survive being written in a spec, got {plain}")
    for world in (_quadratics, _ragged_classes):
        first, again = (_run(algorithm, world("batched"), rounds) for _ in range(2))
        _require_equal(algorithm, first, again, "run again")
        _require_agreement(algorithm, _run(algorithm, world("loop"), rounds), first)
        _require_equal(algorithm, first, _resumed(algorithm, world, rounds), "resumed from a checkpoint")


def _run(algorithm: Algorithm, world: SimulatedWorld, rounds: int) -> Federation:
    federation = Federation(algorithm, world, seed=5)
    for _ in federation.train(rounds):
        pass
    return federation


def _require_equal(algorithm: Algorithm, one: Federation, other: Federation, how: str) -> None:
    shared = [{**f.state.shared, "params": f.params, "buffers": f.state.buffers} for f in (one, other)]
    if not all(torch.equal(shared[0][name], shared[1][name]) for name in shared[0]):
        raise fault(algorithm, f"give the same bits when {how}")
    last = len(other.records)
    if _comparable(one.records[-last:]) != _comparable(other.records):
        raise fault(algorithm, f"give the same records when {how}")


def _comparable(records: Sequence[RoundRecord]) -> list[str]:
    """Records as text, since a figure may be NaN; times left out."""
    return [repr({k: v for k, v in vars(record).items() if k != "seconds"}) for record in records]


def _require_agreement(algorithm: Algorithm, loop: Federation, batched: Federation) -> None:
    for one, other in zip(loop.records, batched.records, strict=True):
        if (one.asked, one.arrived, one.num_steps) != (other.asked, other.arrived, other.num_steps):
            raise fault(algorithm, "meet the same cohorts, arrivals and work on both engines")
    gap = float((loop.params - batched.params).abs().max())
    if not (gap <= 1e-12 * max(1.0, float(loop.params.abs().max()))):
        raise fault(algorithm, f"give the same numbers on both engines, which differ by {gap:.2g}")


def _resumed(algorithm: Algorithm, world: Callable[[EngineName], SimulatedWorld], rounds: int) -> Federation:
    """A run that is interrupted and resumed."""
    begun = _run(algorithm, world("batched"), rounds // 2)
    with TemporaryDirectory() as folder:
        begun.save(Path(folder))
        resumed = Federation(algorithm, world("batched"), seed=5)
        resumed.resume(Path(folder))
    for _ in resumed.train(rounds - rounds // 2):
        pass
    return resumed


def check_limit(
    algorithm: Algorithm, expected: Tensor, *, max_rounds: int = 3000, tolerance: float = 1e-6
) -> None:
    """Raise an `AssertionError` unless an algorithm converges to a given point of `standard_problem`.

    Clients take `STEPS` local steps and all arrive in every round.
    """
    problem = standard_problem()
    world = SimulatedWorld(
        problem.task(), problem.data(), weights=problem.weights, work=FixedSteps(STEPS), dtype=torch.float64
    )
    federation = Federation(algorithm, world)
    for _ in federation.train(max_rounds):
        if float((federation.params - expected).abs().max()) <= tolerance / 10:
            break
    for _ in federation.train(20):
        gap = float((federation.params - expected).abs().max())
        if not (gap <= tolerance):
            raise fault(
                algorithm,
                f"converge to {expected.tolist()} when clients take {STEPS} steps, but "
                f"is {gap:.2g} away after {federation.state.round} rounds",
            )


def check_preset(preset: Callable[..., Algorithm]) -> None:
    """Raise an `AssertionError` unless a preset builds an algorithm that keeps its contract.

    It runs as `check_algorithm` asks, and where `predicted_limit` knows its limit under unequal steps, the
    optimum or a biased point, it converges to it within 1e-6.
    """
    algorithm = example_of_preset(preset)
    check_algorithm(algorithm)
    limit = predicted_limit(algorithm, standard_problem(), STEPS)
    if limit is not None:
        check_limit(algorithm, limit)


_ARGUMENTS = {"own": ("*",), "lr": 0.1, "mu": 0.5, "alpha": 0.5, "eps": 0.1, "server_momentum": 0.5}


def example_of_preset(preset: Callable[..., Algorithm]) -> Algorithm:
    """An algorithm of a preset that converges on small problems; everybody is asked where that is allowed.

    Required arguments get values by their name; a method with ε gets one that is large enough to converge.
    """
    parameters = inspect.signature(preset).parameters
    named = {name: value for name, value in _ARGUMENTS.items() if name in parameters}
    if "eps" in parameters and "server_lr" in parameters:
        # A second moment that only grows, as Adagrad's, shortens all later steps: start with longer ones.
        named["server_lr"] = 0.2 if "beta2" in parameters else 1.0
    common = {"lr": 0.1, "steps": 3, "batch_size": 4, **named}
    try:
        return preset(**common)
    except FieldError:
        return preset(**common, cohort_size=3)
