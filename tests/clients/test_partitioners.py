"""Partitioners deal every example once and never hang, over random settings.

`pytest tests/clients --hypothesis-profile=thorough` tries thousands of settings.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fairlead as fl
from fairlead.clients.partitioners import Rows, dirichlet_draws, top_up, whole_sizes
from fairlead.errors import FieldError

seeds = st.integers(0, 2**32)
alphas = st.one_of(st.floats(1e-6, 1e-2), st.floats(0.01, 10.0), st.floats(10.0, 1e6))
sizes_at_least = st.integers(0, 5)
MODES = ("random", "deterministic", "first-deterministic", "in-order")

PARTITIONERS: dict[str, st.SearchStrategy[fl.Partitioner]] = {
    "iid": st.just(fl.IidPartitioner()),
    "dirichlet": st.builds(fl.DirichletPartitioner, alphas, sizes_at_least, st.booleans()),
    "released": st.builds(
        fl.DirichletPartitioner, alphas, st.just(0), st.booleans(), released_seed=st.integers(0, 2**32 - 1)
    ),
    "inner dirichlet": st.builds(fl.InnerDirichletPartitioner, alphas),
    "dirichlet sizes": st.builds(fl.DirichletSizePartitioner, alphas, sizes_at_least),
    "shards": st.builds(fl.ShardPartitioner, st.integers(1, 4)),
    "pathological": st.builds(fl.PathologicalPartitioner, st.integers(1, 4), st.sampled_from(MODES)),
    "log-normal": st.builds(fl.LogNormalPartitioner, st.floats(0, 20), sizes_at_least),
    "power law": st.builds(fl.PowerLawPartitioner, st.floats(0, 20), sizes_at_least),
}


@st.composite
def labeled(draw: st.DrawFn) -> Rows:
    """Labels of 1 to 300 examples, some of which may be rare or far apart."""
    kinds = draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=12, unique=True))
    count = draw(st.integers(1, 300))
    generator = np.random.default_rng(draw(seeds))
    shares = generator.dirichlet(np.full(len(kinds), draw(st.sampled_from([0.1, 1.0, 100.0]))))
    return np.array(kinds, dtype=np.int64)[generator.choice(len(kinds), count, p=shares)]


def deal(partitioner: fl.Partitioner, labels: Rows, num_clients: int, seed: int) -> Rows:
    return partitioner.deal(labels, num_clients, fl.Key.from_seed(seed))


@pytest.mark.parametrize("name", PARTITIONERS)
@given(data=st.data(), labels=labeled(), num_clients=st.integers(1, 60), seed=seeds)
def test_every_example_is_dealt_once(
    name: str, data: st.DataObject, labels: Rows, num_clients: int, seed: int
) -> None:
    """A deal is an owner per example; it repeats with its key; whoever must have some, has."""
    partitioner = data.draw(PARTITIONERS[name])
    least = getattr(partitioner, "min_partition_size", 0)
    if num_clients * max(least, getattr(partitioner, "num_shards_per_partition", 0)) > len(labels) or getattr(
        partitioner, "num_classes_per_partition", 0
    ) > len(np.unique(labels)):
        with pytest.raises(FieldError, match="at most"):
            deal(partitioner, labels, num_clients, seed)
        return
    owner = deal(partitioner, labels, num_clients, seed)
    assert owner.shape == labels.shape
    assert owner.dtype == np.int64
    sizes = np.bincount(owner, minlength=num_clients)
    assert len(sizes) == num_clients
    assert sizes.min() >= least
    assert np.array_equal(owner, deal(partitioner, labels, num_clients, seed))


@given(labels=labeled(), num_clients=st.integers(1, 60), seed=seeds, alpha=alphas)
def test_equal_sizes_differ_by_one_at_most(labels: Rows, num_clients: int, seed: int, alpha: float) -> None:
    for partitioner in (fl.IidPartitioner(), fl.InnerDirichletPartitioner(alpha)):
        sizes = np.bincount(deal(partitioner, labels, num_clients, seed), minlength=num_clients)
        assert sizes.max() - sizes.min() <= 1


@given(data=st.data(), labels=labeled(), num_clients=st.integers(1, 20), seed=seeds, alpha=alphas)
def test_given_sizes_are_kept(
    data: st.DataObject, labels: Rows, num_clients: int, seed: int, alpha: float
) -> None:
    cuts = data.draw(
        st.lists(st.integers(0, len(labels)), min_size=num_clients - 1, max_size=num_clients - 1)
    )
    sizes = tuple(np.diff([0, *sorted(cuts), len(labels)]).tolist())
    for partitioner in (fl.SizePartitioner(sizes), fl.InnerDirichletPartitioner(alpha, sizes)):
        owner = deal(partitioner, labels, num_clients, seed)
        assert np.bincount(owner, minlength=num_clients).tolist() == list(sizes)


@given(data=st.data(), labels=labeled(), seed=seeds)
def test_natural_clients_and_their_iid_twin(data: st.DataObject, labels: Rows, seed: int) -> None:
    ids = data.draw(st.lists(st.integers(0, 9), min_size=len(labels), max_size=len(labels)))
    natural = np.unique(ids, return_inverse=True)[1].astype(np.int64)
    num_clients, key = int(natural.max()) + 1, fl.Key.from_seed(seed)
    assert np.array_equal(fl.NaturalIdPartitioner().deal(labels, num_clients, key, natural), natural)
    twin = fl.ReshuffledPartitioner().deal(labels, num_clients, key, natural)
    assert np.array_equal(np.bincount(twin), np.bincount(natural))


@given(labels=labeled(), num_clients=st.integers(1, 40), shards=st.integers(1, 4), seed=seeds)
def test_a_client_gets_few_runs_of_the_sorted_examples(
    labels: Rows, num_clients: int, shards: int, seed: int
) -> None:
    """Shards are equal up to one, and a shard of s examples holds at most as many labels as it can reach.

    Sorted labels change K − 1 times in all, so all clients' labels together are at most shards + K − 1.
    """
    assume(num_clients * shards <= len(labels))
    owner = deal(fl.ShardPartitioner(shards), labels, num_clients, seed)
    held = sum(len(np.unique(labels[owner == client])) for client in range(num_clients))
    assert held <= num_clients * shards + len(np.unique(labels)) - 1
    sizes = np.bincount(owner, minlength=num_clients)
    assert sizes.max() - sizes.min() <= shards


@given(
    labels=labeled(),
    num_clients=st.integers(1, 40),
    classes=st.integers(1, 4),
    mode=st.sampled_from(MODES),
    seed=seeds,
)
def test_a_client_gets_no_more_classes_than_asked(
    labels: Rows, num_clients: int, classes: int, mode: Any, seed: int
) -> None:
    """All classes but those that nobody was assigned, which go to somebody so that none is lost."""
    kinds = len(np.unique(labels))
    assume(classes <= kinds)
    owner = deal(fl.PathologicalPartitioner(classes, mode), labels, num_clients, seed)
    held = np.array([len(np.unique(labels[owner == client])) for client in range(num_clients)])
    assert np.maximum(held - classes, 0).sum() <= max(kinds - classes, 0)
    if mode in ("deterministic", "in-order") and num_clients >= kinds:
        assert held.max() <= classes


def test_classes_in_order_leave_the_first_half_to_the_first_clients() -> None:
    """Twenty clients and ten classes, as MNIST in Weng 2025: client i holds class i//2, or i mod 10 interleaved."""
    labels = np.tile(np.arange(10), 60)
    for mode, classes in (("in-order", np.arange(20) // 2), ("deterministic", np.arange(20) % 10)):
        owner = deal(fl.PathologicalPartitioner(1, mode), labels, 20, 0)  # type: ignore[arg-type]
        assert [set(labels[owner == client]) for client in range(20)] == [{label} for label in classes]
        assert np.bincount(owner).tolist() == [30] * 20
    settings = fl.settings.fedacs_dynamic_one_class, fl.settings.fedacs_static_one_class
    assert {setting(in_order=True).partition for setting in settings} == {
        fl.PathologicalPartitioner(1, "in-order")
    }


@given(
    shares=st.lists(st.floats(0, 1e9, allow_subnormal=False), min_size=1, max_size=50).filter(
        lambda s: sum(s) > 0
    ),
    total=st.integers(0, 10**6),
)
def test_whole_sizes_are_nearest_to_their_shares(shares: list[float], total: int) -> None:
    sizes = whole_sizes(np.array(shares), total)
    assert sizes.sum() == total
    assert np.abs(sizes - np.array(shares) / sum(shares) * total).max() < 1 + 1e-6


@given(data=st.data(), num_clients=st.integers(1, 20), least=st.integers(0, 5), seed=seeds)
def test_topping_up_changes_as_few_owners_as_it_can(
    data: st.DataObject, num_clients: int, least: int, seed: int
) -> None:
    """Exactly as many examples move as were missing, and only from clients that can spare them."""
    owner = np.array(
        data.draw(st.lists(st.integers(0, num_clients - 1), min_size=num_clients * least, max_size=200))
    )
    owner = owner.astype(np.int64)
    before = np.bincount(owner, minlength=num_clients)
    after_owner = top_up(owner, num_clients, least, np.random.default_rng(seed))
    after = np.bincount(after_owner, minlength=num_clients)
    assert after.min() >= least
    assert (after_owner != owner).sum() == np.maximum(least - before, 0).sum()
    assert np.array_equal(after[before <= least], np.maximum(before[before <= least], least))


@pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e-6, 0.01])
def test_tiny_concentrations_neither_hang_nor_divide_by_zero(alpha: float) -> None:
    draws = dirichlet_draws(np.random.default_rng(0), alpha, (200, 30))
    assert np.isfinite(draws).all()
    np.testing.assert_allclose(draws.sum(1), 1.0)


