"""The base of work, links and devices, with checks of lists that have one entry per client."""

import math
from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from fairlead.component import Component, WholeList, parts_within
from fairlead.conditions.traces import require_trace
from fairlead.errors import LARGEST, ClashError, FieldError, is_number
from fairlead.local_solver import MOST_STEPS

Figures = float | tuple[float, ...]
"""One number for all clients, or one per client."""


class Condition(Component, ABC):
    """Anything that makes clients unequal.

    All draws depend only on a key, the round and the client, never on the other sampled clients. So every method
    meets the same conditions, and a resumed run meets those of an uninterrupted one.
    """

    needs_devices: ClassVar[bool] = False
    """Whether it needs the speed of clients."""
    per_client: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that may hold one entry per client."""
    replayed: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Names of the fields that name a trace, each with the columns that are replayed from it."""


def refuse_misfits(condition: Condition, num_clients: int, *, has_devices: bool) -> None:
    """Refuse conditions for another number of clients, or with missing devices or traces."""
    for part in parts_within(condition):
        if not isinstance(part, Condition):
            continue
        for field, columns in part.replayed.items():
            # Not when the part is created: a spec can be read and shown without its trace.
            require_trace(part, field, columns)
        if part.needs_devices and not has_devices:
            raise ClashError(
                f"{type(part).__name__} needs the speed of clients: give the world devices, for "
                "instance devices=FixedDevices(step_seconds=0.1)."
            )
        for field in part.per_client:
            values = getattr(part, field)
            if not isinstance(values, tuple):
                continue
            for row in values if isinstance(values[0], tuple) else (values,):
                if len(row) != num_clients:
                    raise FieldError(
                        f"{type(part).__name__}.{field} must have one entry per client ({num_clients}), got "
                        f"{len(row)}."
                    )


class FigureRange(NamedTuple):
    """The numbers that a field takes, one for all clients or a list of them."""

    constraint: str
    low: float = 0.0
    high: float = LARGEST

    def __repr__(self) -> str:
        return self.constraint

    def fault(self, value: object) -> str:
        numbers = value if isinstance(value, tuple) else (value,)
        inside = [is_number(number) and self.low <= number <= self.high for number in numbers]
        return "" if inside and all(inside) else self.constraint


AMOUNT = FigureRange(f"numbers from 0 to {LARGEST:g}")
Amounts = Annotated[Figures, AMOUNT]
Probabilities = Annotated[Figures, FigureRange("probabilities from 0 to 1", high=1.0)]


COUNTS = WholeList(1, MOST_STEPS, fewest=1)
PositiveCounts = Annotated[tuple[int, ...], COUNTS]


class AscendingPair(NamedTuple):
    """A pair low ≤ high of numbers inside bounds."""

    at_least: float
    at_most: float = math.inf

    def fault(self, value: Any) -> str:
        at_least, at_most = self
        numbers = isinstance(value, tuple) and len(value) == 2 and all(map(is_number, value))
        if numbers and at_least <= value[0] <= value[1] <= at_most:
            return ""
        bounds = f"from {at_least:g} to {at_most:g}" if at_most < math.inf else f"of at least {at_least:g}"
        return f"two ascending numbers {bounds}"


def figures_of(owner: Condition, field: str, clients: Tensor) -> Tensor:
    """The given clients' entries of `owner.field`, (c,) float64."""
    value: Figures = getattr(owner, field)
    if not isinstance(value, tuple):
        return torch.full((len(clients),), float(value), dtype=torch.float64)
    return torch.tensor(entries_of(owner, field, value, clients), dtype=torch.float64)


def entries_of(owner: Condition, field: str, values: Sequence[float], clients: Tensor) -> list[float]:
    """Entries of a list with one per client."""
    if len(clients) and int(clients.max()) >= len(values):
        raise FieldError(
            f"{type(owner).__name__}.{field} must have one entry per client, got {len(values)} for client "
            f"{int(clients.max())}."
        )
    # Entry by entry: converting a list of a million clients would cost more than the hundred sampled ones.
    return [values[client] for client in clients.tolist()]
