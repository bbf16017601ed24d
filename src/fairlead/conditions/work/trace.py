"""Work replayed from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fairlead.conditions.traces import require_trace_path, timetable
from fairlead.conditions.work.base import Workload, WorkModel
from fairlead.errors import require_choice
from fairlead.local_solver import LocalSolver
from fairlead.randomness import Key


@dataclass(frozen=True)
class TraceWork(WorkModel):
    """Replays the local steps in a trace (`fairlead.conditions.traces`), then again from its first round.

    `path` names a CSV file or JSON lines with the columns round, client, steps and, if the trace knows it,
    batch_size; the solver's batch size otherwise. `missing` says what a client does in a round for which
    it has no entry: "refuse" stops the run, "hold" repeats its latest entry, "absent" means that it does
    nothing. 0 steps mean absence too.
    """

    path: str
    missing: Literal["refuse", "hold", "absent"] = "refuse"

    replayed: ClassVar[Mapping[str, tuple[str, ...]]] = {"path": ("steps", "batch_size")}

    def __post_init__(self) -> None:
        require_trace_path(self, self.path)
        require_choice(self, "missing", ("refuse", "hold", "absent"))

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        table = timetable(self.path, *self.replayed["path"])
        rows = (table.latest_rows if self.missing == "hold" else table.rows)(clients, round)
        if self.missing != "absent":
            table.refuse_gaps(rows, clients, round, self)
        steps, batch_sizes = table.values[rows].unbind(1)
        batches = torch.where(
            (rows >= 0) & (batch_sizes > 0), batch_sizes.minimum(sizes), solver.batches(sizes)
        )
        return Workload(torch.where((rows >= 0) & (sizes > 0), steps, 0), batches)