def test_a_deviation_beyond_all_bounds_gives_one_client_everything() -> None:
    owner = deal(fl.LogNormalPartitioner(1e30, 0), np.zeros(50, dtype=np.int64), 7, 0)
    assert len(np.unique(owner)) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: fl.DirichletPartitioner(0.01, min_partition_size=2),
        lambda: fl.DirichletPartitioner(0.01, self_balancing=True),
        lambda: fl.InnerDirichletPartitioner(0.01),
        lambda: fl.DirichletSizePartitioner(0.01, min_partition_size=6),
        lambda: fl.ShardPartitioner(2),
        lambda: fl.PathologicalPartitioner(2),
        lambda: fl.LogNormalPartitioner(5.0),
        lambda: fl.PowerLawPartitioner(2.0),
    ],
)
def test_ten_thousand_clients(make: Callable[[], fl.Partitioner]) -> None:
    """Well under a second each: the slowest takes a tenth of one on a slow core."""
    labels = np.random.default_rng(0).integers(0, 10, 60_000)
    partitioner = make()
    started = process_time()
    sizes = np.bincount(deal(partitioner, labels, 10_000, 0), minlength=10_000)
    assert process_time() - started < 1.0
    assert sizes.sum() == 60_000
    assert sizes.min() >= getattr(partitioner, "min_partition_size", 1)


