"""Multiple-gradient descent near the usual weights: FedMGDA+."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator, normalised, weighted_sum
from fairlead.client_table import PartState
from fairlead.errors import require_number
from fairlead.numerics.minimum_norm import shortest_in_box
from fairlead.numerics.row_products import inner_products
from fairlead.records import Aggregate, ClientUpdates, Conditions, Limit


@dataclass(frozen=True)
class FedMGDA(Aggregator):
    """Follows the shortest combination of normalized updates with weights near the usual ones (FedMGDA+).

        d = Σ_R λ_i Δ_i/‖Δ_i‖,    λ = argmin ‖d‖² over the simplex with |λ_i − p̂_i| ≤ ε

    Symbols: R the clients that arrived, p̂_i their importance normalized, ε `epsilon`. An update of zero stays
    zero, so that with ε = 1 its client alone makes d = 0. The record holds λ_i/‖Δ_i‖, the coefficients
    of the updates as they came.

    Reduces to the mean of normalized updates for ε = 0; for ε = 1 to multiple-gradient descent, whose
    step never hurts a client to first order.

    Differs from released code of others: FedLab's has no box and refuses short updates. ‖d‖ ≤ 1 whatever the
    updates: the server's learning rate, which the paper lets decay, sets the step. Limit: a Pareto
    point for ε = 1, which no objective weights determine.
    """

    epsilon: float = 0.1

    references = ("hu2022fedmgda",)
    exemptions: ClassVar[Mapping[str, str]] = {"identical rows": "updates are normalized to length 1"}

    def __post_init__(self) -> None:
        require_number(self, "epsilon", at_least=0, at_most=1)

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, updates.importance)
        gram = inner_products(updates.delta, torch.arange(len(updates))).cpu()
        lengths = gram.diagonal().clamp(min=0).sqrt()
        scale = torch.where(lengths > 0, 1 / lengths, 0.0)
        share = normalised(updates.importance)
        lower, upper = (share - self.epsilon).clamp(min=0), (share + self.epsilon).clamp(max=1)
        point = shortest_in_box(gram * scale[:, None] * scale, lower, upper)
        coefficients = point.weights * scale
        facts = {"mgda_gap": point.gap, "mgda_squared_norm": point.squared_norm}
        return Aggregate(weighted_sum(coefficients, updates.delta), state, coefficients, facts=facts)

    def limit(self, weights: Tensor) -> Limit:
        where = (
            "it stops at a Pareto-stationary point, where no direction helps every client; which point depends "
            "on the start"
            if self.epsilon == 1
            else "it stops where weights near the usual ones balance the clients' normalized updates, whatever "
            "the lengths of their gradients"
        )
        return Limit(None, f"FedMGDA+ minimizes no weighted sum of the clients' objectives: {where}.")
