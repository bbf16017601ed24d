"""Clients in figures: their data, work and arrival rates before training, and how unequal a figure is between them."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.errors import FieldError
from fairlead.local_solver import LocalSolver
from fairlead.randomness import Key
from fairlead.text import ClientNames, shown
from fairlead.worlds.simulated import SimulatedWorld

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


@dataclass(frozen=True, eq=False)
class ClientOverview:
    """Facts of every client, averaged over the rounds considered; None if unknown to the world."""

    weights: Tensor
    """ω, (N,)."""
    sizes: Tensor
    """Examples held, (N,)."""
    label_counts: Tensor | None
    """(N, classes); None if targets are not single classes."""
    effective_steps: Tensor | None
    """Mean ‖a‖₁ of a round, (N,)."""
    arrival: Tensor | None
    """Mean probability that an update arrives, (N,)."""
    rounds: int
    names: ClientNames | None = None
    """Names of clients, (N,); None if they have only numbers."""
    num_dropped: int = 0
    """Rows of the data dropped because of a missing value."""
    num_test: int = 0
    """Examples of the test set."""
    test_sizes: Tensor | None = None
    """Those of each client, (N,), if the test set is divided among them."""
    features: tuple[str, ...] = ()
    """Columns of the inputs, if they come from a table."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes; None if they have only numbers."""

    @property
    def shown_names(self) -> list[str] | None:
        """Names for display, long ones shortened."""
        return None if self.names is None else [shown(name) for name in self.names.tolist()]

    @property
    def columns(self) -> dict[str, Tensor]:
        """The facts that are known, by the title of their column."""
        columns = {
            "examples": self.sizes,
            "test": self.test_sizes,
            "weight": self.weights,
            "work": self.effective_steps,
            "arrival": self.arrival,
            "pull": self.pull,
        }
        return {name: values for name, values in columns.items() if values is not None}

    @property
    def pull(self) -> Tensor | None:
        """Ω_i/ω_i of plain averaging, Ω ∝ ω(1 − q)‖a‖₁ (Weng 2025 §3): above 1 for over-weighted clients.

        None if it is unknown, or if no update arrives.
        """
        if self.effective_steps is None or self.arrival is None:
            return None
        strength = self.effective_steps * self.arrival
        total = self.weights @ strength
        return strength / total if total > 0 else None


def overview(world: SimulatedWorld, solver: LocalSolver, key: Key, rounds: int = 20) -> ClientOverview:
    """The overview of the given number of rounds, without training."""
    if rounds < 1:
        raise FieldError(f"overview needs rounds of at least 1, got {rounds}.")
    ahead = [world.conditions(round, solver, key) for round in range(rounds)]
    return ClientOverview(
        weights=world.population.weights,
        sizes=world.clients.sizes,
        label_counts=label_counts(world.clients),
        effective_steps=_mean([conditions.effective_steps for conditions in ahead]),
        arrival=_mean([conditions.arrival for conditions in ahead]),
        rounds=rounds,
        names=world.population.names,
        num_dropped=world.clients.num_dropped,
        num_test=0 if world.test is None else len(world.test.inputs),
        test_sizes=None if world.held_out is None else world.held_out.sizes,
        features=world.clients.features,
        class_names=world.clients.class_names,
    )


def label_counts(clients: ClientData) -> Tensor | None:
    """Examples of each label that each client has, (N, classes); None if targets are not single classes."""
    targets = clients.targets.cpu()
    if targets.is_floating_point() or targets.ndim > 1 or not len(targets):
        return None
    classes, num_clients = int(targets.max()) + 1, clients.num_clients
    owner = torch.repeat_interleave(torch.arange(num_clients), clients.sizes)
    return torch.bincount(owner * classes + targets, minlength=num_clients * classes).view(-1, classes)


def _mean(values: list[Tensor | None]) -> Tensor | None:
    known = [value for value in values if value is not None]
    return torch.stack(known).mean(0) if len(known) == len(values) else None
