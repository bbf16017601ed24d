"""The weights Ω that an algorithm implies, from its sampler, the links, the solver and the aggregator.

To first order in the learning rate a round moves the model by −η Σ C_i‖a_i‖₁∇F_i on average, where C_i is
the mean coefficient that the server gives to an update of client i: the run minimises Σ Ω_i F_i with
Ω_i ∝ C_i‖a_i‖₁. The same reading serves theory, where C is computed from the parts, and measurement, where C
is what a run really used (`diagnostics.tally`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator
from fairlead.aggregators.fedaware import FedAWARE
from fairlead.aggregators.fedmgda import FedMGDA
from fairlead.aggregators.robust import CoordinateMedian, NormBoundedMean, TrimmedMean
from fairlead.aggregators.weighted_mean import WeightedMean
from fairlead.algorithm import Algorithm
from fairlead.corrections.base import Correction
from fairlead.corrections.client_momentum import ClientMomentum
from fairlead.corrections.stale_start import StaleStart
from fairlead.corrections.vrlsgd import VRLSGD
from fairlead.records import Conditions
from fairlead.samplers.base import Sampler
from fairlead.samplers.full import FullFirstRound, FullParticipation
from fairlead.samplers.scripted import ScriptedSampler
from fairlead.samplers.uniform import UniformWithoutReplacement
from fairlead.theory.contributions import OUTCOMES, Exactness, looks_at_returns, mean_coefficients
from fairlead.transforms.aware_projection import AwareProjection
from fairlead.transforms.base import DirectionTransform


@dataclass(frozen=True, eq=False)
class Contributions:
    """What each client adds to a round on average, foreseen or measured; all (N,) float64."""

    weights: Tensor
    """ω."""
    coefficient: Tensor
    """C, the weight that its updates get."""
    mass: Tensor
    """C‖a‖₁, the local gradient steps that get through."""
    work: Tensor
    """Mean ‖a‖₁ of an update that arrives; 0 if none does."""
    echoed: Tensor
    """‖a‖₁ times the rounds since the client was last heard, a round: what FedAWE makes of its work."""
    steady: bool
    """Whether every client does the same work in every round."""


class Reading(NamedTuple):
    """What an algorithm minimises, given what its clients contribute."""

    weights: Tensor | None
    """Ω, (N,); None where there are no such weights."""
    says: str


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Ω as theory has it, with what it rests on."""

    weights: Tensor | None
    """Ω, (N,); None where theory has none."""
    contributions: Contributions | None
    """None where Ω follows without them, or nothing is known."""
    exactness: Exactness
    """Of the mean coefficients; Ω itself always holds to first order in the learning rate, except where a
    correction makes it exact."""
    says: str
    """What the method tends to, in a sentence."""


def implied_surrogate(
    algorithm: Algorithm, rounds: Sequence[Conditions], *, outcomes: int = OUTCOMES
) -> Surrogate:
    """Ω of an algorithm under the conditions of some rounds, before any training.

    Exact mean coefficients where clients count independently of each other, and for few clients by
    enumerating cohorts and arrivals; otherwise the mean over random cohorts and arrivals (`outcomes` of them in
    all), or the ratio of means where cohorts are large, and `exactness` says so. Links are taken to be
    independent of each other. A first round that asks everybody does not count.
    """
    weights = rounds[0].weights
    fate = foregone(algorithm, weights)
    if fate is not None:
        return Surrogate(_among_reachable(fate.weights, rounds), None, "exact", fate.says)
    looked_at = _looked_at(algorithm, rounds, outcomes)
    if isinstance(looked_at, str):
        return Surrogate(None, None, "exact", looked_at)
    contributions, exactness = looked_at
    reading = read_weights(algorithm, contributions)
    return Surrogate(reading.weights, contributions, exactness, reading.says)


def has_no_weights(algorithm: Algorithm) -> bool:
    """Whether a method is known to minimise no weighted sum of the clients' objectives."""
    parts: list[Aggregator | DirectionTransform] = [*algorithm.transforms, algorithm.aggregator]
    return any(limit_instead(part) is not None for part in parts)


