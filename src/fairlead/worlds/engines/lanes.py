"""Packing clients with unequal numbers of steps into lanes that run side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heapreplace


@dataclass(frozen=True)
class Slot:
    """A client's place: which job runs in which lane, from tick `start` up to but not at `end`."""

    job: int
    lane: int
    start: int
    end: int


@dataclass(frozen=True)
class LanePlan:
    """When each job runs. The lanes busy at any tick are always the first ones."""

    slots: tuple[Slot, ...]
    loads: tuple[int, ...]
    """Ticks for which each lane is busy, in descending order."""

    @property
    def ticks(self) -> int:
        return max(self.loads, default=0)

    def starting(self) -> dict[int, list[Slot]]:
        """Slots by the tick at which they begin."""
        return _grouped(self.slots, lambda slot: slot.start)

    def ending(self) -> dict[int, list[Slot]]:
        """Slots by the tick at which they end."""
        return _grouped(self.slots, lambda slot: slot.end)

    @cached_property
    def segments(self) -> list[tuple[int, int, int]]:
        """(start, end, width): maximal stretches during which no job begins or ends."""
        edges = sorted({0} | {slot.end for slot in self.slots})
        widths = [sum(load > start for load in self.loads) for start in edges[:-1]]
        return list(zip(edges[:-1], edges[1:], widths, strict=True))


def _grouped(slots: Sequence[Slot], tick_of: Callable[[Slot], int]) -> dict[int, list[Slot]]:
    groups: dict[int, list[Slot]] = {}
    for slot in slots:
        groups.setdefault(tick_of(slot), []).append(slot)
    return groups


def pack(num_steps: Sequence[int], num_lanes: int) -> LanePlan:
    """Longest job first, each to the lane that is free earliest: a pure function of the jobs.

    >>> pack([2, 5, 3], num_lanes=2).loads
    (5, 5)
    """
    free_at = [(0, lane) for lane in range(min(num_lanes, len(num_steps)))]
    heapify(free_at)
    placed: list[Slot] = []
    for job in sorted(range(len(num_steps)), key=lambda job: (-num_steps[job], job)):
        start, lane = free_at[0]
        end = start + num_steps[job]
        placed.append(Slot(job, lane, start, end))
        heapreplace(free_at, (end, lane))
    by_load = sorted(free_at, key=lambda entry: (-entry[0], entry[1]))
    rank = {lane: position for position, (_, lane) in enumerate(by_load)}
    slots = tuple(Slot(slot.job, rank[slot.lane], slot.start, slot.end) for slot in placed)
    return LanePlan(slots, tuple(load for load, _ in by_load))
