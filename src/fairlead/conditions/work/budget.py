"""Work that is limited by time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairlead.conditions.devices import DeviceProfile
from fairlead.conditions.work.base import Workload, WorkModel
from fairlead.errors import ClashError, FieldError, require_integer, require_number
from fairlead.local_solver import MOST_STEPS, LocalSolver
from fairlead.randomness import Key


class TimedWork(WorkModel, ABC):
    """Family of work models that depend on how fast clients are."""

    needs_devices: ClassVar[bool] = True

    @abstractmethod
    def workload(
        self,
        clients: Tensor,
        sizes: Tensor,
        solver: LocalSolver,
        round: int,
        key: Key,
        devices: DeviceProfile | None = None,
    ) -> Workload:
        """Work of the given clients, which hold `sizes` examples; `devices` say how fast they are."""


@dataclass(frozen=True)
class TimeBudget(TimedWork):
    """Every client takes as many local steps as its device can within the same `seconds` (Wang 2021 §II).

        K_i = max{k : seconds of k steps ≤ budget}, bounded by `min_steps` and `max_steps`

    The budget covers computing; latency and transmission come on top. `min_steps` = 0 leaves out clients
    that cannot finish a single step; with 1 they are late instead. Batches are the solver's.
    """

    seconds: float
    min_steps: int = 1
    max_steps: int | None = None

    references = ("wang2021fednova",)

    def __post_init__(self) -> None:
        require_number(self, "seconds", above=0)
        require_integer(self, "min_steps", at_least=0, at_most=MOST_STEPS)
        if self.max_steps is not None:
            require_integer(self, "max_steps", at_least=max(1, self.min_steps), at_most=MOST_STEPS)

    def workload(
        self,
        clients: Tensor,
        sizes: Tensor,
        solver: LocalSolver,
        round: int,
        key: Key,
        devices: DeviceProfile | None = None,
    ) -> Workload:
        if devices is None:
            raise ClashError("TimeBudget needs devices that say how long a local step takes.")
        batches = solver.batches(sizes)
        steps = torch.where(sizes > 0, devices.steps_within(self.seconds, batches, sizes), 0.0)
        steps = steps.clamp(min=self.min_steps, max=self.max_steps)
        if bool(steps.isinf().any()):
            client = int(clients[steps.isinf()][0])
            raise FieldError(
                f"TimeBudget.max_steps must be given, since the device of client {client} takes no time for "
                "a step."
            )
        return Workload(torch.where(sizes > 0, steps, 0.0).to(torch.int64), batches)


def planned_work(
    work: WorkModel,
    clients: Tensor,
    sizes: Tensor,
    solver: LocalSolver,
    round: int,
    key: Key,
    devices: DeviceProfile | None,
) -> Workload:
    """The workload by any model, whether or not it depends on devices."""
    if isinstance(work, TimedWork):
        return work.workload(clients, sizes, solver, round, key, devices)
    return work.workload(clients, sizes, solver, round, key)
