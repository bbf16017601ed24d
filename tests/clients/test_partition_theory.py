"""Skew statistics of the deals against theory, at fixed seeds.

Σ_i q_i² of a Dirichlet_N(α) vector q has mean (α + 1)/(Nα + 1): each q_i is Beta(α, (N − 1)α), whose
second moment is α(α + 1)/(Nα(Nα + 1)). Means of R draws are compared within four standard errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

import fairlead as fl
from fairlead.clients.partitioners import Rows

BALANCED = np.repeat(np.arange(10), 600)
"""10 labels of 600 examples."""


def label_counts(partitioner: fl.Partitioner, labels: Rows, num_clients: int, seed: int) -> NDArray[np.int64]:
    """(clients, labels)."""
    owner = partitioner.deal(labels, num_clients, fl.Key.from_seed(seed))
    counts = np.zeros((num_clients, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(counts, (owner, labels), 1)
    return counts


def chi_square(counts: NDArray[np.int64]) -> float:
    """Pearson's statistic of independence between client and label."""
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def assert_mean(draws: list[float], expected: float) -> None:
    error = np.std(draws, ddof=1) / np.sqrt(len(draws))
    assert abs(np.mean(draws) - expected) < 4 * error


@pytest.mark.parametrize(
    "partitioner",
    [
        fl.IidPartitioner(),
        fl.LogNormalPartitioner(1.0, min_partition_size=5),
        fl.DirichletSizePartitioner(1.0, min_partition_size=5),
        fl.PowerLawPartitioner(0.7),
    ],
)
def test_labels_are_independent_of_clients(partitioner: fl.Partitioner) -> None:
    """With margins fixed, a random deal has E χ² = (N − 1)(K − 1)·n/(n − 1), whatever the sizes."""
    draws = [chi_square(label_counts(partitioner, BALANCED, 20, seed)) for seed in range(200)]
    assert_mean(draws, 19 * 9 * 6000 / 5999)


def test_the_iid_twin_of_a_natural_split() -> None:
    """Every natural client has one label, χ² = n(K − 1); reshuffled, no client tells its labels."""
    natural = BALANCED.astype(np.int64)
    assert chi_square(np.diag([600] * 10)) == 6000 * 9
    draws = []
    for seed in range(200):
        owner = fl.ReshuffledPartitioner().deal(BALANCED, 10, fl.Key.from_seed(seed), natural)
        counts = np.zeros((10, 10), dtype=np.int64)
        np.add.at(counts, (owner, BALANCED), 1)
        draws.append(chi_square(counts))
    assert_mean(draws, 81 * 6000 / 5999)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 5.0])
def test_dirichlet_shares_of_each_label(alpha: float) -> None:
    """q_k ~ Dir_N(α) over clients: Σ_i q_ki² has mean (α + 1)/(Nα + 1) for every label k."""
    labels = np.repeat(np.arange(5), 4000)
    draws: list[float] = []
    for seed in range(80):
        counts = label_counts(fl.DirichletPartitioner(alpha, 0), labels, 8, seed)
        draws += ((counts / 4000) ** 2).sum(0).tolist()
    assert_mean(draws, (alpha + 1) / (8 * alpha + 1))


@pytest.mark.parametrize("alpha", [0.05, 0.5, 5.0])
def test_dirichlet_sizes(alpha: float) -> None:
    """Sizes alone are skewed: Σ_i (n_i/n)² has mean (α + 1)/(Nα + 1)."""
    draws = []
    for seed in range(400):
        sizes = label_counts(fl.DirichletSizePartitioner(alpha, 0), BALANCED, 8, seed).sum(1)
        draws.append(float(((sizes / 6000) ** 2).sum()))
    assert_mean(draws, (alpha + 1) / (8 * alpha + 1))


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_inner_dirichlet_mixtures_of_each_client(alpha: float) -> None:
    """q_i ~ Dir_K(α) over labels, then s draws: E Σ_k (c_k/s)² = 1/s + (1 − 1/s)(α + 1)/(Kα + 1).

    Labels run out only for the last of 4000 clients, which moves the mean by less than 4 %.
    """
    size, num_clients = 20, 4000
    labels = np.arange(size * num_clients) % 10
    counts = label_counts(fl.InnerDirichletPartitioner(alpha), labels, num_clients, 0)
    expected = 1 / size + (1 - 1 / size) * (alpha + 1) / (10 * alpha + 1)
    assert abs(((counts / size) ** 2).sum(1).mean() / expected - 1) < 0.04


