"""Links: which updates reach the server."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Annotated, Literal

import torch
from torch import Tensor

from fairlead.component import NaturalNumber, Positive, PositiveCount, RealRange, UnitInterval
from fairlead.conditions.base import AscendingPair, Condition, Probabilities, figures_of
from fairlead.conditions.traces import replay, require_trace_path
from fairlead.errors import FieldError, field_error, is_client_lists, require_number
from fairlead.randomness import Key


class LinkModel(Condition, ABC):
    """Decides which updates arrive.

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

    def closes(self, durations: Tensor, arrived: Tensor) -> float:
        """Seconds until the server ends a round; `arrived` (c,) marks the received updates."""
        return float(durations.max()) if len(durations) else 0.0


class IndependentLink(LinkModel, ABC):
    """Family of links that lose every update independently: a subclass implements `arrival`."""

    @abstractmethod
    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        """1 − q of the given clients (c,) float64."""

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return key.fold(round).uniform(clients) < self.arrival(clients, round, key, durations)


@dataclass(frozen=True)
class PerfectLink(LinkModel):
    """Every update arrives."""

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return torch.ones(len(clients), dtype=torch.float64)

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return torch.ones(len(clients), dtype=torch.bool)


@dataclass(frozen=True)
class ScriptedLink(LinkModel):
    """Replays given arrivals: one list of client ids per round, then again.

    `rates` are the arrival rates 1 − q that the server is told, one number for all clients or one per client, whatever
    the list says. Without them methods that need 1 − q must estimate it.
    """

    arrivals: tuple[tuple[int, ...], ...]
    rates: Probabilities | None = None

    per_client = ("rates",)
    exemptions = {"rates": "the list decides, whatever the server is told"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_client_lists(self.arrivals):
            raise field_error(self, "arrivals", "lists of client ids", self.arrivals)

    def arrival(
        self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None
    ) -> Tensor | None:
        return None if self.rates is None else figures_of(self, "rates", clients)

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        present = torch.tensor(self.arrivals[round % len(self.arrivals)], dtype=torch.int64)
        return torch.isin(clients, present)


@dataclass(frozen=True)
class BernoulliLink(IndependentLink):
    """Each update is lost with probability `drop`, independently in every round (Weng 2025 §2).

    `drop` is q_i: one number for all clients, or one per client.
    """

    drop: Probabilities

    references = ("weng2025fedacs",)
    per_client = ("drop",)

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        return 1.0 - figures_of(self, "drop", clients)


@dataclass(frozen=True)
class UniformBernoulliLink(IndependentLink):
    """Each client loses updates with a fixed probability of its own, drawn uniformly from `low` to `high`."""

    low: UnitInterval
    high: float

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self, "high", at_least=self.low, at_most=1)

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        draws = key.fold("quality").uniform(clients)
        return 1.0 - (self.low + (self.high - self.low) * draws)


@dataclass(frozen=True)
class TwoGroupLink(IndependentLink):
    """Clients below `boundary` draw q from the range `first`, the others from `second`, in every round.

        q_i(t) ~ U(first) or U(second),   lost with probability q_i(t)

    The server knows q_i(t) before the round, as Weng 2025 assumes. With (0.4, 0.5) and (0, 0.1) this is the dynamic
    setting of Weng 2025 §I.3.1.
    """

    boundary: NaturalNumber
    first: Annotated[tuple[float, float], AscendingPair(0, 1)] = (0.4, 0.5)
    second: Annotated[tuple[float, float], AscendingPair(0, 1)] = (0.0, 0.1)

    references = ("weng2025fedacs",)

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        draws = key.fold("quality", round).uniform(clients)
        first, second = (low + (high - low) * draws for low, high in (self.first, self.second))
        return 1.0 - torch.where(clients < self.boundary, first, second)


@dataclass(frozen=True)
class SinusoidalLink(IndependentLink):
    """Bernoulli links whose quality varies periodically, as with the time of day.

        q_i(t) = drop_i + amplitude·sin(2π(t/period + φ_i))

    Symbols: t the round; φ_i `phases`: "drawn" uniformly once per client, or "common" (0 for all). Reduces to
    `BernoulliLink` for `amplitude` = 0.
    """

    drop: Probabilities
    amplitude: Annotated[float, RealRange(at_least=0, at_most=0.5)]
    period: Positive
    phases: Literal["drawn", "common"] = "drawn"

    per_client = ("drop",)

    def __post_init__(self) -> None:
        super().__post_init__()
        values = self.drop if isinstance(self.drop, tuple) else (self.drop,)
        if min(values) < self.amplitude or max(values) > 1 - self.amplitude:
            raise FieldError(
                f"SinusoidalLink.amplitude must keep drop ± amplitude between 0 and 1, got "
                f"{self.amplitude!r} with drop from {min(values):g} to {max(values):g}."
            )

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        phases = key.fold("phase").uniform(clients) if self.phases == "drawn" else torch.zeros(len(clients))
        wave = torch.sin(2 * math.pi * (round / self.period + phases.to(torch.float64)))
        return (1.0 - figures_of(self, "drop", clients) - self.amplitude * wave).clamp(0.0, 1.0)


