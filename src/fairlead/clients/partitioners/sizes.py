"""IID labels with equal, given or skewed sizes, and the split that the data came with."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fairlead.clients.partitioners.base import (
    Partitioner,
    Rows,
    deal_by_sizes,
    dirichlet_draws,
    given_sizes,
    refuse_no_clients,
    refuse_too_few,
    require_sizes,
    top_up,
    whole_sizes,
)
from fairlead.component import freeze_lists
from fairlead.errors import FieldError, require_integer, require_number
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


@dataclass(frozen=True)
class DirichletSizePartitioner(SkewedSizePartitioner):
    """Skews sizes alone: shares of the shuffled examples drawn from Dirichlet(α), labels IID.

    Symbols: α `alpha`. Clients get at least `min_partition_size` examples.
    """

    alpha: float
    min_partition_size: int = 1

    def __post_init__(self) -> None:
        require_number(self, "alpha", above=0)
        require_integer(self, "min_partition_size", at_least=0)

    def shares(self, num_clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
        return dirichlet_draws(generator, self.alpha, (num_clients,))


@dataclass(frozen=True)
class NaturalIdPartitioner(Partitioner):
    """Keeps every example with the client named by the data."""

    exemptions: ClassVar[Mapping[str, str]] = {"different keys": "the data decide"}

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        return _known(self, natural, num_clients)


@dataclass(frozen=True)
class ReshuffledPartitioner(Partitioner):
    """The IID twin of a natural split: pool all examples, shuffle, deal them in the same sizes (Wang 2024)."""

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        sizes = np.bincount(_known(self, natural, num_clients), minlength=num_clients)
        return deal_by_sizes(key.generator().permutation(len(labels)), sizes)


def _known(partitioner: Partitioner, natural: Rows | None, num_clients: int) -> Rows:
    if natural is None:
        raise FieldError(
            f"{type(partitioner).__name__} needs data that name the client of each example: choose another "
            "partitioner, or name the column with the clients."
        )
    named = int(natural.max()) + 1
    if named != num_clients:
        raise FieldError(
            f"{type(partitioner).__name__} keeps the {named} clients of the data, but num_clients is "
            f"{num_clients}: leave it out, or choose another partitioner."
        )
    return natural
