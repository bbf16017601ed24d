"""Synthetic(α, β): sizes, spreads and labels by the recipe."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.errors import FieldError

KEY = fl.Key.from_seed(4)
Z = 5.0


def test_labels_are_those_of_the_clients_own_model() -> None:
    problem = fl.SyntheticLogistic(num_clients=12, max_examples=300).problem(KEY)
    assert problem.test is not None
    for data in (problem.train, problem.test):
        for client in range(12):
            rows = data.rows_of(client)
            scores = data.inputs[rows].numpy() @ problem.matrices[client].numpy().T
            scores = scores + problem.constants[client].numpy()
            assert data.targets[rows].tolist() == scores.argmax(1).tolist()
            assert torch.equal(problem.labels(client, data.inputs[rows]), data.targets[rows])


def test_sizes_are_log_normal_above_fifty() -> None:
    """log(n_k − 50) ~ N(4, 2²) but for the floor, which bites only at the smallest: compare the medians.

    The median of ⌊e^(4 + 2z)⌋ is e⁴ ≈ 54; the share below it is binomial.
    """
    source = fl.SyntheticLogistic(
        num_clients=2000, dim=1, num_classes=2, test_fraction=0.0, max_examples=5000
    )
    sizes = source.problem(KEY).train.sizes
    assert int(sizes.min()) >= 50
    assert int(sizes.max()) == 5000
    below = float((sizes - 50 < math.floor(math.exp(4))).double().mean())
    # P(e^(4 + 2z) < 54) with ln 54 = 3.98898.
    share = 0.5 * math.erfc(-(math.log(54) - 4) / 2 / math.sqrt(2))
    assert abs(below - share) < Z * math.sqrt(0.25 / 2000)


def test_inputs_have_the_declared_spread() -> None:
    """Within a client Var x_j = j^−1.2; between clients Var v_kj = 1 + β² (the B_k is common to all j)."""
    source = fl.SyntheticLogistic(beta=2.0, num_clients=400, max_examples=60, test_fraction=0.0, dim=20)
    data = source.problem(KEY).train
    centers = torch.stack([data.inputs[data.rows_of(client)].mean(0) for client in range(400)])
    within = torch.stack([data.inputs[data.rows_of(client)].var(0) for client in range(400)]).mean(0)
    expected = torch.arange(1, 21, dtype=torch.float64) ** -1.2
    assert torch.allclose(within, expected, rtol=0.08)
    # mean_j v_kj = B_k + O(1/√20): variance β² + 1/20 between clients.
    between = float(centers.mean(1).var())
    assert between == pytest.approx(4.0 + 0.05, rel=Z * math.sqrt(2 / 400))


def test_models_have_the_declared_spread() -> None:
    """The mean of W_k over its entries is u_k up to 1/√(60·10): variance α²."""
    problem = fl.SyntheticLogistic(alpha=3.0, num_clients=400, max_examples=1).problem(KEY)
    means = problem.matrices.mean((1, 2))
    assert float(means.var()) == pytest.approx(9.0 + 1 / 600, rel=Z * math.sqrt(2 / 400))
    same = fl.SyntheticLogistic(alpha=0.0, num_clients=400, max_examples=1).problem(KEY)
    assert float(same.matrices.mean((1, 2)).abs().max()) < Z / math.sqrt(600)
    # W_k and b_k share their mean.
    assert abs(float((problem.constants.mean(1) - means).mean())) < Z * math.sqrt(0.1 / 400)


def test_iid_clients_share_model_and_center() -> None:
    problem = fl.SyntheticLogistic(num_clients=5, iid=True, max_examples=100).problem(KEY)
    assert torch.equal(problem.matrices[0], problem.matrices[4])
    assert torch.equal(problem.constants[0], problem.constants[4])
    assert abs(float(problem.train.inputs[:, 0].mean())) < Z / math.sqrt(450)


def test_a_tenth_is_held_out_of_every_client() -> None:
    source = fl.SyntheticLogistic(num_clients=8, max_examples=200)
    loaded = source.load(KEY)
    assert loaded.test is not None
    whole = replace(source, test_fraction=0.0).load(KEY)
    assert whole.test is None
    assert torch.equal(loaded.train.sizes + loaded.test.sizes, whole.train.sizes)
    assert loaded.test.sizes.tolist() == [round(0.1 * size) for size in whole.train.sizes.tolist()]
    assert np.array_equal(loaded.test.inputs[0].numpy(), whole.train.inputs[0].numpy())


def test_logistic_regression_learns_it() -> None:
    """Without disagreement one linear model names most of a test set of ten classes."""
    source = fl.SyntheticLogistic(alpha=0.0, beta=0.0, num_clients=10, iid=True, max_examples=400)
    experiment = fl.Experiment(
        source, fl.presets.fedavg(lr=0.5, epochs=5, batch_size=20), rounds=20, evaluate_every=20
    )
    run = experiment.build()
    records = list(run.train(20, evaluate_every=20))
    assert records[-1].evaluation is not None
    assert records[-1].evaluation.metrics["accuracy"] > 0.7


def test_wrong_fields_are_refused() -> None:
    with pytest.raises(
        FieldError,
        match=r"SyntheticLogistic.alpha must be a finite number of at least 0 and at most 1e\+30, got -1\.",
    ):
        fl.SyntheticLogistic(alpha=-1)
    with pytest.raises(FieldError, match=r"SyntheticLogistic.beta must be a finite number .* at most 1e\+30"):
        fl.SyntheticLogistic(beta=1e31)
    with pytest.raises(
        FieldError, match=r"SyntheticLogistic.num_classes must be a whole number of at least 2"
    ):
        fl.SyntheticLogistic(num_classes=1)
