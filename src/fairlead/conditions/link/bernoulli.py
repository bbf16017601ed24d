"""Links that lose each update with a probability of its own, constant or varying in time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fairlead.component import freeze_lists
from fairlead.conditions.base import Figures, figures_of, require_figures, require_range
from fairlead.conditions.link.base import IndependentLink
from fairlead.errors import FieldError, require_choice, require_integer, require_number
from fairlead.randomness import Key


@dataclass(frozen=True)
class BernoulliLink(IndependentLink):
    """Each update is lost with probability q_i, independently in every round (Weng 2025 §2).

    `drop` is q: one number for all clients, or one per client.
    """

    drop: Figures

    references = ("weng2025fedacs",)
    per_client: ClassVar[tuple[str, ...]] = ("drop",)

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_figures(self, "drop", "probabilities from 0 to 1", 0.0, 1.0)

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return 1.0 - figures_of(self, "drop", clients)


@dataclass(frozen=True)
class UniformBernoulliLink(IndependentLink):
    """Bernoulli links whose q_i are drawn once per client, uniformly from `low` to `high`."""

    low: float
    high: float

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        require_number(self, "low", at_least=0, at_most=1)
        require_number(self, "high", at_least=self.low, at_most=1)

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        draws = key.fold("quality").uniform(clients)
        return 1.0 - (self.low + (self.high - self.low) * draws)


@dataclass(frozen=True)
class TwoGroupLink(IndependentLink):
    """Clients below `boundary` draw q from the range `first`, the others from `second`, in every round.

        q_i(t) ~ U(first) or U(second),   lost with probability q_i(t)

    The server knows q_i(t) before the round, as Weng 2025 assumes. With (0.4, 0.5) and (0, 0.1) this is the dynamic
    setting of Weng 2025 §I.3.1.
    """

    boundary: int
    first: tuple[float, float] = (0.4, 0.5)
    second: tuple[float, float] = (0.0, 0.1)

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_integer(self, "boundary", at_least=0)
        for field in ("first", "second"):
            require_range(self, field, 0.0, 1.0)

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        draws = key.fold("quality", round).uniform(clients)
        first, second = (low + (high - low) * draws for low, high in (self.first, self.second))
        return 1.0 - torch.where(clients < self.boundary, first, second)


@dataclass(frozen=True)
class SinusoidalLink(IndependentLink):
    """Bernoulli links whose quality comes and goes, as with the time of day.

        q_i(t) = drop_i + amplitude·sin(2π(t/period + φ_i))

    Symbols: t the round; φ_i `phases`: "drawn" uniformly once per client, or "common" (0 for all). Reduces to
    `BernoulliLink` for `amplitude` = 0.
    """

    drop: Figures
    amplitude: float
    period: float
    phases: Literal["drawn", "common"] = "drawn"

    per_client: ClassVar[tuple[str, ...]] = ("drop",)

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_figures(self, "drop", "probabilities from 0 to 1", 0.0, 1.0)
        require_number(self, "amplitude", at_least=0, at_most=0.5)
        require_number(self, "period", above=0)
        require_choice(self, "phases", ("drawn", "common"))
        values = self.drop if isinstance(self.drop, tuple) else (self.drop,)
        if min(values) < self.amplitude or max(values) > 1 - self.amplitude:
            raise FieldError(
                f"SinusoidalLink.amplitude must keep drop ± amplitude between 0 and 1, got "
                f"{self.amplitude!r} with drop from {min(values):g} to {max(values):g}."
            )

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
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

    start: Figures
    end: Figures
    rounds: int

    per_client: ClassVar[tuple[str, ...]] = ("start", "end")

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_figures(self, "start", "probabilities from 0 to 1", 0.0, 1.0)
        require_figures(self, "end", "probabilities from 0 to 1", 0.0, 1.0)
        require_integer(self, "rounds", at_least=1)

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        progress = min(round / self.rounds, 1.0)
        start, end = figures_of(self, "start", clients), figures_of(self, "end", clients)
        return 1.0 - ((1.0 - progress) * start + progress * end)
