"""Sampling with replacement by the objective weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import torch
from torch import Tensor

from fairlead.client_table import PartState
from fairlead.errors import require_integer
from fairlead.randomness import Key
from fairlead.records import Cohort, Conditions, Participation
from fairlead.samplers.base import MemorylessSampler

MOST_DRAWS = 10**7
"""Draws of a round at most, since each is made."""


@dataclass(frozen=True)
class WeightedWithReplacement(MemorylessSampler):
    """Draws `cohort_size` clients independently with probability ω_i (Wang 2021 (14); Weng 2025 (18), rule "IS").

        importance_i = c_i/K,  so that  E Σ importance_i Δ_i = Σ ω_i Δ_i

    Symbols: K `cohort_size`, c_i how often client i was drawn. A client drawn twice works once and
    counts twice.
    """

    cohort_size: int

    references = ("wang2021fednova", "weng2025fedacs")

    def __post_init__(self) -> None:
        require_integer(self, "cohort_size", at_least=1, at_most=MOST_DRAWS)

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        return draw_with_replacement(conditions.weights, self.cohort_size, key)

    def participation(self, conditions: Conditions) -> Participation:
        return participation_by_draws(conditions.weights, self.cohort_size)

    def possible_cohorts(self, conditions: Conditions, at_most: int) -> list[tuple[float, Cohort]] | None:
        return possible_draws(conditions.weights, self.cohort_size, at_most)


def draw_with_replacement(probabilities: Tensor, cohort_size: int, key: Key) -> Cohort:
    """K independent draws; importance c_i/K, as anonymous averaging weighs them."""
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
