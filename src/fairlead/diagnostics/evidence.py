"""`Evidence`: the facts behind a diagnosis, measured by a probe, a run or a real federation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.diagnostics.consensus import ConsensusReport
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.diagnostics.overview import ClientOverview
from fairlead.diagnostics.tally import Tally
from fairlead.local_solver import LocalSolver
from fairlead.records import Conditions, RoundRecord
from fairlead.text import ClientNames, label

Balance = Literal["equal", "unequal", "unknown"]
Confidence = Literal["high", "moderate", "low", "none"]
"""Confidence in a statement: computed or almost certain; at a risk of a few percent; a description without a test;
not enough data."""

_GRADES: tuple[Confidence, ...] = ("none", "low", "moderate", "high")

NOTABLE = 0.05
"""Coefficient of variation above which clients are called unequal."""
HIDDEN = 0.1
"""Coefficient of variation that chance may hide if clients are called equal."""
_RISK = 0.01
"""Probability that equal clients are called unequal."""
COVERED = 0.9
"""Share of the objective's weight that must have been observed."""


def weakest(*grades: Confidence) -> Confidence:
    """The least of some grades of confidence."""
    return min(grades, key=_GRADES.index)


@dataclass(frozen=True, eq=False)
class Inequality:
    """How unequal a positive figure x is between clients.

        cv² = Σ ω_i(x_i − x̄)²/x̄²,   x̄ = Σ ω_i x_i,   lasting² = max(cv² − chance², 0)

    Plain averaging counts a client by ω_i x_i, which misplaces at most cv/2 of the weight (Cauchy and Schwarz).
    Clients whose figure was never observed are left out of all sums.
    """

    values: Tensor
    """x, (N,); NaN for clients without observations."""
    cv: float
    """Coefficient of variation as observed."""
    chance: float
    """Its mean for equal clients observed as often."""
    at_most: float
    """Upper limit of the lasting part: two standard deviations above the observed one."""
    p_value: float
    """Probability that equal clients differ as much (Cochran's Q)."""
    covered: float
    """Share of the objective's weight whose figure was observed."""
    rounds: int
    """Rounds considered."""

    @property
    def lasting(self) -> float:
        """The part of cv that chance does not explain."""
        return math.sqrt(max(self.cv**2 - self.chance**2, 0.0))

    @property
    def extremes(self) -> tuple[float, float]:
        """The least and the largest value observed."""
        seen = self.values[~self.values.isnan()]
        return float(seen.min()), float(seen.max())

    @property
    def verdict(self) -> Balance:
        if self.covered < COVERED or math.isnan(self.cv):
            return "unknown"
        if self.lasting > NOTABLE and self.p_value < _RISK:
            return "unequal"
        return "equal" if self.at_most <= HIDDEN else "unknown"

    @property
    def confidence(self) -> Confidence:
        if self.verdict == "unknown":
            return "none"
        certain = self.p_value < 1e-4 if self.verdict == "unequal" else self.at_most <= NOTABLE
        return "high" if certain else "moderate"


def inequality_of(values: Tensor, errors: Tensor, weights: Tensor, rounds: int) -> Inequality:
    """The inequality of values (N,) with the standard errors (N,) that they would have if clients were equal.

    NaN marks values never observed, an error of 0 known values.

    >>> weights = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    >>> inequality_of(torch.tensor([4.0, 2.0, 2.0]), torch.zeros(3), weights, 20).cv
    0.3333333333333333
    """
    kept = (weights > 0) & ~values.isnan() & ~errors.isnan()
    covered = float(weights[kept].sum())
    if int(kept.sum()) < 2:
        return Inequality(values, math.nan, math.nan, math.inf, 1.0, covered, rounds)
    x, error = values[kept].to(torch.float64), errors[kept].to(torch.float64)
    omega = weights[kept].to(torch.float64) / covered
    mean = float(omega @ x)
    if mean <= 0:
        return Inequality(values, 0.0, 0.0, 0.0, 1.0, covered, rounds)
    cv = math.sqrt(float(omega @ (x - mean).square())) / mean
    chance = math.sqrt(float(omega @ error.square())) / mean
    freedom = max(float(1 / omega.square().sum()) - 1, 1.0)
    hidden = max(cv**2 - chance**2, 0.0) + 2 * math.sqrt(2 / freedom) * chance**2
    return Inequality(values, cv, chance, math.sqrt(hidden), _p_value(x, error), covered, rounds)


