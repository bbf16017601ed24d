"""Runs systems on one problem, one after another in every pass, and checks that they do the same."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from time import process_time
from typing import NamedTuple

from benchmarks.machine import Precision
from benchmarks.peers.problem import Problem
from benchmarks.peers.systems import LISTINGS, System, find_system
from torch import Tensor

REFERENCE = "fairlead"
TOLERANCES: dict[Precision, float] = {"float64": 1e-5, "float32": 5e-3, "tf32": 1e-2, "bfloat16": 2e-2}
"""Largest distance between two models after a round, in units of the length of the round's step.

In float64 it is what float32 sums of the peers' servers leave. In the others one ReLU or maximum that switches,
in one of hundreds of steps, moves a client far more than rounding does. Products in another precision than asked
for move the MLP by 3e-2; an error in the work, such as a batch too many or another order, by a tenth and more.
Deep networks may go beyond in anything but float64: what counts there is that float64 agrees.
"""


class Spread(NamedTuple):
    """A figure over repetitions."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(median(values), min(values), max(values))


@dataclass
class Outcome:
    """What became of one system."""

    setup: str = ""
    problem: str | None = None
    """Why there are no times, or None."""
    replaced: tuple[str, ...] = ()
    """Packages that were missing and never called."""
    choice: str | None = None
    deviation: float | None = None
    """Distance from fairlead's model after one round, in units of that round's step."""
    final_deviation: float | None = None
    """The same after all rounds, where rounding has grown."""
    first_pass: float | None = None
    """Seconds of the pass that is not timed: with tuning, capturing and compiling."""
    seconds: list[float] = field(default_factory=list)
    """Per round, for each timed pass."""
    processor_seconds: list[float] = field(default_factory=list)
    """The same of this process's processor time, the start of the pass included: what a busy machine changes least.

    Empty for systems that work in other processes.
    """


def compare(
    problem: Problem, names: Sequence[str], repeats: int, say: Callable[[str], None]
) -> dict[str, Outcome]:
    """Outcomes by name, fairlead's first; a system that fails is reported and left out from then on."""
    outcomes = {name: Outcome() for name in (REFERENCE, *names)}
    checked = problem.without_dropout() if problem.has_dropout else problem
    systems = _build(checked, outcomes)
    _check(checked, systems, outcomes, say)
    if problem.has_dropout:
        systems = _build(problem, outcomes)
    for number in range(repeats + 1):
        _pass(problem, systems, outcomes, number, say)
    return outcomes


def _check(
    problem: Problem, systems: dict[str, System], outcomes: dict[str, Outcome], say: Callable[[str], None]
) -> None:
    """One round of every system, from the same start."""
    reference: Tensor | None = None
    for name, system in systems.items():
        say(f"{name}: one round to check")
        with _reporting(outcomes[name]):
            params = system.run(1).params
            reference = params if name == REFERENCE else reference
            if reference is None:
                raise RuntimeError("fairlead itself failed, so that nothing can be checked")
            outcomes[name].deviation = _deviation(params, reference, problem.start)


def _pass(
    problem: Problem,
    systems: dict[str, System],
    outcomes: dict[str, Outcome],
    number: int,
    say: Callable[[str], None],
) -> None:
    """All rounds by every system that still works; number 0 is not timed."""
    rounds = len(problem.cohorts)
    reference: Tensor | None = None
    for name, system in systems.items():
        outcome = outcomes[name]
        if outcome.problem is not None:
            continue
        gc.collect()
        with _reporting(outcome):
            began = process_time()
            one = system.run(rounds)
            busy, total = process_time() - began, sum(one.seconds)
            if number == 0:
                outcome.first_pass = total
            else:
                outcome.seconds.append(total / rounds)
                outcome.processor_seconds += [busy / rounds] if system.in_this_process else []
            reference = one.params if name == REFERENCE else reference
            if reference is not None and not problem.has_dropout:
                outcome.final_deviation = _deviation(one.params, reference, problem.start)
            outcome.choice = system.choice
            say(f"{name}, pass {number}: {1e3 * total / rounds:.1f} ms a round")


def _build(problem: Problem, outcomes: dict[str, Outcome]) -> dict[str, System]:
    systems: dict[str, System] = {}
    # The peers read their orders ready made; drawing them is no part of anyone's time.
    assert problem.orders
    for name, outcome in outcomes.items():
        if outcome.problem is not None:
            continue
        try:
            found = find_system(name)
        except ImportError as error:
            outcome.problem = f"not installed ({error}): pip install {LISTINGS[name].pip}"
            continue
        except Exception as error:
            outcome.problem = f"cannot be imported: {type(error).__name__}: {error}"
            continue
        outcome.replaced, outcome.setup = found.replaced or outcome.replaced, found.system.setup
        with _reporting(outcome):
            systems[name] = found.system(problem)
    return systems


@contextmanager
def _reporting(outcome: Outcome) -> Iterator[None]:
    """Anything may go wrong in a foreign system: it is told, and the others go on."""
    try:
        yield
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        outcome.problem = f"failed: {type(error).__name__}: {error} ({place.name}, line {place.lineno})"


def _deviation(params: Tensor, reference: Tensor, start: Tensor) -> float:
    return float((params - reference).norm() / (reference - start).norm())


def disagreeing(outcomes: dict[str, Outcome], precision: Precision) -> list[str]:
    """Systems whose model after a round is not fairlead's."""
    limit = TOLERANCES[precision]
    return [name for name, o in outcomes.items() if o.deviation is not None and not o.deviation <= limit]


def ratios(outcomes: dict[str, Outcome]) -> dict[str, Spread]:
    """How many times longer a peer takes than fairlead, by passes."""
    own = outcomes[REFERENCE].seconds
    return {
        name: Spread.of([theirs / ours for theirs, ours in zip(outcome.seconds, own, strict=True)])
        for name, outcome in outcomes.items()
        if name != REFERENCE and outcome.seconds and len(outcome.seconds) == len(own)
    }
