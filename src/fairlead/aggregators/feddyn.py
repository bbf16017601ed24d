"""The server's half of FedDyn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from fairlead.aggregators.base import Aggregator, normalised, weighted_sum
from fairlead.client_table import PartState, tensor_in
from fairlead.records import Aggregate, ClientUpdates, Conditions, Population


@dataclass(frozen=True)
class FedDyn(Aggregator):
    """The mean update plus all that clients have moved so far (Acar et al. 2021).

        C ← C + Σ_R ω_i Δ_i
        direction = Σ_R p̂_i Δ_i + C

    Symbols: Δ_i = y_i − x the updates that arrived, p̂_i their importance normalized, C
    `state["displacement"]`, zero at first.

    The paper keeps h ← h − αΣ_R ω_iΔ_i (its weights are 1/N) and sets x⁺ = Σ_R p̂_i y_i − h/α. Both start at
    zero and h changes by −α times what C changes by, so h = −αC and x⁺ − x = Σ_R p̂_iΔ_i + C: α cancels, and
    only the clients need it. Since L_i ← L_i − αΔ_i, also h = Σ ω_i L_i over all clients, which is zero
    where the model rests.

    It works only with the correction `DynamicRegularizer`, the client's half: otherwise C grows without bound.

    Differs from the paper: any objective weights ω. With a server learning rate other than 1 or another
    server optimizer the resting points are the same.
    """

    references = ("acar2021feddyn",)
    needs_correction: ClassVar[str | None] = "DynamicRegularizer"
    exemptions: ClassVar[Mapping[str, str]] = {"identical rows": "it adds all that clients have moved so far"}
    proposes_descent: ClassVar[bool] = False
    needs_single_updates: ClassVar[bool] = False

    def init(self, population: Population) -> PartState:
        return {
            "displacement": torch.zeros(
                population.num_parameters, dtype=population.dtype, device=population.device
            )
        }

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        displacement = tensor_in(state, "displacement")
        if not len(updates):
            return Aggregate(displacement, state, None)
        weights = conditions.weights[updates.clients]
        displacement = displacement + weighted_sum(weights, updates.delta)
        direction = weighted_sum(normalised(updates.importance), updates.delta) + displacement
        return Aggregate(direction, {"displacement": displacement}, None)
