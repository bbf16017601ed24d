"""The role `Partitioner`: who gets which examples of a pooled data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairlead.component import Component
from fairlead.errors import FieldError, require_integer, require_number
from fairlead.randomness import Key


class Partitioner(Component, ABC):
    """Deals every example to exactly one client."""

    @abstractmethod
    def deal(self, targets: Tensor, num_clients: int, key: Key) -> Tensor:
        """Owner of each example, (examples,) int64."""


@dataclass(frozen=True)
class IID(Partitioner):
    """Shuffles the examples and deals them out in equal numbers, up to one."""

    def deal(self, targets: Tensor, num_clients: int, key: Key) -> Tensor:
        order = key.generator().permutation(len(targets))
        owner = np.empty(len(targets), dtype=np.int64)
        owner[order] = np.arange(len(targets)) * num_clients // max(len(targets), 1)
        return torch.from_numpy(owner)


@dataclass(frozen=True)
class DirichletByLabel(Partitioner):
    """Deals each label to the clients in proportions drawn from a symmetric Dirichlet(α).

        q_k ~ Dir_N(α) for each label k;  client i gets a share q_ki of the examples of label k

    Symbols: α `alpha`. Sizes are unequal as well as labels (Hsu et al. 2019 as in most released code).
    Then clients with fewer than `min_size` examples take single ones from the largest clients, so that
    the deal always ends; it is refused if there are not enough examples for that.
    """

    alpha: float
    min_size: int = 1

    references = ("hsu2019",)

    def __post_init__(self) -> None:
        require_number(self, "alpha", above=0)
        require_integer(self, "min_size", at_least=0)

    def deal(self, targets: Tensor, num_clients: int, key: Key) -> Tensor:
        if num_clients * self.min_size > len(targets):
            raise FieldError(
                f"DirichletByLabel.min_size must leave {num_clients} clients with {self.min_size} "
                f"examples each, and there are only {len(targets)}."
            )
        generator = key.generator()
        labels = targets.numpy()
        owner = np.empty(len(labels), dtype=np.int64)
        for label in np.unique(labels):
            rows = generator.permutation(np.flatnonzero(labels == label))
            # Gamma draws below 1e-300 underflow to zero for tiny α; logarithms never do.
            log_share = _log_gamma_draws(generator, self.alpha, num_clients)
            share = np.exp(log_share - log_share.max())
            cuts = np.cumsum(share / share.sum()) * len(rows)
            owner[rows] = np.searchsorted(cuts, np.arange(len(rows)) + 0.5).clip(max=num_clients - 1)
        return torch.from_numpy(_topped_up(owner, num_clients, self.min_size, generator))


def _log_gamma_draws(generator: np.random.Generator, shape: float, size: int) -> np.ndarray:
    """log of Gamma(shape, 1) draws by Gamma(a) = Gamma(a + 1)·U^(1/a), exact for any small shape."""
    boosted = np.log(generator.standard_gamma(shape + 1.0, size))
    result: np.ndarray = boosted + np.log1p(-generator.random(size)) / shape
    return result


def _topped_up(
    owner: np.ndarray, num_clients: int, min_size: int, generator: np.random.Generator
) -> np.ndarray:
    """Owners after clients below `min_size` took examples from the largest ones."""
    sizes = np.bincount(owner, minlength=num_clients)
    missing = np.repeat(np.arange(num_clients), np.maximum(min_size - sizes, 0))
    if len(missing) == 0:
        return owner
    # Level the largest clients: lower a ceiling until what stands above it covers what is missing.
    low, high = min_size, int(sizes.max())
    while low < high:
        ceiling = (low + high + 1) // 2
        if np.maximum(sizes - ceiling, 0).sum() >= len(missing):
            low = ceiling
        else:
            high = ceiling - 1
    order = generator.permutation(len(owner))
    by_owner = order[np.argsort(owner[order], kind="stable")]
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    spare = by_owner[rank >= low]
    owner = owner.copy()
    owner[spare[: len(missing)]] = missing
    return owner
