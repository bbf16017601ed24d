"""Who is asked, how often and with what importance: what samplers do on average, before any round."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import singledispatch
from itertools import combinations, combinations_with_replacement, product
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.randomness import Key
from fairlead.records import Cohort, Conditions
from fairlead.samplers.base import MemorylessSampler, Sampler
from fairlead.samplers.fedacs import FedACS, FedACSEstimated
from fairlead.samplers.full import FullFirstRound, FullParticipation
from fairlead.samplers.optimal import OptimalSampling
from fairlead.samplers.scripted import ScriptedSampler
from fairlead.samplers.uniform import PoissonSampling, UniformWithoutReplacement
from fairlead.samplers.weighted import WeightedWithReplacement

_NO_KEY = Key.from_seed(0)
"""For samplers whose draw involves no chance, and for theory's own throws, which belong to no run."""


class Participation(NamedTuple):
    """What a sampler does on average in a round under given conditions."""

    importance: Tensor
    """E[importance_i], 0 where the client is not asked, (N,)."""
    asked: Tensor | None
    """Chance of being asked, (N,); None where it depends on the updates."""
    settled: bool = True
    """False if the figures hold only once the sampler has learnt them."""


class Outcome(NamedTuple):
    """One way in which a round may turn out."""

    chance: float
    cohort: Cohort
    arrived: Tensor
    """(c,) bool."""


@singledispatch
def participation(sampler: Sampler, conditions: Conditions) -> Participation | None:
    """What a sampler does on average; None for one that has not been registered here.

    Another package adds its own with `@participation.register`. The knowledge is kept beside the report and
    not on the parts, since a round never needs it.
    """
    return None


@participation.register
def _(sampler: FullParticipation, conditions: Conditions) -> Participation:
    return Participation(conditions.weights, (conditions.weights > 0).to(torch.float64))


@participation.register
def _(sampler: UniformWithoutReplacement, conditions: Conditions) -> Participation:
    eligible = (conditions.weights > 0).to(torch.float64)
    return Participation(conditions.weights, eligible * sampler.cohort_size / eligible.sum())


@participation.register
def _(sampler: PoissonSampling, conditions: Conditions) -> Participation:
    return Participation(conditions.weights, (conditions.weights > 0) * sampler.rate)


@participation.register
def _(sampler: WeightedWithReplacement, conditions: Conditions) -> Participation:
    return _independent_draws(conditions.weights, sampler.cohort_size)


@participation.register
def _(sampler: FedACS, conditions: Conditions) -> Participation | None:
    chances = _fedacs_chances(conditions, floor=0.0)
    return None if chances is None else _independent_draws(chances, sampler.cohort_size)


@participation.register
def _(sampler: FedACSEstimated, conditions: Conditions) -> Participation | None:
    chances = _fedacs_chances(conditions, floor=sampler.min_arrival)
    if chances is None:
        return None
    return _independent_draws(chances, sampler.cohort_size)._replace(settled=False)


@participation.register
def _(sampler: OptimalSampling, conditions: Conditions) -> Participation:
    # Whatever the chances, importance divides by them.
    return Participation(conditions.weights, None)


@participation.register
def _(sampler: FullFirstRound, conditions: Conditions) -> Participation | None:
    return participation(sampler.sampler, conditions)


@participation.register
def _(sampler: ScriptedSampler, conditions: Conditions) -> Participation:
    cohort = sampler.draw({}, conditions, _NO_KEY)
    nobody = torch.zeros_like(conditions.weights)
    asked = nobody.index_fill(0, cohort.clients, 1.0)
    return Participation(nobody.index_copy(0, cohort.clients, cohort.importance), asked)


@singledispatch
def cohorts(sampler: Sampler, conditions: Conditions, at_most: int) -> list[tuple[float, Cohort]] | None:
    """Every cohort with its probability; None where there are more than `at_most`, or nobody knows."""
    return None


@cohorts.register(FullParticipation)
@cohorts.register(ScriptedSampler)
def _(
    sampler: FullParticipation | ScriptedSampler, conditions: Conditions, at_most: int
) -> list[tuple[float, Cohort]] | None:
    return [(1.0, sampler.draw({}, conditions, _NO_KEY))]


@cohorts.register
def _(
    sampler: UniformWithoutReplacement, conditions: Conditions, at_most: int
) -> list[tuple[float, Cohort]] | None:
    eligible = conditions.weights.nonzero().flatten().tolist()
    size, number = sampler.cohort_size, math.comb(len(eligible), sampler.cohort_size)
    if number > at_most:
        return None
    scale, found = len(eligible) / size, []
    for chosen in combinations(eligible, size):
        clients = torch.tensor(chosen)
        cohort = Cohort(clients, torch.ones_like(clients), scale * conditions.weights[clients])
        found.append((1 / number, cohort))
    return found


