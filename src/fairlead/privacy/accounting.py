"""The privacy cost of a number of rounds: Rényi accounting of sampled Gaussian noise, by dp-accounting."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fairlead.errors import ClashError
from fairlead.records import Conditions, Participation
from fairlead.samplers.base import Adjacency, Sampler


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
        spent += count * _costs_of_a_round(
            sampling.adjacency, sampling.asked, sampling.eligible, noise_multiplier / math.sqrt(times)
        )
    return float(_accountants().compute_epsilon(np.array(_ORDERS), spent, delta)[0])


@lru_cache(maxsize=64)
def _costs_of_a_round(
    adjacency: Adjacency, asked: float, eligible: int, noise_multiplier: float
) -> NDArray[np.float64]:
    """The Rényi divergence of a round at each of the orders; divergences of rounds add up."""
    library, accountants = import_module("dp_accounting"), _accountants()
    if adjacency == "zero-out":
        relation = library.NeighboringRelation.REPLACE_SPECIAL
        event = library.PoissonSampledDpEvent(asked, library.GaussianDpEvent(noise_multiplier))
    else:
        relation = library.NeighboringRelation.REPLACE_ONE
        noise = library.GaussianDpEvent(noise_multiplier / 2)
        event = library.SampledWithoutReplacementDpEvent(eligible, round(asked * eligible), noise)
    accountant = accountants.RdpAccountant(_ORDERS, relation)
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
