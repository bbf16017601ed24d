"""Gradient descent with momentum, and with adaptive steps: Adagrad, Adam, Yogi and AMSGrad."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairlead.component import BelowOne, NotNegative, Positive
from fairlead.errors import FieldError
from fairlead.optimizers.base import Optimizer, OptimizerState, Stepped


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

    momentum: BelowOne = 0.0
    nesterov: bool = False
    dampening: BelowOne = 0.0

    linear = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise FieldError("SGD.nesterov needs momentum above 0 and dampening 0.")

    def init(self, params: Tensor) -> OptimizerState:
        return {"velocity": torch.zeros_like(params)} if self.momentum else {}

    def step(self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor) -> Stepped:
        gradient = self.penalized(params, gradient)
        if not self.momentum:
            return torch.addcmul(params, lr, gradient, value=-1), state
        velocity = torch.add(self.momentum * state["velocity"], gradient, alpha=1 - self.dampening)
        return torch.addcmul(params, lr, self._ahead(gradient, velocity), value=-1), {"velocity": velocity}

    def step_(self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor) -> None:
        gradient = self.penalized(params, gradient)
        if self.momentum:
            velocity = state["velocity"].mul_(self.momentum).add_(gradient, alpha=1 - self.dampening)
            gradient = self._ahead(gradient, velocity)
        params.addcmul_(lr, gradient, value=-1)

    def _ahead(self, gradient: Tensor, velocity: Tensor) -> Tensor:
        return torch.add(gradient, velocity, alpha=self.momentum) if self.nesterov else velocity


@dataclass(frozen=True)
class _Adaptive(Optimizer, ABC):
    """Family of steps scaled by the size of past gradients: asks for the second moment.

    m ← β₁ m + (1 − β₁) g,   y ← y − η m/(√v + ε)
    """

    beta1: BelowOne = 0.9
    eps: Positive = 1e-4
    initial_v: NotNegative = 0.0
    """v before the first step; Reddi et al. ask for at least ε², released code starts at 0."""

    linear = False

    def init(self, params: Tensor) -> OptimizerState:
        return {"m": torch.zeros_like(params), "v": torch.full_like(params, self.initial_v)}

    def step(self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor) -> Stepped:
        gradient = self.penalized(params, gradient)
        m = self.beta1 * state["m"] + (1 - self.beta1) * gradient
        v = self.second_moment(state["v"], gradient.square())
        move, more = self.scaled(m, v, state, lr)
        return params - move, {"m": m, "v": v, **more}

    @abstractmethod
    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """v after a gradient with the given square."""

    def scaled(self, m: Tensor, v: Tensor, state: OptimizerState, lr: Tensor) -> Stepped:
        """The step along m and v, and the rest of the state after it."""
        return lr * m / (v.sqrt() + self.eps), {}


@dataclass(frozen=True)
class _Discounted(_Adaptive, ABC):
    """Adaptive steps whose second moment forgets: v ← β₂ v + (1 − β₂) g²."""

    beta2: BelowOne = 0.99

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class Adagrad(_Adaptive):
    """Adaptive steps by the sum of squared gradients: v ← v + g² (FedAdagrad on the server).

    Symbols: β₁ `beta1`, ε `eps`. Reddi et al. use β₁ = 0, the default here.
    """

    beta1: BelowOne = 0.0
    references = ("reddi2021",)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square


@dataclass(frozen=True)
class Adam(_Discounted):
    """Adaptive steps by a moving average of squared gradients (FedAdam on the server).

        v ← β₂ v + (1 − β₂) g²

    Symbols: β₁ `beta1`, β₂ `beta2`, ε `eps`. With `bias_correction`, m and v are divided by 1 − β₁ᵗ
    and 1 − β₂ᵗ as in Kingma and Ba; FedAdam of Reddi et al. does not do this.

    The defaults are those of FedAdam on the server, because one class serves both sides: averaged updates are larger
    and fewer than gradients. For clients, the usual values are Adam(lr, beta2=0.999, eps=1e-8).

    Reduces to torch.optim.Adam with bias correction and `initial_v` = 0.
    """

    bias_correction: bool = True
    references = ("reddi2021",)

    def init(self, params: Tensor) -> OptimizerState:
        return {**super().init(params), "t": params.new_zeros((*params.shape[:-1], 1))}

    def scaled(self, m: Tensor, v: Tensor, state: OptimizerState, lr: Tensor) -> Stepped:
        t = state["t"] + 1
        if self.bias_correction:
            m, v = m / (1 - self.beta1**t), v / (1 - self.beta2**t)
        return lr * m / (v.sqrt() + self.eps), {"t": t}


@dataclass(frozen=True)
class Yogi(_Discounted):
    """Adam with a second moment that changes by bounded amounts (FedYogi on the server).

        v ← v − (1 − β₂) g² sign(v − g²)

    Symbols: β₁ `beta1`, β₂ `beta2`, ε `eps`; sign(0) = 0.
    """

    references = ("reddi2021",)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * torch.sign(v - square)


@dataclass(frozen=True)
class AMSGrad(_Discounted):
    """Adam with a second moment that never falls (FedAMS on the server, Wang, Lin and Chen 2022).

        v ← β₂ v + (1 − β₂) g²
        v̂ ← max(v̂, v, ε),  y ← y − η m/√v̂          (floor = "square": FedAMS, option 1)
        v̂ ← max(v̂, v),     y ← y − η m/(√v̂ + ε)    (floor = "root": FedAMSGrad, option 2)

    Symbols: β₁ `beta1`, β₂ `beta2`, ε `eps`. Note that ε meets a square in option 1 and a root in
    option 2.

    Differs from the authors' released code, which adds Adam's bias corrections to option 2; their
    paper has none, and neither has this.
    """

    floor: Literal["square", "root"] = "root"
    references = ("wang2022fedams",)

    def init(self, params: Tensor) -> OptimizerState:
        return {**super().init(params), "v_max": torch.zeros_like(params)}

    def scaled(self, m: Tensor, v: Tensor, state: OptimizerState, lr: Tensor) -> Stepped:
        v_max = torch.maximum(state["v_max"], v)
        if self.floor == "square":
            v_max = v_max.clamp(min=self.eps)
            return lr * (m / v_max.sqrt()), {"v_max": v_max}
        return lr * (m / (v_max.sqrt() + self.eps)), {"v_max": v_max}
