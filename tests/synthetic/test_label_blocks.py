"""Two blocks of clients: the first as the pool, the second as its own partitioner deals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlead as fl
from fairlead.errors import FieldError


def counts_of(owner: np.ndarray, labels: np.ndarray, clients: int, classes: int) -> np.ndarray:
    table = np.zeros((clients, classes), dtype=np.int64)
    np.add.at(table, (owner, labels), 1)
    return table


def test_ten_balanced_and_ten_unbalanced_clients() -> None:
    """2,000 examples of 10 equally frequent labels: the first ten clients have 10 of each."""
    labels = np.arange(2000) % 10
    owner = fl.LabelBlocksPartitioner().deal(labels, 20, fl.Key.from_seed(0))
    counts = counts_of(owner, labels, 20, 10)
    assert (counts[:10] == 10).all()
    assert (counts.sum(1) == 100).all()
    largest = counts[10:].max(1) / 100
    # A Dirichlet(0.1) mixture of ten labels has a largest share of about 0.7.
    assert largest.mean() > 0.4
    assert (largest > 0.2).all()


@given(
    num_clients=st.integers(1, 30),
    num_examples=st.integers(60, 400),
    num_classes=st.integers(1, 8),
    share=st.integers(0, 100),
    seed=st.integers(0, 5),
)
def test_every_example_is_dealt_and_balance_is_exact(
    num_clients: int, num_examples: int, num_classes: int, share: int, seed: int
) -> None:
    """Each of the balanced clients has c_k/N examples of every label k, up to one."""
    labels = np.random.default_rng(seed).integers(0, num_classes, num_examples)
    num_balanced = num_clients * share // 100
    owner = fl.LabelBlocksPartitioner(num_balanced).deal(labels, num_clients, fl.Key.from_seed(seed))
    counts = counts_of(owner, labels, num_clients, num_classes)
    assert counts.sum() == num_examples
    exact = np.bincount(labels, minlength=num_classes) / num_clients
    assert (abs(counts[:num_balanced] - exact) < 1).all()


def test_the_second_block_takes_any_partitioner() -> None:
    labels = np.arange(2000) % 10
    blocks = fl.LabelBlocksPartitioner(10, unbalanced=fl.ShardPartitioner(1))
    counts = counts_of(blocks.deal(labels, 20, fl.Key.from_seed(0)), labels, 20, 10)
    assert ((counts[10:] > 0).sum(1) == 1).all()
    assert (counts[:10] == 10).all()


def test_too_many_balanced_clients_are_refused() -> None:
    message = r"LabelBlocksPartitioner.num_balanced must be at most 5, the number of clients, got 6\."
    with pytest.raises(FieldError, match=message):
        fl.LabelBlocksPartitioner(6).deal(np.zeros(100, dtype=np.int64), 5, fl.Key.from_seed(0))
