"""C, the mean coefficient that an aggregator gives to each client's updates, before any round."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import singledispatch
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator, LinearAggregator
from fairlead.aggregators.fedau import FedAU
from fairlead.aggregators.fedaware import RememberedMean
from fairlead.aggregators.last_updates import MIFA, FedVARP, StaleFedVARP
from fairlead.records import ClientUpdates, Cohort, Conditions
from fairlead.samplers.base import Sampler
from fairlead.theory.participation import Participation, outcomes, participation, random_outcomes

Exactness = Literal["exact", "sampled", "large cohorts", "long run"]
"""How a mean coefficient is meant: as it is; up to the noise of random cohorts and arrivals, a few thousandths;
up to O(1/cohort), where a random sum is divided by another; once memories have filled and estimates have
settled."""

OUTCOMES = 4096
"""Cohorts and arrivals that are gone through at most, in all rounds together."""
_HEARD = 100
"""Times that a client must be heard on average in as many outcomes, lest their noise exceed O(1/cohort)."""
_UNLIKELY = math.sqrt(2)
"""By how much half of the clients count more in a trial: no ratio of sums that equal clients would have."""
_TRIED = 10
"""Clients on which it is tried out what coefficients depend on."""
LARGE_COHORT = 500
"""Expected arrivals from which on O(1/cohort) is negligible."""


class Weighting(NamedTuple):
    """Mean coefficients of one round."""

    coefficients: Tensor
    """C, (N,)."""
    exactness: Exactness
    remembers: bool = False
    """Whether an update counts until the next one of the same client arrives."""


@singledispatch
def mean_coefficients(
    aggregator: Aggregator, sampler: Sampler, conditions: Conditions, at_most: int
) -> Weighting | None:
    """C of a round from `at_most` outcomes; None for an aggregator that has not been registered here.

    Another package adds its own with `@mean_coefficients.register`; those of the linear family need not.
    """
    return None


@mean_coefficients.register
def _(
    aggregator: LinearAggregator, sampler: Sampler, conditions: Conditions, at_most: int
) -> Weighting | None:
    joined = participation(sampler, conditions)
    if joined is None or conditions.arrival is None:
        return None
    useful = joined.importance * conditions.arrival
    heard = useful.nonzero().flatten()
    nobody = torch.zeros_like(useful)
    if not len(heard):
        return Weighting(nobody, "exact")
    whole = _linear_coefficients(aggregator, heard, useful[heard], conditions)
    if _ignores_others(aggregator, heard, useful[heard], conditions, whole):
        exactness: Exactness = "exact" if joined.settled else "long run"
        return Weighting(nobody.index_copy(0, heard, whole), exactness)

    def coefficients(cohort: Cohort, arrived: Tensor) -> Tensor:
        clients = cohort.clients[arrived]
        found = _linear_coefficients(aggregator, clients, cohort.importance[arrived], conditions)
        return torch.zeros_like(cohort.importance).masked_scatter(arrived, found)

    enumerated = _enumerated(coefficients, sampler, conditions, at_most)
    if enumerated is not None:
        return Weighting(enumerated, "exact")
    expected = nobody.index_copy(0, heard, whole)
    if _worth_sampling(joined, conditions):
        sampled = _sampled(coefficients, sampler, conditions, at_most, expected, joined)
        if sampled is not None:
            return Weighting(sampled, "sampled")
    return Weighting(expected, "large cohorts")


@mean_coefficients.register
def _(aggregator: StaleFedVARP, sampler: Sampler, conditions: Conditions, at_most: int) -> Weighting | None:
    joined = participation(sampler, conditions)
    if joined is None or conditions.arrival is None:
        return None
    # A client that can never arrive leaves nothing to remember.
    reachable = (conditions.arrival > 0).to(torch.float64)
    exact = _enumerated(
        lambda cohort, arrived: cohort.importance * reachable[cohort.clients], sampler, conditions, at_most
    )
    if exact is not None:
        return Weighting(exact, "long run", remembers=True)
    return Weighting(joined.importance * reachable, "large cohorts", remembers=True)


@mean_coefficients.register(FedVARP)
@mean_coefficients.register(MIFA)
@mean_coefficients.register(RememberedMean)
def _(
    aggregator: FedVARP | MIFA | RememberedMean, sampler: Sampler, conditions: Conditions, at_most: int
) -> Weighting | None:
    joined = participation(sampler, conditions)
    if joined is None or conditions.arrival is None:
        return None
    reachable = (joined.importance * conditions.arrival > 0).to(torch.float64)
    return Weighting(conditions.weights * reachable, "long run", remembers=True)


@mean_coefficients.register
def _(aggregator: FedAU, sampler: Sampler, conditions: Conditions, at_most: int) -> Weighting | None:
    joined = participation(sampler, conditions)
    if joined is None or conditions.arrival is None:
        return None
    if joined.asked is None:
        reachable = (joined.importance * conditions.arrival > 0).to(torch.float64)
        return Weighting(conditions.weights * reachable, "long run")
    heard = joined.asked * conditions.arrival
    # E[u_i]π_i, u_i the mean interval as cut off.
    seen = (heard > 0).to(heard) if aggregator.cutoff is None else 1 - (1 - heard) ** aggregator.cutoff
    return Weighting(conditions.weights * seen, "long run")


def _enumerated(
    coefficients: Callable[[Cohort, Tensor], Tensor], sampler: Sampler, conditions: Conditions, at_most: int
) -> Tensor | None:
    """Σ over cohorts and arrivals of their chance times the coefficients; an empty round adds nothing."""
    found = outcomes(sampler, conditions, at_most)
    if found is None:
        return None
    mean = torch.zeros_like(conditions.weights)
    for chance, cohort, arrived in found:
        if bool(arrived.any()):
            mean.index_add_(0, cohort.clients, chance * coefficients(cohort, arrived))
    return mean


def _worth_sampling(joined: Participation, conditions: Conditions) -> bool:
    """Whether random outcomes come nearer to the mean coefficients than a ratio of means does."""
    if joined.asked is None or conditions.arrival is None:
        return False
    chances = (joined.asked * conditions.arrival)[conditions.weights > 0]
    return OUTCOMES * float(chances.mean()) >= _HEARD and float(chances.sum()) < LARGE_COHORT


def _sampled(
    coefficients: Callable[[Cohort, Tensor], Tensor],
    sampler: Sampler,
    conditions: Conditions,
    number: int,
    expected: Tensor,
    joined: Participation,
) -> Tensor | None:
    """The mean over random outcomes, with what a client would get in a large cohort as control variate.

        C_i ≈ C'_i + mean over outcomes of (c_i − C'_i v_i/u_i)

    Symbols: C' `expected`, c_i and v_i the coefficient and the importance in an outcome, 0 where the client does
    not arrive, u = E[v]. So only what other arrivals do to a coefficient is left to chance, and clients that are
    alike in everything share it.
    """
    found = random_outcomes(sampler, conditions, number)
    arrival, work = conditions.arrival, conditions.effective_steps
    if not found or arrival is None or work is None:
        return None
    useful = joined.importance * arrival
    alone = torch.where(useful > 0, expected / useful, 0.0)
    change = torch.zeros_like(expected)
    for cohort, arrived in found:
        if bool(arrived.any()):
            by_itself = alone[cohort.clients] * cohort.importance * arrived
            change.index_add_(0, cohort.clients, coefficients(cohort, arrived) - by_itself)
    facts = torch.stack((joined.importance, arrival, work), dim=1)
    _, kind, counts = torch.unique(facts, dim=0, return_inverse=True, return_counts=True)
    shared: Tensor = change.new_zeros(len(counts)).index_add_(0, kind, change) / counts
    return expected + shared[kind] / number


def _ignores_others(
    aggregator: LinearAggregator, clients: Tensor, importance: Tensor, conditions: Conditions, whole: Tensor
) -> bool:
    """Whether a coefficient is proportional to the client's importance, whoever else arrives.

    Tried out, so that it holds for any aggregator of the family without being declared.
    """
    half = _linear_coefficients(aggregator, clients[::2], _UNLIKELY * importance[::2], conditions)
    return torch.allclose(half, _UNLIKELY * whole[::2], rtol=1e-9, atol=0.0)


def looks_at_returns(aggregator: Aggregator, conditions: Conditions) -> bool:
    """Whether a linear aggregator weighs clients by what they return, such as their losses, so that C is unknown.

    Tried out, like `_ignores_others`.
    """
    if not isinstance(aggregator, LinearAggregator):
        return False
    if conditions.effective_steps is None or conditions.arrival is None:
        return False
    reachable = (conditions.weights > 0) & (conditions.arrival > 0)
    clients = reachable.nonzero().flatten()[:_TRIED]
    if not len(clients):
        return False
    importance, places = conditions.weights[clients], torch.arange(len(clients), dtype=torch.float64)
    same, unequal = (
        _linear_coefficients(aggregator, clients, importance, conditions, returned)
        for returned in (torch.ones_like(places), 1 + places)
    )
    return not torch.allclose(same, unequal, rtol=1e-9, atol=0.0)


def _linear_coefficients(
    aggregator: LinearAggregator,
    clients: Tensor,
    importance: Tensor,
    conditions: Conditions,
    returned: Tensor | None = None,
) -> Tensor:
    """What the aggregator itself gives to updates of the given importance; losses and lengths are 0 if not given."""
    work = conditions.effective_steps
    assert work is not None
    steps, nothing = work[clients], torch.zeros((len(clients), 1), dtype=torch.float64)
    values = nothing if returned is None else returned[:, None]
    return aggregator.coefficients(
        ClientUpdates.of(
            Cohort(clients, torch.ones_like(clients), importance),
            torch.arange(len(clients)),
            values,
            # Steps are effective steps for plain SGD; elsewhere they only change the scale that all clients share.
            steps,
            steps,
            lr=1.0,
            loss=values[:, 0],
        ),
        conditions,
    )
