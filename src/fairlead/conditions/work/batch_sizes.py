"""A batch size for every client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fairlead.component import freeze_lists
from fairlead.conditions.base import entries_of, require_counts
from fairlead.conditions.work.base import Workload, WorkModel
from fairlead.conditions.work.budget import TimedWork
from fairlead.conditions.work.fixed import EqualWork
from fairlead.errors import FieldError, require_instance
from fairlead.local_solver import LocalSolver
from fairlead.randomness import Key


@dataclass(frozen=True)
class FixedBatchSizes(WorkModel):
    """Each client its own batch size, the same in every round; `work` says how many epochs or steps.

    Reduces to `work` where all batch sizes are the solver's.
    """

    batch_sizes: tuple[int, ...]
    work: WorkModel = EqualWork()

    per_client: ClassVar[tuple[str, ...]] = ("batch_sizes",)

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_counts(self, "batch_sizes", self.batch_sizes)
        require_instance(self, "work", self.work, WorkModel)
        if isinstance(self.work, TimedWork):
            raise FieldError(
                "FixedBatchSizes.work must not depend on the speed of devices, got "
                f"{type(self.work).__name__}."
            )

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        own = torch.tensor(entries_of(self, "batch_sizes", self.batch_sizes, clients), dtype=torch.int64)
        steps, batches = torch.zeros_like(sizes), torch.zeros_like(sizes)
        for batch_size in sorted(set(own.tolist())):
            chosen = own == batch_size
            part = self.work.workload(
                clients[chosen], sizes[chosen], replace(solver, batch_size=batch_size), round, key
            )
            steps[chosen], batches[chosen] = part.num_steps, part.batch_sizes
        return Workload(steps, batches)
