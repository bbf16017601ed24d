"""Links replayed from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fairlead.conditions.link.base import LinkModel
from fairlead.conditions.traces import require_trace_path, timetable
from fairlead.errors import require_choice
from fairlead.randomness import Key


@dataclass(frozen=True)
class TraceLink(LinkModel):
    """Replays the arrivals in a trace (`fairlead.conditions.traces`), then again from its first round.

    `path` names a CSV file or JSON lines with the columns round, client and arrives (0 or 1). `missing` says
    what happens to a client in a round for which it has no entry: "refuse" stops the run, "hold" repeats
    its latest entry, "lost" and "arrives" decide for it. No probability is defined, so methods that need
    1 − q must estimate it.
    """

    path: str
    missing: Literal["refuse", "hold", "lost", "arrives"] = "refuse"

    replayed: ClassVar[Mapping[str, tuple[str, ...]]] = {"path": ("arrives",)}

    def __post_init__(self) -> None:
        require_trace_path(self, self.path)
        require_choice(self, "missing", ("refuse", "hold", "lost", "arrives"))

    def arrival(self, clients: Tensor, round: int, key: Key) -> None:
        return None

    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        table = timetable(self.path, *self.replayed["path"])
        rows = (table.latest_rows if self.missing == "hold" else table.rows)(clients, round)
        if self.missing in ("refuse", "hold"):
            table.refuse_gaps(rows, clients, round, self)
        return torch.where(rows >= 0, table.values[rows, 0] == 1, self.missing == "arrives")
