"""`ClientPrivacy`: client-level differential privacy; and the methods that secure aggregation allows."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator, weighted_sum
from fairlead.aggregators.linear import WeightedMean
from fairlead.component import Component
from fairlead.corrections.base import Correction
from fairlead.errors import ClashError, require_number
from fairlead.privacy.accounting import PrivacyStatement, epsilon, require_accountant, sampling_of
from fairlead.randomness import Key
from fairlead.records import Aggregate, ClientUpdates, Conditions, Limit, Population
from fairlead.samplers.base import Sampler
from fairlead.transforms.base import DirectionTransform


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

    clip: float
    noise_multiplier: float
    delta: float

    references = ("mcmahan2018private", "mironov2017renyi", "wang2019subsampled")

    def __post_init__(self) -> None:
        require_number(self, "clip", above=0)
        require_number(self, "noise_multiplier", above=0)
        require_number(self, "delta", above=0, below=1)

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
        factors = self.clip / lengths.clamp(min=self.clip)
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
            "clipped_share": float((factors < 1).double().mean()) if len(updates) else 0.0,
        }
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
    for inner in _parts_within(part):
        if isinstance(inner, Aggregator | Sampler | DirectionTransform) and inner.needs_single_updates:
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


def _parts_within(part: Component) -> Iterator[Component]:
    """A part and all parts that it is made of."""
    yield part
    if is_dataclass(part):
        for field in fields(part):
            value = getattr(part, field.name)
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Component):
                    yield from _parts_within(inner)
