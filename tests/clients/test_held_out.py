"""Examples that become the test set where the data bring none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fairlead as fl
from fairlead.clients.source import PooledSource
from fairlead.errors import FieldError


@dataclass(frozen=True)
class _Visits(PooledSource):
    """Example i is the number i, in class ⌊i/3⌋ mod 2, owned by `owners[i]` where there are owners."""

    owners: tuple[int, ...] = ()
    count: int = 10

    def pool(self) -> fl.Pool:
        count = len(self.owners) or self.count
        inputs = np.arange(float(count))[:, None]
        return fl.Pool.from_arrays(inputs, np.arange(count) // 3 % 2, self.owners or None)

    def default_task(self) -> fl.Task:
        return fl.Task(fl.LogisticRegression())


@given(
    owners=st.lists(st.integers(0, 8), min_size=1, max_size=60),
    fraction=st.floats(0, 0.999),
    seed=st.integers(0, 100),
)
def test_every_client_gives_its_share_and_keeps_one(owners: list[int], fraction: float, seed: int) -> None:
    """Of m = round(f·n) examples a client of size s gives ⌊s·m/n⌋ or ⌈s·m/n⌉, and s − 1 at most."""
    source = _Visits(owners=tuple(owners), test_fraction=fraction)
    data, again = (source.load(fl.Key.from_seed(seed)) for _ in range(2))
    assert data.train.names is not None
    assert data.train.names.tolist() == [str(owner) for owner in sorted(set(owners))]
    held_out = [] if data.test is None else data.test.inputs.flatten().tolist()
    assert sorted(held_out + data.train.inputs.flatten().tolist()) == list(range(len(owners)))
    chosen = round(fraction * len(owners))
    for client, owner in enumerate(sorted(set(owners))):
        size = owners.count(owner)
        given_up = size - int(data.train.sizes[client])
        low, high = size * chosen // len(owners), -(-size * chosen // len(owners))
        assert min(low, size - 1) <= given_up <= min(high, size - 1)
    assert data.train.inputs.tolist() == again.train.inputs.tolist()


@pytest.mark.parametrize("owners", [(), (0,) * 3 + (1,) * 7])
def test_seeds_hold_out_other_examples_all_alike(owners: tuple[int, ...]) -> None:
    """Each of 10 examples is one of 2 held out with probability 0.2: over 2000 seeds 400 ± 5·√(2000·0.16)."""
    source = (
        _Visits(owners=owners)
        if owners
        else _Visits(num_clients=1, partition=fl.IidPartitioner(), test_fraction=0.2)
    )
    counts = np.zeros(10)
    for seed in range(2000):
        test = source.load(fl.Key.from_seed(seed)).test
        assert test is not None
        held_out = test.inputs.flatten().to(torch.int64).numpy()
        assert len(held_out) == 2
        counts[held_out] += 1
    assert np.abs(counts - 400).max() < 5 * np.sqrt(2000 * 0.16)


def test_clients_with_many_examples_give_all_that_were_chosen() -> None:
    data = _Visits(owners=(0, 1) * 50, test_fraction=0.3).load(fl.Key.from_seed(0))
    assert data.test is not None
    assert data.test.sizes.tolist() == [15, 15]


def test_held_out_examples_stay_with_their_clients() -> None:
    """Client i owns examples i, i + 3, ...: what is held out of it leaves the same remainder."""
    owners = (0, 1, 2) * 10
    for partition in (None, fl.NaturalIdPartitioner()):
        test = _Visits(owners=owners, partition=partition).load(fl.Key.from_seed(4)).test
        assert test is not None
        assert test.names is not None
        assert test.names.tolist() == ["0", "1", "2"]
        for client in range(3):
            assert set((test.inputs[test.rows_of(client)] % 3).flatten().tolist()) == {float(client)}


@pytest.mark.parametrize("partition", [fl.IidPartitioner(), fl.ReshuffledPartitioner()])
def test_a_new_deal_has_a_common_test_set(partition: fl.Partitioner) -> None:
    test = _Visits(owners=(0, 1) * 20, partition=partition).load(fl.Key.from_seed(0)).test
    assert test is not None
    assert test.sizes.tolist() == [8]


def test_figures_of_clients_are_those_of_held_out_examples() -> None:
    """A world whose training data are the test set measures on them what the federation's own world does."""
    data = _Visits(owners=(0, 1) * 20).load(fl.Key.from_seed(0))
    assert data.test is not None
    task = fl.Task(fl.LogisticRegression())
    run = fl.Federation(fl.presets.fedavg(lr=0.01), fl.SimulatedWorld(task, data.train, test=data.test))
    list(run.train(rounds=2))
    here, on_test, on_train = (
        world.evaluate(run.state.params, run.state.buffers, per_client=True).client_loss
        for world in (run.world, fl.SimulatedWorld(task, data.test), fl.SimulatedWorld(task, data.train))
    )
    assert here == on_test != on_train


def test_something_must_be_left_to_train_on() -> None:
    dealt = _Visits(num_clients=1, partition=fl.IidPartitioner(), test_fraction=0.99)
    with pytest.raises(
        FieldError, match=r"_Visits.test_fraction must leave an example to train on, got 0.99 of 10 examples"
    ):
        dealt.load(fl.Key.from_seed(0))


def test_parts_of_another_kind_are_refused() -> None:
    with pytest.raises(FieldError, match=r"Digits.partition must be a Partitioner, got 'iid'"):
        fl.Digits(partition="iid")  # type: ignore[arg-type]
    for skew in (("noise",), fl.GaussianNoise(0.1)):
        with pytest.raises(FieldError, match=r"Digits.feature_skew must be a list of feature skews, got"):
            fl.Digits(feature_skew=skew)  # type: ignore[arg-type]
