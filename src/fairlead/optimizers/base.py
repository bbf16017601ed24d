"""The role `Optimizer`, for clients and for the server."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairlead.component import Component
from fairlead.errors import require_number
from fairlead.optimizers.schedules import Constant, Schedule

OptimizerState = dict[str, Tensor]


@dataclass(frozen=True)
class Optimizer(Component, ABC):
    """Moves parameters along a gradient; pure, so one object serves any number of clients.

    Every method treats the last axis as the parameter axis and broadcasts over the others: `(d,)`
    is one client or the server, `(lanes, d)` is many clients side by side. Numbers that belong to a
    client (`lr`, step counters) have shape `(1,)` or `(lanes, 1)`.

    The server uses the same role: it passes `gradient = −direction`.
    """

    lr: float
    _: KW_ONLY
    schedule: Schedule = Constant()
    """Factor on `lr` by round."""
    weight_decay: float = 0.0
    """λ of a penalty ½λ‖x‖² whose gradient is added to the given one."""

    linear: ClassVar[bool]
    """Whether the displacement is a linear function of the gradients (Wang 2021 §IV)."""

    def __post_init__(self) -> None:
        require_number(self, "lr", at_least=0)
        require_number(self, "weight_decay", at_least=0)

    def lr_at(self, round: int) -> float:
        """Learning rate of a round."""
        return self.lr * self.schedule.factor(round)

    @abstractmethod
    def init(self, params: Tensor) -> OptimizerState:
        """State before the first step."""

    @abstractmethod
    def step(
        self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor
    ) -> tuple[Tensor, OptimizerState]:
        """Parameters and state after one step."""

    def step_(self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor) -> None:
        """The same step written over `params` and `state`; optimizers that can save memory traffic do."""
        after, slots = self.step(params, gradient, state, lr)
        params.copy_(after)
        for name, values in slots.items():
            state[name].copy_(values)

    def penalised(self, params: Tensor, gradient: Tensor) -> Tensor:
        """The gradient with that of the weight-decay penalty added."""
        return torch.add(gradient, params, alpha=self.weight_decay) if self.weight_decay else gradient
