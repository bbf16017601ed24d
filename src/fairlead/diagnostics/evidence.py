"""`Evidence`: the facts behind a diagnosis, measured by a probe, a run or a real federation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.diagnostics.clients import ClientOverview, Inequality, Readings
from fairlead.diagnostics.consensus import ConsensusReport
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.diagnostics.gradients import Dissimilarity
from fairlead.diagnostics.measurement import Tally
from fairlead.diagnostics.personal import PersonalGain
from fairlead.local_solver import LocalSolver
from fairlead.records import Conditions, RoundRecord
from fairlead.text import ClientNames, label

MIN_ROUNDS = 5
"""Rounds below which nothing is advised."""

Drifting = Literal["no", "yes", "unknown"]
"""Whether the clients' local steps fail to cancel at the optimum."""

Similarity = Literal["alike", "different", "unknown"]
"""Whether the clients' gradients differ by more than chance."""

ExpectedConditions = Callable[[LocalSolver], Sequence[Conditions]]
"""The conditions that clients with a given solver are expected to meet, round by round."""

_ASKED_ENOUGH = 10
"""Requests after which a client without any reply is considered unreachable."""


class Cosines(NamedTuple):
    """Cosines between the updates of some clients from the same model."""

    clients: tuple[int, ...]
    matrix: Tensor
    """(m, m)."""


class DriftPrice(NamedTuple):
    """By how much the objective rises when plain averaging starts from its optimum (`drift_price`)."""

    rise: float
    rounds: int
    steps: int


@dataclass(frozen=True, eq=False)
class Evidence:
    """Measured facts of a federation; facts that could not be measured are None or empty."""

    source: str
    """The source of the facts, for a heading."""
    weights: Tensor
    """ω, (N,)."""
    names: ClientNames | None
    records: Sequence[RoundRecord]
    algorithm: Algorithm | None
    """The present method; None if it was not recorded."""
    expected_conditions: ExpectedConditions
    tally: Tally
    """Who was asked and who arrived in the records."""
    consistency: ConsistencyReport
    """Of the present method: measured on the records, and predicted where the method is known."""
    chance: float
    """Share of the weight that chance alone misplaces in as many rounds."""
    work: Inequality
    """Of ‖a‖₁, or of local steps if the solver has no ‖a‖₁."""
    links: Inequality
    """Of arrival rates."""
    rates_told: bool
    """Whether the server knows arrival rates before a round."""
    unreachable: tuple[int, ...] = ()
    """Clients of positive weight whose updates never arrive."""
    assumptions: tuple[str, ...] = ()
    """Assumptions, a sentence each."""
    data: ClientOverview | None = None
    consensus: ConsensusReport | None = None
    no_consensus: str = "it needs the clients' data and model"
    """Why there is no consensus test."""
    fits_all: bool = False
    """Whether the model fits all clients' data at the point of the consensus test."""
    price: DriftPrice | None = None
    """The cost of drift, if drift matters."""
    cosines: Cosines | None = None
    personal: PersonalGain | None = None
    dissimilarity: Dissimilarity | str = "it needs data that are not here"
    """Of the clients' gradients at the present model, or why it was not tested."""
    planned: int = 0
    """Rounds that the run is planned for; 0 if that is not known."""

    @property
    def visits(self) -> float:
        """How often a client is expected to take part, over the planned rounds or those measured."""
        share = (self.cohort_size or self.num_clients) / self.num_clients
        arrival = self.links.values[~self.links.values.isnan()]
        return max(self.planned, self.rounds) * share * (float(arrival.mean()) if len(arrival) else 1.0)

    @property
    def num_clients(self) -> int:
        return len(self.weights)

    @property
    def rounds(self) -> int:
        """Rounds measured."""
        return len(self.records)

    @property
    def most_steps(self) -> int:
        """The largest number of local steps of an update."""
        return max((steps for record in self.records for steps in record.num_steps), default=0)

    @property
    def cohort_size(self) -> int | None:
        """Mean number of draws per round; None if all clients are asked."""
        asked = [sum(record.multiplicity) for record in self.records]
        mean = round(sum(asked) / len(asked)) if asked else self.num_clients
        return None if mean >= int((self.weights > 0).sum()) else max(mean, 1)

    def label(self, client: int) -> str:
        """A client as sentences name it."""
        return label(client, self.names)


def observed_work(records: Sequence[RoundRecord], weights: Tensor) -> Inequality:
    """How unequal ‖a‖₁ of the updates that arrived is, or their local steps if ‖a‖₁ is not recorded."""
    readings = Readings(len(weights))
    measured = all(record.effective_steps is not None for record in records)
    for record in records:
        values = record.effective_steps if measured else record.num_steps
        readings.add(torch.tensor(record.arrived, dtype=torch.int64), torch.tensor(values))
    return readings.inequality(weights)


def silent_clients(tally: Tally) -> tuple[int, ...]:
    """Clients of positive weight that were asked ten times or more and never answered."""
    return tuple(tally.never_arrived[tally.asked[tally.never_arrived] >= _ASKED_ENOUGH].tolist())


class Outlook(NamedTuple):
    """Work and links that a world predicts for some rounds."""

    work: Inequality | None
    """None if the world or the solver has no measure of it."""
    links: Inequality | None
    unreachable: tuple[int, ...]


def outlook(rounds: Sequence[Conditions]) -> Outlook:
    """The inequality of clients under the conditions of some rounds."""
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
        work.inequality(weights) if work.rounds == len(rounds) else None,
        links.inequality(weights) if told else None,
        tuple(unreachable),
    )


def constant_conditions(weights: Tensor, rounds: int, *figures: Tensor) -> ExpectedConditions:
    """Constant conditions at the observed means of work, arrival rates and local steps, (N,) each.

    Clients never observed get the mean of the others. The work is the same for every solver: it was measured, and
    other methods are predicted for the same clients.
    """
    known = [torch.where(values.isnan(), _typical(values), values) for values in figures]
    conditions = [Conditions.known(round, weights, *known) for round in range(rounds)]
    return lambda solver: conditions


def _typical(values: Tensor) -> Tensor:
    return values.nanmean() if bool((~values.isnan()).any()) else values.new_ones(())