@dataclass(frozen=True)
class DriftingLink(IndependentLink):
    """Bernoulli links whose quality changes steadily from `start` to `end`.

        q_i(t) = start_i + (end_i − start_i)·min(t/rounds, 1)

    `start` and `end` are one number for all clients or one per client. Reduces to `BernoulliLink` for
    `start` = `end`.
    """

    start: Probabilities
    end: Probabilities
    rounds: PositiveCount

    per_client = ("start", "end")

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        progress = min(round / self.rounds, 1.0)
        start, end = figures_of(self, "start", clients), figures_of(self, "end", clients)
        return 1.0 - ((1.0 - progress) * start + progress * end)


@dataclass(frozen=True)
class MarkovLink(LinkModel):
    """Each client's link is a two-state Markov chain; updates arrive while it is up.

        P(down at t + 1 | up at t) = fail,   P(up at t + 1 | down at t) = recover
        P(up at t) = recover/(fail + recover) for every t

    `fail` and `recover` are one number for all clients or one per client. The chain starts in its
    stationary distribution and moves on whether its client is asked or not; a link stays up for 1/fail
    rounds on average. `arrival` is the stationary probability, which a server can know in the long run; with
    `forecast` = "previous" it is that of the coming round given the state in the last, for a server that
    watches its clients.

    Reduces to `BernoulliLink` (drop = fail) when fail + recover = 1.
    """

    fail: Probabilities
    recover: Probabilities
    forecast: Literal["stationary", "previous"] = "stationary"

    per_client = ("fail", "recover")

    def __post_init__(self) -> None:
        super().__post_init__()
        fails, recoveries = (v if isinstance(v, tuple) else (v,) for v in (self.fail, self.recover))
        length = max(len(fails), len(recoveries))
        pairs = zip(islice(cycle(fails), length), islice(cycle(recoveries), length), strict=True)
        if (0, 0) in pairs:
            raise FieldError(
                "MarkovLink.fail and MarkovLink.recover must not both be 0, since such a link never changes; "
                "got 0 and 0."
            )

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        fail, recover = figures_of(self, "fail", clients), figures_of(self, "recover", clients)
        if self.forecast == "stationary" or round == 0:
            return recover / (fail + recover)
        return torch.where(self.arrives(clients, round - 1, key), 1.0 - fail, recover)

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        """Whether each link is up.

        The step to round t is driven by one uniform number u per client: up if u < P(up | state before).
        Below both probabilities the link is up and above both it is down, whatever it was before; only
        between them does the past matter, and the link keeps its state (or changes it, if
        fail + recover > 1). So the state follows from looking back to the last decisive number: exact,
        without anything to remember between rounds, in 1/(1 − |1 − fail − recover|) rounds on average.
        """
        fail, recover = figures_of(self, "fail", clients), figures_of(self, "recover", clients)
        lower, upper = torch.minimum(1.0 - fail, recover), torch.maximum(1.0 - fail, recover)
        changes = recover > 1.0 - fail
        is_up = torch.zeros(len(clients), dtype=torch.bool)
        changed = torch.zeros_like(is_up)
        undecided = torch.arange(len(clients))
        for time in range(round, 0, -1):
            draws = key.fold(time).uniform(clients[undecided])
            up, down = draws < lower[undecided], draws >= upper[undecided]
            is_up[undecided[up]] = True
            undecided = undecided[~(up | down)]
            if len(undecided) == 0:
                break
            changed[undecided] ^= changes[undecided]
        first = key.fold(0).uniform(clients[undecided])
        is_up[undecided] = first < (recover / (fail + recover))[undecided]
        return is_up ^ changed


@dataclass(frozen=True)
class TraceLink(LinkModel):
    """Replays the arrivals in a trace (`fairlead.conditions.traces`), then again from its first round.

    `path` names a CSV file or JSON lines with the columns round, client and arrives (0 or 1). `missing` says
    what happens to a client in a round without an entry: "refuse" stops the run, "hold" repeats its latest
    entry, "lost" and "arrives" apply to all gaps. No probability is defined, so methods that need
    1 − q must estimate it.
    """

    path: str
    missing: Literal["refuse", "hold", "lost", "arrives"] = "refuse"

    replayed = {"path": ("arrives",)}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_trace_path(self, self.path)

    def arrival(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> None:
        return None

    def arrives(self, clients: Tensor, round: int, key: Key, durations: Tensor | None = None) -> Tensor:
        values, known = replay(self, self.path, self.replayed["path"], self.missing, clients, round)
        return torch.where(known, values[:, 0] == 1, self.missing == "arrives")