@pytest.mark.parametrize(
    ("partitioner", "message"),
    [
        (
            fl.DirichletPartitioner(0.1, 3),
            r"DirichletPartitioner cannot split 20 examples among 10 clients with at least 3 each "
            r"\(min_partition_size\): use a num_clients of at most 6, or a min_partition_size of at most 2\.",
        ),
        (fl.DirichletSizePartitioner(0.1, 3), "min_partition_size of at most 2"),
        (fl.LogNormalPartitioner(1.0, 3), "min_partition_size of at most 2"),
        (
            fl.ShardPartitioner(3),
            r"cannot cut 20 examples into 30 shards, 3 for each of 10 clients .*: use a num_clients of at most 6",
        ),
        (
            fl.PathologicalPartitioner(3),
            "num_classes_per_partition must be at most 2, the number of classes, got 3",
        ),
        (fl.SizePartitioner((20,)), "must be 10 numbers that sum to 20, got 1 that sum to 20"),
        (
            fl.InnerDirichletPartitioner(1.0, (2,) * 9),
            "must be 10 numbers that sum to 20, got 9 that sum to 18",
        ),
        (
            fl.DirichletPartitioner(0.01, 2, released_seed=0),
            r"min_partition_size must be reached by all 10 clients within 1000 deals of released_seed, got 2",
        ),
        (
            fl.PachinkoPartitioner(parents=(0,)),
            "parents must have an entry for each label up to 1, got 1",
        ),
        (fl.NaturalIdPartitioner(), "needs data that name the client of each example"),
        (fl.ReshuffledPartitioner(), "needs data that name the client of each example"),
    ],
)
def test_impossible_deals_say_why(partitioner: fl.Partitioner, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        deal(partitioner, np.arange(20) % 2, 10, 0)


@pytest.mark.parametrize(
    "partitioner",
    [
        fl.IidPartitioner(),
        fl.DirichletPartitioner(0.1),
        fl.InnerDirichletPartitioner(0.1),
        fl.DirichletSizePartitioner(0.1, 0),
        fl.ShardPartitioner(),
        fl.PathologicalPartitioner(1),
        fl.LabelBlocksPartitioner(),
        fl.PachinkoPartitioner(),
        fl.LogNormalPartitioner(1.0),
        fl.PowerLawPartitioner(1.0),
    ],
)
def test_nobody_to_deal_to(partitioner: fl.Partitioner) -> None:
    name = type(partitioner).__name__
    with pytest.raises(FieldError, match=rf"^{name} needs at least 1 client, got 0\.$"):
        partitioner.deal(np.arange(20) % 2, 0, fl.Key.from_seed(0))


def test_too_many_clients_are_not_blamed_on_a_field_nobody_set() -> None:
    """With defaults alone the number of clients is what was asked for, so that is what the remedy names."""
    for partitioner in (fl.DirichletPartitioner(0.1), fl.PowerLawPartitioner(1.0)):
        with pytest.raises(
            FieldError, match=r"cannot split 5 examples among 9 clients.* num_clients of at most 5"
        ):
            deal(partitioner, np.zeros(5, dtype=np.int64), 9, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fl.DirichletPartitioner(0), "alpha must be a finite number above 0, got 0"),
        (lambda: fl.DirichletPartitioner(float("nan")), "alpha must be a finite number above 0, got nan"),
        (
            lambda: fl.InnerDirichletPartitioner(1.0, (-1, 3)),
            "partition_sizes must be whole numbers of at least 0",
        ),
        (lambda: fl.SizePartitioner(()), "partition_sizes must be whole numbers of at least 0"),
        (
            lambda: fl.ShardPartitioner(0),
            "num_shards_per_partition must be a whole number of at least 1, got 0",
        ),
        (lambda: fl.PathologicalPartitioner(1, cast("Any", "none")), "class_assignment_mode must be one of"),
        (lambda: fl.LogNormalPartitioner(-1), "sigma must be a finite number of at least 0, got -1"),
        (lambda: fl.PowerLawPartitioner(1.0, -1), "min_partition_size must be a whole number of at least 0"),
    ],
)
def test_settings_out_of_range(make: Callable[[], fl.Partitioner], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        make()
