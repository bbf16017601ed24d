"""Examples that become the test set where the data bring none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fairlead as fl
from fairlead.clients.source import PooledSource
from fairlead.errors import FairleadError, FieldError


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
        with pytest.raises(FieldError, match=r"Digits.feature_skew must be a (FeatureSkew|tuple), got"):
            fl.Digits(feature_skew=skew)  # type: ignore[arg-type]


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8).filter(lambda sizes: max(sizes) > 1),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 100),
)
def test_each_client_holds_out_its_share_of_what_it_was_dealt(
    sizes: list[int], share: float, seed: int
) -> None:
    """A client of n ≥ 2 examples gives max(1, round(share·n)), n − 1 at most; one of a single example keeps it."""
    rows = np.arange(float(sum(sizes)))[:, None]
    starts = np.cumsum([0, *sizes])
    whole = fl.ClientData.from_lists(
        [rows[a:b] for a, b in pairwise(starts)], [np.zeros(size, dtype=int) for size in sizes]
    )
    train, held_out = whole.hold_out(share, fl.Key.from_seed(seed))
    again = whole.hold_out(share, fl.Key.from_seed(seed))
    assert (train.inputs.tolist(), held_out.inputs.tolist()) == tuple(d.inputs.tolist() for d in again)
    for client, size in enumerate(sizes):
        # round() of Python and of torch both round halves to even; the product is in float32 in torch.
        wanted = max(1, round(float(np.float32(share) * np.float32(size)))) if size > 1 else 0
        ours, theirs = (data.examples_of(client)[0].flatten().tolist() for data in (train, held_out))
        assert len(theirs) == min(wanted, size - 1)
        assert sorted(ours + theirs) == rows[starts[client] : starts[client + 1]].flatten().tolist()


def test_dealt_clients_are_measured_on_their_own_held_out_examples() -> None:
    """Without a test set of the data, the held-out examples together are the test set, and each client's own its."""
    source = fl.Digits(num_clients=6, partition=fl.DirichletPartitioner(alpha=0.3), holdout=0.25)
    experiment = fl.Experiment(source, fl.presets.fedavg(lr=0.1), rounds=2, evaluate_every=2)
    data, run = experiment.load(), experiment.build()
    assert data.held_out is not None
    assert data.test is data.held_out
    assert (data.train.sizes + data.held_out.sizes).sum() == 1797
    *_, record = run.train()
    found = record.evaluation
    assert found is not None
    for client in range(6):
        inputs, targets = data.held_out.examples_of(client)
        right = float((run.model()(inputs).argmax(1) == targets).double().mean())
        assert found.client_metrics["accuracy"][client] == pytest.approx(right)
    shares = data.held_out.sizes / len(data.held_out.inputs)
    by_client = torch.tensor(found.client_metrics["accuracy"], dtype=torch.float64)
    assert found.metrics["accuracy"] == pytest.approx(float(shares.double() @ by_client))


def test_a_test_set_of_the_data_stays_beside_the_held_out_examples() -> None:
    """Overall figures are on the test set of the data, figures of clients on their held-out examples."""
    rows = torch.arange(40.0)[:, None]
    targets = (rows[:, 0] % 2).long()
    whole = fl.Pool(rows, targets, test_inputs=rows[:9] + 0.5, test_targets=targets[:9])
    dealt = whole.deal(fl.IidPartitioner(), num_clients=4)
    train, held_out = dealt.hold_out(0.5)
    task = fl.Task(fl.LogisticRegression())
    world = fl.SimulatedWorld(task, train, test=whole.test_data(), held_out=held_out)
    params, buffers = world.initial_model(fl.Key.from_seed(0))
    found = world.evaluate(params, buffers, per_client=True)
    overall = fl.SimulatedWorld(task, train, test=whole.test_data()).evaluate(params, buffers)
    own = fl.SimulatedWorld(task, train, test=held_out).evaluate(params, buffers, per_client=True)
    assert (found.loss, found.metrics) == (overall.loss, overall.metrics)
    assert (found.client_loss, found.client_metrics) == (own.client_loss, own.client_metrics)
    alone = fl.SimulatedWorld(task, train, held_out=held_out).evaluate(params, buffers, per_client=True)
    assert alone == own


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: _Visits(holdout=1.0), r"_Visits.holdout must be .* below 1, got 1.0"),
        (
            lambda: _Visits(holdout=0.5, owners=(0, 1)).load(fl.Key.from_seed(0)),
            "some client must have at least two",
        ),
        (
            lambda: fl.ClientData.from_lists([[[1.0]] * 2], [[0, 1]]).hold_out(0),
            "hold_out needs a share above 0 and below 1, got 0",
        ),
    ],
)
def test_shares_that_cannot_be_held_out_are_refused(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(FairleadError, match=sentence):
        make()
