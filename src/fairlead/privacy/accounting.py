"""How much privacy a number of rounds costs: Rényi accounts of sampled Gaussian noise, kept by dp-accounting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, singledispatch
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fairlead.errors import ClashError
from fairlead.samplers import FullParticipation, PoissonSampling, Sampler, UniformWithoutReplacement

Adjacency = Literal["zero-out", "replace-one"]
"""Which federations must look alike: those in which one client sends zeros instead of its updates, or those in
which one client has other data."""


class Sampling(NamedTuple):
    """What a sampler means for privacy."""

    adjacency: Adjacency
    asked: float
    """Chance of a client to be asked in a round."""
    eligible: int
    """Clients that may be asked."""
    largest_importance: float
    """Of any client, whether it is asked or not."""
    told: str


@singledispatch
def sampling_of(sampler: Sampler, weights: Tensor) -> Sampling:
    """What a sampler means for privacy under objective weights (N,)."""
    raise NotImplementedError(type(sampler).__name__)


def has_account(sampler: Sampler) -> bool:
    """Whether `sampling_of` knows a sampler."""
    return sampling_of.dispatch(type(sampler)) is not sampling_of.dispatch(object)


@sampling_of.register
def _(sampler: FullParticipation, weights: Tensor) -> Sampling:
    return Sampling("zero-out", 1.0, _eligible(weights), float(weights.max()), "no sampling")


@sampling_of.register
def _(sampler: PoissonSampling, weights: Tensor) -> Sampling:
    largest = float(weights.max()) / sampler.rate
    return Sampling(
        "zero-out", sampler.rate, _eligible(weights), largest, f"Poisson sampling at {sampler.rate:g}"
    )


@sampling_of.register
def _(sampler: UniformWithoutReplacement, weights: Tensor) -> Sampling:
    eligible = _eligible(weights)
    asked = sampler.cohort_size / eligible
    told = f"cohorts of {sampler.cohort_size} out of {eligible} without replacement"
    return Sampling("replace-one", asked, eligible, float(weights.max()) / asked, told)


def _eligible(weights: Tensor) -> int:
    return int((weights > 0).sum())


@dataclass(frozen=True)
class PrivacyStatement:
    """What may be claimed of the models of a run, under Rényi accounting."""

    epsilon: float
    delta: float
    rounds: int
    adjacency: str
    """Which federations look alike: a value of `Adjacency`."""
    sampling: str
    """What amplifies it."""

    def __str__(self) -> str:
        return (
            f"The models of {self.rounds} rounds are ({self.epsilon:.3g}, {self.delta:g})-differentially private for "
            f"clients ({self.adjacency} adjacency, {self.sampling}, Rényi accounting)."
        )


def epsilon(sampling: Sampling, noise_multiplier: float, delta: float, rounds: int) -> float:
    """ε of so many rounds at the given δ.

    `noise_multiplier` is the noise in units of the largest contribution C·w of a client. Zero-out neighbours
    differ by that much; replace-one neighbours by twice as much, which halves the multiplier.
    """
    if rounds == 0:
        return 0.0
    orders, costs = _costs_of_a_round(sampling.adjacency, sampling.asked, sampling.eligible, noise_multiplier)
    spent: float = _accountants().compute_epsilon(orders, rounds * costs, delta)[0]
    return float(spent)


@lru_cache(maxsize=64)
def _costs_of_a_round(
    adjacency: Adjacency, asked: float, eligible: int, noise_multiplier: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Orders α and the Rényi divergence that a round costs at each: those of rounds add up."""
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
    return np.array(_ORDERS), np.array(accountant.rdp)


_ORDERS = (*range(2, 65), 80, 96, 128, 256, 512, 1024)
"""Orders α at which accounts are kept; the best one for δ tells ε. Orders below 2 would tighten only an ε far above
ten, and the series behind them do not always converge."""


def require_accountant() -> None:
    """Refuse a private run where nobody could say how private it is."""
    try:
        _accountants()
    except ImportError as error:
        raise ClashError(
            "Algorithm.privacy needs dp-accounting: install it with pip install 'fairlead[privacy]'."
        ) from error


def _accountants() -> Any:
    return import_module("dp_accounting.rdp")
