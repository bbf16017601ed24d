"""Work and links that depend on the time of clients and the patience of the server."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairlead.component import freeze_lists
from fairlead.conditions.base import Figures, entries_of, figures_of, require_counts, require_figures
from fairlead.conditions.devices import DeviceProfile
from fairlead.conditions.links import LinkModel
from fairlead.conditions.work import EqualWork, Workload, WorkModel
from fairlead.errors import (
    ClashError,
    FieldError,
    field_error,
    require_instance,
    require_integer,
    require_number,
)
from fairlead.local_solver import MOST_STEPS, LocalSolver
from fairlead.randomness import Key


class TimedWork(WorkModel, ABC):
    """Family of work models that depend on how fast clients are."""

    needs_devices = True

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
        require_integer(self, "max_steps", at_least=max(1, self.min_steps), at_most=MOST_STEPS, optional=True)

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
            raise ClashError("TimeBudget needs devices that define the time of a local step.")
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
    """The workload of any model, with or without devices."""
    if isinstance(work, TimedWork):
        return work.workload(clients, sizes, solver, round, key, devices)
    return work.workload(clients, sizes, solver, round, key)


@dataclass(frozen=True)
class FixedBatchSizes(WorkModel):
    """Each client its own batch size, the same in every round; `work` says how many epochs or steps.

    Reduces to `work` where all batch sizes are the solver's.
    """

    batch_sizes: tuple[int, ...]
    work: WorkModel = EqualWork()

    per_client = ("batch_sizes",)

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


class TimedLink(LinkModel, ABC):
    """Family of links for which time matters.

    `durations` (c,) are the seconds from sending the model to receiving the update, None in a world without
    devices. The server knows that an update is lost at the time when it would have arrived.
    """

    @abstractmethod
    def arrival(
        self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None
    ) -> Tensor | None:
        """1 − q of the given clients (c,) float64, or None where no probability is defined."""

    @abstractmethod
    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        """Whether the update of each given client arrives in this round, (c,) bool."""

    @abstractmethod
    def closes(self, durations: Tensor, arrived: Tensor) -> float:
        """Seconds until the server ends a round; `arrived` (c,) marks the received updates."""


@dataclass(frozen=True)
class DeadlineLink(TimedLink):
    """Updates must arrive within `seconds`; the round ends then, or when all have arrived.

    The work of late clients is lost. `arrival` is 1 or 0, as the durations of the round say.
    """

    seconds: float

    needs_devices = True

    def __post_init__(self) -> None:
        require_number(self, "seconds", above=0)

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return self.arrives(clients, round, key, durations).to(torch.float64)

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return _known(self, durations) <= self.seconds

    def closes(self, durations: Tensor, arrived: Tensor) -> float:
        return min(self.seconds, _slowest(durations))


@dataclass(frozen=True)
class FirstArrivals(TimedLink):
    """Over-selection: the round ends with the first `count` updates, and the others are not used.

    Ask more clients than `count` by the sampler's cohort size (Bonawitz et al. 2019 ask 130 %). Of clients
    that take equally long, those with lower ids come first. Unlike other links, this one depends on who else
    is asked, so no probability is defined. Fewer than `count` clients are all waited for.
    """

    count: int

    references = ("bonawitz2019",)
    exemptions = {"independent": "it counts the updates that came before"}
    needs_devices = True

    def __post_init__(self) -> None:
        require_integer(self, "count", at_least=1)

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> None:
        return None

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        order = torch.argsort(_known(self, durations), stable=True)
        is_first = torch.zeros(len(clients), dtype=torch.bool)
        is_first[order[: self.count]] = True
        return is_first

    def closes(self, durations: Tensor, arrived: Tensor) -> float:
        there = durations[arrived]
        return float(there.sort().values[self.count - 1]) if len(there) >= self.count else _slowest(durations)


@dataclass(frozen=True)
class OutageLink(TimedLink):
    """A client may drop out at any moment, so that long work and large updates on slow links get lost.

        1 − q_i(t) = exp(−rate_i·seconds_i(t))

    Symbols: `rate` outages a second, one number for all clients or one per client; seconds_i(t) what the
    client takes in this round, transmission included.
    """

    rate: Figures

    needs_devices = True
    per_client = ("rate",)

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_figures(self, "rate")

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return torch.exp(-figures_of(self, "rate", clients) * _known(self, durations))

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return key.fold(round).uniform(clients) < self.arrival(clients, round, key, durations)

    def closes(self, durations: Tensor, arrived: Tensor) -> float:
        return _slowest(durations)


@dataclass(frozen=True)
class CombinedLink(TimedLink):
    """An update arrives if it gets through all of several `links`, drawn independently of each other.

        1 − q_i = Π_l (1 − q_il);   the round ends when the first link ends it

    Each link sees only what got through those before it, which matters for `FirstArrivals` alone: it must
    be the last, so that it counts updates that really come.
    """

    links: tuple[LinkModel, ...]

    def __post_init__(self) -> None:
        freeze_lists(self)
        if not isinstance(self.links, tuple) or not self.links:
            raise field_error(self, "links", "a list of at least one link", self.links)
        for link in self.links:
            require_instance(self, "links", link, LinkModel)
        if any(map(_counts_arrivals, self.links[:-1])):
            raise FieldError(
                "CombinedLink.links must have FirstArrivals last, because it counts the updates that pass the others."
            )

    def arrival(
        self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None
    ) -> Tensor | None:
        product = torch.ones(len(clients), dtype=torch.float64)
        for place, link in enumerate(self.links):
            arrival = expected_arrival(link, clients, round, key.fold(place), durations)
            if arrival is None:
                return None
            product = product * arrival
        return product

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        left = torch.arange(len(clients))
        for place, link in enumerate(self.links):
            seconds = None if durations is None else durations[left]
            left = left[arrivals(link, clients[left], round, key.fold(place), seconds)]
        through = torch.zeros(len(clients), dtype=torch.bool)
        through[left] = True
        return through

    def closes(self, durations: Tensor, arrived: Tensor) -> float:
        return min(closing_time(link, durations, arrived) for link in self.links)


def expected_arrival(
    link: LinkModel, clients: Tensor, round: int, key: Key, durations: Tensor | None
) -> Tensor | None:
    """1 − q of the given clients by any link, timed or not."""
    if isinstance(link, TimedLink):
        return link.arrival(clients, round, key, durations)
    return link.arrival(clients, round, key)


def arrivals(link: LinkModel, clients: Tensor, round: int, key: Key, durations: Tensor | None) -> Tensor:
    """Which updates arrive by any link, timed or not."""
    if isinstance(link, TimedLink):
        return link.arrives(clients, round, key, durations)
    return link.arrives(clients, round, key)


def closing_time(link: LinkModel, durations: Tensor, arrived: Tensor) -> float:
    """Seconds until the server ends a round: with the slowest sampled client, or earlier if the link ends it."""
    return link.closes(durations, arrived) if isinstance(link, TimedLink) else _slowest(durations)


def _slowest(durations: Tensor) -> float:
    return float(durations.max()) if len(durations) else 0.0


def _known(link: TimedLink, durations: Tensor | None) -> Tensor:
    if durations is None:
        raise ClashError(f"{type(link).__name__} needs devices that define the speed of clients.")
    return durations


def _counts_arrivals(link: LinkModel) -> bool:
    if isinstance(link, CombinedLink):
        return any(map(_counts_arrivals, link.links))
    return isinstance(link, FirstArrivals)
