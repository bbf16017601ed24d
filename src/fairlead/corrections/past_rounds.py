"""Corrections that carry earlier rounds into local work: the momentum of FedCM, the stale start of FedAWE."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.component import Positive, PositiveShare
from fairlead.corrections.base import Correction, LocalOutcome, LocalResult
from fairlead.records import Averaging, ClientUpdates, Contributions, Limit, Vectors


@dataclass(frozen=True)
class ClientMomentum(Correction):
    """Mixes every local gradient with the cohort's mean gradient of the last round (FedCM, Xu et al. 2021).

        g ← α g + (1 − α) Δ
        Δ⁺ = Σ_R p̂_i (x − y_i)/(ητ_i)

    Symbols: α `alpha`, Δ `shared["momentum"]`, p̂_i the importance normalized over arrivals, τ_i the steps of
    client i: for any linear solver ‖a_i‖₁ of the solver without this correction.

    Reduces to no correction for α = 1.

    Differs from the paper, which writes one common K for all τ_i and prints x − η_gΔ⁺, so that its server
    step carries the factor ηK; here the server adds Σ p̂_i(y_i − x). With unequal work and the own τ_i the
    limit is that of weights α·(‖a‖-weighted) + (1 − α)·ω: the bias of FedAvg shrinks by α and stays. A
    common K in Δ⁺ would not change it.
    """

    alpha: PositiveShare = 0.1

    references = ("xu2021fedcm",)
    exemptions = {"neutral": "it scales the gradient by α even before there is a momentum"}
    shared_names = ("momentum",)
    needs_effective_steps = True
    hides_weights = True

    def initial_shared(self, params: Tensor) -> Vectors:
        return {"momentum": torch.zeros_like(params)}

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        return self.alpha * gradient + (1 - self.alpha) * shared["momentum"]

    def update_shared(self, shared: Vectors, updates: ClientUpdates, weights: Tensor) -> Vectors:
        assert updates.effective_steps is not None
        total = updates.importance.sum()
        if updates.lr == 0 or total == 0:
            # No client of positive importance has moved: there is no gradient to learn.
            return shared
        # The probe sees raw gradients through the factor α: without it the work is 1/α times as much.
        work = updates.lr * updates.effective_steps / self.alpha
        coefficients = updates.importance / (total * work)
        return {"momentum": -coefficients.to(updates.delta) @ updates.delta}

    def sum_weights(self, updates: ClientUpdates, weights: Tensor) -> Tensor:
        assert updates.effective_steps is not None
        return (updates.importance / updates.effective_steps)[None]

    def weights_under(self, contributions: Contributions, averaging: Averaging) -> Limit:
        # At rest the momentum is Σ p̂_i∇F_i with p̂ the arrivals' normalized importance, whatever their work.
        if averaging == "other":
            return Limit(None, "The weights of FedCM are known only for the mean of the received updates.")
        by_work, alike = (part / part.sum() for part in (contributions.mass, contributions.coefficient))
        return Limit(
            self.alpha * by_work + (1 - self.alpha) * alike,
            f"FedCM mixes weights by work (a share of {self.alpha:g}, its alpha) with weights without it.",
        )


@dataclass(frozen=True)
class StaleStart(Correction):
    """Clients resume from their own last model and make up for missed rounds (FedAWE, Xiang et al. 2024).

        y_i from x_i by local work
        x_i† = x_i + γ (t − t_i)(y_i − x_i),   upload x_i† − x
        x_i ← x⁺,  t_i ← t                      once the new global parameters x⁺ are known

    Symbols: t the round, t_i the last round in which client i arrived (−1 at first), γ `echo` (the paper's
    η_g), x_i `memory["own_model"]`, t_i + 1 `memory["adopted_at"]`, x the anchor, x⁰ `shared["first_model"]`,
    from which a client that never arrived starts. The mean of the uploads makes x⁺ = Σ_R p̂_i x_i†, so the
    aggregator must be `WeightedMean` and the server's learning rate 1.

    A client that arrives with rate 1 − q_i waits 1/(1 − q_i) rounds on average, so echoing gives all
    clients the same share of steps without knowing q: unequal links move the limit only by O(η). Unequal
    work moves it as it moves FedAvg's.

    Reduces to no correction for γ = 1 when every client arrives in every round.

    Differs from the paper: weights p̂_i where it has a plain mean, the same for uniform ω; the initial model
    is broadcast in every round instead of being kept by clients that have not arrived yet.
    """

    echo: Positive = 1.0

    references = ("xiang2024fedawe",)
    memory_extent = {"own_model": "vector", "adopted_at": "scalar"}
    shared_names = ("first_model",)
    needs_aggregator = "WeightedMean"
    starts_elsewhere = True
    hides_weights = True

    def initial_shared(self, params: Tensor) -> Vectors:
        return {"first_model": params}

    def start_from(self, anchor: Tensor, memory: Vectors, shared: Vectors) -> Tensor:
        return torch.where(memory["adopted_at"] > 0, memory["own_model"], shared["first_model"])

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        return gradient

    def after_steps(self, outcome: LocalOutcome, memory: Vectors, shared: Vectors) -> LocalResult:
        start = self.start_from(outcome.anchor, memory, shared)
        now = outcome.round + 1
        missed = now - memory["adopted_at"]
        echoed = start + self.echo * missed * (outcome.anchor + outcome.delta - start)
        adopted_at = torch.full_like(memory["adopted_at"], now)
        return LocalResult(echoed - outcome.anchor, {"own_model": start, "adopted_at": adopted_at}, {})

    def after_round(self, memory: Vectors, params: Tensor, direction: Tensor) -> Vectors:
        return {"own_model": params.expand_as(memory["own_model"]), "adopted_at": memory["adopted_at"]}

    def weights_under(self, contributions: Contributions, averaging: Averaging) -> Limit:
        # Averaging the arrivals by ω does not change Σ ω_i x_i of all own models: only ω_i times the
        # echoed work does.
        if averaging != "weights":
            return Limit(
                None, "The weights of FedAWE are known only where arrivals are averaged in proportion to ω."
            )
        mass = contributions.weights * contributions.echoed
        return Limit(
            mass / mass.sum(),
            "FedAWE weighs every client by its weight times its work, echoed for the rounds it missed.",
        )
