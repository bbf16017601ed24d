"""Precision and repeatability are what was asked for, and torch's switches are put back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fairlead as fl
from fairlead.errors import FairleadError
from fairlead.worlds.device import Arithmetic


def train(device: torch.device, **options: Any) -> fl.Federation:
    draw = torch.Generator().manual_seed(0)
    data = fl.ClientData.from_lists(
        [torch.randn((n, 1, 8, 8), generator=draw) for n in (9, 4, 6)],
        [torch.randint(0, 3, (n,), generator=draw) for n in (9, 4, 6)],
    )
    torch.manual_seed(0)
    task = fl.Task(torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 3)))
    algorithm = fl.presets.fedavg(lr=0.1, epochs=2, batch_size=4, cohort_size=3)
    federation = fl.Federation(algorithm, fl.SimulatedWorld(task, data, device=device, **options))
    list(federation.train(3))
    return federation


@pytest.mark.parametrize("engine", ["loop", "batched", "branches"])
def test_bfloat16_is_near_but_not_full_precision(engine: str, device: torch.device) -> None:
    """bfloat16 keeps 8 bits: products are off by up to 2⁻⁹, and the sum of many by a few times that."""
    full = train(device, engine=engine)
    coarse = train(device, engine=engine, precision="bfloat16")
    start, _ = full.world.initial_model(full.key)
    moved, gap = (full.params - start).norm(), (full.params - coarse.params).norm()
    assert 1e-5 < gap / moved < 0.05
    assert coarse.params.dtype == torch.float32


@pytest.mark.parametrize("engine", ["loop", "batched", "branches"])
def test_repetitions_have_the_same_bits(engine: str, device: torch.device) -> None:
    once, again = (train(device, engine=engine, reproducible=True) for _ in range(2))
    assert torch.equal(once.params, again.params)
    assert [r.train_loss for r in once.records] == [r.train_loss for r in again.records]


def test_the_switches_are_put_back(device: torch.device) -> None:
    def switches() -> tuple[bool, ...]:
        cudnn = torch.backends.cudnn
        autocast = torch.is_autocast_enabled(device.type)
        return autocast, cudnn.allow_tf32, cudnn.benchmark, torch.are_deterministic_algorithms_enabled()

    def fail() -> None:
        with Arithmetic("bfloat16", reproducible=True).on(device):
            assert switches() != before
            raise ZeroDivisionError

    before = switches()
    with pytest.raises(ZeroDivisionError):
        fail()
    assert switches() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "half"}, "precision must be 'full', 'tf32' or 'bfloat16', got 'half'"),
        ({"precision": "tf32"}, "precision='tf32' needs an NVIDIA device"),
        ({"precision": "bfloat16", "dtype": torch.float64}, "leave SimulatedWorld.dtype at torch.float32"),
    ],
)
def test_what_a_device_cannot_do_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FairleadError, match=message):
        train(torch.device("cpu"), **options)
