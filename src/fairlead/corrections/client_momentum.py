"""Momentum that the server gives to its clients: FedCM."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairlead.corrections.base import Correction
from fairlead.errors import require_number
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

    alpha: float = 0.1

    references = ("xu2021fedcm",)
    exemptions: ClassVar[Mapping[str, str]] = {
        "neutral": "it scales the gradient by α even before there is a momentum"
    }
    shared_names: ClassVar[tuple[str, ...]] = ("momentum",)
    needs_effective_steps: ClassVar[bool] = True
    hides_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_number(self, "alpha", above=0, at_most=1)

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

    def weights_under(self, contributions: Contributions, averaging: Averaging) -> Limit:
        # At rest the momentum is Σ p̂_i∇F_i with p̂ the arrivals' normalized importance, whatever their work.
        if averaging == "other":
            return Limit(None, "The weights of FedCM are known only for the mean of the arrivals.")
        by_work, alike = (part / part.sum() for part in (contributions.mass, contributions.coefficient))
        return Limit(
            self.alpha * by_work + (1 - self.alpha) * alike,
            f"FedCM mixes weights by work (a share of {self.alpha:g}, its alpha) with weights without it.",
        )
