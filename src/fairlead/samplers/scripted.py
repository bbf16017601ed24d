"""Cohorts from a list, for tests, comparisons and logs of real federations."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from fairlead.client_table import PartState
from fairlead.component import freeze_lists
from fairlead.errors import field_error, is_client_lists, require_choice
from fairlead.randomness import Key
from fairlead.records import Cohort, Conditions, Participation, Population
from fairlead.samplers.base import MemorylessSampler


@dataclass(frozen=True)
class ScriptedSampler(MemorylessSampler):
    """Samples the clients listed for each round, and repeats the list at its end.

    An id that is listed twice in a cohort is drawn twice. Importance is c_i/K as under sampling with
    replacement (`importance` = "draws"), or ω_i as under full participation ("weights").
    """

    cohorts: tuple[tuple[int, ...], ...]
    importance: Literal["draws", "weights"] = "draws"

    exemptions: ClassVar[Mapping[str, str]] = {
        "different keys": "it replays a list",
        "unbiased": "the list may be anything",
    }
    varies_by_round: ClassVar[bool] = True

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_choice(self, "importance", ("draws", "weights"))
        if not is_client_lists(self.cohorts):
            raise field_error(self, "cohorts", "at least one list of client ids", self.cohorts)

    def check(self, population: Population) -> None:
        largest = max((client for cohort in self.cohorts for client in cohort), default=0)
        if largest >= population.num_clients:
            raise field_error(self, "cohorts", f"ids from 0 to {population.num_clients - 1}", largest)

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        draws = self.cohorts[conditions.round % len(self.cohorts)]
        times = sorted(Counter(draws).items())
        clients, counts = torch.tensor(times, dtype=torch.int64).view(-1, 2).T.contiguous()
        if self.importance == "weights":
            importance = counts * conditions.weights[clients]
        else:
            importance = counts.to(torch.float64) / max(len(draws), 1)
        return Cohort(clients, counts, importance)

    def participation(self, conditions: Conditions) -> Participation:
        cohort = self.draw({}, conditions, Key.from_seed(0))
        nobody = torch.zeros_like(conditions.weights)
        asked = nobody.index_fill(0, cohort.clients, 1.0)
        return Participation(nobody.index_copy(0, cohort.clients, cohort.importance), asked)

    def possible_cohorts(self, conditions: Conditions, at_most: int) -> list[tuple[float, Cohort]]:
        return [(1.0, self.draw({}, conditions, Key.from_seed(0)))]
