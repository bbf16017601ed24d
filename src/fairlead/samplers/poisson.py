"""Every client by its own toss of a coin."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fairlead.client_table import PartState
from fairlead.errors import require_number
from fairlead.randomness import Key
from fairlead.records import Cohort, Conditions, Population
from fairlead.samplers.base import MemorylessSampler


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
