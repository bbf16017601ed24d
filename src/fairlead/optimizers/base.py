"""The role `Optimizer`, for clients and for the server, and the role `Schedule` of its learning rate."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairlead.component import Component, NotNegative, Positive, PositiveCount, PositiveShare, UnitInterval
from fairlead.errors import field_error


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

    gamma: PositiveShare

    def factor(self, time: int) -> float:
        return self.gamma**time


@dataclass(frozen=True)
class Milestones(Schedule):
    """γⁿ, where n counts the milestones already passed."""

    times: tuple[int, ...]
    gamma: PositiveShare = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = all(isinstance(time, int) and not isinstance(time, bool) and time >= 0 for time in self.times)
        if not whole or list(self.times) != sorted(set(self.times)):
            raise field_error(self, "times", "ascending whole numbers of at least 0", self.times)

    def factor(self, time: int) -> float:
        return self.gamma ** sum(time >= milestone for milestone in self.times)


@dataclass(frozen=True)
class Cosine(Schedule):
    """½(1 + cos(πt/horizon)), down to `final` at the horizon and constant after it."""

    horizon: PositiveCount
    final: UnitInterval = 0.0

    def factor(self, time: int) -> float:
        progress = min(time / self.horizon, 1.0)
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class InverseSquareRoot(Schedule):
    """1/√(1 + t/scale)."""

    scale: Positive = 1.0

    def factor(self, time: int) -> float:
        return 1.0 / math.sqrt(1.0 + time / self.scale)


OptimizerState = dict[str, Tensor]
Stepped = tuple[Tensor, OptimizerState]
"""Parameters and state after a step."""


@dataclass(frozen=True)
class Optimizer(Component, ABC):
    """Moves parameters along a gradient; pure, so one object serves any number of clients.

    Every method treats the last axis as the parameter axis and broadcasts over the others: `(d,)`
    is one client or the server, `(lanes, d)` is many clients side by side. Numbers that belong to a
    client (`lr`, step counters) have shape `(1,)` or `(lanes, 1)`.

    The server uses the same role: it passes `gradient = −direction`.
    """

    lr: NotNegative
    _: KW_ONLY
    schedule: Schedule = Constant()
    """Factor on `lr` by round."""
    weight_decay: NotNegative = 0.0
    """λ of a penalty ½λ‖x‖² whose gradient is added to the given one."""

    linear: ClassVar[bool]
    """Whether the displacement is a linear function of the gradients (Wang 2021 §IV)."""

    def lr_at(self, round: int) -> float:
        """Learning rate of a round."""
        return self.lr * self.schedule.factor(round)

    @abstractmethod
    def init(self, params: Tensor) -> OptimizerState:
        """State before the first step."""

    @abstractmethod
    def step(self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor) -> Stepped:
        """Parameters and state after one step."""

    @property
    def cycle(self) -> tuple[int, ...]:
        """The batches of a cycle of gradients, by number from 0: one batch and one gradient for most."""
        return (0,)

    @property
    def kept(self) -> tuple[str, ...]:
        """Numbers in the state that a client keeps between its rounds; zero at first."""
        return ()

    def start(self, anchor: Tensor, own: Tensor) -> Stepped:
        """Where a client that starts from `own` takes its first gradient, and the state before it."""
        return own, self.init(own)

    def position(self, params: Tensor, state: OptimizerState) -> Tensor:
        """The parameters that a client has reached: `params`, unless gradients are taken elsewhere."""
        return params

    def used(self, anchor: Tensor, own: Tensor, kept: Mapping[str, Tensor]) -> Tensor:
        """The model that a client uses if it has trained `own`; `kept` has the numbers that it keeps."""
        return own

    def step_(self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor) -> None:
        """The same step written over `params` and `state`; optimizers that can save memory traffic do."""
        after, slots = self.step(params, gradient, state, lr)
        params.copy_(after)
        for name, values in slots.items():
            state[name].copy_(values)

    def penalized(self, params: Tensor, gradient: Tensor) -> Tensor:
        """The gradient with that of the weight-decay penalty added."""
        return torch.add(gradient, params, alpha=self.weight_decay) if self.weight_decay else gradient
