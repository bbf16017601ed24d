"""Independent draws with replacement: by weight, and by the length of updates."""

import math
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fairlead.client_table import PartState, tensor_in
from fairlead.errors import require_integer, require_number
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Cohort, Conditions, Participation, Population
from fairlead.samplers.base import MemorylessSampler, Sampler

MOST_DRAWS = 10**7
"""Most draws in a round."""


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


@dataclass(frozen=True)
class OptimalSampling(Sampler):
    """Draws clients by the weighted length of their updates, which lowers the variance of the sum.

        p_i = (1 − floor)·ω_i n_i/Σ ω_j n_j + floor·ω_i,   importance_i = c_i ω_i/(K p_i)     (Weng 2025 (20))

    Symbols: K `cohort_size` independent draws, c_i how often client i was drawn, n_i = ‖Δ_i‖ of the last
    update received from client i. A client without any update so far counts with the largest n known (1 if none is
    positive); if all n are zero, p = ω.

    Reduces to `WeightedWithReplacement` for `floor` = 1 or equal n.

    Differs from the paper, which assumes this round's norms known before the draw (they cost a round of
    messages) and leaves out ω; any p > 0 gives the same mean, so only the variance is affected. With
    `floor` = 0, the paper's form, a client whose last update was zero would never be drawn again,
    although the model has moved since. The floor gives every client a chance and bounds the
    importance by c_i/(K·floor). Lost updates bias it like every rule that does not correct links.
    """

    cohort_size: int
    floor: float = 0.1

    references = ("chen2022optimal", "weng2025fedacs")
    needs_single_updates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_integer(self, "cohort_size", at_least=1, at_most=MOST_DRAWS)
        require_number(self, "floor", at_least=0, at_most=1)

    def init(self, population: Population) -> PartState:
        return {"norm": torch.full((population.num_clients,), -1.0, dtype=torch.float64)}

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        weights = conditions.weights
        probabilities = self.probabilities(state, weights)
        cohort = draw_with_replacement(probabilities, self.cohort_size, key)
        clients = cohort.clients
        return replace(cohort, importance=cohort.importance * weights[clients] / probabilities[clients])

    def probabilities(self, state: PartState, weights: Tensor) -> Tensor:
        """p of the coming round, (N,)."""
        norm = tensor_in(state, "norm")
        largest = norm.max()
        score = weights * torch.where(norm < 0, torch.where(largest > 0, largest, 1.0), norm)
        total = score.sum()
        by_norm = score / total if total > 0 else weights
        return (1 - self.floor) * by_norm + self.floor * weights

    def observe(
        self, state: PartState, conditions: Conditions, cohort: Cohort, updates: ClientUpdates
    ) -> PartState:
        received = torch.linalg.vector_norm(updates.delta, dim=1, dtype=torch.float64).cpu()
        return {"norm": tensor_in(state, "norm").index_put((updates.clients,), received)}

    def participation(self, conditions: Conditions) -> Participation:
        # Whatever the chances are, importance divides by them.
        return Participation(conditions.weights, None)
