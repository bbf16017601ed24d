"""Samplers that learn: by the length of updates, and by the server's own weights."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fairlead.client_table import PartState, tensor_in
from fairlead.errors import require_integer, require_number
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, ClientWeights, Cohort, Conditions, Participation, Population
from fairlead.samplers.base import Sampler
from fairlead.samplers.fixed import MOST_DRAWS, draw_with_replacement, refuse_too_many


@dataclass(frozen=True)
class OptimalSampling(Sampler):
    """Draws clients by the weighted length of their updates, which lowers the variance of the sum.

        p_i = (1 − floor)·ω_i n_i/Σ ω_j n_j + floor·ω_i,   importance_i = c_i ω_i/(K p_i)     (Weng 2025 (20))

    Symbols: K `cohort_size` independent draws, c_i how often client i was drawn, n_i = ‖Δ_i‖ of the last
    update received from client i. A client without any update so far counts with the largest n known (1 if none is
    positive); if all n are zero, p = ω.

    Reduces to `WeightedWithReplacement` for `floor` = 1 or equal n.

    Differs from the paper, which assumes this round's norms known before the draw (they cost a round of
    messages) and leaves out ω; any p > 0 gives the same mean, so only the variance is affected. With
    `floor` = 0, the paper's form, a client whose last update was zero would never be drawn again,
    although the model has moved since. The floor gives every client a chance and bounds the
    importance by c_i/(K·floor). Lost updates bias it like every rule that does not correct links.
    """

    cohort_size: int
    floor: float = 0.1

    references = ("chen2022optimal", "weng2025fedacs")
    needs_single_updates = True

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
