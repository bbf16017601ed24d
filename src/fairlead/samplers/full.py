"""All clients: in every round, or in the first round alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from fairlead.client_table import PartState
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, ClientWeights, Cohort, Conditions, Participation, Population
from fairlead.samplers.base import Adjacency, MemorylessSampler, Sampler


@dataclass(frozen=True)
class FullParticipation(MemorylessSampler):
    """Samples every client of positive weight; importance is ω (Weng 2025, rule "full")."""

    exemptions: ClassVar[Mapping[str, str]] = {"different keys": "it samples all clients"}
    importance_by_weight: ClassVar[bool] = True
    adjacency: ClassVar[Adjacency | None] = "zero-out"

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
    exemptions: ClassVar[Mapping[str, str]] = {"different keys": "the first round samples all clients"}

    @property
    def needs_effective_steps(self) -> bool:
        return self.sampler.needs_effective_steps

    @property
    def needs_arrival(self) -> bool:
        return self.sampler.needs_arrival

    def init(self, population: Population) -> PartState:
        return self.sampler.init(population)

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