def _p_value(values: Tensor, errors: Tensor) -> float:
    """P(χ² ≥ Q), Q = Σ (x_i − x̄)²/e_i² with x̄ the mean by precision, as many degrees of freedom as clients less one.

    Values that are known cannot differ by chance.
    """
    scale = float(values.abs().max())
    if float((values - values[0]).abs().max()) <= 1e-9 * scale:
        return 1.0
    if not bool((errors > 0).all()):
        return 0.0
    precision = errors.square().reciprocal()
    center = precision @ values / precision.sum()
    q = precision @ (values - center).square()
    half = torch.tensor((len(values) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, q / 2))


class Readings:
    """Repeated readings of a figure of each client, kept as sums."""

    def __init__(self, num_clients: int) -> None:
        self.counts = torch.zeros(num_clients, dtype=torch.float64)
        self._sums, self._squares = torch.zeros_like(self.counts), torch.zeros_like(self.counts)
        self.rounds = 0

    def add(self, clients: Tensor, values: Tensor) -> None:
        """The readings of one round."""
        read = values.to(torch.float64)
        self.rounds += 1
        self.counts[clients] += 1
        self._sums[clients] += read
        self._squares[clients] += read.square()

    @property
    def means(self) -> Tensor:
        """(N,), NaN for clients without readings."""
        return self._sums / self.counts

    def inequality(self, weights: Tensor) -> Inequality:
        """How unequal the means are; readings of one client vary with the same variance for all."""
        means, repeats = self.means, float((self.counts - 1).clamp(min=0).sum())
        within = (self._squares - self._sums * means)[self.counts > 0].clamp(min=0)
        # Differences of equal squares are rounding errors.
        within = torch.where(within <= 1e-12 * self._squares[self.counts > 0], 0.0, within)
        variance = float(within.sum()) / repeats if repeats else math.nan
        return inequality_of(means, (variance / self.counts).sqrt(), weights, self.rounds)


def arrival_inequality(asked: Tensor, arrived: Tensor, weights: Tensor, rounds: int) -> Inequality:
    """How unequal counted arrival rates are: arrived_i of asked_i, (N,) each.

    The common rate behind the errors is (Σ arrived + 1)/(Σ asked + 2), so that a few requests that were all
    answered do not count as certainty.
    """
    rate = (float(arrived.sum()) + 1) / (float(asked.sum()) + 2)
    return inequality_of(arrived / asked, (rate * (1 - rate) / asked).sqrt(), weights, rounds)


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


def observed_links(tally: Tally) -> Inequality:
    """How unequal the rates are at which clients that were asked answered."""
    return arrival_inequality(tally.asked, tally.arrived, tally.weights, tally.rounds)


def silent_clients(tally: Tally) -> tuple[int, ...]:
    """Clients of positive weight that were asked ten times or more and never answered."""
    return tuple(tally.unheard[tally.asked[tally.unheard] >= _ASKED_ENOUGH].tolist())


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


def constant_conditions(weights: Tensor, work: Tensor, arrival: Tensor, rounds: int) -> ExpectedConditions:
    """Constant conditions at the observed means; clients never observed get the mean of the others.

    The work is the same for every solver: it was measured, and other methods are predicted for the same clients.
    """
    steps, rates = (torch.where(values.isnan(), _typical(values), values) for values in (work, arrival))
    conditions = [Conditions(round, weights, lambda: steps, lambda: rates) for round in range(rounds)]
    return lambda solver: conditions


def _typical(values: Tensor) -> Tensor:
    return values.nanmean() if bool((~values.isnan()).any()) else values.new_ones(())
