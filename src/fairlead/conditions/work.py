"""The role `WorkModel`: how much local work each client does in each round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.component import Component, freeze_lists
from fairlead.errors import FieldError, field_error, require_integer
from fairlead.local_solver import LocalSolver, epochs_to_steps
from fairlead.randomness import Key


class Workload(NamedTuple):
    """Local work of some clients in one round."""

    num_steps: Tensor
    """(c,) 0 for a client without examples."""
    batch_sizes: Tensor
    """(c,) examples a step."""


class WorkModel(Component, ABC):
    """Decides the workload of any set of clients in a round.

    Draws depend on the key, the round and the client alone, so that every method meets the same work.
    """

    @abstractmethod
    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        """Work of the given clients, which hold `sizes` examples."""


@dataclass(frozen=True)
class EqualWork(WorkModel):
    """Everyone does what the solver says: the same number of epochs or of steps."""

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        return Workload(solver.count_steps(sizes), solver.batches(sizes))


@dataclass(frozen=True)
class FixedEpochs(WorkModel):
    """Each client its own number of epochs, the same in every round."""

    epochs: tuple[int, ...]

    def __post_init__(self) -> None:
        freeze_lists(self)
        _check_counts(self, "epochs", self.epochs)

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        epochs = _per_client(self, "epochs", self.epochs, clients)
        batches = solver.batches(sizes)
        return Workload(epochs_to_steps(epochs, sizes, batches), batches)


@dataclass(frozen=True)
class FixedSteps(WorkModel):
    """Each client its own number of local steps, the same in every round."""

    steps: tuple[int, ...]

    def __post_init__(self) -> None:
        freeze_lists(self)
        _check_counts(self, "steps", self.steps)

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        steps = _per_client(self, "steps", self.steps, clients)
        return Workload(torch.where(sizes > 0, steps, 0), solver.batches(sizes))


@dataclass(frozen=True)
class _RandomCount(WorkModel, ABC):
    low: int
    high: int

    def __post_init__(self) -> None:
        require_integer(self, "low", at_least=1)
        require_integer(self, "high", at_least=self.low)

    def _draw(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return key.fold(round).integers(clients, self.low, self.high)


@dataclass(frozen=True)
class RandomEpochs(_RandomCount):
    """Epochs drawn uniformly from `low` to `high`, anew for every client and round (003: U(2, 5))."""

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        batches = solver.batches(sizes)
        return Workload(epochs_to_steps(self._draw(clients, round, key), sizes, batches), batches)


@dataclass(frozen=True)
class RandomSteps(_RandomCount):
    """Local steps drawn uniformly from `low` to `high`, anew for every client and round."""

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        steps = self._draw(clients, round, key)
        return Workload(torch.where(sizes > 0, steps, 0), solver.batches(sizes))


@dataclass(frozen=True)
class ScriptedWork(WorkModel):
    """Replays given numbers of steps: one row per round, one column per client, then again."""

    steps: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        freeze_lists(self)
        if not self.steps:
            raise field_error(self, "steps", "at least one row", self.steps)
        for row in self.steps:
            _check_counts(self, "steps", row)

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        steps = _per_client(self, "steps", self.steps[round % len(self.steps)], clients)
        return Workload(torch.where(sizes > 0, steps, 0), solver.batches(sizes))


def _check_counts(owner: WorkModel, field: str, counts: Sequence[int]) -> None:
    if not counts or any(not isinstance(count, int) or count < 1 for count in counts):
        raise field_error(owner, field, "whole numbers of at least 1", counts)


def _per_client(owner: WorkModel, field: str, counts: Sequence[int], clients: Tensor) -> Tensor:
    if len(clients) and int(clients.max()) >= len(counts):
        raise FieldError(
            f"{type(owner).__name__}.{field} must have one entry per client, got {len(counts)} for "
            f"client {int(clients.max())}."
        )
    return torch.tensor(counts)[clients]
