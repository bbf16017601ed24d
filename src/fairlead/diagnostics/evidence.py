"""`Evidence`: everything that a diagnosis rests on, whether a probe, a run or a real federation measured it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.clients.names import ClientNames, label
from fairlead.diagnostics.consensus import ConsensusReport
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.diagnostics.diversity import cosine_matrix
from fairlead.diagnostics.spread import Readings, Spread, arrival_spread
from fairlead.local_solver import LocalSolver
from fairlead.records import Conditions, RoundRecord

Foresight = Callable[[LocalSolver], Sequence[Conditions]]
"""The conditions that clients with a given solver would meet, round by round."""

_ASKED_ENOUGH = 10
"""Questions after which a client that never answered is taken for unreachable."""


@dataclass(frozen=True, eq=False)
class DataSkew:
    """How unequal the clients' data are."""

    sizes: Tensor
    """Examples held, (N,)."""
    label_counts: Tensor | None
    """(N, classes); None where targets are not single classes."""


@dataclass(frozen=True, eq=False)
class Cosines:
    """Which way the updates of some clients point from one and the same model."""

    clients: tuple[int, ...]
    matrix: Tensor
    """(m, m)."""

    @staticmethod
    def of(clients: Tensor, updates: Tensor) -> Cosines:
        """Of updates (m, d)."""
        return Cosines(tuple(clients.tolist()), cosine_matrix(updates))


class DriftPrice(NamedTuple):
    """By how much the objective rises when plain averaging starts from its optimum (`drift_price`)."""

    rise: float
    rounds: int
    steps: int


@dataclass(frozen=True, eq=False)
class Evidence:
    """Measured facts of a federation; what could not be measured is None or empty."""

    source: str
    """Where the facts come from, as a heading says it."""
    weights: Tensor
    """ω, (N,)."""
    names: ClientNames | None
    records: Sequence[RoundRecord]
    algorithm: Algorithm | None
    """The present method; None where records do not say it."""
    foresight: Foresight
    consistency: ConsistencyReport
    """Of the present method: measured on the records, and foreseen where the method is known."""
    chance: float
    """Share of the weight that chance alone would misplace in as many rounds."""
    work: Spread
    """Of ‖a‖₁, or of local steps where the solver has no such measure."""
    links: Spread
    """Of arrival rates."""
    rates_told: bool
    """Whether the server knows arrival rates before a round, and need not estimate them."""
    unreachable: tuple[int, ...] = ()
    """Clients of positive weight of whom nothing ever arrives."""
    assumptions: tuple[str, ...] = ()
    """What had to be taken for granted, a sentence each."""
    data: DataSkew | None = None
    consensus: ConsensusReport | None = None
    no_consensus: str = "it needs the clients' data and model"
    """Why there is no consensus test."""
    fits_all: bool = False
    """Whether the model fits all clients' data where consensus was tested, so that nobody has far to go."""
    price: DriftPrice | None = None
    """Where drift matters, what it costs."""
    cosines: Cosines | None = None

    @property
    def num_clients(self) -> int:
        return len(self.weights)

    @property
    def rounds(self) -> int:
        """Rounds measured."""
        return len(self.records)

    @property
    def most_steps(self) -> int:
        """Most local steps that an update had behind it."""
        return max((steps for record in self.records for steps in record.num_steps), default=0)

    @property
    def cohort_size(self) -> int | None:
        """Draws of a round on average; None if everybody is asked."""
        asked = [sum(record.multiplicity) for record in self.records]
        mean = round(sum(asked) / len(asked)) if asked else self.num_clients
        return None if mean >= int((self.weights > 0).sum()) else max(mean, 1)

    def label(self, client: int) -> str:
        """What a sentence calls a client."""
        return label(client, self.names)


def observed_work(records: Sequence[RoundRecord], weights: Tensor) -> Spread:
    """The spread of ‖a‖₁ of the updates that arrived, or of their local steps where that is not recorded."""
    readings = Readings(len(weights))
    measured = all(record.effective_steps is not None for record in records)
    for record in records:
        values = record.effective_steps if measured else record.num_steps
        readings.add(torch.tensor(record.arrived, dtype=torch.int64), torch.tensor(values))
    return readings.spread(weights)


def observed_links(records: Sequence[RoundRecord], weights: Tensor) -> Spread:
    """The spread of the rates at which clients that were asked answered."""
    asked, arrived = torch.zeros_like(weights), torch.zeros_like(weights)
    for record in records:
        asked[torch.tensor(record.asked, dtype=torch.int64)] += 1
        arrived[torch.tensor(record.arrived, dtype=torch.int64)] += 1
    return arrival_spread(asked, arrived, weights, len(records))


def silent_clients(records: Sequence[RoundRecord], weights: Tensor) -> tuple[int, ...]:
    """Clients of positive weight that were asked ten times or more and never answered."""
    missed = torch.zeros_like(weights)
    for record in records:
        missed[torch.tensor(record.asked, dtype=torch.int64)] += 1
    for record in records:
        missed[torch.tensor(record.arrived, dtype=torch.int64)] = 0
    return tuple(((weights > 0) & (missed >= _ASKED_ENOUGH)).nonzero().flatten().tolist())


@dataclass(frozen=True, eq=False)
class Outlook:
    """What a world tells beforehand of work and links, over some rounds."""

    work: Spread | None
    """None where the world or the solver has no measure of it."""
    links: Spread | None
    unreachable: tuple[int, ...]


def outlook(rounds: Sequence[Conditions]) -> Outlook:
    """What the conditions of some rounds say of the clients."""
    weights = rounds[0].weights
    everyone = torch.arange(len(weights))
    work, links, through = Readings(len(weights)), Readings(len(weights)), torch.zeros_like(weights)
    for conditions in rounds:
        if conditions.effective_steps is not None:
            work.add(everyone, conditions.effective_steps)
        if conditions.arrival is not None:
            links.add(everyone, conditions.arrival)
            through += conditions.arrival
    told = links.rounds == len(rounds)
    unreachable = ((weights > 0) & (through == 0)).nonzero().flatten().tolist() if told else []
    return Outlook(
        work.spread(weights) if work.rounds == len(rounds) else None,
        links.spread(weights) if told else None,
        tuple(unreachable),
    )


def constant_foresight(weights: Tensor, work: Tensor, arrival: Tensor, rounds: int) -> Foresight:
    """Conditions that stay as they were on average; clients never observed are taken to be like the others.

    The same work whatever the solver: it was measured, and other methods are looked at with the same clients.
    """
    steps, rates = (torch.where(values.isnan(), _typical(values), values) for values in (work, arrival))
    conditions = [Conditions(round, weights, lambda: steps, lambda: rates) for round in range(rounds)]
    return lambda solver: conditions


def _typical(values: Tensor) -> Tensor:
    return values.nanmean() if bool((~values.isnan()).any()) else values.new_ones(())
