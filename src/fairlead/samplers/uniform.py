"""Equal chances for all clients: a fixed number without replacement, or independent of each other."""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import torch
from torch import Tensor

from fairlead.client_table import PartState
from fairlead.errors import FieldError, require_integer, require_number
from fairlead.randomness import Key
from fairlead.records import Cohort, Conditions, Participation, Population
from fairlead.samplers.base import Adjacency, MemorylessSampler, Sampler


@dataclass(frozen=True)
class UniformWithoutReplacement(MemorylessSampler):
    """Samples `cohort_size` of the clients of positive weight; all sets are equally likely.

        importance_i = (N/K) ω_i     (Weng 2025 (19), rule "US")

    Symbols: K `cohort_size`, N the clients of positive weight. An aggregator that normalizes over the
    arrivals turns this into FedAvg's weights ω_i/Σ_R ω_j.

    Reduces to `FullParticipation` for K = N.
    """

    cohort_size: int

    importance_by_weight: ClassVar[bool] = True
    adjacency: ClassVar[Adjacency | None] = "replace-one"

    def __post_init__(self) -> None:
        require_integer(self, "cohort_size", at_least=1)

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

    rate: float

    references = ("mcmahan2018private",)
    importance_by_weight: ClassVar[bool] = True
    adjacency: ClassVar[Adjacency | None] = "zero-out"

    def __post_init__(self) -> None:
        require_number(self, "rate", above=0, at_most=1)

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        eligible = conditions.weights.nonzero().flatten()
        clients = eligible[key.uniform(eligible) < self.rate]
        return Cohort(clients, torch.ones_like(clients), conditions.weights[clients] / self.rate)

    def participation(self, conditions: Conditions) -> Participation:
        return Participation(conditions.weights, (conditions.weights > 0).to(torch.float64) * self.rate)


def refuse_too_many(sampler: Sampler, cohort_size: int, population: Population) -> None:
    """Raise if there are fewer clients of positive weight than a sampler is to draw without replacement."""
    available = int((population.weights > 0).sum())
    if cohort_size > available:
        raise FieldError(
            f"{type(sampler).__name__}.cohort_size must be at most {available}, the number of clients with positive "
            f"weight, got {cohort_size}."
        )
