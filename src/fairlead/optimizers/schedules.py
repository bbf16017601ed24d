"""The role `Schedule`: a factor on the learning rate, by round or by local step."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from fairlead.component import Component, freeze_lists
from fairlead.errors import field_error, require_integer, require_number


class Schedule(Component, ABC):
    """A factor on a learning rate as a function of time: rounds, or steps within a round."""

    @abstractmethod
    def factor(self, time: int) -> float:
        """Factor at time 0, 1, 2, ..."""


@dataclass(frozen=True)
class Constant(Schedule):
    """No schedule: the factor is 1."""

    def factor(self, time: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Exponential(Schedule):
    """γᵗ: with steps for time this is the decayed-lr solver of Wang 2021, whose a = (1, γ, γ², ...)."""

    gamma: float

    def __post_init__(self) -> None:
        require_number(self, "gamma", above=0, at_most=1)

    def factor(self, time: int) -> float:
        return self.gamma**time


@dataclass(frozen=True)
class Milestones(Schedule):
    """γⁿ, where n counts the milestones already passed."""

    times: tuple[int, ...]
    gamma: float = 0.1

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_number(self, "gamma", above=0, at_most=1)
        whole = all(isinstance(time, int) and not isinstance(time, bool) and time >= 0 for time in self.times)
        if not whole or list(self.times) != sorted(set(self.times)):
            raise field_error(self, "times", "ascending whole numbers of at least 0", self.times)

    def factor(self, time: int) -> float:
        return self.gamma ** sum(time >= milestone for milestone in self.times)


@dataclass(frozen=True)
class Cosine(Schedule):
    """½(1 + cos(πt/horizon)), down to `final` at the horizon and constant after it."""

    horizon: int
    final: float = 0.0

    def __post_init__(self) -> None:
        require_integer(self, "horizon", at_least=1)
        require_number(self, "final", at_least=0, at_most=1)

    def factor(self, time: int) -> float:
        progress = min(time / self.horizon, 1.0)
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class InverseSquareRoot(Schedule):
    """1/√(1 + t/scale)."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        require_number(self, "scale", above=0)

    def factor(self, time: int) -> float:
        return 1.0 / math.sqrt(1.0 + time / self.scale)
