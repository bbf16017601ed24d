"""Sources of clients take a seed in the place of a key."""

from __future__ import annotations

import pytest
import torch

import fairlead as fl


@pytest.mark.parametrize(
    "source",
    [
        fl.Digits(4),
        fl.Quadratics(num_clients=3),
        fl.SyntheticLogistic(num_clients=3, max_examples=60),
        fl.SyntheticRegression(num_clients=3),
    ],
)
def test_a_seed_is_the_key_made_from_it(source: fl.ClientSource) -> None:
    by_seed, by_key, other = (source.load(key).train.inputs for key in (3, fl.Key.from_seed(3), 4))
    assert torch.equal(by_seed, by_key)
    assert not torch.equal(by_seed, other)
