"""IID labels with equal or skewed sizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairlead.clients.partitioners.base import (
    Partitioner,
    Rows,
    deal_by_sizes,
    given_sizes,
    refuse_no_clients,
    refuse_too_few,
    require_sizes,
    top_up,
    whole_sizes,
)
from fairlead.component import freeze_lists
from fairlead.errors import require_integer, require_number
from fairlead.randomness import Key

_LARGEST_SIGMA = 1e300


@dataclass(frozen=True)
class IidPartitioner(Partitioner):
    """Shuffles the examples and deals them out in equal numbers, up to one."""

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        refuse_no_clients(self, num_clients)
        order = key.generator().permutation(len(labels))
        return deal_by_sizes(order, whole_sizes(np.ones(num_clients), len(labels)))


@dataclass(frozen=True)
class SizePartitioner(Partitioner):
    """Deals the shuffled examples in given sizes."""

    partition_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_sizes(self, self.partition_sizes)

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        sizes = given_sizes(self, self.partition_sizes, len(labels), num_clients)
        return deal_by_sizes(key.generator().permutation(len(labels)), sizes)


class SkewedSizePartitioner(Partitioner, ABC):
    """Family of IID deals with unequal sizes: asks only for the clients' relative sizes."""

    min_partition_size: int

    @abstractmethod
    def shares(self, num_clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Positive numbers that the sizes are proportional to."""

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        refuse_too_few(self, len(labels), num_clients, self.min_partition_size)
        generator = key.generator()
        sizes = whole_sizes(self.shares(num_clients, generator), len(labels))
        owner = deal_by_sizes(generator.permutation(len(labels)), sizes)
        return top_up(owner, num_clients, self.min_partition_size, generator)


@dataclass(frozen=True)
class LogNormalPartitioner(SkewedSizePartitioner):
    """Sizes ∝ exp(σ·N(0, 1)), labels IID; σ `sigma`. Reduces to `IidPartitioner` for σ = 0."""

    sigma: float
    min_partition_size: int = 1

    def __post_init__(self) -> None:
        require_number(self, "sigma", at_least=0)
        require_integer(self, "min_partition_size", at_least=0)

    def shares(self, num_clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
        # Beyond the bound logarithms would be infinite; long before, one client has everything.
        logs = min(self.sigma, _LARGEST_SIGMA) * generator.standard_normal(num_clients)
        relative: NDArray[np.float64] = np.exp(logs - logs.max())
        return relative


@dataclass(frozen=True)
class PowerLawPartitioner(SkewedSizePartitioner):
    """Sizes ∝ (i + 1)^(−exponent) for client i, labels IID; reduces to `IidPartitioner` for exponent 0."""

    exponent: float
    min_partition_size: int = 1

    def __post_init__(self) -> None:
        require_number(self, "exponent", at_least=0)
        require_integer(self, "min_partition_size", at_least=0)

    def shares(self, num_clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
        relative: NDArray[np.float64] = np.arange(1, num_clients + 1, dtype=np.float64) ** -self.exponent
        return relative
