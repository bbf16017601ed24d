"""Changes of the direction: bounded, extrapolated, and projected on FedAWARE's direction."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.client_table import PartState
from fairlead.component import Positive
from fairlead.memory.update_memory import AwareMemory, remembered_part, resolve_alpha, with_remembered_part
from fairlead.numerics.rows import wide_sum
from fairlead.records import ClientUpdates, Conditions, Limit, Transformed
from fairlead.transforms.base import DirectionTransform


@dataclass(frozen=True)
class Clip(DirectionTransform):
    """Shortens the direction to a given norm: d ← d·min(1, bound/‖d‖).

    Reduces to no change while ‖d‖ ≤ `bound`. The record has the factor.
    """

    bound: Positive

    stage = "aggregate"

    def transform(
        self, direction: Tensor, updates: ClientUpdates, state: PartState, conditions: Conditions
    ) -> Transformed:
        # In float64, since an infinite norm would shorten a long direction to zero.
        norm = torch.linalg.vector_norm(direction, dtype=torch.float64)
        factor = self.bound / norm.clamp(min=self.bound)
        return Transformed(direction * factor.to(direction), state, {"clip_factor": float(factor)})


@dataclass(frozen=True)
class Extrapolation(DirectionTransform):
    """Lengthens the direction where the clients' updates point apart (FedExP, Jhunjhunwala et al. 2023).

        d ← η_g d,   η_g = max(1, Σ_R p̂_i‖Δ_i‖² / (2(‖Σ_R p̂_i Δ_i‖² + ε)))

    Symbols: R the clients that arrived, p̂_i their importance normalized, ε `eps`. With ε = 0, η_g is half of the
    squared diversity of the updates (LUD²/2). It needs the updates alone, and therefore extends any aggregator's
    direction; the record holds η_g as `extrapolation`.

    Reduces to no change while the updates agree: η_g = 1 if Σ p̂_i‖Δ_i‖² ≤ 2‖Σ p̂_i Δ_i‖², and for large ε.

    Differs from the paper: weights p̂_i, for which the paper has 1/M; the model is the last one, where the paper uses
    the mean of the last two, because steps overshoot. Near a minimum of clients that differ, ‖Σ p̂_i Δ_i‖ vanishes and
    the updates do not: only ε then bounds η_g, and models may circle the minimum.
    """

    eps: Positive = 1e-3

    references = ("jhunjhunwala2023fedexp",)
    stage = "aggregate"
    needs_single_updates = True

    def transform(
        self, direction: Tensor, updates: ClientUpdates, state: PartState, conditions: Conditions
    ) -> Transformed:
        factor, total = 1.0, float(updates.importance.sum())
        if total > 0:
            shares = updates.importance / total
            squares = torch.linalg.vector_norm(updates.delta, dim=1, dtype=torch.float64).square().cpu()
            mean = torch.linalg.vector_norm(wide_sum(shares, updates.delta), dtype=torch.float64).square()
            factor = max(1.0, float(shares @ squares) / (2 * (float(mean) + self.eps)))
        return Transformed(direction * factor, state, {"extrapolation": factor})


@dataclass(frozen=True)
class AwareProjection(AwareMemory, DirectionTransform):
    """Projects a method's step on the direction that FedAWARE would take (Zeng 2025, Proposition 3.1).

        step ← (⟨step, d⟩/⟨d, d⟩) d

    Symbols: step, the displacement that the base method's server makes (η_g d̃ in the paper, with the other
    sign), d FedAWARE's direction from a memory of its own. Sign and length of d do not matter. The base
    method's state (momentum, second moments) is that of the unprojected method. Where ⟨step, d⟩ < 0 the
    step goes along −d; the record holds the cosine, and λ instead of the base method's coefficients.

    Fields as in `FedAWARE`. While the memory has not started (`start` = "all_seen", as in released code) the
    step passes unchanged. Parameters outside `memory.layers` keep the base method's step, and the projection
    is that of the remembered ones.

    Reduces to no change where step and d are parallel, in particular with one client and α = 1 under
    FedAvg.

    Differs from the paper: d = 0, which Zeng 2025 excludes, has the zero vector as its projection: the model then
    does not move, and the record has `aware_zero` = 1.
    """

    references = ("zeng2025fedaware",)
    stage = "step"
    needs_descent = True
    needs_single_updates = True
    hides_weights = True

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve_alpha(self)

    def transform(
        self, direction: Tensor, updates: ClientUpdates, state: PartState, conditions: Conditions
    ) -> Transformed:
        recalled = self.recall(state, updates, conditions)
        facts = recalled.facts
        if not recalled.ready:
            return Transformed(direction, recalled.state, facts)
        step = remembered_part(recalled.state, direction)
        facts["aware_zero"] = float(recalled.is_zero)
        projected = torch.zeros_like(step)
        if not recalled.is_zero:
            axis = self.averages.combined(recalled.state, recalled.coefficients, direction).double()
            axis = axis / torch.linalg.vector_norm(axis)
            along = axis @ step.double()
            length = float(torch.linalg.vector_norm(step.double()))
            facts["aware_cosine"] = float(along) / length if length > 0 else 0.0
            projected = (along * axis).to(step)
        changed = with_remembered_part(recalled.state, direction, projected)
        weights = conditions.weights
        remembered = self.averages.by_client(recalled.state, recalled.coefficients, weights)
        return Transformed(changed, recalled.state, facts, remembered, self.shares(recalled, weights))

    def limit(self, weights: Tensor) -> Limit:
        return Limit(
            None,
            "A step projected on FedAWARE's direction minimizes no weighted sum of the clients' objectives: the "
            "method stops at a Pareto-stationary point, or where its own step is orthogonal to that direction.",
        )
