"""The weights Ω that an algorithm implies, from its sampler, the links, the solver and the aggregator.

To first order in the learning rate a round moves the model by −η Σ C_i‖a_i‖₁∇F_i on average, where C_i is
the mean coefficient that the server gives to an update of client i: the run minimizes Σ Ω_i F_i with
Ω_i ∝ C_i‖a_i‖₁. Predictions compute C from the parts; measurements take the C that a run has used
(`diagnostics.tally`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.records import Averaging, Conditions, Contributions, Exactness, Limit, NotKnown
from fairlead.theory.expected_round import OUTCOMES, expected_round


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Predicted Ω, with the contributions that it follows from."""

    weights: Tensor | None
    """Ω, (N,); None where theory has none."""
    contributions: Contributions | None
    """None where Ω follows without them, or nothing is known."""
    exactness: Exactness
    """Of the mean coefficients; Ω itself always holds to first order in the learning rate, except where a
    correction makes it exact."""
    explanation: str
    """The limit of the method, in a sentence."""


def implied_surrogate(
    algorithm: Algorithm, rounds: Sequence[Conditions], *, outcomes: int = OUTCOMES
) -> Surrogate:
    """Ω of an algorithm under the conditions of some rounds, before any training.

    Exact mean coefficients where clients count independently of each other, and for few clients by
    enumerating cohorts and arrivals; otherwise the mean over random cohorts and arrivals (`outcomes` of them in
    all), or the ratio of means where cohorts are large. `exactness` names the case. Links are assumed to be
    independent of each other. A first round with all clients does not count.
    """
    limit = known_limit(algorithm, rounds[0].weights)
    if limit is not None:
        return Surrogate(_among_reachable(limit.weights, rounds), None, "exact", limit.explanation)
    expected = expected_contributions(algorithm, rounds, outcomes=outcomes)
    if isinstance(expected, NotKnown):
        return Surrogate(None, None, "exact", expected.reason)
    contributions, exactness = expected
    limit = weights_under(algorithm, contributions)
    return Surrogate(limit.weights, contributions, exactness, limit.explanation)


def has_no_weights(algorithm: Algorithm, weights: Tensor) -> bool:
    """Whether a method is known to minimize no weighted sum of the clients' objectives."""
    limits = [transform.limit(weights) for transform in algorithm.transforms]
    return any(limit is not None for limit in (*limits, algorithm.aggregator.limit(weights)))


def known_limit(algorithm: Algorithm, weights: Tensor) -> Limit | None:
    """The limit of an algorithm where contributions do not matter; None for all others."""
    solver = algorithm.solver
    limits = [
        *(transform.limit(weights) for transform in algorithm.transforms),
        algorithm.aggregator.limit(weights),
        None if algorithm.privacy is None else algorithm.privacy.limit(weights),
        *(correction.limit(weights) for correction in solver.corrections),
    ]
    known = next((limit for limit in limits if limit is not None), None)
    if known is not None or solver.is_linear:
        return known
    return Limit(
        None,
        "The clients' updates are not linear in their gradients, so the work behind an update cannot be "
        "measured and the weights are not known.",
    )


def averaging(algorithm: Algorithm) -> Averaging:
    """How the server averages the arrivals."""
    if not algorithm.aggregator.averages_arrivals:
        return "other"
    return "weights" if algorithm.sampler.long_run.importance_by_weight else "importance"


def weights_under(algorithm: Algorithm, contributions: Contributions) -> Limit:
    """Ω of an algorithm whose clients contribute as given."""
    mass = contributions.mass
    if not bool(mass.sum() > 0):
        return Limit(None, "No update ever arrives, so there is nothing to minimize.")
    for correction in algorithm.solver.corrections:
        limit = correction.weights_under(contributions, averaging(algorithm))
        if limit is not None:
            return limit
    return Limit(
        mass / mass.sum(), "Every client counts by the mean coefficient of its updates times their work."
    )


def expected_contributions(
    algorithm: Algorithm, rounds: Sequence[Conditions], *, outcomes: int = OUTCOMES
) -> tuple[Contributions, Exactness] | NotKnown:
    """Contributions averaged over rounds, with the least exact of their grades."""
    sampler = algorithm.sampler.long_run
    kinds = _distinct(rounds, apart=sampler.varies_by_round)
    coefficient = torch.zeros_like(rounds[0].weights)
    mass, arrival, arrived_work = (torch.zeros_like(coefficient) for _ in range(3))
    grades: set[Exactness] = set()
    remembers, works = False, []
    for conditions, number in kinds:
        expected = expected_round(sampler, conditions, outcomes // len(kinds))
        if isinstance(expected, NotKnown):
            return expected
        mean = algorithm.aggregator.mean_coefficients(expected)
        if isinstance(mean, NotKnown):
            return mean
        remembers |= mean.remembers
        grades.add(mean.exactness)
        works.append(expected.work)
        coefficient += number * mean.coefficients
        mass += number * mean.coefficients * expected.work
        arrival += number * expected.arrival
        arrived_work += number * expected.arrival * expected.work
    work = torch.where(arrival > 0, arrived_work / arrival.clamp(min=1e-300), 0.0)
    contributions = Contributions(
        weights=rounds[0].weights,
        coefficient=coefficient / len(rounds),
        mass=(coefficient * work if remembers else mass) / len(rounds),
        work=work,
        echoed=work,
        steady=all(torch.equal(works[0], other) for other in works[1:]),
    )
    order: tuple[Exactness, ...] = ("large cohorts", "long run", "sampled", "exact")
    return contributions, next(grade for grade in order if grade in grades)


def _among_reachable(weights: Tensor | None, rounds: Sequence[Conditions]) -> Tensor | None:
    """Weights renormalized over the clients whose updates can arrive."""
    reachable = torch.zeros_like(rounds[0].weights, dtype=torch.bool)
    for conditions in rounds:
        if conditions.arrival is None:
            return weights
        reachable |= conditions.arrival > 0
    if weights is None or bool((reachable | (weights == 0)).all()):
        return weights
    left = weights * reachable
    return left / left.sum() if bool(left.any()) else None


def _distinct(rounds: Sequence[Conditions], *, apart: bool) -> list[tuple[Conditions, int]]:
    """Consecutive rounds under the same conditions taken together, unless they are to be kept `apart`."""
    kinds: list[tuple[Conditions, int]] = []
    for conditions in rounds:
        if kinds and not apart and _alike(kinds[-1][0], conditions):
            kinds[-1] = (kinds[-1][0], kinds[-1][1] + 1)
        else:
            kinds.append((conditions, 1))
    return kinds


def _alike(one: Conditions, other: Conditions) -> bool:
    pairs = ((one.arrival, other.arrival), (one.effective_steps, other.effective_steps))
    return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in pairs)
