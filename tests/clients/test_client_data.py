"""`ClientData`: rows contiguous by client, whatever order users have them in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fairlead as fl
from fairlead.errors import DataError, FieldError


def test_arrays_by_client() -> None:
    data = fl.ClientData.from_lists(
        [np.zeros((2, 3), dtype=np.float32), torch.ones(1, 3), [[2.0, 2.0, 2.0]]],
        [np.array([0, 1]), torch.tensor([1]), [0]],
    )
    assert data.sizes.tolist() == [2, 1, 1]
    assert data.inputs[:, 0].tolist() == [0.0, 0.0, 1.0, 2.0]
    assert data.targets.tolist() == [0, 1, 1, 0]
    assert data.inputs[data.rows_of(2)].tolist() == [[2.0, 2.0, 2.0]]


@given(owner=st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_every_client_gets_its_own_rows_in_their_order(owner: list[int]) -> None:
    values = torch.arange(len(owner))
    data = fl.ClientData.from_owners(values[:, None].to(torch.float32), values, owner, num_clients=7)
    for client in range(7):
        own = [row for row, its_owner in enumerate(owner) if its_owner == client]
        assert data.targets[data.rows_of(client)].tolist() == own
        assert data.inputs[data.rows_of(client), 0].tolist() == own


def test_moving_casts_reals_and_keeps_bytes() -> None:
    """Pixels stay bytes on the device: the model scales them batch by batch."""
    data = fl.ClientData.from_lists([np.array([[255, 0]], dtype=np.uint8)], [[0.5]])
    moved = data.to(torch.device("cpu"), torch.float64)
    assert moved.inputs.dtype == torch.uint8
    assert moved.targets.dtype == torch.float64


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        ([[[1.0]]], [[0], [1]], "as many targets as inputs, and some, got 1 clients' inputs and 2"),
        ([], [], "and some, got 0 clients' inputs"),
        ([[[1.0]], [[1.0], [2.0]]], [[0], [1]], r"Client 1 has 2 inputs but 1 targets\."),
        (
            [[[1.0]], [[1.0, 2.0]]],
            [[0], [1]],
            r"Client 1 must have inputs of shape \(1,\) as client 0, got \(2,\)",
        ),
        (
            [[[float("nan")]]],
            [[0]],
            r"ClientData.inputs must be finite, got NaN or infinity in row 0, of client 0\.",
        ),
    ],
)
def test_lists_that_do_not_fit(inputs: list[object], targets: list[object], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        fl.ClientData.from_lists(inputs, targets)


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        ([0, 1], "got 3 inputs, 3 targets and 2 owners"),
        ([0, 1, 2], "whole numbers from 0 to 1, got 2"),
        ([0, -1, 1], "whole numbers from 0 to 1, got -1"),
        ([0.0, 1.0, 1.0], "whole numbers from 0 to 1, got torch.float64"),
    ],
)
def test_owners_that_do_not_fit(owner: list[float], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        fl.ClientData.from_owners([[1.0], [2.0], [3.0]], [0, 0, 0], owner, num_clients=2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0], [1.0, 2.0]], "Client 0's inputs must be numbers in rows of equal length"),
        ([["a"]], "Client 0's inputs must be numbers, got text"),
        (3.0, "Client 0's inputs must have one row per example, got a single number"),
    ],
)
def test_values_that_are_no_rows_of_numbers(values: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fl.ClientData.from_lists([values], [[0, 0]])


def test_classes_without_an_output_are_refused_before_a_run() -> None:
    """A user's own module has three outputs, the data a class 5 that no batch may hold for a while."""
    data = fl.ClientData.from_lists([torch.zeros(4, 2)], [torch.tensor([0, 1, 2, 5])])
    with pytest.raises(
        DataError, match=r"classes from 0 to 2, since the model has 3 outputs, got 5 in row 3, of client 0"
    ):
        fl.SimulatedWorld(fl.Task(torch.nn.Linear(2, 3)), data)
    data = fl.ClientData.from_lists([torch.zeros(2, 2)], [torch.tensor([0, -1])])
    with pytest.raises(DataError, match=r"got -1 in row 1"):
        fl.SimulatedWorld(fl.Task(torch.nn.Linear(2, 3)), data)


@pytest.mark.parametrize("kind", ["inputs", "targets"])
def test_numbers_beyond_a_type_are_refused_with_the_type(kind: str) -> None:
    """1e39 is a number in float64 and infinity in float32, whose largest is 3.4e38."""
    rows = {"inputs": torch.ones(3, 1, dtype=torch.float64), "targets": torch.ones(3, dtype=torch.float64)}
    rows[kind][2] = 1e39
    wide = fl.ClientData(rows["inputs"], rows["targets"], torch.tensor([0, 1, 3]))
    assert float(wide.to(torch.device("cpu"), torch.float64).inputs[0]) == 1
    with pytest.raises(
        FieldError,
        match=rf"The {kind} of client 1 must fit dtype float32, which ends at 3.4e\+38, .* in row 2: scale",
    ):
        wide.to(torch.device("cpu"), torch.float32)


def test_numbers_that_are_not_finite_are_refused() -> None:
    good, bad = torch.zeros(3, 1), torch.tensor([[0.0], [torch.nan], [torch.inf]])
    for inputs, targets, kind in ((bad, good, "inputs"), (good, bad, "targets")):
        with pytest.raises(
            FieldError, match=f"ClientData.{kind} must be finite, got NaN or infinity in row 1"
        ):
            fl.ClientData.from_lists([inputs], [targets])
