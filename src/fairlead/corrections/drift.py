"""Corrections of client drift: FedProx, FedDyn, SCAFFOLD's control variates and VRL-SGD."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairlead.component import NotNegative, Positive
from fairlead.corrections.base import Correction, LocalOutcome, LocalResult
from fairlead.records import Averaging, ClientUpdates, Contributions, Limit, Vectors


@dataclass(frozen=True)
class Proximal(Correction):
    """Pulls the local model back to the anchor (FedProx, Li et al. 2020).

        F_i(y) + (μ/2)‖y − x‖²,   so   g ← g + μ (y − x)

    Symbols: μ `mu`, x the anchor, y the local parameters.

    Reduces to no correction for μ = 0. The solver stays linear, with a_j = (1 − ημ)^(τ−1−j).
    """

    mu: NotNegative
    references = ("li2020fedprox",)

    @property
    def pull(self) -> float:
        return self.mu

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        return gradient + self.mu * (local - anchor)


@dataclass(frozen=True)
class DynamicRegularizer(Correction):
    """Adds a penalty that makes the global optimum stationary for every client (FedDyn, Acar et al. 2021).

        F_i(y) − ⟨L_i, y⟩ + (α/2)‖y − x‖²,   so   g ← g − L_i + α (y − x)
        L_i ← L_i − α (y_i − x)

    Symbols: L_i `memory["slope"]`, which tends to ∇F_i; α `alpha`; x the anchor, y the local parameters.

    It is the client's half of FedDyn and works only with the aggregator `FedDyn`, whose running sum makes
    x the place where Σ ω_i L_i = 0. There y_i = x and L_i = ∇F_i(x) for all clients, whatever their work
    and their links: the limit is the optimum.

    Differs from the authors' code, which scales α by client size, clips gradients and stores Σ(y_i − x)
    instead of L_i; the last is equivalent.
    """

    alpha: Positive

    references = ("acar2021feddyn",)
    memory_extent = {"slope": "vector"}
    needs_aggregator = "FedDyn"
    restores_weights = True

    @property
    def pull(self) -> float:
        return self.alpha

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        return gradient - memory["slope"] + self.alpha * (local - anchor)

    def after_steps(self, outcome: LocalOutcome, memory: Vectors, shared: Vectors) -> LocalResult:
        return LocalResult(outcome.delta, {"slope": memory["slope"] - self.alpha * outcome.delta}, {})


@dataclass(frozen=True)
class ControlVariates(Correction):
    """Replaces the client's own drift by the average one (SCAFFOLD, Karimireddy et al. 2020).

        g ← g − c_i + c
        c_i⁺ = ∇F_i(x)                                    (estimate = "anchor": option I)
        c_i⁺ = c_i − c + (x − y_i)/(η‖a_i‖₁)              (estimate = "path": option II)
        c ← c + Σ_R ω_i (c_i⁺ − c_i)

    Symbols: c_i `memory["control"]`, c `shared["control_mean"]`, R the clients that arrived. Option II
    is the mean of the raw local gradients, weighted by a_i.

    Reduces to SCAFFOLD's printed option II for plain SGD, where ‖a_i‖₁ = τ_i, and to its
    (1/N)Σ(c_i⁺ − c_i) for uniform weights. With the aggregator `FedNova` it is FedNova-VR (Wang 2021), read
    with raw gradients: d_i of the paper is c_i.

    Differs from the paper: own τ_i and, for option II, any linear solver; unbiased for unequal work and
    links.
    """

    estimate: Literal["path", "anchor"] = "path"

    references = ("karimireddy2020scaffold", "wang2021fednova")
    memory_extent = {"control": "vector"}
    shared_names = ("control_mean",)
    restores_weights = True
    pull = 0.0

    @property
    def needs_effective_steps(self) -> bool:
        return self.estimate == "path"

    @property
    def needs_anchor_gradient(self) -> bool:
        return self.estimate == "anchor"

    def initial_shared(self, params: Tensor) -> Vectors:
        return {"control_mean": torch.zeros_like(params)}

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        return gradient - memory["control"] + shared["control_mean"]

    def after_steps(self, outcome: LocalOutcome, memory: Vectors, shared: Vectors) -> LocalResult:
        old = memory["control"]
        if self.estimate == "anchor":
            assert outcome.anchor_gradient is not None
            new = outcome.anchor_gradient
        elif outcome.lr == 0:
            # A schedule may end at 0: such a client has not moved and learned nothing.
            new = old
        else:
            assert outcome.effective_steps is not None
            travelled = outcome.delta / (outcome.lr * outcome.effective_steps)
            new = old - shared["control_mean"] - travelled
        return LocalResult(outcome.delta, {"control": new}, {"control_change": new - old})

    def update_shared(self, shared: Vectors, updates: ClientUpdates, weights: Tensor) -> Vectors:
        change = updates.messages["control_change"]
        return {"control_mean": shared["control_mean"] + weights.to(change) @ change}

    def sum_weights(self, updates: ClientUpdates, weights: Tensor) -> Tensor:
        # c_i⁺ − c_i + c = −Δ_i/(η‖a_i‖₁), so its sum is one of updates: both together may show a single client.
        work = updates.num_steps if updates.effective_steps is None else updates.effective_steps
        return (weights / work)[None]


@dataclass(frozen=True)
class VRLSGD(Correction):
    """Subtracts each client's own deviation from the average model (Liang et al. 2019).

        g ← g − Δ_i
        Δ_i ← Δ_i + (x̂ − y_i)/(η‖a_i‖₁)        once the mean x̂ = Σ_R p̂_i y_i is known

    Symbols: Δ_i `memory["drift"]`, 1/(η‖a_i‖₁) `memory["pace"]`, y_i the local parameters, x̂ the aggregate,
    which is the new model if the server's learning rate is 1. Nothing is broadcast or uploaded beside the
    model.

    For constant work Σ_i ‖a_i‖₁Δ_i = 0 in every round, so the limit solves Σ_i ‖a_i‖₁∇F_i = 0 exactly for any
    η: equal work removes client drift, unequal work moves the limit to the point that FedAvg only reaches
    as η → 0. When the work changes from round to round the sum is lost. A step then feeds the next one with
    the factor Σ ω_i‖a_i(t+1)‖₁/‖a_i(t)‖₁, above 1 on average: where the curvature met in a round outweighs
    the excess the model comes to rest at a point that depends on the start, otherwise it diverges.

    Reduces to the printed method for plain SGD, where ‖a_i‖₁ = τ_i, with full participation and uniform
    weights. The paper has no other case; elsewhere the same formulas hold. With weights ω the invariant is
    Σ ω_i‖a_i‖₁Δ_i = 0. A client that is absent or lost keeps its Δ_i, and the sum survives as long as those
    that arrive are averaged in proportion to ω; sampling with replacement breaks it.
    """

    references = ("liang2019vrlsgd",)
    memory_extent = {"drift": "vector", "pace": "scalar"}
    needs_effective_steps = True
    pull = 0.0

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        return gradient - memory["drift"]

    def after_steps(self, outcome: LocalOutcome, memory: Vectors, shared: Vectors) -> LocalResult:
        assert outcome.effective_steps is not None
        # A client with a learning rate of 0 has not moved and learned nothing about its drift.
        pace = (1 / outcome.lr if outcome.lr else 0.0) / outcome.effective_steps
        # x̂ is not known yet: its share of the new Δ_i is added by `after_round`. Both are displacements from x: x̂
        # and y_i share most of their digits, and in single precision Σ ω_i‖a_i‖₁Δ_i would not stay zero.
        return LocalResult(outcome.delta, {"drift": memory["drift"] - pace * outcome.delta, "pace": pace}, {})

    def after_round(self, memory: Vectors, params: Tensor, direction: Tensor) -> Vectors:
        return {"drift": memory["drift"] + memory["pace"] * direction, "pace": memory["pace"]}

    def weights_under(self, contributions: Contributions, averaging: Averaging) -> Limit:
        if averaging != "weights" or not contributions.steady:
            return Limit(
                None,
                "VRL-SGD has a unique limit only for constant work and arrivals averaged in proportion to ω; "
                "here it stops at a point that depends on the start.",
            )
        mass = contributions.weights * contributions.work
        return Limit(
            mass / mass.sum(),
            "VRL-SGD weighs every client by its weight times its work, exactly and whatever the links are.",
            exact=True,
        )
