"""The role `Partitioner`: splits a pooled data set among clients, by size or as the data name them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairlead.component import Component, NaturalNumber, NotNegative, Positive, WholeList
from fairlead.errors import FieldError
from fairlead.memory.budget import require_memory
from fairlead.randomness import Key

Sizes = Annotated[tuple[int, ...], WholeList(0, fewest=1)]
Rows = NDArray[np.int64]

_LEAST_SHAPE = 1e-300
_BYTES_PER_SHARE = 64
"""Memory for what a client gets of a class, or of all: draws, shares, their order and numbers of examples."""


class Partitioner(Component, ABC):
    """Gives every example to exactly one client.

    Names and keywords are those of flwr-datasets where it has the same partitioner; a *partition* there is
    a client here, and the caller gives their number.
    """

    needs_classes: ClassVar[bool] = False
    """Whether examples are split by class, so that each must have one."""

    def deal(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None = None) -> Rows:
        """Owner of each example, (examples,); `labels` are whole numbers.

        `natural` is the owner that the data themselves name, where they do.
        """
        if num_clients < 1:
            raise FieldError(f"{type(self).__name__} needs at least 1 client, got {num_clients}.")
        shares = num_clients * (len(np.unique(labels)) if self.needs_classes else 1)
        what = f"{type(self).__name__} with num_clients = {num_clients}"
        require_memory(what, _BYTES_PER_SHARE * shares, "lower num_clients")
        return self.owners(labels, num_clients, key, natural)

    @abstractmethod
    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
        """The same for at least one client."""


def deal_by_sizes(order: Rows, sizes: Rows) -> Rows:
    """Owners when clients take consecutive pieces of the given sizes from a row of examples."""
    owner = np.empty(len(order), dtype=np.int64)
    owner[order] = np.repeat(np.arange(len(sizes)), sizes)
    return owner


def whole_sizes(shares: NDArray[np.float64], total: int) -> Rows:
    """Whole numbers proportional to `shares` that sum to `total` (largest remainders)."""
    exact = shares / shares.sum() * total
    sizes: Rows = np.floor(exact).astype(np.int64)
    missing = total - int(sizes.sum())
    sizes[np.argsort(sizes - exact, kind="stable")[:missing]] += 1
    return sizes


def given_sizes(owner: Partitioner, sizes: tuple[int, ...], examples: int, num_clients: int) -> Rows:
    """`owner.partition_sizes` as an array, refused where they do not fit clients and examples."""
    if len(sizes) != num_clients or sum(sizes) != examples:
        raise FieldError(
            f"{type(owner).__name__}.partition_sizes must be {num_clients} numbers that sum to {examples}, "
            f"got {len(sizes)} that sum to {sum(sizes)}."
        )
    return np.array(sizes, dtype=np.int64)


def refuse_too_few(owner: Partitioner, examples: int, num_clients: int, min_size: int) -> None:
    """Refuse fewer examples than `min_size` for every client."""
    if num_clients * min_size > examples:
        raise FieldError(
            f"{type(owner).__name__} cannot split {examples} examples among {num_clients} clients with at least "
            f"{min_size} each (min_partition_size): use a num_clients of at most {examples // min_size}, or a "
            f"min_partition_size of at most {examples // num_clients}."
        )


def shuffled_within(groups: Rows, generator: np.random.Generator) -> Rows:
    """All examples, group after group, each group in random order."""
    shuffled = generator.permutation(len(groups))
    return shuffled[np.argsort(groups[shuffled], kind="stable")]


def top_up(owner: Rows, num_clients: int, min_size: int, generator: np.random.Generator) -> Rows:
    """Owners after clients with fewer than `min_size` examples took single ones from the largest.

    Redrawing until every client is large enough, as released code does, never ends for many clients and
    small α; this always does, and changes as few owners as possible.
    """
    sizes = np.bincount(owner, minlength=num_clients)
    short = np.repeat(np.arange(num_clients), np.maximum(min_size - sizes, 0))
    if len(short) == 0:
        return owner
    # The highest ceiling such that what the largest clients hold above it covers what is short.
    low, high = min_size, int(sizes.max())
    while low < high:
        ceiling = (low + high + 1) // 2
        if np.maximum(sizes - ceiling, 0).sum() >= len(short):
            low = ceiling
        else:
            high = ceiling - 1
    by_owner = shuffled_within(owner, generator)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    spare = by_owner[rank >= low]
    dealt = owner.copy()
    dealt[spare[: len(short)]] = short
    return dealt


def log_gamma_draws(
    generator: np.random.Generator, shape: float, size: tuple[int, ...]
) -> NDArray[np.float64]:
    """Logarithms of Gamma(shape, 1) draws by Gamma(a) = Gamma(a + 1)·U^(1/a).

    Plain draws underflow to zero for small shapes, and a Dirichlet vector of zeros is 0/0.
    """
    boosted = np.log(generator.standard_gamma(shape + 1.0, size))
    # Below the bound logarithms would be infinite; long before, one draw outweighs all others.
    draws: NDArray[np.float64] = boosted + np.log1p(-generator.random(size)) / max(shape, _LEAST_SHAPE)
    return draws


def dirichlet_draws(
    generator: np.random.Generator, alpha: float, size: tuple[int, ...]
) -> NDArray[np.float64]:
    """Symmetric Dirichlet(α) vectors along the last axis, for any α however small."""
    logs = log_gamma_draws(generator, alpha, size)
    shares = np.exp(logs - logs.max(-1, keepdims=True))
    normalized: NDArray[np.float64] = shares / shares.sum(-1, keepdims=True)
    return normalized


@dataclass(frozen=True)
class IidPartitioner(Partitioner):
    """Shuffles the examples and deals them out in equal numbers, up to one."""

    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
        order = key.generator().permutation(len(labels))
        return deal_by_sizes(order, whole_sizes(np.ones(num_clients), len(labels)))


@dataclass(frozen=True)
class SizePartitioner(Partitioner):
    """Deals the shuffled examples in given sizes."""

    partition_sizes: Sizes

    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
        sizes = given_sizes(self, self.partition_sizes, len(labels), num_clients)
        return deal_by_sizes(key.generator().permutation(len(labels)), sizes)


class SkewedSizePartitioner(Partitioner, ABC):
    """Family of IID deals with unequal sizes: asks only for the clients' relative sizes."""

    min_partition_size: int

    @abstractmethod
    def shares(self, num_clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Positive numbers that the sizes are proportional to."""

    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
        refuse_too_few(self, len(labels), num_clients, self.min_partition_size)
        generator = key.generator()
        sizes = whole_sizes(self.shares(num_clients, generator), len(labels))
        owner = deal_by_sizes(generator.permutation(len(labels)), sizes)
        return top_up(owner, num_clients, self.min_partition_size, generator)


@dataclass(frozen=True)
class LogNormalPartitioner(SkewedSizePartitioner):
    """Sizes ∝ exp(σ·N(0, 1)), labels IID; σ `sigma`. Reduces to `IidPartitioner` for σ = 0."""

    sigma: NotNegative
    min_partition_size: NaturalNumber = 1

    def shares(self, num_clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
        logs = self.sigma * generator.standard_normal(num_clients)
        relative: NDArray[np.float64] = np.exp(logs - logs.max())
        return relative


@dataclass(frozen=True)
class PowerLawPartitioner(SkewedSizePartitioner):
    """Sizes ∝ (i + 1)^(−exponent) for client i, labels IID; reduces to `IidPartitioner` for exponent 0."""

    exponent: NotNegative
    min_partition_size: NaturalNumber = 1

    def shares(self, num_clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
        relative: NDArray[np.float64] = np.arange(1, num_clients + 1, dtype=np.float64) ** -self.exponent
        return relative


@dataclass(frozen=True)
class DirichletSizePartitioner(SkewedSizePartitioner):
    """Skews sizes alone: shares of the shuffled examples drawn from Dirichlet(α), labels IID.

    Symbols: α `alpha`. Clients get at least `min_partition_size` examples.
    """

    alpha: Positive
    min_partition_size: NaturalNumber = 1

    def shares(self, num_clients: int, generator: np.random.Generator) -> NDArray[np.float64]:
        return dirichlet_draws(generator, self.alpha, (num_clients,))


@dataclass(frozen=True)
class NaturalIdPartitioner(Partitioner):
    """Keeps every example with the client named by the data."""

    exemptions = {"different keys": "the data decide"}

    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
        return _known(self, natural, num_clients)


@dataclass(frozen=True)
class ReshuffledPartitioner(Partitioner):
    """The IID twin of a natural split: pool all examples, shuffle, deal them in the same sizes (Wang 2024)."""

    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
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