def foregone(algorithm: Algorithm, weights: Tensor) -> Reading | None:
    """The answer for algorithms where contributions do not matter; None for all others."""
    parts: list[Aggregator | DirectionTransform] = [*algorithm.transforms, algorithm.aggregator]
    for part in parts:
        elsewhere = limit_instead(part)
        if elsewhere is not None:
            return Reading(None, elsewhere)
    for transform in algorithm.transforms:
        if transform.hides_weights:
            return Reading(None, f"{type(transform).__name__} turns steps away from the clients' mean.")
    if algorithm.privacy is not None:
        return Reading(
            None,
            "Under ClientPrivacy long updates are shortened, so that no weighted sum of the clients' objectives "
            "that is known beforehand is minimised: clients far from the others count less than their weight.",
        )
    if any(correction.restores_weights for correction in algorithm.solver.corrections):
        return Reading(
            weights,
            "The corrections of this method make every client follow the objective's own weights at the "
            "fixed point, whatever work and links are.",
        )
    if not algorithm.solver.is_linear:
        return Reading(
            None,
            "The clients' updates are not linear in their gradients, so the work behind an update has no "
            "measure and the weights are not known.",
        )
    return None


@singledispatch
def limit_instead(part: Aggregator | DirectionTransform) -> str | None:
    """Where a method ends that minimises no weighted sum; None for those that do."""
    return None


@limit_instead.register
def _(part: FedAWARE) -> str:
    return (
        "FedAWARE minimises no weighted sum of the clients' objectives: it stops at a Pareto-stationary "
        "point, where no direction helps every client, and which one depends on the start."
    )


@limit_instead.register
def _(part: FedMGDA) -> str:
    where = (
        "it stops at a Pareto-stationary point, where no direction helps every client, and which one depends "
        "on the start"
        if part.epsilon == 1
        else "it stops where weights near the usual ones balance the clients' normalised updates, which says "
        "nothing of the lengths of their gradients"
    )
    return f"FedMGDA+ minimises no weighted sum of the clients' objectives: {where}."


@limit_instead.register
def _(part: CoordinateMedian) -> str:
    return (
        "CoordinateMedian minimises no weighted sum of the clients' objectives: it stops where as much weight "
        "pulls every coordinate up as down, however strongly."
    )


@limit_instead.register
def _(part: TrimmedMean) -> str:
    return (
        "TrimmedMean minimises no weighted sum of the clients' objectives: it stops where the clients' pulls "
        f"cancel in every coordinate without the {part.trim:.0%} of weight that pull hardest up and down."
    )


@limit_instead.register
def _(part: NormBoundedMean) -> str:
    return (
        "NormBoundedMean minimises no weighted sum of the clients' objectives that is known beforehand: it "
        "stops where updates of bounded length cancel, so that clients far from the others count less than "
        "their weight."
    )


@limit_instead.register
def _(part: AwareProjection) -> str:
    return (
        "A step projected on FedAWARE's direction minimises no weighted sum of the clients' objectives: the "
        "method stops at a Pareto-stationary point, or where its own step is orthogonal to that direction."
    )


@singledispatch
def followed(correction: Correction, algorithm: Algorithm, facts: Contributions) -> Reading | None:
    """Ω under a correction that lets other gradients than this round's own act; None if it does not."""
    if correction.hides_weights:
        return Reading(None, f"{type(correction).__name__} hides the weights in gradients of earlier rounds.")
    return None


@followed.register
def _(correction: VRLSGD, algorithm: Algorithm, facts: Contributions) -> Reading:
    if not _averages_by_weight(algorithm) or not facts.steady:
        return Reading(
            None,
            "VRL-SGD has a limit of its own only for constant work and clients that are averaged by weight; "
            "here it comes to rest at a point that depends on the start.",
        )
    return Reading(
        _shares(facts.weights * facts.work),
        "VRL-SGD weighs every client by its weight times its work, exactly and whatever the links are.",
    )


@followed.register
def _(correction: ClientMomentum, algorithm: Algorithm, facts: Contributions) -> Reading:
    # At rest the momentum is Σ p̂_i∇F_i with p̂ the arrivals' normalised importance, whatever their work.
    if algorithm.aggregator != WeightedMean(over="received"):
        return Reading(None, "The weights of FedCM are known only for the mean of what arrives.")
    mass, alike = _shares(facts.mass), _shares(facts.coefficient)
    if mass is None or alike is None:
        return Reading(None, _NOTHING)
    return Reading(
        correction.alpha * mass + (1 - correction.alpha) * alike,
        f"FedCM mixes weights by work (a share of {correction.alpha:g}, its alpha) with weights without it.",
    )


@followed.register
def _(correction: StaleStart, algorithm: Algorithm, facts: Contributions) -> Reading:
    # Averaging those that arrive by ω leaves Σ ω_i x_i of all own models as it is: only ω_i times the
    # echoed work moves it.
    if not _averages_by_weight(algorithm):
        return Reading(None, "The weights of FedAWE are known only for clients that are averaged by weight.")
    return Reading(
        _shares(facts.weights * facts.echoed),
        "FedAWE weighs every client by its weight times its work, echoed for the rounds it missed.",
    )


