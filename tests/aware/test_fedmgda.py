"""FedMGDA+: by hand, in its two limits, and against enumeration of active bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from aware_reference import SAMPLER, SOLVER, Memory, federation, path, shortest, transcribed
from numpy.typing import NDArray

from fairlead.aggregators.weighted import FedMGDA
from fairlead.algorithm import Algorithm
from fairlead.errors import FieldError
from fairlead.presets import fedmgda_plus
from fairlead.records import Aggregate
from fairlead.testing.rounds import make_conditions, make_updates

Array = NDArray[np.float64]


def aggregated(part: FedMGDA, rows: Array, importance: list[float]) -> Aggregate:
    everyone = list(range(len(rows)))
    weights = torch.tensor(importance, dtype=torch.float64)
    updates = make_updates(everyone, everyone, weights, torch.from_numpy(rows))
    return part.aggregate(updates, {}, make_conditions(weights))


def test_by_hand() -> None:
    """Rows 3e_1, 4e_2 with p̂ = (0.2, 0.8) and ε = 0.1: unit rows want (½, ½), the box stops at (0.3, 0.7).

    d = (0.3, 0.7); of the rows as they came the coefficients are 0.3/3 and 0.7/4.
    """
    result = aggregated(FedMGDA(0.1), np.diag([3.0, 4.0]), [0.2, 0.8])
    np.testing.assert_allclose(result.direction, [0.3, 0.7], atol=1e-15)
    assert result.coefficients is not None
    np.testing.assert_allclose(result.coefficients, [0.1, 0.175], atol=1e-15)
    assert result.facts["mgda_squared_norm"] == pytest.approx(0.58)
    assert result.facts["mgda_gap"] < 1e-15


def test_no_room_is_the_mean_of_normalized_updates() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 7))
    share = np.array([0.1, 0.3, 0.2, 0.25, 0.15])
    result = aggregated(FedMGDA(0.0), rows, share.tolist())
    expected = share @ (rows / np.linalg.norm(rows, axis=1, keepdims=True))
    np.testing.assert_allclose(result.direction, expected, atol=1e-14)


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_all_room_is_multiple_gradient_descent(engine: str) -> None:
    """ε = 1 over the scripted rounds: the shortest point of the hull of this round's unit updates."""

    def step(memory: Memory) -> Array:
        units = np.array([g / np.linalg.norm(g) for g in memory.updates.values()])
        direction: Array = shortest(units) @ units
        return direction

    part = Algorithm(SOLVER, SAMPLER, FedMGDA(1.0))
    models = path(federation(part, "loop" if engine == "loop" else "batched"))
    np.testing.assert_allclose(models, transcribed(1.0, step), rtol=0, atol=1e-10)


def test_no_client_is_hurt_to_first_order() -> None:
    """⟨Δ_i, d⟩ ≥ ‖d‖²‖Δ_i‖ for all i: that is what the minimum norm is for."""
    rows = np.random.default_rng(1).normal(size=(8, 30))
    direction = aggregated(FedMGDA(1.0), rows, [1 / 8] * 8).direction.numpy()
    assert np.all(rows @ direction >= (1 - 1e-9) * (direction @ direction) * np.linalg.norm(rows, axis=1))


def test_client_at_rest() -> None:
    """Its zero update stays zero: with room for it d = 0, within a box it only takes its share.

    Rows 0 and 2e_1 with p̂ = (½, ½), ε = 0.1: weights (0.6, 0.4), d = 0.4e_1.
    """
    rows = np.array([[0.0, 0.0], [2.0, 0.0]])
    np.testing.assert_array_equal(aggregated(FedMGDA(1.0), rows, [0.5, 0.5]).direction, [0.0, 0.0])
    boxed = aggregated(FedMGDA(0.1), rows, [0.5, 0.5])
    np.testing.assert_allclose(boxed.direction, [0.4, 0.0], atol=1e-15)
    everyone = aggregated(FedMGDA(0.1), np.zeros((3, 2)), [0.2, 0.3, 0.5])
    np.testing.assert_array_equal(everyone.direction, [0.0, 0.0])


def test_importance_is_normalized_and_one_row_is_enough() -> None:
    one = aggregated(FedMGDA(0.1), np.array([[3.0, 4.0]]), [0.05])
    np.testing.assert_allclose(one.direction, [0.6, 0.8], atol=1e-15)
    rows = np.diag([3.0, 4.0])
    small = aggregated(FedMGDA(0.1), rows, [0.02, 0.08]).direction
    np.testing.assert_allclose(small, [0.3, 0.7], atol=1e-15)


def test_preset_and_fields() -> None:
    assert fedmgda_plus(lr=0.1, epsilon=0.3).aggregator == FedMGDA(0.3)
    with pytest.raises(
        FieldError, match=r"FedMGDA.epsilon must be a finite number of at least 0 and at most 1"
    ):
        FedMGDA(1.5)
