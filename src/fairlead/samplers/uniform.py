"""Clients drawn with equal chances: a fixed number without replacement, or each by its own toss of a coin."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fairlead.client_table import PartState
from fairlead.errors import FieldError, require_integer, require_number
from fairlead.randomness import Key
from fairlead.records import Cohort, Conditions, Population
from fairlead.samplers.base import MemorylessSampler


@dataclass(frozen=True)
class UniformWithoutReplacement(MemorylessSampler):
    """Asks `cohort_size` of the clients that have positive weight, all sets equally likely.

        importance_i = (N/K) ω_i     (Weng 2025 (19), rule "US")

    Symbols: K `cohort_size`, N the clients of positive weight. An aggregator that normalises over the
    arrivals turns this into FedAvg's weights ω_i/Σ_R ω_j.

    Reduces to `FullParticipation` for K = N.
    """

    cohort_size: int

    def __post_init__(self) -> None:
        require_integer(self, "cohort_size", at_least=1)

    def check(self, population: Population) -> None:
        available = int((population.weights > 0).sum())
        if self.cohort_size > available:
            raise FieldError(
                f"UniformWithoutReplacement.cohort_size must be at most {available}, the number of "
                f"clients with positive weight, got {self.cohort_size}."
            )

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        positive = conditions.weights > 0
        count = int(positive.sum())
        drawn = key.generator().choice(count, self.cohort_size, replace=False, shuffle=False)
        places = torch.from_numpy(drawn).sort().values
        # Listing a million clients to take a few would cost more than the rest of a small round.
        clients = places if count == len(positive) else positive.nonzero().flatten()[places]
        scale = count / self.cohort_size
        return Cohort(clients, torch.ones_like(clients), scale * conditions.weights[clients])


@dataclass(frozen=True)
class PoissonSampling(MemorylessSampler):
    """Asks every client of positive weight with the same chance, independently of the others.

        importance_i = ω_i/q

    Symbols: q `rate`. The cohort has a random size, N q on average, and may be empty. This is the sampling that
    the accounting of differential privacy amplifies most (`ClientPrivacy`).

    Reduces to `FullParticipation` for q = 1.
    """

    rate: float

    references = ("mcmahan2018private",)

    def __post_init__(self) -> None:
        require_number(self, "rate", above=0, at_most=1)

    def check(self, population: Population) -> None:
        pass

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        eligible = conditions.weights.nonzero().flatten()
        clients = eligible[key.uniform(eligible) < self.rate]
        return Cohort(clients, torch.ones_like(clients), conditions.weights[clients] / self.rate)
