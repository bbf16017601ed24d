"""Samplers with fixed chances: all clients, uniform, Poisson, by weight, or a given list.

`FullFirstRound` puts a round with all clients before any other sampler.
"""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fairlead.client_table import PartState
from fairlead.component import PositiveCount, PositiveShare, WholeRange
from fairlead.errors import ClashError, field_error, is_client_lists, require_choice
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, ClientWeights, Cohort, Conditions, Participation, Population
from fairlead.samplers.base import MemorylessSampler, Sampler, refuse_too_many


@dataclass(frozen=True)
class FullParticipation(MemorylessSampler):
    """Samples every client of positive weight; importance is ω (Weng 2025, rule "full")."""

    exemptions = {"different keys": "it samples all clients"}
    importance_by_weight = True
    adjacency = "zero-out"

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        clients = conditions.weights.nonzero().flatten()
        return Cohort(clients, torch.ones_like(clients), conditions.weights[clients])

    def participation(self, conditions: Conditions) -> Participation:
        return Participation(conditions.weights, (conditions.weights > 0).to(torch.float64))

    def possible_cohorts(self, conditions: Conditions, at_most: int) -> list[tuple[float, Cohort]]:
        return [(1.0, self.draw({}, conditions, Key.from_seed(0)))]


@dataclass(frozen=True)
class FullFirstRound(Sampler):
    """Samples every client of positive weight in the first round, and follows `sampler` from then on.

    Methods with a memory of every client then start with all of them (the remark after Lemma 4.1's proof
    in Zeng 2023; `startup=1` in FedAWARE's released code). A client whose first update is lost is sampled again
    only when `sampler` draws it. `sampler` observes the first round too.
    """

    sampler: Sampler

    references = ("zeng2023gradient",)
    exemptions = {"different keys": "the first round samples all clients"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampler.buffering is not None:
            raise ClashError(
                f"FullFirstRound would ask more clients than {type(self.sampler).__name__} lets work at once: use it "
                "without FullFirstRound."
            )

    @property
    def needs_losses(self) -> bool:
        return self.sampler.needs_losses

    def init(self, population: Population) -> PartState:
        return self.sampler.init(population)

    def polled(self, state: PartState, conditions: Conditions, key: Key) -> Tensor | None:
        return None if conditions.round == 0 else self.sampler.polled(state, conditions, key)

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        if conditions.round == 0:
            return FullParticipation().draw({}, conditions, key)
        return self.sampler.draw(state, conditions, key)

    def observe(
        self, state: PartState, conditions: Conditions, cohort: Cohort, updates: ClientUpdates
    ) -> PartState:
        return self.sampler.observe(state, conditions, cohort, updates)

    def follow(self, state: PartState, shares: ClientWeights) -> PartState:
        return self.sampler.follow(state, shares)

    @property
    def long_run(self) -> Sampler:
        return self.sampler.long_run


@dataclass(frozen=True)
class UniformWithoutReplacement(MemorylessSampler):
    """Samples `cohort_size` of the clients of positive weight; all sets are equally likely.

        importance_i = (N/K) ω_i     (Weng 2025 (19), rule "US")

    Symbols: K `cohort_size`, N the clients of positive weight. An aggregator that normalizes over the
    arrivals turns this into FedAvg's weights ω_i/Σ_R ω_j.

    Reduces to `FullParticipation` for K = N.
    """

    cohort_size: PositiveCount

    importance_by_weight = True
    adjacency = "replace-one"

    def check(self, population: Population) -> None:
        refuse_too_many(self, self.cohort_size, population)

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        positive = conditions.weights > 0
        count = int(positive.sum())
        drawn = key.generator().choice(count, self.cohort_size, replace=False, shuffle=False)
        places = torch.from_numpy(drawn).sort().values
        # Listing a million clients to take a few would cost more than the rest of a small round.
        clients = places if count == len(positive) else positive.nonzero().flatten()[places]
        return self._cohort(clients, count, conditions)

    def _cohort(self, clients: Tensor, eligible: int, conditions: Conditions) -> Cohort:
        scale = eligible / self.cohort_size
        return Cohort(clients, torch.ones_like(clients), scale * conditions.weights[clients])

    def participation(self, conditions: Conditions) -> Participation:
        eligible = (conditions.weights > 0).to(torch.float64)
        return Participation(conditions.weights, eligible * self.cohort_size / eligible.sum())

    def possible_cohorts(self, conditions: Conditions, at_most: int) -> list[tuple[float, Cohort]] | None:
        eligible = conditions.weights.nonzero().flatten().tolist()
        number = math.comb(len(eligible), self.cohort_size)
        if number > at_most:
            return None
        return [
            (1 / number, self._cohort(torch.tensor(chosen), len(eligible), conditions))
            for chosen in combinations(eligible, self.cohort_size)
        ]


@dataclass(frozen=True)
class PoissonSampling(MemorylessSampler):
    """Samples every client of positive weight with the same chance, independently of the others.

        importance_i = ω_i/q

    Symbols: q `rate`. The cohort has a random size, N q on average, and may be empty. This sampling
    amplifies differential privacy most (`ClientPrivacy`).

    Reduces to `FullParticipation` for q = 1.
    """

    rate: PositiveShare

    references = ("mcmahan2018private",)
    importance_by_weight = True
    adjacency = "zero-out"

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        eligible = conditions.weights.nonzero().flatten()
        clients = eligible[key.uniform(eligible) < self.rate]
        return Cohort(clients, torch.ones_like(clients), conditions.weights[clients] / self.rate)

    def participation(self, conditions: Conditions) -> Participation:
        return Participation(conditions.weights, (conditions.weights > 0).to(torch.float64) * self.rate)


@dataclass(frozen=True)
class ScriptedSampler(MemorylessSampler):
    """Samples the clients listed for each round, and repeats the list at its end.

    An id that is listed twice in a cohort is drawn twice. Importance is c_i/K as under sampling with
    replacement (`importance` = "draws"), ω_i as under full participation ("weights"), or given: a list per cohort with
    a number for every listed id, which add up for an id that is listed twice.
    """

    cohorts: tuple[tuple[int, ...], ...]
    importance: Literal["draws", "weights"] | tuple[tuple[float, ...], ...] = "draws"

    exemptions = {"different keys": "it replays a list", "unbiased": "the list may be anything"}
    varies_by_round = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_client_lists(self.cohorts):
            raise field_error(self, "cohorts", "at least one list of client ids", self.cohorts)
        if not isinstance(self.importance, tuple):
            require_choice(self, "importance", ("draws", "weights"))
        elif [len(row) if _are_shares(row) else -1 for row in self.importance] != [*map(len, self.cohorts)]:
            raise field_error(
                self, "importance", "a number of at least 0 for every listed id", self.importance
            )

    def check(self, population: Population) -> None:
        largest = max((client for cohort in self.cohorts for client in cohort), default=0)
        if largest >= population.num_clients:
            raise field_error(self, "cohorts", f"ids from 0 to {population.num_clients - 1}", largest)

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        place = conditions.round % len(self.cohorts)
        draws = self.cohorts[place]
        times = sorted(Counter(draws).items())
        clients, counts = torch.tensor(times, dtype=torch.int64).view(-1, 2).T.contiguous()
        if self.importance == "weights":
            importance = counts * conditions.weights[clients]
        elif self.importance == "draws":
            importance = counts.to(torch.float64) / max(len(draws), 1)
        else:
            shares = [*zip(draws, self.importance[place], strict=True)]
            given = [sum(share for drawn, share in shares if drawn == client) for client, _ in times]
            importance = torch.tensor(given, dtype=torch.float64)
        return Cohort(clients, counts, importance)

    def participation(self, conditions: Conditions) -> Participation:
        cohort = self.draw({}, conditions, Key.from_seed(0))
        nobody = torch.zeros_like(conditions.weights)
        asked = nobody.index_fill(0, cohort.clients, 1.0)
        return Participation(nobody.index_copy(0, cohort.clients, cohort.importance), asked)

    def possible_cohorts(self, conditions: Conditions, at_most: int) -> list[tuple[float, Cohort]]:
        return [(1.0, self.draw({}, conditions, Key.from_seed(0)))]


def _are_shares(row: object) -> bool:
    return isinstance(row, tuple) and all(isinstance(x, int | float) and 0 <= x < math.inf for x in row)


MOST_DRAWS = 10**7
"""Most draws in a round."""


@dataclass(frozen=True)
class WeightedWithReplacement(MemorylessSampler):
    """Draws `cohort_size` clients independently with probability ω_i (Wang 2021 (14); Weng 2025 (18), rule "IS").

        importance_i = c_i/K,  so that  E Σ importance_i Δ_i = Σ ω_i Δ_i

    Symbols: K `cohort_size`, c_i how often client i was drawn. A client drawn twice works once and
    counts twice.
    """

    cohort_size: Annotated[int, WholeRange(1, MOST_DRAWS)]

    references = ("wang2021fednova", "weng2025fedacs")

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        return draw_with_replacement(conditions.weights, self.cohort_size, key)

    def participation(self, conditions: Conditions) -> Participation:
        return participation_by_draws(conditions.weights, self.cohort_size)

    def possible_cohorts(self, conditions: Conditions, at_most: int) -> list[tuple[float, Cohort]] | None:
        return possible_draws(conditions.weights, self.cohort_size, at_most)


def draw_with_replacement(probabilities: Tensor, cohort_size: int, key: Key) -> Cohort:
    """K independent draws; importance c_i/K, the weights of anonymous averaging."""
    cumulative = np.cumsum(probabilities.numpy())
    positions = key.generator().random(cohort_size) * cumulative[-1]
    # A position may round up to the total: the last client of positive weight then gets it.
    last = int(probabilities.nonzero()[-1])
    draws = torch.from_numpy(np.searchsorted(cumulative, positions, side="right").clip(max=last))
    clients, counts = torch.unique(draws, return_counts=True)
    return Cohort(clients, counts, counts.to(torch.float64) / cohort_size)


def participation_by_draws(chances: Tensor, cohort_size: int) -> Participation:
    """Participation in K independent draws with the given chances, which sum to 1."""
    return Participation(chances, 1 - (1 - chances) ** cohort_size)


def possible_draws(chances: Tensor, cohort_size: int, at_most: int) -> list[tuple[float, Cohort]] | None:
    """Every result of K independent draws with its probability, from the multinomial distribution."""
    eligible, found = chances.nonzero().flatten().tolist(), []
    if math.comb(len(eligible) + cohort_size - 1, cohort_size) > at_most:
        return None
    for draws in combinations_with_replacement(eligible, cohort_size):
        clients, counts = torch.unique(torch.tensor(draws), return_counts=True)
        ways = math.factorial(cohort_size) / math.prod(map(math.factorial, counts.tolist()))
        chance = ways * float((chances[clients] ** counts).prod())
        found.append((chance, Cohort(clients, counts, counts.to(torch.float64) / cohort_size)))
    return found
