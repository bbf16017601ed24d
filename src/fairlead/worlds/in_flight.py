"""Asynchronous rounds: which clients arrive before the next step of the server, and the work that goes on after it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.client_table import ClientTable, PartState, table_in, tensor_in
from fairlead.records import Population, Refusal, WorkOrder


class Job(NamedTuple):
    """The work of a client from its start to the arrival of its update; the first to arrive is the least."""

    finish: float
    """On the virtual clock; the duration of work that has not started."""
    round: int
    """In which it started."""
    client: int
    num_steps: int
    importance: float
    arrives: bool
    """False if its update will be lost."""
    row: int = -1
    """Where its update waits; -1 before the end of its first round."""


class Interval(NamedTuple):
    """The time between two steps of the server."""

    started: list[Job]
    arrived: list[Job]
    refused: list[Job]
    running: list[Job]
    """At its end."""
    now: float


def run_until_full(
    running: list[Job],
    waiting: Iterator[Job],
    now: float,
    places: int,
    size: int,
    is_too_old: Callable[[Job], bool],
) -> Interval:
    """Let clients work until `size` updates have come, or until nobody works.

    A place that becomes free goes to the next of those `waiting`. Updates that come at the same moment are taken in the
    order in which their work began, then by client, and only then are places filled.
    """
    started, arrived, refused = list[Job](), list[Job](), list[Job]()
    heapify(running)
    while len(arrived) < size:
        while len(running) < places and (start := next(waiting, None)) is not None:
            started.append(start._replace(finish=now + start.finish))
            heappush(running, started[-1])
        if not running:
            break
        now = running[0].finish
        while running and running[0].finish == now and len(arrived) < size:
            job = heappop(running)
            if job.arrives:
                (refused if is_too_old(job) else arrived).append(job)
    return Interval(started, arrived, refused, running, now)


def queue_of(order: WorkOrder) -> list[int]:
    """The places of candidates in their cohort, in the order in which they start."""
    drawn = order.key.fold("queue", order.round).uniform(order.cohort.clients)
    return drawn.argsort().tolist()


_COLUMNS = {
    "finish": torch.float64,
    "round": torch.int64,
    "clients": torch.int64,
    "num_steps": torch.int64,
    "importance": torch.float64,
    "arrives": torch.bool,
}
"""In the order of the fields of `Job`."""
_CLIENT = Job._fields.index("client")


@dataclass(frozen=True, eq=False)
class Flight:
    """The work in flight as a state keeps it: a place per client at work, and at most as many updates.

    Updates are computed when work starts, from the model of that moment, and wait here until they arrive. So clients
    that start in one round train together, and no old model is kept.
    """

    state: PartState

    @staticmethod
    def empty(places: int, population: Population, num_buffers: int) -> "Flight":
        """Nobody at work."""
        state: dict[str, Tensor | ClientTable] = {
            name: torch.zeros(places, dtype=kind) for name, kind in _COLUMNS.items()
        }
        for name, dim in (("delta", population.num_parameters), ("buffers", num_buffers), ("loss", 1)):
            state[name] = ClientTable.create(
                places, dim, dtype=population.dtype, device=population.device, folder=population.tables_in
            )
        state["clients"] = torch.full((places,), -1)
        return Flight({**state, "clock": torch.zeros(1, dtype=torch.float64)})

    @property
    def places(self) -> int:
        return len(tensor_in(self.state, "clients"))

    @property
    def now(self) -> float:
        return float(tensor_in(self.state, "clock"))

    def jobs(self) -> list[Job]:
        """The clients at work."""
        columns = (tensor_in(self.state, name).tolist() for name in _COLUMNS)
        return [
            Job._make((*figures, row))
            for row, figures in enumerate(zip(*columns, strict=True))
            if figures[_CLIENT] >= 0
        ]

    def read(self, name: str, jobs: list[Job]) -> Tensor:
        """Rows of work that started in earlier rounds."""
        return table_in(self.state, name).read(torch.tensor([job.row for job in jobs], dtype=torch.int64))

    def after(self, interval: Interval, rows: Callable[[str, list[Job]], Tensor]) -> PartState:
        """The state at the end of an interval; `rows` gives the updates of work that started in it."""
        kept = {job.row: job for job in interval.running if job.row >= 0}
        free = (row for row in range(self.places) if row not in kept)
        new = [job._replace(row=next(free)) for job in interval.running if job.row < 0]
        state: dict[str, Tensor | ClientTable] = dict(self.state)
        places = torch.tensor([job.row for job in new if job.arrives], dtype=torch.int64)
        for name in ("delta", "buffers", "loss"):
            if len(places):
                table = table_in(self.state, name)
                state[name] = table.write(places, rows(name, [job for job in new if job.arrives]))
        for name, kind in _COLUMNS.items():
            state[name] = torch.full((self.places,), -1 if name == "clients" else 0, dtype=kind)
        for job in (*kept.values(), *new):
            for name, value in zip(_COLUMNS, job[:-1], strict=True):
                tensor_in(state, name)[job.row] = value
        state["clock"] = torch.tensor([interval.now], dtype=torch.float64)
        return state


def stale(client: int, age: int, most: int | None) -> Refusal:
    """The refusal of an update that is too old."""
    sentence = f"Client {client} was refused: its update is {age} rounds old, and at most {most} are allowed."
    return Refusal(client, "stale", sentence)
