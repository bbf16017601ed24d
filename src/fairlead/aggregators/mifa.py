"""The mean of everyone's last update: MIFA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fairlead.aggregators.base import Aggregator
from fairlead.aggregators.last_updates import nothing_remembered, renewed
from fairlead.client_table import PartState, table_in, tensor_in
from fairlead.records import Aggregate, ClientUpdates, ClientWeights, Conditions, Population


@dataclass(frozen=True)
class MIFA(Aggregator):
    """Follows the mean of all clients' last updates, fresh or remembered (Gu et al. 2021).

        y_i ← Δ_i for i ∈ R,   then Σ_j ω_j y_j

    Symbols: R the clients that arrived, y_j the last update received from client j, zero at first. The sum
    is kept up to date, so that a round costs the rows that arrived and not all N.

    Reduces to `WeightedMean` when everyone arrives in every round.

    Differs from the paper: ω_j instead of 1/N, to which uniform weights reduce; memories start at zero
    instead of after a round in which everyone took part, so that early steps are short; an empty round
    changes nothing. Limit weights ∝ ω‖a‖₁: links cannot move it, unequal work can.
    """

    references = ("gu2021mifa",)
    needs_effective_steps: ClassVar[bool] = False
    needs_arrival: ClassVar[bool] = False

    def init(self, population: Population) -> PartState:
        return nothing_remembered(population)

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        if not len(updates):
            return Aggregate(updates.delta.sum(0), state, updates.importance)
        table, weights = table_in(state, "last"), conditions.weights
        absent = table.clients[~torch.isin(table.clients, updates.clients)]
        after = renewed(state, updates, table.read(updates.clients), weights)
        direction = tensor_in(after, "mean").to(updates.delta)
        remembered = ClientWeights(absent, weights[absent])
        return Aggregate(direction, after, weights[updates.clients], remembered)
