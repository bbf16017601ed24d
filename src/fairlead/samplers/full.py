"""Everybody, every round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from fairlead.client_table import PartState
from fairlead.randomness import Key
from fairlead.records import Cohort, Conditions, Population
from fairlead.samplers.base import MemorylessSampler


@dataclass(frozen=True)
class FullParticipation(MemorylessSampler):
    """Asks every client of positive weight; importance is ω (Weng 2025, rule "full")."""

    exemptions: ClassVar[Mapping[str, str]] = {"different keys": "it asks everybody"}

    def check(self, population: Population) -> None:
        pass

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        clients = conditions.weights.nonzero().flatten()
        return Cohort(clients, torch.ones_like(clients), conditions.weights[clients])
