"""The role `WorkModel`: how much local work each client does in each round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.conditions.base import Condition
from fairlead.local_solver import LocalSolver, epochs_to_steps
from fairlead.randomness import Key


class Workload(NamedTuple):
    """Local work of some clients in one round."""

    num_steps: Tensor
    """(c,) 0 for a client without examples."""
    batch_sizes: Tensor
    """(c,) examples a step."""


class WorkModel(Condition, ABC):
    """Decides the workload of any set of clients in a round."""

    @abstractmethod
    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        """Work of the given clients, which hold `sizes` examples."""


class EpochCounts(WorkModel, ABC):
    """Family of models that count passes over the data, in batches of the solver's size."""

    @abstractmethod
    def epochs_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        """Epochs of the given clients, (c,) int64."""

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        batches = solver.batches(sizes)
        return Workload(epochs_to_steps(self.epochs_of(clients, round, key), sizes, batches), batches)


class StepCounts(WorkModel, ABC):
    """Family of models that count local steps, whatever the client holds."""

    @abstractmethod
    def steps_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        """Steps of the given clients, (c,) int64."""

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        steps = self.steps_of(clients, round, key)
        return Workload(torch.where(sizes > 0, steps, 0), solver.batches(sizes))
