"""Label skew: by the Dirichlet distribution, in two levels, in blocks, by shards and by classes."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from fairlead.clients.partitioners import (
    Partitioner,
    Rows,
    Sizes,
    dirichlet_draws,
    given_sizes,
    refuse_too_few,
    shuffled_within,
    top_up,
    whole_sizes,
)
from fairlead.component import NaturalNumber, Positive, PositiveCount, WholeRange
from fairlead.errors import FieldError
from fairlead.randomness import Key

_Source = np.random.Generator | np.random.RandomState
_BLOCK = 1024
"""Number of clients that draw their labels at once."""


_REDRAWS = 1000
"""Deals after which redrawing gives up."""


@dataclass(frozen=True)
class DirichletPartitioner(Partitioner):
    """Deals each label over the clients in shares drawn from Dirichlet(α): the common meaning.

        q_k ~ Dir_N(α) for every label k;  client i gets a share q_ki of the examples of label k

    Symbols: α `alpha`. Labels and sizes are both skewed. With `self_balancing`, a client that already has
    its equal share of all examples gets none of the labels dealt after. Clients with fewer than
    `min_partition_size` examples take some from the largest at the end.

    `released_seed` deals as the code released with FedNova and many papers after it: NumPy's RandomState of that
    seed shuffles a label and then draws its shares, cuts are rounded down, and all is drawn anew until every client
    has enough. The key has no effect, so that all runs share one deal. CIFAR-10 over 16 clients with α = 0.1,
    `min_partition_size` 10, `self_balancing` and seed 2020 is the split of Wang 2021 Table I, in which two
    epochs of batches of 32 are 16 to 408 steps.

    Differs from flwr-datasets, which redraws the deal up to ten times and then gives up.
    """

    alpha: Positive
    min_partition_size: NaturalNumber = 1
    self_balancing: bool = False
    released_seed: Annotated[int, WholeRange(0, 2**32 - 1)] | None = None

    references = ("hsu2019", "wang2021fednova")
    needs_classes = True

    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
        refuse_too_few(self, len(labels), num_clients, self.min_partition_size)
        if self.released_seed is None:
            generator = key.generator()
            owner = self._dealt(labels, num_clients, generator)
            return top_up(owner, num_clients, self.min_partition_size, generator)
        state = np.random.RandomState(self.released_seed)
        for _ in range(_REDRAWS):
            owner = self._dealt(labels, num_clients, state)
            if np.bincount(owner, minlength=num_clients).min() >= self.min_partition_size:
                return owner
        raise FieldError(
            f"DirichletPartitioner.min_partition_size must be reached by all {num_clients} clients within {_REDRAWS} "
            f"deals of released_seed, got {self.min_partition_size}: leave out released_seed, or use a larger alpha."
        )

    def _dealt(self, labels: Rows, num_clients: int, source: _Source) -> Rows:
        """One deal, without regard to the least size."""
        owner = np.empty(len(labels), dtype=np.int64)
        sizes, most = np.zeros(num_clients, dtype=np.int64), np.inf
        if self.self_balancing:
            most = len(labels) / num_clients
        for label in np.unique(labels):
            rows = source.permutation(np.flatnonzero(labels == label))
            if isinstance(source, np.random.Generator):
                shares, cut = dirichlet_draws(source, self.alpha, (num_clients,)), whole_sizes
            else:
                shares, cut = source.dirichlet(np.full(num_clients, self.alpha)), _cut_down
            pieces = cut(_among_open(shares, sizes < most), len(rows))
            owner[rows] = np.repeat(np.arange(num_clients), pieces)
            sizes += pieces
        return owner


@dataclass(frozen=True)
class InnerDirichletPartitioner(Partitioner):
    """Gives every client its own mixture of labels drawn from Dirichlet(α), with sizes fixed beforehand.

        q_i ~ Dir_K(α) for every client i;  client i draws its examples' labels from q_i

    Symbols: α `alpha`, K the number of labels. Sizes are `partition_sizes`, or equal if none are given, so
    that only labels are skewed (Hsu et al. 2019 with a uniform prior). Where a label runs out, its share
    goes to the labels that are left.
    """

    alpha: Positive
    partition_sizes: Sizes | None = None

    references = ("hsu2019",)
    needs_classes = True

    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
        generator = key.generator()
        if self.partition_sizes is None:
            sizes = whole_sizes(np.ones(num_clients), len(labels))
        else:
            sizes = given_sizes(self, self.partition_sizes, len(labels), num_clients)
        if len(labels) == 0:
            return np.empty(0, dtype=np.int64)
        kinds, kind_of = np.unique(labels, return_inverse=True)
        mixtures = dirichlet_draws(generator, self.alpha, (num_clients, len(kinds)))
        order = generator.permutation(num_clients)
        counts = np.empty((num_clients, len(kinds)), dtype=np.int64)
        counts[order] = _draw_labels(generator, mixtures[order], sizes[order], np.bincount(kind_of))
        owner = np.empty(len(labels), dtype=np.int64)
        for kind in range(len(kinds)):
            rows = generator.permutation(np.flatnonzero(kind_of == kind))
            owner[rows] = np.repeat(np.arange(num_clients), counts[:, kind])
        return owner


_CIFAR100 = (
    "eboiaghhsddojshldjhlglfkhgnpdpalbkmoqjlfftiipnorskqerecaresrkdcmmqmbjtckabqmjnpnqtcegtffitsbcpgarion"
)
"""The coarse label of each fine one, as a letter: a is the first of 20."""


@dataclass(frozen=True)
class PachinkoPartitioner(Partitioner):
    """Gives every client its own mixture of coarse labels, and one of fine labels within each, in equal sizes.

        q_i ~ Dir(α) over coarse labels,   q_ig ~ Dir(β) over the fine labels of g
        client i draws a coarse label g from q_i, then a fine one from q_ig, without replacement

    Symbols: α `alpha`, β `beta`. `parents` are the coarse labels of the labels 0, 1, 2, ...; those of CIFAR-100
    unless given. Where a label is used up, its share goes to the others of its coarse label, and the share of a
    coarse label to the other coarse ones. With 500 clients CIFAR-100 is split as in TensorFlow Federated
    (Reddi et al. 2021), 100 images each.

    Differs from it in the order of the clients where labels run out, which is drawn for each coarse label.
    """

    alpha: Positive = 0.1
    beta: Positive = 10.0
    parents: Sizes | None = None

    references = ("reddi2021",)
    needs_classes = True

    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
        parents = np.array(self.parents or [ord(letter) - ord("a") for letter in _CIFAR100])
        if len(labels) and labels.max() >= len(parents):
            need = f"an entry for each label up to {labels.max()}"
            raise FieldError(f"PachinkoPartitioner.parents must have {need}, got {len(parents)}.")
        coarse = parents[labels]
        owner = InnerDirichletPartitioner(self.alpha).deal(coarse, num_clients, key)
        for group in np.unique(coarse):
            rows = np.flatnonzero(coarse == group)
            # A client keeps its number of examples of the group, which are dealt anew among fine labels.
            sizes = tuple(np.bincount(owner[rows], minlength=num_clients).tolist())
            within = InnerDirichletPartitioner(self.beta, sizes)
            owner[rows] = within.deal(labels[rows], num_clients, key.fold("fine", int(group)))
        return owner


def _cut_down(shares: NDArray[np.float64], total: int) -> Rows:
    """Whole numbers that sum to `total`, between cumulative shares that are rounded down."""
    cuts = (np.cumsum(shares / shares.sum()) * total).astype(np.int64)[:-1]
    return np.diff(cuts, prepend=0, append=total)


def _among_open(shares: NDArray[np.float64], is_open: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Shares of the open clients alone; equal ones if underflow left them nothing, or no number."""
    left = np.where(is_open, shares, 0.0)
    return left if left.sum() > 0 else is_open.astype(np.float64)


