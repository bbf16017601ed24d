"""A round on average, before it runs: all cohorts and arrivals where they are few, random ones where they are not."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from fairlead.randomness import Key
from fairlead.records import (
    ClientUpdates,
    Cohort,
    Conditions,
    Exactness,
    ExpectedRound,
    MeanCoefficients,
    NotKnown,
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
"""Clients on which it is tried whether coefficients depend on losses or updates."""

CohortOutcome = tuple[float, Cohort, Tensor]
"""Chance, cohort, and which of it arrive, (c,) bool."""
Coefficients = Callable[[ClientUpdates, Conditions], Tensor]


def expected_round(sampler: Sampler, conditions: Conditions, at_most: int) -> ExpectedRound | NotKnown:
    """The round of a sampler under the given conditions, with means over `at_most` outcomes."""
    for figure, name in ((conditions.arrival, "arrival rates"), (conditions.effective_steps, "work")):
        if figure is None:
            return NotKnown(f"This world does not know the {name} of its clients beforehand.")
    participation = sampler.participation(conditions)
    if isinstance(participation, NotKnown):
        return participation
    assert conditions.arrival is not None
    assert conditions.effective_steps is not None
    return _RandomRound(
        conditions, participation, conditions.arrival, conditions.effective_steps, sampler, at_most
    )


@dataclass(frozen=True, eq=False)
class _RandomRound(ExpectedRound):
    sampler: Sampler
    at_most: int

    def enumerated(self, coefficients: Callable[[Cohort, Tensor], Tensor]) -> Tensor | None:
        found = outcomes(self.sampler, self.conditions, self.at_most)
        if found is None:
            return None
        mean = torch.zeros_like(self.arrival)
        for chance, cohort, arrived in found:
            # An empty round adds nothing.
            if bool(arrived.any()):
                mean.index_add_(0, cohort.clients, chance * coefficients(cohort, arrived))
        return mean

    def mean_of(self, coefficients: Coefficients) -> MeanCoefficients | None:
        if self._depend_on_returns(coefficients):
            return None
        useful = self.participation.importance * self.arrival
        clients = useful.nonzero().flatten()
        nobody = torch.zeros_like(useful)
        if not len(clients):
            return MeanCoefficients(nobody, "exact")
        whole = self._evaluate(coefficients, clients, useful[clients])
        expected = nobody.index_copy(0, clients, whole)
        half = self._evaluate(coefficients, clients[::2], _UNLIKELY * useful[clients[::2]])
        if torch.allclose(half, _UNLIKELY * whole[::2], rtol=1e-9, atol=0.0):
            # Each coefficient is proportional to the client's own importance and independent of the other arrivals.
            exactness: Exactness = "exact" if self.participation.settled else "long run"
            return MeanCoefficients(expected, exactness)

        def in_outcome(cohort: Cohort, arrived: Tensor) -> Tensor:
            found = self._evaluate(coefficients, cohort.clients[arrived], cohort.importance[arrived])
            return torch.zeros_like(cohort.importance).masked_scatter(arrived, found)

        enumerated = self.enumerated(in_outcome)
        if enumerated is not None:
            return MeanCoefficients(enumerated, "exact")
        sampled = self._sampled(in_outcome, expected)
        if sampled is not None:
            return MeanCoefficients(sampled, "sampled")
        return MeanCoefficients(expected, "large cohorts")

    def _sampled(self, coefficients: Callable[[Cohort, Tensor], Tensor], expected: Tensor) -> Tensor | None:
        """The mean over random outcomes, with the coefficients of a large cohort as control variate.

            C_i ≈ C'_i + mean over outcomes of (c_i − C'_i v_i/u_i)

        Symbols: C' `expected`, c_i and v_i the coefficient and the importance in an outcome, 0 where the client
        does not arrive, u = E[v]. So only the effect of other arrivals on a coefficient is left to chance, and
        clients that are alike in everything share it. None where a ratio of means comes nearer to C.
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
        facts = torch.stack((importance, self.arrival, self.work), dim=1)
        _, kind, counts = torch.unique(facts, dim=0, return_inverse=True, return_counts=True)
        shared: Tensor = change.new_zeros(len(counts)).index_add_(0, kind, change) / counts
        return expected + shared[kind] / self.at_most

    def _depend_on_returns(self, coefficients: Coefficients) -> bool:
        """Whether coefficients depend on losses or updates. It is tried, so that no part must declare it."""
        weights = self.conditions.weights
        clients = ((weights > 0) & (self.arrival > 0)).nonzero().flatten()[:_TRIED]
        if not len(clients):
            return False
        places = torch.arange(len(clients), dtype=torch.float64)
        same, unequal = (
            self._evaluate(coefficients, clients, weights[clients], returned)
            for returned in (torch.ones_like(places), 1 + places)
        )
        return not torch.allclose(same, unequal, rtol=1e-9, atol=0.0)

    def _evaluate(
        self, coefficients: Coefficients, clients: Tensor, importance: Tensor, returned: Tensor | None = None
    ) -> Tensor:
        """Coefficients of updates with the given importance; losses and lengths are 0 unless `returned`."""
        steps, nothing = self.work[clients], torch.zeros((len(clients), 1), dtype=torch.float64)
        values = nothing if returned is None else returned[:, None]
        return coefficients(
            ClientUpdates(
                cohort=Cohort(clients, torch.ones_like(clients), importance),
                clients=clients,
                importance=importance,
                delta=values,
                # The same for plain SGD; elsewhere it only changes the scale that all clients share.
                num_steps=steps,
                effective_steps=steps,
                loss=values[:, 0],
                num_examples=torch.ones_like(clients),
                messages={},
                memory={},
                buffers=nothing[:, :0],
                age=torch.zeros_like(clients),
                lr=1.0,
            ),
            self.conditions,
        )


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
