"""Sampling by the length of updates: OS."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fairlead.client_table import PartState, tensor_in
from fairlead.errors import require_integer, require_number
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Cohort, Conditions, Participation, Population
from fairlead.samplers.base import Sampler
from fairlead.samplers.weighted import MOST_DRAWS, draw_with_replacement


@dataclass(frozen=True)
class OptimalSampling(Sampler):
    """Asks clients by the weighted length of their updates, which lowers the variance of the sum.

        p_i = (1 − floor)·ω_i n_i/Σ ω_j n_j + floor·ω_i,   importance_i = c_i ω_i/(K p_i)     (Weng 2025 (20))

    Symbols: K `cohort_size` independent draws, c_i how often client i was drawn, n_i = ‖Δ_i‖ of the last
    update received from client i. A client never received counts with the largest n known (1 if none is
    positive); if all n are zero, p = ω.

    Reduces to `WeightedWithReplacement` for `floor` = 1 or equal n.

    Differs from the paper, which assumes this round's norms known before the draw (they cost a round of
    messages) and leaves out ω; any p > 0 gives the same mean, so only the variance is affected. With
    `floor` = 0, the paper's form, a client whose last update was zero would never be asked again,
    although the model has moved since: the floor asks everyone now and then and bounds the
    importance by c_i/(K·floor). Lost updates bias it like every rule that does not correct links.
    """

    cohort_size: int
    floor: float = 0.1

    references = ("chen2022optimal", "weng2025fedacs")
    needs_single_updates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_integer(self, "cohort_size", at_least=1, at_most=MOST_DRAWS)
        require_number(self, "floor", at_least=0, at_most=1)

    def init(self, population: Population) -> PartState:
        return {"norm": torch.full((population.num_clients,), -1.0, dtype=torch.float64)}

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        weights = conditions.weights
        probabilities = self.probabilities(state, weights)
        cohort = draw_with_replacement(probabilities, self.cohort_size, key)
        clients = cohort.clients
        return replace(cohort, importance=cohort.importance * weights[clients] / probabilities[clients])

    def probabilities(self, state: PartState, weights: Tensor) -> Tensor:
        """p of the coming round, (N,)."""
        norm = tensor_in(state, "norm")
        largest = norm.max()
        score = weights * torch.where(norm < 0, torch.where(largest > 0, largest, 1.0), norm)
        total = score.sum()
        by_norm = score / total if total > 0 else weights
        return (1 - self.floor) * by_norm + self.floor * weights

    def observe(
        self, state: PartState, conditions: Conditions, cohort: Cohort, updates: ClientUpdates
    ) -> PartState:
        received = torch.linalg.vector_norm(updates.delta, dim=1, dtype=torch.float64).cpu()
        return {"norm": tensor_in(state, "norm").index_put((updates.clients,), received)}

    def participation(self, conditions: Conditions) -> Participation:
        # Whatever the chances are, importance divides by them.
        return Participation(conditions.weights, None)