def _draw_labels(
    generator: np.random.Generator, mixtures: NDArray[np.float64], sizes: Rows, left: Rows
) -> Rows:
    """How many of each label clients get when they draw one after another, never more than are left."""
    counts = np.zeros((len(sizes), len(left)), dtype=np.int64)
    left = left.copy()
    first = 0
    while first < len(sizes):
        # A block draws at once, up to the client at whom a label runs out, which happens once a label.
        block = slice(first, first + _BLOCK)
        drawn = generator.multinomial(sizes[block], _among_labels(mixtures[block], left > 0))
        fits = np.asarray((np.cumsum(drawn, axis=0) <= left).all(axis=1))
        done = len(fits) if fits.all() else int(np.argmin(fits))
        counts[first : first + done] = drawn[:done]
        left -= drawn[:done].sum(0)
        first += done
        if done < len(fits):
            own = np.minimum(drawn[done], left)
            while own.sum() < sizes[first]:
                shares = _among_labels(mixtures[first : first + 1], left > own)[0]
                own += np.minimum(generator.multinomial(sizes[first] - own.sum(), shares), left - own)
            counts[first] = own
            left -= own
            first += 1
    return counts


def _among_labels(mixtures: NDArray[np.float64], is_open: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mixtures of the labels that are left; equal ones if underflow left a client nothing."""
    shares = np.where(is_open, mixtures, 0.0)
    total = shares.sum(1, keepdims=True)
    return np.where(total > 0, shares / np.where(total > 0, total, 1.0), is_open / max(is_open.sum(), 1))


@dataclass(frozen=True)
class LabelBlocksPartitioner(Partitioner):
    """The first clients get all labels in the pool's own proportions, the others are dealt unequally.

    `num_balanced` clients, half of them unless given, share a fraction num_balanced/N of every label
    equally; what is left is dealt to the others by the partitioner `unbalanced`. With 20 clients this is the
    setting of Zeng 2025 Fig. 6, which shows how the two blocks' updates drift apart.

    Differs from the paper, which does not say how unbalanced the second block is: here equal sizes with a
    mixture of labels drawn from Dirichlet(0.1) for each client.
    """

    num_balanced: NaturalNumber | None = None
    unbalanced: Partitioner = InnerDirichletPartitioner(alpha=0.1)

    references = ("zeng2025fedaware",)
    needs_classes = True

    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
        num_balanced = num_clients // 2 if self.num_balanced is None else self.num_balanced
        if num_balanced > num_clients:
            raise FieldError(
                f"LabelBlocksPartitioner.num_balanced must be at most {num_clients}, the number of clients, "
                f"got {num_balanced}."
            )
        generator = key.generator()
        by_label = shuffled_within(labels, generator)
        # Every N consecutive examples of the sorted row hold one for each client of the first block.
        place = np.arange(len(labels)) % num_clients
        owner = np.empty(len(labels), dtype=np.int64)
        owner[by_label] = place
        rest = np.flatnonzero(owner >= num_balanced)
        if num_balanced < num_clients:
            own = None if natural is None else natural[rest]
            owner[rest] = num_balanced + self.unbalanced.deal(
                labels[rest], num_clients - num_balanced, key.fold("unbalanced"), own
            )
        return owner


@dataclass(frozen=True)
class ShardPartitioner(Partitioner):
    """Sorts the examples by label, cuts them into equal shards and deals each client some of them.

    `num_shards_per_partition` = 2 with 100 clients is the 200-shard setting of Zeng 2023 and of McMahan et al.
    (2017): most clients see two labels.
    """

    num_shards_per_partition: PositiveCount = 2

    references = ("mcmahan2017fedavg",)
    needs_classes = True

    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
        num_shards = num_clients * self.num_shards_per_partition
        if num_shards > len(labels):
            raise FieldError(
                f"ShardPartitioner cannot cut {len(labels)} examples into {num_shards} shards, "
                f"{self.num_shards_per_partition} for each of {num_clients} clients (num_shards_per_partition): "
                f"use a num_clients of at most {len(labels) // self.num_shards_per_partition}, or fewer shards."
            )
        generator = key.generator()
        by_label = shuffled_within(labels, generator)
        client_of_shard = generator.permutation(np.arange(num_shards) % num_clients)
        shard = np.arange(len(labels)) * num_shards // len(labels)
        owner = np.empty(len(labels), dtype=np.int64)
        owner[by_label] = client_of_shard[shard]
        return owner


AssignmentMode = Literal["random", "deterministic", "first-deterministic", "in-order"]


@dataclass(frozen=True)
class PathologicalPartitioner(Partitioner):
    """Gives each client examples of a fixed number of classes, each class shared equally by its clients.

    `class_assignment_mode`: "random" classes for each client, "deterministic" (client i starts at class i)
    or "first-deterministic" (its first class so, the others random), as flwr-datasets has them, or "in-order"
    (client i of N starts at class ⌊iK/N⌋ of K, so that neighbors hold the same classes). A class
    that no client was assigned goes to the client with the fewest examples, so that none is lost.
    """

    num_classes_per_partition: PositiveCount
    class_assignment_mode: AssignmentMode = "random"

    needs_classes = True

    def owners(self, labels: Rows, num_clients: int, key: Key, natural: Rows | None) -> Rows:
        generator = key.generator()
        kinds, kind_of = np.unique(labels, return_inverse=True)
        if self.num_classes_per_partition > len(kinds):
            raise FieldError(
                f"PathologicalPartitioner.num_classes_per_partition must be at most {len(kinds)}, the number "
                f"of classes, got {self.num_classes_per_partition}."
            )
        assigned = self._assign(num_clients, len(kinds), generator)
        owner = np.empty(len(labels), dtype=np.int64)
        sizes = np.zeros(num_clients, dtype=np.int64)
        # Classes that nobody holds come last, when it is known who has the fewest examples.
        for kind in np.argsort(assigned.sum(0) == 0, kind="stable"):
            rows = generator.permutation(np.flatnonzero(kind_of == kind))
            holders = np.flatnonzero(assigned[:, kind])
            if len(holders) == 0:
                holders = np.array([int(np.argmin(sizes))])
            owner[rows] = holders[np.arange(len(rows)) % len(holders)]
            sizes += np.bincount(owner[rows], minlength=num_clients)
        return owner

    def _assign(self, num_clients: int, num_kinds: int, generator: np.random.Generator) -> np.ndarray:
        """Which client holds which class, (clients, classes) bool."""
        assigned = np.zeros((num_clients, num_kinds), dtype=bool)
        clients, count = np.arange(num_clients), self.num_classes_per_partition
        if self.class_assignment_mode in ("deterministic", "in-order"):
            in_order = self.class_assignment_mode == "in-order"
            first = clients * num_kinds // num_clients if in_order else clients
            for step in range(count):
                assigned[clients, (first + step) % num_kinds] = True
            return assigned
        preference = generator.random((num_clients, num_kinds))
        if self.class_assignment_mode == "first-deterministic":
            preference[clients, clients % num_kinds] = 2.0
        chosen = np.argpartition(-preference, count - 1, axis=1)[:, :count]
        assigned[clients[:, None], chosen] = True
        return assigned
