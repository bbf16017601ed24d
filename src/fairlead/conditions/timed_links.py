"""Links that depend on time: deadlines, over-selection, outages, and several links in a row."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.component import Positive, PositiveCount
from fairlead.conditions.base import Amounts, figures_of
from fairlead.conditions.links import IndependentLink, LinkModel
from fairlead.errors import ClashError, FieldError, field_error
from fairlead.randomness import Key


@dataclass(frozen=True)
class DeadlineLink(LinkModel):
    """Updates must arrive within `seconds`; the round ends then, or when all have arrived.

    The work of late clients is lost. `arrival` is 1 or 0, as the durations of the round say.
    """

    seconds: Positive

    needs_devices = True

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return self.arrives(clients, round, key, durations).to(torch.float64)

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return _known(self, durations) <= self.seconds

    def closes(self, durations: Tensor, arrived: Tensor) -> float:
        return min(self.seconds, super().closes(durations, arrived))


@dataclass(frozen=True)
class FirstArrivals(LinkModel):
    """Over-selection: the round ends with the first `count` updates, and the others are not used.

    Ask more clients than `count` by the sampler's cohort size (Bonawitz et al. 2019 ask 130 %). Of clients
    that take equally long, those with lower ids come first. Unlike other links, this one depends on who else
    is asked, so no probability is defined. Fewer than `count` clients are all waited for.
    """

    count: PositiveCount

    references = ("bonawitz2019",)
    exemptions = {"independent": "it counts the updates that came before"}
    needs_devices = True

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> None:
        return None

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        order = torch.argsort(_known(self, durations), stable=True)
        is_first = torch.zeros(len(clients), dtype=torch.bool)
        is_first[order[: self.count]] = True
        return is_first

    def closes(self, durations: Tensor, arrived: Tensor) -> float:
        there = durations[arrived]
        if len(there) < self.count:
            return super().closes(durations, arrived)
        return float(there.sort().values[self.count - 1])


@dataclass(frozen=True)
class OutageLink(IndependentLink):
    """A client may drop out at any moment, so that long work and large updates on slow links get lost.

        1 − q_i(t) = exp(−rate_i·seconds_i(t))

    Symbols: `rate` outages a second, one number for all clients or one per client; seconds_i(t) what the
    client takes in this round, transmission included.
    """

    rate: Amounts

    needs_devices = True
    per_client = ("rate",)

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return torch.exp(-figures_of(self, "rate", clients) * _known(self, durations))


@dataclass(frozen=True)
class CombinedLink(LinkModel):
    """An update arrives if it gets through all of several `links`, drawn independently of each other.

        1 − q_i = Π_l (1 − q_il);   the round ends when the first link ends it

    Each link sees only what got through those before it, which matters for `FirstArrivals` alone: it must
    be the last, so that it counts updates that really come.
    """

    links: tuple[LinkModel, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.links, tuple) or not self.links:
            raise field_error(self, "links", "a list of at least one link", self.links)
        if any(map(_counts_arrivals, self.links[:-1])):
            raise FieldError(
                "CombinedLink.links must have FirstArrivals last, because it counts the updates that pass the others."
            )

    def arrival(
        self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None
    ) -> Tensor | None:
        product = torch.ones(len(clients), dtype=torch.float64)
        for place, link in enumerate(self.links):
            arrival = link.arrival(clients, round, key.fold(place), durations)
            if arrival is None:
                return None
            product = product * arrival
        return product

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        left = torch.arange(len(clients))
        for place, link in enumerate(self.links):
            seconds = None if durations is None else durations[left]
            left = left[link.arrives(clients[left], round, key.fold(place), seconds)]
        through = torch.zeros(len(clients), dtype=torch.bool)
        through[left] = True
        return through

    def closes(self, durations: Tensor, arrived: Tensor) -> float:
        return min(link.closes(durations, arrived) for link in self.links)


def _known(link: LinkModel, durations: Tensor | None) -> Tensor:
    if durations is None:
        raise ClashError(f"{type(link).__name__} needs devices that define the speed of clients.")
    return durations


def _counts_arrivals(link: LinkModel) -> bool:
    if isinstance(link, CombinedLink):
        return any(map(_counts_arrivals, link.links))
    return isinstance(link, FirstArrivals)