@pytest.mark.parametrize(
    "make",
    [
        partial(fl.DirichletPartitioner, min_partition_size=0),
        partial(fl.DirichletSizePartitioner, min_partition_size=0),
    ],
)
def test_the_limits_of_alpha(make: Callable[..., fl.Partitioner]) -> None:
    """α → ∞ deals equal shares up to one example a label, α → 0 all of a label to one client."""
    equal = label_counts(make(1e9), BALANCED, 6, 0)
    assert np.abs(equal.sum(1) - 1000).max() <= 10
    single = label_counts(make(1e-9), BALANCED, 6, 0)
    whole = single.sum(1) if isinstance(make(1.0), fl.DirichletSizePartitioner) else single.T
    assert set(np.unique(whole)) <= {0, 600, 6000}


def test_the_released_split_of_fednova() -> None:
    """Wang 2021 Table I prints 16 ≤ τ ≤ 408 for E = 2 and B = 32, and up to 1,020 for five epochs.

    Sizes depend on the numbers of examples of each label alone: 5,000 in CIFAR-10. Effective classes are 1/Σq²,
    weighted by examples.
    """
    labels = np.repeat(np.arange(10), 5000)
    counts = label_counts(fl.DirichletPartitioner(0.1, 10, True, released_seed=2020), labels, 16, seed=0)
    sizes = counts.sum(1)
    steps = 2 * np.ceil(sizes / 32)
    assert (steps.min(), steps.max(), steps.max() * 5 / 2) == (16, 408, 1020)
    classes = sizes**2 / (counts**2).sum(1)
    assert classes @ sizes / 50_000 == pytest.approx(1.67, abs=0.005)


def released_deal(labels: Rows, num_clients: int, alpha: float, seed: int) -> Rows:
    """The loop that released codes have in common, with lists of examples."""
    state = np.random.RandomState(seed)
    held: list[list[int]] = [[]]
    while min(map(len, held)) < 10:
        held = [[] for _ in range(num_clients)]
        for label in range(int(labels.max()) + 1):
            rows = np.where(labels == label)[0]
            state.shuffle(rows)
            shares = state.dirichlet(np.repeat(alpha, num_clients))
            shares = np.array(
                [
                    share * (len(own) < len(labels) / num_clients)
                    for share, own in zip(shares, held, strict=True)
                ]
            )
            cuts = (np.cumsum(shares / shares.sum()) * len(rows)).astype(int)[:-1]
            held = [own + new.tolist() for own, new in zip(held, np.split(rows, cuts), strict=True)]
    owner = np.empty(len(labels), dtype=np.int64)
    for client, own in enumerate(held):
        owner[own] = client
    return owner


