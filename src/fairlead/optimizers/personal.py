"""Client steps of personal methods, whose gradients are taken elsewhere than at the parameters that they move.

Local steps follow a cycle of gradients: `params` are the point of the next one, and `position` the parameters that the
client has reached.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fairlead.component import NotNegative, Positive, UnitInterval, WholeRange
from fairlead.numerics.rows import widest_float
from fairlead.optimizers.base import Optimizer, OptimizerState, Stepped


@dataclass(frozen=True)
class MetaSGD(Optimizer):
    """Descends the loss after one step of adaptation (per-FedAvg, Fallah et al. 2020).

        y ← y − η (g′ − α d),   g′ = ∇F_i(y − α ∇F_i(y; D); D′)
        d = 0                                                        (first order)
        d = [∇F_i(y + δ g′; D″) − ∇F_i(y − δ g′; D″)] / (2δ)          (Hessian-free)

    Symbols: η `lr`, α `inner_lr`, δ `delta`, None for the first order; D, D′, D″ different batches. A step takes two
    batches and two gradients, or three and four; what is left of an epoch is not used.

    Reduces to `SGD` for α = 0 in the first order, on every second batch.
    """

    inner_lr: NotNegative = 0.01
    delta: Positive | None = None

    references = ("fallah2020perfedavg",)
    linear = False

    @property
    def cycle(self) -> tuple[int, ...]:
        return (0, 1) if self.delta is None else (0, 1, 2, 2)

    def init(self, params: Tensor) -> OptimizerState:
        slots = {"base": params, "phase": torch.zeros_like(params[..., :1])}
        if self.delta is not None:
            slots |= {"outer": torch.zeros_like(params), "ahead": torch.zeros_like(params)}
        return slots

    def step(self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor) -> Stepped:
        gradient, base, phase = self.penalized(params, gradient), state["base"], state["phase"]
        adapted = base - self.inner_lr * gradient
        if self.delta is None:
            moved = torch.where(phase == 1, base - lr * gradient, base)
            return torch.where(phase == 0, adapted, moved), {"base": moved, "phase": (phase + 1) % 2}
        outer = torch.where(phase == 1, gradient, state["outer"])
        ahead = torch.where(phase == 2, gradient, state["ahead"])
        curvature = (ahead - gradient) / (2 * self.delta)
        moved = torch.where(phase == 3, base - lr * (outer - self.inner_lr * curvature), base)
        shift = self.delta * outer
        query = torch.where(phase == 0, adapted, torch.where(phase == 1, base + shift, base - shift))
        slots = {"base": moved, "phase": (phase + 1) % 4, "outer": outer, "ahead": ahead}
        return torch.where(phase == 3, moved, query), slots

    def position(self, params: Tensor, state: OptimizerState) -> Tensor:
        return state["base"]


@dataclass(frozen=True)
class MoreauSGD(Optimizer):
    """Descends the Moreau envelope of the loss (pFedMe, T. Dinh et al. 2020).

        θ ← θ − α (∇F_i(θ; D) + μ (θ − y))        K times on a batch D
        y ← y − η μ (y − θ)

    Symbols: η `lr`, μ `mu` (the paper's λ), α `inner_lr`, K `inner_steps`. θ starts at y and continues from batch to
    batch, as in the released code. The gradient of min_θ F_i(θ) + (μ/2)‖θ − y‖² at y is μ(y − θ).
    """

    mu: Positive = 15.0
    inner_lr: NotNegative = 0.01
    inner_steps: Annotated[int, WholeRange(1, 1000)] = 5

    references = ("dinh2020pfedme",)
    linear = False

    @property
    def cycle(self) -> tuple[int, ...]:
        return (0,) * self.inner_steps

    def init(self, params: Tensor) -> OptimizerState:
        return {"base": params, "phase": torch.zeros_like(params[..., :1])}

    def step(self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor) -> Stepped:
        base, phase = state["base"], state["phase"]
        theta = params - self.inner_lr * (self.penalized(params, gradient) + self.mu * (params - base))
        moved = base - lr * self.mu * (base - theta)
        base = torch.where(phase == self.inner_steps - 1, moved, base)
        return theta, {"base": base, "phase": (phase + 1) % self.inner_steps}

    def position(self, params: Tensor, state: OptimizerState) -> Tensor:
        return state["base"]


@dataclass(frozen=True)
class MixedSGD(Optimizer):
    """Trains a model whose mixture with the global one is used (APFL, Deng et al. 2020).

        w ← w − η ∇F_i(w; D),   v ← v − η α ∇F_i(α v + (1 − α) w; D)        both gradients at the old w and v
        α ← clip(α − η ⟨v − w, ∇F_i(α v + (1 − α) w; D)⟩, 0, 1)            `adaptive`, in the first step of a round

    Symbols: η `lr`, α `mix`; w starts at the anchor, v at the client's own model (`OwnParameters`). The client uses
    α v + (1 − α) x. With `adaptive`, α starts at `mix`, and every client learns its own and keeps it.

    Reduces to the global model for fixed α = 0. For fixed α = 1, v is trained on the client's data alone.

    Differs from the released code, where `adaptive` also pulls α to 0, by 0.02 α.
    """

    mix: UnitInterval = 0.5
    adaptive: bool = False

    references = ("deng2020apfl",)
    linear = False
    cycle = (0, 0)

    @property
    def kept(self) -> tuple[str, ...]:
        return ("mix_shift",) if self.adaptive else ()

    def init(self, params: Tensor) -> OptimizerState:
        number = torch.zeros_like(params[..., :1])
        if not self.adaptive:
            return {"own": params, "shared": params, "phase": number}
        # The first two phases of a round lie below 0.
        own = {"gap": torch.zeros_like(params), "mix_shift": number}
        return {"own": params, "shared": params, "phase": number - 2, **own}

    def start(self, anchor: Tensor, own: Tensor) -> Stepped:
        gap = {"gap": own - anchor} if self.adaptive else {}
        return anchor, {**self.init(own), "shared": anchor, **gap}

    def step(self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor) -> Stepped:
        gradient, phase, mix = self.penalized(params, gradient), state["phase"], self._mix(state)
        first = phase % 2 == 0
        shared = torch.where(first, state["shared"] - lr * gradient, state["shared"])
        own = torch.where(first, state["own"], state["own"] - lr * mix * gradient)
        query = torch.where(first, self.used(params, own, state), shared)
        slots = {"own": own, "shared": shared, "phase": torch.where(phase < 0, phase + 1, 1 - phase)}
        if self.adaptive:
            wide = widest_float(gradient.device)
            slope = (state["gap"] * gradient).sum(-1, keepdim=True, dtype=wide).to(gradient)
            learned = (mix - lr * slope).clamp(0, 1) - self.mix
            slots |= {"gap": state["gap"], "mix_shift": torch.where(phase == -1, learned, state["mix_shift"])}
        return query, slots

    def position(self, params: Tensor, state: OptimizerState) -> Tensor:
        return state["own"]

    def used(self, anchor: Tensor, own: Tensor, kept: Mapping[str, Tensor]) -> Tensor:
        mix = self._mix(kept)
        return mix * own + (1 - mix) * anchor

    def _mix(self, kept: Mapping[str, Tensor]) -> float | Tensor:
        """α of each client. Its distance from `mix` is kept, since clients begin with zeros."""
        return self.mix + kept["mix_shift"] if self.adaptive else self.mix
