"""Client-level differential privacy with its accounting, and the methods that secure aggregation allows."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.aggregators.base import Aggregator, weighted_sum
from fairlead.aggregators.weighted import WeightedMean
from fairlead.component import Component, MethodPart, Positive, RealRange, parts_within
from fairlead.corrections.base import Correction
from fairlead.errors import ClashError
from fairlead.randomness import Key
from fairlead.records import Aggregate, ClientUpdates, Conditions, Limit, Participation, Population
from fairlead.samplers.base import Adjacency, Sampler
from fairlead.transforms.base import DirectionTransform


class Sampling(NamedTuple):
    """A sampler as privacy accounting sees it."""

    adjacency: Adjacency
    asked: float
    """Probability that a client is sampled in a round."""
    eligible: int
    """Clients that can be sampled."""
    largest_importance: float
    """Over all clients, sampled or not."""
    description: str


def sampling_of(sampler: Sampler, weights: Tensor) -> Sampling:
    """The sampling of a round under objective weights (N,), for a sampler that has an `adjacency`."""
    participation, eligible = sampler.participation(Conditions(0, weights)), int((weights > 0).sum())
    assert sampler.adjacency is not None
    assert isinstance(participation, Participation)
    assert participation.asked is not None
    asked = float(participation.asked.max())
    if sampler.adjacency == "replace-one":
        description = f"cohorts of {round(asked * eligible)} out of {eligible} without replacement"
    else:
        description = "no sampling" if asked == 1 else f"Poisson sampling at {asked:g}"
    return Sampling(sampler.adjacency, asked, eligible, float(weights.max()) / asked, description)


@dataclass(frozen=True)
class PrivacyStatement:
    """The privacy guarantee of the models of a run, under Rényi accounting."""

    epsilon: float
    delta: float
    rounds: int
    adjacency: str
    """Which federations are neighbors: a value of `Adjacency`."""
    sampling: str
    """The sampling that amplifies it, in words."""
    repeated: int = 0
    """Number of repeated rounds, which count too."""

    def __str__(self) -> str:
        again = f" and {self.repeated} repetition{'s' * (self.repeated > 1)}" if self.repeated else ""
        return (
            f"The models of {self.rounds} rounds{again} are ({self.epsilon:.3g}, {self.delta:g})-differentially "
            f"private for clients ({self.adjacency} adjacency, {self.sampling}, Rényi accounting)."
        )


def epsilon(
    sampling: Sampling, noise_multiplier: float, delta: float, rounds: int, repeated: Sequence[int] = ()
) -> float:
    """ε of a number of rounds at the given δ; `repeated` lists a round once per repetition.

    `noise_multiplier` is the noise in units of the largest contribution C·w of a client. Zero-out neighbors differ by
    that much; replace-one neighbors by twice as much, which halves the multiplier. A repeated round asks the same
    cohort: k sums with independent noise reveal as much as one sum with a multiplier smaller by √k, and the sampling
    amplifies them once.
    """
    again = Counter(repeated)
    # The server may have died in the next round.
    rounds = max([rounds, *(round + 1 for round in again)])
    if rounds == 0:
        return 0.0
    rounds_done = Counter(1 + more for more in again.values())
    rounds_done[1] += rounds - len(again)
    spent = np.zeros(len(_ORDERS))
    for times, count in rounds_done.items():
        spent += count * _costs_of_a_round(sampling, noise_multiplier / math.sqrt(times))
    return float(_accountants().compute_epsilon(np.array(_ORDERS), spent, delta)[0])


@lru_cache(maxsize=64)
def _costs_of_a_round(sampling: Sampling, noise_multiplier: float) -> NDArray[np.float64]:
    """The Rényi divergence of a round at each of the orders; divergences of rounds add up."""
    library, asked, eligible = import_module("dp_accounting"), sampling.asked, sampling.eligible
    if sampling.adjacency == "zero-out":
        relation = library.NeighboringRelation.REPLACE_SPECIAL
        event = library.PoissonSampledDpEvent(asked, library.GaussianDpEvent(noise_multiplier))
    else:
        relation = library.NeighboringRelation.REPLACE_ONE
        noise = library.GaussianDpEvent(noise_multiplier / 2)
        event = library.SampledWithoutReplacementDpEvent(eligible, round(asked * eligible), noise)
    accountant = _accountants().RdpAccountant(_ORDERS, relation)
    accountant.compose(event)
    return np.array(accountant.rdp)


_ORDERS = (*range(2, 65), 80, 96, 128, 256, 512, 1024)
"""Orders α of the accounting; ε is the smallest over them. Orders below 2 would tighten only an ε far above ten, and
their series do not always converge."""


def require_accountant() -> None:
    """Refuse a private run where its privacy cannot be computed."""
    try:
        _accountants()
    except ImportError as error:
        raise ClashError(
            "Algorithm.privacy needs dp-accounting: install it with pip install 'dp-accounting>=0.6,<1'."
        ) from error


def _accountants() -> Any:
    return import_module("dp_accounting.rdp")


@dataclass(frozen=True)
class ClientPrivacy(Component):
    """Clips every update and adds Gaussian noise to their sum (McMahan et al. 2018).

        direction = Σ_R w_i Δ_i·min(1, C/‖Δ_i‖) + N(0, (z C w_max)² I)

    Symbols: R the clients that arrived, w_i the importance of client i, w_max the largest importance of any client,
    C `clip`, z `noise_multiplier`, δ `delta`. No client adds more than C w_max to the sum, and the models of a run
    depend on the clients through these sums alone. Every round is therefore a Gaussian mechanism of multiplier z,
    amplified by the sampling, and `dp-accounting` adds the rounds up to (ε, δ). Objective weights ω count as public. A
    round without arrivals still adds the noise, since an unchanged model would reveal that no client arrived.

    Neighboring federations: for `FullParticipation` and `PoissonSampling`, one client sends zeros instead
    ("zero-out"); for `UniformWithoutReplacement`, one client has other data ("replace-one"), which changes sums by up
    to 2 C w_max. Unequal ω cost accuracy, because the noise scales with the largest.

    A server may die after clients have seen the model of a round. The repeated round has new noise, and
    `Conditions.repeated` makes the accounting count every repetition.

    Noise is drawn from the run's key: with the seed it can be subtracted. The seed of a run on real data must be kept
    secret.

    Differs from the paper: the weights of the sampler instead of weights with a cap.
    """

    clip: Positive
    noise_multiplier: Positive
    delta: Annotated[float, RealRange(above=0, below=1)]

    references = ("mcmahan2018private", "mironov2017renyi", "wang2019subsampled")

    def refuse_parts(
        self,
        sampler: Sampler,
        aggregator: Aggregator,
        transforms: tuple[DirectionTransform, ...],
        corrections: tuple[Correction, ...],
    ) -> None:
        """Raise unless the server publishes nothing but the noised sum."""
        if sampler.adjacency is None:
            raise ClashError(
                f"ClientPrivacy has no accounting for {type(sampler).__name__}, because clients must be sampled with "
                "equal, known probability: use PoissonSampling, UniformWithoutReplacement or FullParticipation."
            )
        if aggregator != WeightedMean(over="asked"):
            raise ClashError(
                f"ClientPrivacy needs a sum in which no client changes the weight of another, got {aggregator!r}: "
                "write aggregator=WeightedMean(over='asked')."
            )
        for transform in transforms:
            if transform.needs_single_updates:
                raise ClashError(
                    f"{type(transform).__name__} needs single updates, which have no noise, so ClientPrivacy could "
                    "guarantee nothing: remove it."
                )
        for correction in corrections:
            if correction.shared_names:
                raise ClashError(
                    f"{type(correction).__name__} broadcasts a sum of uploads, which has no noise, so ClientPrivacy "
                    "could guarantee nothing: remove it."
                )

    def refuse_world(self, population: Population, buffers: Tensor) -> None:
        """Raise unless the guarantee is meaningful for a population and covers its whole model."""
        require_accountant()
        if self.delta * population.num_clients >= 1:
            raise ClashError(
                f"ClientPrivacy.delta must be below 1/{population.num_clients} for {population.num_clients} clients, "
                f"got {self.delta:g}: a larger δ allows the data of one client to be published outright."
            )
        if len(buffers):
            raise ClashError(
                "ClientPrivacy covers parameters, and this model also averages running statistics without noise: "
                "use a model without BatchNorm, such as one with GroupNorm."
            )

    def statement(self, sampler: Sampler, conditions: Conditions) -> PrivacyStatement:
        """The guarantee of the rounds before that of the conditions."""
        rounds, repeated = conditions.round, conditions.repeated
        sampling = sampling_of(sampler, conditions.weights)
        spent = epsilon(sampling, self.noise_multiplier, self.delta, rounds, repeated)
        return PrivacyStatement(
            spent, self.delta, rounds, sampling.adjacency, sampling.description, repeated=len(repeated)
        )

    def aggregate(
        self, sampler: Sampler, updates: ClientUpdates, conditions: Conditions, key: Key
    ) -> Aggregate:
        """The noised sum of clipped updates; coefficients are those of the unclipped updates."""
        lengths = torch.linalg.vector_norm(updates.delta, dim=1, dtype=torch.float64).cpu()
        is_hidden = updates.masked_bytes is not None
        # Under secure aggregation each client has clipped its own update.
        factors = torch.ones_like(lengths) if is_hidden else self.clip / lengths.clamp(min=self.clip)
        coefficients = updates.importance * factors
        sampling = sampling_of(sampler, conditions.weights)
        scale = self.noise_multiplier * self.clip * sampling.largest_importance
        # Keyed by the arrivals and the number of repetitions. A server that died after its model was seen repeats the
        # round, perhaps with other updates, and the same noise would cancel in the difference of the two models.
        came = torch.stack([updates.clients, updates.num_steps, updates.age]).flatten().tolist()
        before = conditions.repeated.count(conditions.round)
        named = key.fold(*came, "again", before) if before else key.fold(*came)
        draws = named.generator().standard_normal(updates.delta.shape[1])
        noise = scale * torch.from_numpy(draws)
        facts = {
            "epsilon": epsilon(
                sampling, self.noise_multiplier, self.delta, conditions.round + 1, conditions.repeated
            ),
            "delta": self.delta,
            "noise_scale": scale,
        }
        if not is_hidden:
            facts["clipped_share"] = float((factors < 1).double().mean()) if len(updates) else 0.0
        direction = weighted_sum(coefficients, updates.delta) + noise.to(updates.delta)
        return Aggregate(direction, {}, coefficients, facts=facts)

    def limit(self, weights: Tensor) -> Limit:
        """No weights are known: clipping changes them."""
        return Limit(
            None,
            "ClientPrivacy clips long updates, so the weights are not known beforehand: clients far from the others "
            "count less than their weight.",
        )


def part_needing_single_updates(part: Component) -> str | None:
    """Name of the part, or of one within it, that needs single updates; None where sums suffice."""
    for inner in parts_within(part):
        if isinstance(inner, MethodPart) and inner.needs_single_updates:
            return type(inner).__name__
    return None


def refuse_single_updates(*parts: Component) -> None:
    """Raise if a part needs more than sums, under secure aggregation."""
    for part in parts:
        name = part_needing_single_updates(part)
        if name is not None:
            raise ClashError(
                f"{name} needs single updates, and secure aggregation shows the server nothing but sums: remove "
                "Algorithm.secure_aggregation, or use a method of sums such as FedAvg, FedNova or FedACS."
            )
