"""Examples that become the test set where the data bring none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlead as fl
from fairlead.clients.pooled import PooledSource
from fairlead.errors import FieldError


@dataclass(frozen=True)
class _Visits(PooledSource):
    """Example i is the number i, owned by `owners[i]` where there are owners."""

    owners: tuple[int, ...] = ()
    count: int = 10

    def pool(self) -> fl.Pool:
        count = len(self.owners) or self.count
        return fl.Pool.from_arrays(np.arange(float(count))[:, None], [0] * count, self.owners or None)

    def default_task(self) -> fl.Task:
        return fl.Task(fl.LogisticRegression())


@given(
    owners=st.lists(st.integers(0, 8), min_size=1, max_size=60),
    fraction=st.floats(0, 0.999),
    seed=st.integers(0, 100),
)
def test_no_client_loses_its_last_example(owners: list[int], fraction: float, seed: int) -> None:
    """Of round(f·n) chosen examples at most one per client goes back, whatever the seed."""
    source = _Visits(owners=tuple(owners), test_fraction=fraction)
    data, again = (source.load(fl.Key.from_seed(of)) for of in (0, seed))
    assert data.train.names is not None
    assert data.train.names.tolist() == [str(owner) for owner in sorted(set(owners))]
    held_out = [] if data.test is None else data.test.inputs.flatten().tolist()
    assert sorted(held_out + data.train.inputs.flatten().tolist()) == list(range(len(owners)))
    chosen = round(fraction * len(owners))
    assert chosen - len(set(owners)) <= len(held_out) <= chosen
    assert data.train.inputs.tolist() == again.train.inputs.tolist()


def test_clients_with_many_examples_give_all_that_were_chosen() -> None:
    data = _Visits(owners=(0, 1) * 50, test_fraction=0.3).load(fl.Key.from_seed(0))
    assert data.test is not None
    assert len(data.test.inputs) == 30


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
