"""Weights learned from participation intervals: FedAU."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fairlead.aggregators.base import Aggregator, weighted_sum
from fairlead.client_table import PartState, tensor_in
from fairlead.errors import require_integer
from fairlead.records import (
    Aggregate,
    ClientUpdates,
    Conditions,
    ExpectedRound,
    MeanCoefficients,
    Population,
)


@dataclass(frozen=True)
class FedAU(Aggregator):
    """Weighs updates by the mean absence of their clients, learned online (Wang & Ji 2024).

        Σ_R ω_i u_i Δ_i
        S_i ← S_i + 1;  if i ∈ R or S_i = K:  u_i ← (M_i u_i + S_i)/(M_i + 1),  M_i ← M_i + 1,  S_i ← 0

    Symbols: R the clients that arrived, u_i the mean interval between participations as known *before*
    the round (1 at first, and no count before the first interval ends), M_i the intervals seen, S_i the
    rounds since the last, K `cutoff` (None: never cut). A client participates if it is sampled and its update
    arrives. Counters advance in empty rounds too. u_i tends to 1/π_i, or with a cut-off to
    (1 − (1 − π_i)^K)/π_i, for a chance π_i of participating in a round; repeated draws and the sampler's
    importance do not count.

    Reduces to `WeightedMean` when everyone arrives in every round.

    Differs from the paper: objective weights ω_i instead of 1/N, to which uniform ones reduce. Corrects
    unequal links and unequal sampling, not unequal work. A client back after a long absence enters with a
    large u_i, so that steps can be long.
    """

    cutoff: int | None = 50

    references = ("wang2024fedau",)
    needs_single_updates: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.cutoff is not None:
            require_integer(self, "cutoff", at_least=1)

    def init(self, population: Population) -> PartState:
        zeros = torch.zeros(population.num_clients, dtype=torch.float64)
        return {"mean_interval": zeros + 1, "intervals": zeros, "absence": zeros}

    def aggregate(self, updates: ClientUpdates, state: PartState, conditions: Conditions) -> Aggregate:
        known = tensor_in(state, "mean_interval")
        coefficients = (conditions.weights * known)[updates.clients]
        count, absence = tensor_in(state, "intervals"), tensor_in(state, "absence") + 1
        ended = torch.zeros_like(count, dtype=torch.bool)
        ended[updates.clients] = True
        if self.cutoff is not None:
            ended |= absence >= self.cutoff
        after = {
            "mean_interval": torch.where(ended, (count * known + absence) / (count + 1), known),
            "intervals": count + ended,
            "absence": torch.where(ended, 0.0, absence),
        }
        return Aggregate(weighted_sum(coefficients, updates.delta), after, coefficients)

    def mean_coefficients(self, expected: ExpectedRound) -> MeanCoefficients:
        asked, seen = expected.participation.asked, expected.reachable
        if asked is not None and self.cutoff is not None:
            # E[u_i]π_i with the cut-off.
            seen = 1 - (1 - asked * expected.arrival) ** self.cutoff
        return MeanCoefficients(expected.conditions.weights * seen, "long run")