def test_a_released_deal_is_that_of_the_released_loop() -> None:
    """Unequal labels of 600 examples over nine clients; some seeds need redraws."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(4), (300, 50, 150, 100)))
    for seed in range(10):
        partitioner = fl.DirichletPartitioner(0.3, 10, True, released_seed=seed)
        deals = [partitioner.deal(labels, 9, fl.Key.from_seed(key)) for key in (0, 1)]
        assert np.array_equal(deals[0], released_deal(labels, 9, 0.3, seed))
        assert np.array_equal(deals[0], deals[1])


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 10.0), (2.0, 0.5)])
def test_pachinko_mixtures_of_both_levels(alpha: float, beta: float) -> None:
    """Squared shares of coarse labels, and of fine ones within a coarse label, as for `InnerDirichletPartitioner`.

    For pairs of different examples, E Σ_k c_k(c_k − 1)/(c(c − 1)) = (α + 1)/(Kα + 1); with 4 coarse labels of 3 fine
    ones each. Labels run out only for the last of 4000 clients, which moves the means by less than 4 %.
    """
    size, num_clients, parents = 24, 4000, tuple(label % 4 for label in range(12))
    labels = np.arange(size * num_clients) % 12
    counts = label_counts(fl.PachinkoPartitioner(alpha, beta, parents), labels, num_clients, 0)
    assert (counts.sum(1) == size).all()
    fine = counts.reshape(num_clients, 3, 4)
    coarse = fine.sum(1)
    among = (coarse * (coarse - 1)).sum(1) / (size * (size - 1))
    assert abs(among.mean() / ((alpha + 1) / (4 * alpha + 1)) - 1) < 0.04
    shared = coarse > 1
    within = (fine * (fine - 1)).sum(1)[shared] / (coarse * (coarse - 1))[shared]
    assert abs(within.mean() / ((beta + 1) / (3 * beta + 1)) - 1) < 0.04


def test_self_balancing_bounds_sizes() -> None:
    """A client gets a label only while it has less than n/N, so it ends below n/N plus one label."""
    for seed in range(20):
        sizes = label_counts(fl.DirichletPartitioner(0.01, 0, self_balancing=True), BALANCED, 4, seed).sum(1)
        assert sizes.max() < 6000 / 4 + 600
    free = label_counts(fl.DirichletPartitioner(0.01, 0), BALANCED, 4, 1).sum(1)
    assert free.max() > 6000 / 4 + 600


def test_two_hundred_shards() -> None:
    """60,000 examples of 10 labels in 200 shards: 20 a label, so no client has more than two labels.

    A client's second shard is one of the 19 with its first label among 199 that are left, so it has
    2 − 19/199 labels on average.
    """
    labels = np.repeat(np.arange(10), 6000)
    draws = []
    for seed in range(60):
        held = (label_counts(fl.ShardPartitioner(2), labels, 100, seed) > 0).sum(1)
        assert set(held) <= {1, 2}
        draws.append(float(held.mean()))
    assert_mean(draws, 2 - 19 / 199)


@pytest.mark.parametrize("mode", ["random", "deterministic", "first-deterministic"])
def test_classes_per_client(mode: str) -> None:
    """With 40 clients every class has holders: each client has its 3 classes, in equal parts of each."""
    counts = label_counts(fl.PathologicalPartitioner(3, mode), BALANCED, 40, 0)  # type: ignore[arg-type]
    assert ((counts > 0).sum(1) == 3).all()
    for own in counts.T:
        assert own[own > 0].max() - own[own > 0].min() <= 1
    if mode != "random":
        assert all(counts[client, client % 10] > 0 for client in range(40))
    if mode == "deterministic":
        assert all(counts[client, (client + step) % 10] > 0 for client in range(40) for step in range(3))


def test_random_classes_are_held_evenly() -> None:
    """A class is held by each client with probability 3/10, so by 12 of 40 on average."""
    draws = []
    for seed in range(200):
        counts = label_counts(fl.PathologicalPartitioner(3), BALANCED, 40, seed)
        draws.append(float((counts[:, 0] > 0).sum()))
    assert_mean(draws, 12.0)


def test_log_normal_sizes() -> None:
    """log sizes spread with deviation σ: over 2000 clients its estimate errs by 1/√4000 = 1.6 %."""
    labels = np.zeros(4_000_000, dtype=np.int64)
    for sigma in (0.5, 1.0):
        sizes = np.bincount(fl.LogNormalPartitioner(sigma).deal(labels, 2000, fl.Key.from_seed(0)))
        assert abs(np.log(sizes).std() / sigma - 1) < 0.06
    equal = np.bincount(fl.LogNormalPartitioner(0.0).deal(labels, 2000, fl.Key.from_seed(0)))
    assert set(equal) == {2000}


def test_power_law_sizes() -> None:
    """Sizes are n·(i + 1)^−e/Σ(j + 1)^−e to the nearest whole numbers."""
    shares = np.arange(1.0, 31.0) ** -1.2
    sizes = label_counts(fl.PowerLawPartitioner(1.2), BALANCED, 30, 0).sum(1)
    assert np.abs(sizes - 6000 * shares / shares.sum()).max() < 1
