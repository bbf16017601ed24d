"""The weights Ω that an algorithm implies, from its sampler, the links, the solver and the aggregator.

To first order in the learning rate a round moves the model by −η Σ C_i‖a_i‖₁∇F_i on average, where C_i is
the mean coefficient that the server gives to an update of client i: the run minimizes Σ Ω_i F_i with
Ω_i ∝ C_i‖a_i‖₁. Predictions compute C from the parts; measurements take the C that a run has used
(`diagnostics.measurement`).

A round on average comes from all cohorts and arrivals where they are few, and from random ones where they are not.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.errors import FieldError
from fairlead.randomness import Key
from fairlead.records import (
    Averaging,
    ClientUpdates,
    Cohort,
    Conditions,
    Contributions,
    Exactness,
    ExpectedRound,
    Limit,
    MeanCoefficients,
    NotKnown,
    Participation,
)
from fairlead.samplers.base import MemorylessSampler, Sampler

OUTCOMES = 4096
"""Cohorts and arrivals that are enumerated or drawn at most, in all rounds together."""
LARGE_COHORT = 500
"""Expected arrivals from which on O(1/cohort) is negligible."""
_ARRIVALS = 100
"""Arrivals that a client needs on average in as many outcomes; with fewer, their noise exceeds O(1/cohort)."""
_UNLIKELY = math.sqrt(2)
"""Factor on the importance of half of the clients in a trial; no ratio of sums of equal clients has this value."""
_TRIED = 10
"""Clients on which it is tried what coefficients depend on."""

CohortOutcome = tuple[float, Cohort, Tensor]
"""Chance, cohort, and which of it arrive, (c,) bool."""
Coefficients = Callable[[ClientUpdates, Conditions], Tensor]


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

    @property
    def step_length(self) -> float | None:
        """Σ C_i‖a_i‖₁, the local gradient steps that a round equals on average; None if Ω follows without it."""
        return None if self.contributions is None else float(self.contributions.mass.sum())


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
    # Clipped gradients balance at another point, whatever the corrections add to them.
    corrections = solver.corrections if solver.clip is None else ()
    limits = [
        *(transform.limit(weights) for transform in algorithm.transforms),
        algorithm.aggregator.limit(weights),
        None if algorithm.privacy is None else algorithm.privacy.limit(weights),
        *(correction.limit(weights) for correction in corrections),
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
    kinds = _distinct(rounds, apart=sampler.varies_by_round, timed=sampler.buffering is not None)
    coefficient = torch.zeros_like(rounds[0].weights)
    mass, arrival, arrived_work = (torch.zeros_like(coefficient) for _ in range(3))
    grades: set[Exactness] = set()
    remembers, works = False, []
    for conditions, number in kinds:
        mean = mean_coefficients(algorithm, conditions, outcomes=outcomes // len(kinds))
        if isinstance(mean, NotKnown):
            return mean
        rates, done = conditions.arrival, conditions.effective_steps
        assert rates is not None
        assert done is not None
        remembers |= mean.remembers
        grades.add(mean.exactness)
        works.append(done)
        coefficient += number * mean.coefficients
        mass += number * mean.coefficients * done
        arrival += number * rates
        arrived_work += number * rates * done
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


def calibration(algorithm: Algorithm, conditions: Conditions) -> float:
    """The factor that makes the expected step of a round as long as that of importance sampling (Weng 2025 I.2).

        Σ ω_i(1 − q_i)‖a_i‖₁ / Σ C_i‖a_i‖₁

    Symbols: C_i the mean coefficient of client i in large cohorts. For FedACS the factor is
    Σ ω(1 − q)‖a‖₁ · Σ ω/[(1 − q)‖a‖₁], at least 1; for rules that correct links alone Σ ω(1 − q)‖a‖₁/Σ ω‖a‖₁.
    Where conditions vary, the factor at their means does not give equal steps, since E[1/‖a‖₁] exceeds 1/E[‖a‖₁].
    """
    length = mean_step(algorithm, conditions)
    arrival, work = conditions.arrival, conditions.effective_steps
    assert arrival is not None
    assert work is not None
    return float((conditions.weights * arrival) @ work) / length


def mean_step(algorithm: Algorithm, conditions: Conditions) -> float:
    """Σ C_i‖a_i‖₁, the local gradient steps that a round equals on average, with C_i as in large cohorts."""
    # Without outcomes to enumerate or draw, ratios of means remain.
    expected = expected_contributions(algorithm, [conditions], outcomes=0)
    if isinstance(expected, NotKnown):
        raise FieldError(f"The step length of this algorithm is not known. {expected.reason}")
    contributions, _ = expected
    return float(contributions.coefficient @ contributions.work)


def mean_coefficients(
    algorithm: Algorithm, conditions: Conditions, *, outcomes: int = OUTCOMES
) -> MeanCoefficients | NotKnown:
    """C, the mean coefficient of each client's updates in a round under the given conditions, (N,).

    `Federation.conditions` are those of the coming round. A first round with all clients does not count.

    >>> from fairlead import Conditions, presets
    >>> half, one = torch.tensor([0.5, 0.5]).double(), torch.ones(2).double()
    >>> conditions = Conditions.known(0, half, work=torch.tensor([1.0, 4.0]).double(), arrival=one)
    >>> mean_coefficients(presets.fednova(lr=0.1), conditions).coefficients.tolist()
    [1.25, 0.3125]
    """
    sampler, aggregator = algorithm.sampler.long_run, algorithm.aggregator
    key = (type(sampler), repr(sampler), type(aggregator), repr(aggregator), outcomes, _figures(conditions))
    if key not in _KEPT:
        expected = expected_round(sampler, conditions, outcomes)
        known = expected if isinstance(expected, NotKnown) else aggregator.mean_coefficients(expected)
        while len(_KEPT) >= _MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[key] = known
    return _KEPT[key]


_KEPT: dict[tuple[object, ...], MeanCoefficients | NotKnown] = {}
_MOST_KEPT = 64
"""Methods of a study often share sampler, aggregator and clients, and drawing outcomes may outlast a short run."""


def _figures(conditions: Conditions) -> tuple[object, ...]:
    """All that a sampler and an aggregator may read before a round, as values that can be compared."""
    in_epochs = conditions.in_epochs().effective_steps
    told = (conditions.weights, conditions.effective_steps, in_epochs, conditions.num_steps)
    known = (*told, conditions.seconds, conditions.arrival, conditions.num_examples)
    return conditions.round, *(None if each is None else each.numpy().tobytes() for each in known)


def participation(algorithm: Algorithm, conditions: Conditions) -> Participation | NotKnown:
    """Mean importance of each client and its chance of being asked in a round under the given conditions."""
    return algorithm.sampler.long_run.participation(conditions)


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


def _distinct(rounds: Sequence[Conditions], *, apart: bool, timed: bool) -> list[tuple[Conditions, int]]:
    """Consecutive rounds under the same conditions taken together, unless they are to be kept `apart`."""
    kinds: list[tuple[Conditions, int]] = []
    for conditions in rounds:
        if kinds and not apart and _alike(kinds[-1][0], conditions, timed=timed):
            kinds[-1] = (kinds[-1][0], kinds[-1][1] + 1)
        else:
            kinds.append((conditions, 1))
    return kinds


def _alike(one: Conditions, other: Conditions, *, timed: bool) -> bool:
    pairs = [(one.arrival, other.arrival), (one.effective_steps, other.effective_steps)]
    if timed:
        pairs.append((one.seconds, other.seconds))
    return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in pairs)


def expected_round(sampler: Sampler, conditions: Conditions, at_most: int) -> ExpectedRound | NotKnown:
    """The round of a sampler under the given conditions, with means over `at_most` outcomes."""
    arrival, work = conditions.arrival, conditions.effective_steps
    if arrival is None or work is None:
        unknown = "arrival rates" if arrival is None else "work"
        return NotKnown(f"This world does not know the {unknown} of its clients beforehand.")
    asked = sampler.participation(conditions)
    if isinstance(asked, NotKnown):
        return asked
    return _RandomRound(conditions, asked, arrival, work, sampler, at_most)


@dataclass(frozen=True, eq=False)
class _RandomRound(ExpectedRound):
    sampler: Sampler
    at_most: int

    def mean_of(self, coefficients: Coefficients) -> MeanCoefficients | NotKnown:
        useful = self.participation.importance * self.arrival
        clients = useful.nonzero().flatten()
        nobody = torch.zeros_like(useful)
        if not len(clients):
            return MeanCoefficients(nobody, "exact")
        facts = self._facts_read(coefficients, clients[:_TRIED])
        if isinstance(facts, NotKnown):
            return facts

        def of(cohort: Cohort, arrived: Tensor) -> Tensor:
            # Ratios of counts are float32 in torch.
            found = coefficients(self._updates(cohort, arrived), self.conditions).to(cohort.importance)
            return torch.zeros_like(cohort.importance).masked_scatter(arrived, found)

        once, everyone = torch.ones_like(clients), torch.ones_like(clients, dtype=torch.bool)
        half, scaled = torch.arange(len(clients)) % 2 == 0, _UNLIKELY * useful[clients]
        whole = of(Cohort(clients, once, useful[clients]), everyone)
        alone = of(Cohort(clients[half], 2 * once[half], scaled[half]), everyone[half])
        lost = of(Cohort(clients, once, scaled), half)
        idle = of(Cohort(clients, once, scaled * half), everyone)
        own = nobody[clients].masked_scatter(half, alone)
        # Repeated draws, clients whose update is lost and clients without importance make no difference.
        by_importance = _same(own, lost) and _same(own, idle)
        expected = nobody.index_copy(0, clients, whole) if by_importance else nobody
        if by_importance and _same(alone, _UNLIKELY * whole[half]):
            # Each coefficient is proportional to the client's own importance and independent of the other arrivals.
            exactness: Exactness = "exact" if self.participation.settled else "long run"
            return MeanCoefficients(expected, exactness)
        enumerated = self._enumerated(of)
        if enumerated is not None:
            return MeanCoefficients(enumerated, "exact")
        sampled = self._sampled(of, expected, facts)
        if sampled is not None:
            return MeanCoefficients(sampled, "sampled")
        if by_importance:
            # Sums of importance settle in large cohorts.
            return MeanCoefficients(expected, "large cohorts")
        return NotKnown("ignores importance in part, and there are too many cohorts to average.")

    def _enumerated(self, coefficients: Callable[[Cohort, Tensor], Tensor]) -> Tensor | None:
        found = outcomes(self.sampler, self.conditions, self.at_most)
        if found is None:
            return None
        mean = torch.zeros_like(self.arrival)
        for chance, cohort, arrived in found:
            # An empty round adds nothing.
            if bool(arrived.any()):
                mean.index_add_(0, cohort.clients, chance * coefficients(cohort, arrived))
        return mean

    def _sampled(
        self, coefficients: Callable[[Cohort, Tensor], Tensor], expected: Tensor, facts: list[Tensor]
    ) -> Tensor | None:
        """The mean over random outcomes, with the coefficients of a large cohort as control variate.

            C_i ≈ C'_i + mean over outcomes of (c_i − C'_i v_i/u_i)

        Symbols: C' `expected`, 0 where more than importance counts; c_i and v_i the coefficient and the importance in
        an outcome, 0 where the client does not arrive; u = E[v]. So only the effect of other arrivals on a coefficient
        is left to chance, and clients that are alike in all `facts` share it. None where a ratio of means comes nearer
        to C.
        """
        importance, asked = self.participation.importance, self.participation.asked
        if asked is None:
            return None
        chances = (asked * self.arrival)[self.conditions.weights > 0]
        if OUTCOMES * float(chances.mean()) < _ARRIVALS or float(chances.sum()) >= LARGE_COHORT:
            return None
        found = random_outcomes(self.sampler, self.conditions, self.at_most)
        if not found:
            return None
        useful = importance * self.arrival
        alone = torch.where(useful > 0, expected / useful, 0.0)
        change = torch.zeros_like(expected)
        for cohort, arrived in found:
            if bool(arrived.any()):
                by_itself = alone[cohort.clients] * cohort.importance * arrived
                change.index_add_(0, cohort.clients, coefficients(cohort, arrived) - by_itself)
        _, kind, counts = torch.unique(torch.stack(facts, 1), dim=0, return_inverse=True, return_counts=True)
        shared: Tensor = change.new_zeros(len(counts)).index_add_(0, kind, change) / counts
        return expected + shared[kind] / self.at_most

    def _facts_read(self, coefficients: Coefficients, clients: Tensor) -> list[Tensor] | NotKnown:
        """Figures of all clients that coefficients depend on. It is tried, so that no part must declare it."""
        told, places = self.conditions, torch.arange(1, len(clients) + 1)
        cohort = Cohort(clients, torch.ones_like(clients), self.participation.importance[clients])
        updates = self._updates(cohort, torch.ones_like(clients, dtype=torch.bool))
        before = coefficients(updates, told)
        facts = [self.participation.importance, self.arrival, self.work, told.weights]
        for field in ("loss", "delta", "lr", "num_steps", "num_examples"):
            value, known = getattr(updates, field), getattr(told, field, None)
            changed = 2 * value if field == "lr" else torch.diag(places).to(value) @ value
            other: dict[str, Any] = {field: changed}
            if _same(before, coefficients(replace(updates, **other), told)):
                continue
            if known is None:
                return NotKnown(f"weighs clients by ClientUpdates.{field}, which is not known beforehand.")
            facts.append(known)
        return facts

    def _updates(self, cohort: Cohort, arrived: Tensor) -> ClientUpdates:
        """The updates of a round as far as they are known before it; everything else is 1."""
        clients, told = cohort.clients[arrived], self.conditions
        work = self.work[clients]
        ones = torch.ones_like(work)
        steps, sizes = (ones if v is None else v[clients] for v in (told.num_steps, told.num_examples))
        rows = ones[:, None]
        return ClientUpdates.of(cohort, arrived, rows, steps, work, lr=1.0, loss=ones, num_examples=sizes)


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-9, atol=0.0)


def outcomes(sampler: Sampler, conditions: Conditions, at_most: int) -> list[CohortOutcome] | None:
    """All pairs of a cohort and the part of it that arrives, with independent links.

    None where there are more than `at_most`, or where cohorts or arrival rates are not known.
    """
    arrival, drawn = conditions.arrival, sampler.possible_cohorts(conditions, at_most)
    if arrival is None or drawn is None:
        return None
    found: list[CohortOutcome] = []
    for chance, cohort in drawn:
        rates = arrival[cohort.clients]
        uncertain = int(((rates > 0) & (rates < 1)).sum())
        if uncertain > 30 or len(found) + 2**uncertain > at_most:
            return None
        chances = rates.tolist()
        choices = [(True,) if rate >= 1 else (False,) if rate <= 0 else (True, False) for rate in chances]
        for arrived in product(*choices):
            odds = (rate if came else 1 - rate for rate, came in zip(chances, arrived, strict=True))
            found.append((chance * math.prod(odds), cohort, torch.tensor(arrived, dtype=torch.bool)))
    return found


def random_outcomes(
    sampler: Sampler, conditions: Conditions, number: int
) -> list[tuple[Cohort, Tensor]] | None:
    """`number` random cohorts, and which clients of each arrive (c,), with independent links.

    The same draws for the same round. None where a draw depends on earlier rounds, or rates are not known.
    """
    arrival = conditions.arrival
    if arrival is None or not isinstance(sampler, MemorylessSampler):
        return None
    key = Key.from_seed(0).fold("outcomes", conditions.round)
    throws = torch.from_numpy(key.generator().random((number, len(arrival)))) < arrival
    drawn = (sampler.draw({}, conditions, key.fold(place)) for place in range(number))
    return [(cohort, came[cohort.clients]) for cohort, came in zip(drawn, throws, strict=True)]
