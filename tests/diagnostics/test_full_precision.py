"""What is measured is measured in full precision, whatever the clients train in."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fairlead as fl
from fairlead.diagnostics import client_gradients, consensus_test, near_optimum
from fairlead.diagnostics.gradients import stationarity
from fairlead.worlds.device import Precision

SIZES = (9, 4, 6)


def world(device: torch.device, dtype: torch.dtype, precision: Precision) -> fl.SimulatedWorld:
    """Images and a convolution, which an accelerator would round to 10 bits unless told otherwise."""
    draw = torch.Generator().manual_seed(0)
    data = fl.ClientData.from_lists(
        [torch.randn((n, 3, 8, 8), generator=draw, dtype=torch.float64).to(dtype) for n in SIZES],
        [torch.randint(0, 3, (n,), generator=draw) for n in SIZES],
    )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Flatten(), nn.Linear(576, 3))
    return fl.SimulatedWorld(fl.Task(model), data, device=device, dtype=dtype, precision=precision)


def relative_gap(found: Tensor, exact: Tensor) -> float:
    return float((found.cpu().double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("precision", ["full", "bfloat16"])
def test_gradients_are_those_of_double_precision_up_to_rounding(
    device: torch.device, precision: Precision
) -> None:
    """Factors of 24 bits leave errors near 1e-7; of 11 bits (TF32) near 1e-3, of 8 near 1e-2."""
    exact, measured = (
        world(torch.device("cpu"), torch.float64, "full"),
        world(device, torch.float32, precision),
    )
    params, buffers = measured.initial_model(fl.Key.from_seed(0))
    point = params.cpu().double()
    expected = client_gradients(exact, point)
    assert relative_gap(client_gradients(measured, params), expected) < 1e-5
    mean = float((exact.population.weights @ expected).norm())
    found = stationarity(measured, params, buffers, measured.population.weights)
    assert found.true_gradient == pytest.approx(mean, rel=1e-5)
    drift, true_drift = (
        consensus_test(place, start, 0.1, steps=(5,)).drifts[0]
        for place, start in ((measured, params), (exact, point))
    )
    assert drift.bound == pytest.approx(true_drift.bound, rel=1e-3)


def test_the_search_for_the_optimum_too(device: torch.device) -> None:
    """Ten iterations of L-BFGS go the same way in either world if gradients have the same bits."""
    full = near_optimum(world(device, torch.float32, "full"), iterations=10)
    coarse = near_optimum(world(device, torch.float32, "bfloat16"), iterations=10)
    assert coarse.loss == pytest.approx(full.loss, rel=1e-4)