_NOTHING = "Nothing gets through, so there is nothing to minimise."


def read_weights(algorithm: Algorithm, facts: Contributions) -> Reading:
    """Ω of an algorithm whose clients contribute as given."""
    for correction in algorithm.solver.corrections:
        reading = followed(correction, algorithm, facts)
        if reading is not None:
            return reading
    weights = _shares(facts.mass)
    if weights is None:
        return Reading(None, _NOTHING)
    return Reading(weights, "Every client counts by the mean coefficient of its updates times their work.")


def _looked_at(
    algorithm: Algorithm, rounds: Sequence[Conditions], outcomes: int
) -> tuple[Contributions, Exactness] | str:
    """Contributions averaged over rounds, or why there are none."""
    if looks_at_returns(algorithm.aggregator, rounds[0]):
        return (
            f"{type(algorithm.aggregator).__name__} weighs clients by what they return, such as their losses, so "
            "that its weights are not known before a run."
        )
    kinds = _distinct(rounds, scripted=isinstance(_usual(algorithm.sampler), ScriptedSampler))
    coefficient = torch.zeros_like(rounds[0].weights)
    mass, arrival, arrived_work = (torch.zeros_like(coefficient) for _ in range(3))
    grades: set[Exactness] = set()
    remembers, works = False, []
    for conditions, number in kinds:
        rate, work = conditions.arrival, conditions.effective_steps
        if rate is None or work is None:
            missing = "arrival rates" if rate is None else "work"
            return f"This world does not know the {missing} of its clients beforehand."
        weighting = mean_coefficients(
            algorithm.aggregator, algorithm.sampler, conditions, outcomes // len(kinds)
        )
        if weighting is None:
            parts = f"{type(algorithm.sampler).__name__} with {type(algorithm.aggregator).__name__}"
            return f"No theory of {parts} is registered for these conditions."
        remembers |= weighting.remembers
        grades.add(weighting.exactness)
        works.append(work)
        coefficient += number * weighting.coefficients
        mass += number * weighting.coefficients * work
        arrival += number * rate
        arrived_work += number * rate * work
    work = torch.where(arrival > 0, arrived_work / arrival.clamp(min=1e-300), 0.0)
    steady = all(torch.equal(works[0], other) for other in works[1:])
    total = sum(number for _, number in kinds)
    facts = Contributions(
        weights=rounds[0].weights,
        coefficient=coefficient / total,
        mass=(coefficient * work if remembers else mass) / total,
        work=work,
        echoed=work,
        steady=steady,
    )
    order: tuple[Exactness, ...] = ("large cohorts", "long run", "sampled", "exact")
    return facts, next(grade for grade in order if grade in grades)


def _among_reachable(weights: Tensor | None, rounds: Sequence[Conditions]) -> Tensor | None:
    """Weights shared out among the clients whose updates may arrive at all; as they are if all may."""
    reachable = torch.zeros_like(rounds[0].weights, dtype=torch.bool)
    for conditions in rounds:
        if conditions.arrival is None:
            return weights
        reachable |= conditions.arrival > 0
    if weights is None or bool((reachable | (weights == 0)).all()):
        return weights
    return _shares(weights * reachable)


def _usual(sampler: Sampler) -> Sampler:
    """The sampler of all rounds but the first."""
    return _usual(sampler.sampler) if isinstance(sampler, FullFirstRound) else sampler


def _distinct(rounds: Sequence[Conditions], *, scripted: bool) -> list[tuple[Conditions, int]]:
    """Rounds in a row under the same conditions taken together, unless a script tells them apart."""
    kinds: list[tuple[Conditions, int]] = []
    for conditions in rounds:
        if kinds and not scripted and _alike(kinds[-1][0], conditions):
            kinds[-1] = (kinds[-1][0], kinds[-1][1] + 1)
        else:
            kinds.append((conditions, 1))
    return kinds


def _alike(one: Conditions, other: Conditions) -> bool:
    pairs = ((one.arrival, other.arrival), (one.effective_steps, other.effective_steps))
    return all(
        (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b)) for a, b in pairs
    )


def _shares(mass: Tensor) -> Tensor | None:
    total = mass.sum()
    return mass / total if total > 0 else None


def _averages_by_weight(algorithm: Algorithm) -> bool:
    """Whether those that arrive are averaged in proportion to ω."""
    by_weight = isinstance(_usual(algorithm.sampler), FullParticipation | UniformWithoutReplacement)
    return by_weight and algorithm.aggregator == WeightedMean(over="received")