@cohorts.register
def _(
    sampler: WeightedWithReplacement, conditions: Conditions, at_most: int
) -> list[tuple[float, Cohort]] | None:
    return _multisets(conditions.weights, sampler.cohort_size, at_most)


@cohorts.register
def _(sampler: FedACS, conditions: Conditions, at_most: int) -> list[tuple[float, Cohort]] | None:
    chances = _fedacs_chances(conditions, floor=0.0)
    return None if chances is None else _multisets(chances, sampler.cohort_size, at_most)


@cohorts.register
def _(sampler: FullFirstRound, conditions: Conditions, at_most: int) -> list[tuple[float, Cohort]] | None:
    return cohorts(sampler.sampler, conditions, at_most)


def outcomes(sampler: Sampler, conditions: Conditions, at_most: int) -> list[Outcome] | None:
    """All pairs of a cohort and the part of it that arrives, links being independent of each other.

    None where there are more than `at_most`, or where cohorts or arrival rates are not known.
    """
    arrival, drawn = conditions.arrival, cohorts(sampler, conditions, at_most)
    if arrival is None or drawn is None:
        return None
    found: list[Outcome] = []
    for chance, cohort in drawn:
        rates = arrival[cohort.clients]
        open_ended = int(((rates > 0) & (rates < 1)).sum())
        if open_ended > 30 or len(found) + 2**open_ended > at_most:
            return None
        found.extend(_arrivals(chance, cohort, rates.tolist()))
    return found


def random_outcomes(
    sampler: Sampler, conditions: Conditions, number: int
) -> list[tuple[Cohort, Tensor]] | None:
    """So many cohorts drawn at random, and which of each arrive (c,), links being independent of each other.

    The same draws for the same round. None where a draw depends on earlier rounds, or rates are not known.
    """
    if isinstance(sampler, FullFirstRound):
        return random_outcomes(sampler.sampler, conditions, number)
    arrival = conditions.arrival
    if arrival is None or not isinstance(sampler, MemorylessSampler):
        return None
    key = _NO_KEY.fold("outcomes", conditions.round)
    throws = torch.from_numpy(key.generator().random((number, len(arrival)))) < arrival
    drawn = (sampler.draw({}, conditions, key.fold(place)) for place in range(number))
    return [(cohort, came[cohort.clients]) for cohort, came in zip(drawn, throws, strict=True)]


def _arrivals(chance: float, cohort: Cohort, rates: list[float]) -> Iterator[Outcome]:
    choices = [(True,) if rate >= 1 else (False,) if rate <= 0 else (True, False) for rate in rates]
    for arrived in product(*choices):
        odds = (rate if came else 1 - rate for rate, came in zip(rates, arrived, strict=True))
        yield Outcome(chance * math.prod(odds), cohort, torch.tensor(arrived, dtype=torch.bool))


def _independent_draws(chances: Tensor, number: int) -> Participation:
    return Participation(chances, 1 - (1 - chances) ** number)


def _multisets(chances: Tensor, number: int, at_most: int) -> list[tuple[float, Cohort]] | None:
    """Every result of so many independent draws: the multinomial distribution."""
    eligible, found = chances.nonzero().flatten().tolist(), []
    if math.comb(len(eligible) + number - 1, number) > at_most:
        return None
    for draws in combinations_with_replacement(eligible, number):
        clients, counts = torch.unique(torch.tensor(draws), return_counts=True)
        ways = math.factorial(number) / math.prod(map(math.factorial, counts.tolist()))
        chance = ways * float((chances[clients] ** counts).prod())
        found.append((chance, Cohort(clients, counts, counts.to(torch.float64) / number)))
    return found


def _fedacs_chances(conditions: Conditions, floor: float) -> Tensor | None:
    """p ∝ ω/[max(1 − q, floor)‖a‖₁] (Weng 2025 (15)); None where a client can never be heard."""
    weights, arrival, work = conditions.weights, conditions.arrival, conditions.effective_steps
    if arrival is None or work is None:
        return None
    useful = arrival.clamp(min=floor) * work
    if bool(((weights > 0) & (useful <= 0)).any()):
        return None
    chances = torch.where(weights > 0, weights / useful, 0.0)
    return chances / chances.sum()
