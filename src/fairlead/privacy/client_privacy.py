"""`ClientPrivacy`: what one client did cannot be told from the models of a run."""

from __future__ import annotations

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
    """Shortens every update and adds Gaussian noise to their sum (McMahan et al. 2018).

        direction = Σ_R w_i Δ_i·min(1, C/‖Δ_i‖) + N(0, (z C w_max)² I)

    Symbols: R the clients that arrived, w_i the importance that the sampler gives to client i, w_max the
    largest that it gives to any client, C `clip`, z `noise_multiplier`, δ `delta`. No client adds more than
    C w_max to the sum, which is all that the models of a run are made of. So every round is a Gaussian
    mechanism of multiplier z, amplified by the sampling, and `dp-accounting` adds the rounds up to (ε, δ).
    Objective weights ω count as public. A round in which nobody arrives moves the model by noise alone,
    since standing still would tell that nobody came.

    Which federations look alike: for `FullParticipation` and `PoissonSampling`, those in which one client
    sends zeros instead ("zero-out"); for `UniformWithoutReplacement`, those in which one client has other
    data ("replace-one"), between which sums differ by 2 C w_max. Unequal ω cost accuracy, since
    noise follows the largest.

    A round that is done again, after a server died that may have shown its model, has other noise each time, and
    `Conditions.repeated` makes the account count all of them.

    Noise is drawn from the run's key and repeats with it: whoever knows the seed can subtract it, so that the
    seed of a run on real people's data is a secret.

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
        """Raise unless the noised sum is all that the server lets out."""
        if sampler.adjacency is None:
            raise ClashError(
                f"ClientPrivacy has no account of {type(sampler).__name__}, under which the chance of a client to "
                "be asked is not the same for all and known: use PoissonSampling, UniformWithoutReplacement or "
                "FullParticipation."
            )
        if aggregator != WeightedMean(over="asked"):
            raise ClashError(
                f"ClientPrivacy needs a sum in which no client changes what another counts, got {aggregator!r}: "
                "write aggregator=WeightedMean(over='asked')."
            )
        for transform in transforms:
            if transform.needs_single_updates:
                raise ClashError(
                    f"{type(transform).__name__} looks at single updates, which have no noise, and ClientPrivacy "
                    "could promise nothing: leave it out."
                )
        for correction in corrections:
            if correction.shared_names:
                raise ClashError(
                    f"{type(correction).__name__} broadcasts a sum of what clients upload, which has no noise, "
                    "and ClientPrivacy could promise nothing: leave it out."
                )

    def refuse_world(self, population: Population, buffers: Tensor) -> None:
        """Raise unless the promise means something for a population and covers all of its model."""
        require_accountant()
        if self.delta * population.num_clients >= 1:
            raise ClashError(
                f"ClientPrivacy.delta must be below 1/{population.num_clients} for {population.num_clients} clients, "
                f"got {self.delta:g}: with that chance, one of them may be told outright."
            )
        if len(buffers):
            raise ClashError(
                "ClientPrivacy covers parameters, and this model also averages running statistics without noise: "
                "use a model without BatchNorm, such as one with GroupNorm."
            )

    def statement(self, sampler: Sampler, conditions: Conditions) -> PrivacyStatement:
        """What may be claimed of the rounds before the one that the conditions are of."""
        rounds, repeated = conditions.round, conditions.repeated
        sampling = sampling_of(sampler, conditions.weights)
        spent = epsilon(sampling, self.noise_multiplier, self.delta, rounds, repeated)
        return PrivacyStatement(
            spent, self.delta, rounds, sampling.adjacency, sampling.told, repeated=len(repeated)
        )

    def aggregate(
        self, sampler: Sampler, updates: ClientUpdates, conditions: Conditions, key: Key
    ) -> Aggregate:
        """The sum of shortened updates with the round's noise; the coefficients are those of whole updates."""
        lengths = torch.linalg.vector_norm(updates.delta, dim=1, dtype=torch.float64).cpu()
        factors = self.clip / lengths.clamp(min=self.clip)
        coefficients = updates.importance * factors
        sampling = sampling_of(sampler, conditions.weights)
        scale = self.noise_multiplier * self.clip * sampling.largest_importance
        # Named by what came and how often the round was done before: a server that died after its model was seen
        # does it again, perhaps with other updates, and the same noise would cancel in the difference of the models.
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
            "Under ClientPrivacy long updates are shortened, so that no weighted sum of the clients' objectives "
            "that is known beforehand is minimised: clients far from the others count less than their weight.",
        )


def looks_at_single_updates(part: Component) -> str | None:
    """Name of the part, or of one within it, that needs what single clients sent; None: sums will do."""
    for inner in _parts_within(part):
        if isinstance(inner, Aggregator | Sampler | DirectionTransform) and inner.needs_single_updates:
            return type(inner).__name__
    return None


def refuse_single_updates(*parts: Component) -> None:
    """Raise if a part needs more than sums, where the user asks for secure aggregation."""
    for part in parts:
        name = looks_at_single_updates(part)
        if name is not None:
            raise ClashError(
                f"{name} looks at what single clients sent, and secure aggregation shows the server nothing but "
                "sums: leave Algorithm.secure_aggregation out, or use a method of sums such as FedAvg, FedNova or "
                "FedACS."
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
