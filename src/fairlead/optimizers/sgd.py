"""Stochastic gradient descent with momentum."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairlead.errors import FieldError, require_number
from fairlead.optimizers.base import Optimizer, OptimizerState


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent, plain or with (Nesterov) momentum.

        v ← ρ v + (1 − δ) g
        y ← y − η v              (momentum)
        y ← y − η (g + ρ v)      (nesterov)

    Symbols: ρ `momentum`, δ `dampening`, η `lr`; v starts at zero in every round on a client, and is
    kept between rounds on the server.

    Reduces to plain descent for ρ = 0.

    Differs from torch.optim.SGD: the first gradient is damped like all others, since the buffer
    starts at zero; without dampening the two agree.

    As the server's optimizer with lr = 1 it applies the direction unchanged; with momentum it is
    FedAvgM's server (Hsu et al., 2019).
    """

    momentum: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0

    linear: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self, "momentum", at_least=0, below=1)
        require_number(self, "dampening", at_least=0, below=1)
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise FieldError("SGD.nesterov needs momentum above 0 and dampening 0.")

    def init(self, params: Tensor) -> OptimizerState:
        return {"velocity": torch.zeros_like(params)} if self.momentum else {}

    def step(
        self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor
    ) -> tuple[Tensor, OptimizerState]:
        gradient = self.penalised(params, gradient)
        if not self.momentum:
            return torch.addcmul(params, lr, gradient, value=-1), state
        velocity = torch.add(self.momentum * state["velocity"], gradient, alpha=1 - self.dampening)
        return torch.addcmul(params, lr, self._ahead(gradient, velocity), value=-1), {"velocity": velocity}

    def step_(self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor) -> None:
        gradient = self.penalised(params, gradient)
        if self.momentum:
            velocity = state["velocity"].mul_(self.momentum).add_(gradient, alpha=1 - self.dampening)
            gradient = self._ahead(gradient, velocity)
        params.addcmul_(lr, gradient, value=-1)

    def _ahead(self, gradient: Tensor, velocity: Tensor) -> Tensor:
        return torch.add(gradient, velocity, alpha=self.momentum) if self.nesterov else velocity
