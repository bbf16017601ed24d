"""Work that is given: equal, listed, on a ladder or replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairlead.component import freeze_lists
from fairlead.conditions.base import entries_of, require_counts
from fairlead.conditions.work.base import EpochCounts, StepCounts, Workload, WorkModel
from fairlead.errors import field_error, require_integer
from fairlead.local_solver import MOST_STEPS, LocalSolver
from fairlead.randomness import Key


@dataclass(frozen=True)
class EqualWork(WorkModel):
    """Everyone does what the solver says: the same number of epochs or of steps."""

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        return Workload(solver.count_steps(sizes), solver.batches(sizes))


@dataclass(frozen=True)
class FixedEpochs(EpochCounts):
    """Each client its own number of epochs, the same in every round."""

    epochs: tuple[int, ...]

    per_client: ClassVar[tuple[str, ...]] = ("epochs",)

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_counts(self, "epochs", self.epochs)

    def epochs_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return torch.tensor(entries_of(self, "epochs", self.epochs, clients), dtype=torch.int64)


@dataclass(frozen=True)
class FixedSteps(StepCounts):
    """Each client its own number of local steps, the same in every round."""

    steps: tuple[int, ...]

    per_client: ClassVar[tuple[str, ...]] = ("steps",)

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_counts(self, "steps", self.steps)

    def steps_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return torch.tensor(entries_of(self, "steps", self.steps, clients), dtype=torch.int64)


@dataclass(frozen=True)
class LadderEpochs(EpochCounts):
    """Client i makes `first` + i·`increment` epochs in every round (Weng 2025 §I.3.1: 1, 3, ..., 39)."""

    first: int = 1
    increment: int = 2

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        require_integer(self, "first", at_least=1, at_most=MOST_STEPS)
        require_integer(self, "increment", at_least=0, at_most=MOST_STEPS)

    def epochs_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return self.first + clients * self.increment


@dataclass(frozen=True)
class LadderSteps(StepCounts):
    """Client i takes `first` + i·`increment` local steps in every round (Weng 2025 Fig. 7: 1, 3, ..., 39)."""

    first: int = 1
    increment: int = 2

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        require_integer(self, "first", at_least=1, at_most=MOST_STEPS)
        require_integer(self, "increment", at_least=0, at_most=MOST_STEPS)

    def steps_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return self.first + clients * self.increment


@dataclass(frozen=True)
class ScriptedWork(StepCounts):
    """Replays given numbers of steps: one row per round, one column per client, then again."""

    steps: tuple[tuple[int, ...], ...]

    per_client: ClassVar[tuple[str, ...]] = ("steps",)

    def __post_init__(self) -> None:
        freeze_lists(self)
        if not isinstance(self.steps, tuple) or not self.steps:
            raise field_error(self, "steps", "at least one row", self.steps)
        for row in self.steps:
            require_counts(self, "steps", row)

    def steps_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        row = self.steps[round % len(self.steps)]
        return torch.tensor(entries_of(self, "steps", row, clients), dtype=torch.int64)
