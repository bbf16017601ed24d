"""Sampling by the server's own weights: the λ-feedback of FedAWARE's published runs."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fairlead.client_table import PartState, tensor_in
from fairlead.errors import require_integer
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, ClientWeights, Cohort, Conditions, Population
from fairlead.samplers.base import Sampler
from fairlead.samplers.uniform import refuse_too_many


@dataclass(frozen=True)
class WeightFeedback(Sampler):
    """Draws clients without replacement by the weights that the server gave them in its last step.

        P(i first) = λ_i,   importance_i = (N/K) ω_i

    Symbols: K `cohort_size`, N the clients of positive weight ω, λ the weights over all clients in the last step of an
    aggregator or transform that remembers updates (`FedAWARE`, `AwareProjection`, `RememberedMean`). If
    fewer than K clients have a positive λ, all of these are selected, and the rest uniformly. Before the first
    step, and with aggregators that have no such weights, all clients are equally likely.

    The published runs of Zeng 2023 sample like this; the papers do not print it. The estimate Σ importance·Δ is biased
    towards the clients that λ favors.

    Reduces to `UniformWithoutReplacement` for equal λ.
    """

    cohort_size: int

    references = ("zeng2023gradient",)
    needs_effective_steps: ClassVar[bool] = False
    needs_arrival: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_integer(self, "cohort_size", at_least=1)

    def init(self, population: Population) -> PartState:
        refuse_too_many(self, self.cohort_size, population)
        return {"lambda": torch.zeros(population.num_clients, dtype=torch.float64)}

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        eligible = conditions.weights > 0
        shares = torch.where(eligible, tensor_in(state, "lambda"), 0.0).clamp(min=0).numpy()
        # Exponential clocks of rates λ_i ring in the order of draws without replacement by λ. Clients without λ come
        # after all others, in random order.
        clocks = key.generator().exponential(size=len(shares)) / np.where(shares > 0, shares, 1.0)
        order = np.lexsort((clocks, shares <= 0, ~eligible.numpy()))
        clients = torch.from_numpy(np.sort(order[: self.cohort_size]))
        scale = float(eligible.sum()) / self.cohort_size
        return Cohort(clients, torch.ones_like(clients), scale * conditions.weights[clients])

    def observe(
        self, state: PartState, conditions: Conditions, cohort: Cohort, updates: ClientUpdates
    ) -> PartState:
        return state

    def follow(self, state: PartState, shares: ClientWeights) -> PartState:
        fresh = torch.zeros_like(tensor_in(state, "lambda"))
        fresh[shares.clients] = shares.weights.clamp(min=0)
        return {"lambda": fresh}
