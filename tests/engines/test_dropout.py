"""Dropout drops at its rate, differs by step and client, and is the same in a replay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fairlead as fl
from fairlead.parameters import FlatModule
from fairlead.randomness import keyed_uniform


class Masked(nn.Module):
    """Outputs the mask of a dropout over ones, times a parameter."""

    def __init__(self, rate: float = 0.3) -> None:
        super().__init__()
        self.scale, self.rate = nn.Parameter(torch.ones(1)), rate

    def forward(self, inputs: Tensor) -> Tensor:
        return F.dropout(torch.ones_like(inputs), self.rate, self.training) * self.scale


def mask(key: int, rate: float = 0.3, shape: tuple[int, ...] = (40, 50)) -> Tensor:
    model = FlatModule(Masked(rate))
    model.module.train()
    outputs: Tensor = model.call(
        model.initial_params(), model.initial_buffers(), torch.zeros(shape), torch.tensor(key)
    )
    return outputs.detach()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_share_dropped_is_the_rate(rate: float) -> None:
    """100,000 units: the share of zeros is within 4.5 standard errors; kept ones are scaled by 1/(1 − p)."""
    masks = torch.stack([mask(key, rate) for key in range(50)])
    share = float((masks == 0).double().mean())
    assert abs(share - rate) < 4.5 * (rate * (1 - rate) / masks.numel()) ** 0.5
    kept = masks[masks > 0]
    assert (float(kept.min()), float(kept.max())) == pytest.approx((1 / (1 - rate), 1 / (1 - rate)))


def test_keys_give_independent_masks() -> None:
    """Two keys agree on p² + (1 − p)² of the units; neighboring units are uncorrelated."""
    masks = torch.stack([(mask(key, 0.5) > 0).double() for key in (0, 1, 2**31, -5, 2**40)])
    for one in range(5):
        for other in range(one):
            agreement = float((masks[one] == masks[other]).double().mean())
            assert abs(agreement - 0.5) < 4.5 * 0.5 / 2000**0.5
    neighbors = float((masks[:, :, 1:] == masks[:, :, :-1]).double().mean())
    assert abs(neighbors - 0.5) < 4.5 * 0.5 / (5 * 40 * 49) ** 0.5


def test_the_same_key_gives_the_same_mask_whatever_stands_behind() -> None:
    """A longer batch begins with the mask of a shorter one, so padding cannot shift it."""
    assert torch.equal(mask(7, shape=(3, 50)), mask(7, shape=(40, 50))[:3])


def test_calls_within_a_pass_differ() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, inputs: Tensor) -> Tensor:
            return torch.stack([F.dropout(inputs, 0.5), F.dropout(inputs, 0.5)]) * self.scale

    model = FlatModule(Twice())
    first, second = model.call(
        model.initial_params(), model.initial_buffers(), torch.ones(20, 20), torch.tensor(3)
    )
    assert not torch.equal(first, second)


def test_channel_dropout_drops_whole_channels() -> None:
    model = FlatModule(nn.Sequential(nn.Dropout2d(0.5), nn.Conv2d(6, 6, 1, groups=6, bias=False)))
    model.module.train()
    outputs = model.call(
        torch.ones(6), model.initial_buffers(), torch.ones(30, 6, 4, 4), torch.tensor(11)
    ).flatten(2)
    assert torch.equal(outputs.amax(2), outputs.amin(2))
    assert 0.3 < float((outputs[..., 0] == 0).double().mean()) < 0.7


def test_nothing_is_dropped_in_evaluation() -> None:
    model = FlatModule(Masked())
    model.module.eval()
    outputs = model.call(model.initial_params(), model.initial_buffers(), torch.zeros(5, 5), None)
    assert torch.equal(outputs.detach(), torch.ones(5, 5))


def test_a_rate_of_one_drops_all_and_stays_finite() -> None:
    assert torch.equal(mask(1, 1.0), torch.zeros(40, 50))


def updates(engine: Any, round: int = 0, steps: int = 1) -> fl.ClientUpdates:
    """Three clients with equal examples: only their masks can make their updates differ."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 3)).double()
    rows = torch.randn(5, 4, dtype=torch.float64)
    data = fl.ClientData.from_lists([rows] * 3, [torch.arange(5) % 3] * 3)
    world = fl.SimulatedWorld(fl.Task(model), data, engine=engine, dtype=torch.float64)
    solver = fl.LocalSolver(fl.SGD(0.1), steps=steps, batch_size=None)
    start, buffers = world.initial_model(fl.Key.from_seed(0))
    cohort = fl.Cohort(torch.arange(3), torch.ones(3).long(), world.population.weights)
    return world.work(fl.WorkOrder(round, solver, start, buffers, {}, cohort, {}, fl.Key.from_seed(0)))


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_masks_differ_by_client_by_round_and_by_step_and_repeat_in_a_replay(engine: Any) -> None:
    first, again, later = updates(engine), updates(engine), updates(engine, round=1)
    assert torch.equal(first.delta, again.delta)
    assert not torch.allclose(first.delta[0], first.delta[1])
    assert not torch.allclose(first.delta[0], later.delta[0])
    two = updates(engine, steps=2).delta[0]
    assert not torch.allclose(two - first.delta[0], first.delta[0], rtol=0.1)


def test_the_full_gradient_of_scaffold_draws_its_own_mask() -> None:
    """Option I needs ∇F_i at the anchor: it is keyed too, and repeats."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 3)).double()
    data = fl.ClientData.from_lists([torch.randn(5, 4)] * 2, [torch.arange(5) % 3] * 2)

    def control() -> Tensor:
        world = fl.SimulatedWorld(fl.Task(model), data, dtype=torch.float64)
        federation = fl.Federation(fl.presets.scaffold(lr=0.1, estimate="anchor"), world)
        list(federation.train(2))
        return federation.state.shared["control_mean"]

    assert torch.equal(control(), control())


def test_keyed_uniform_is_uniform() -> None:
    """Kolmogorov's distance of 20,000 draws is below 1.95/√n, exceeded once in a thousand times."""
    draws = keyed_uniform(torch.tensor(12345), torch.Size([20000]), torch.device("cpu")).sort().values
    grid = torch.arange(20000, dtype=torch.float64) / 20000
    assert float((draws - grid).abs().max()) < 1.95 / 20000**0.5
    assert float(draws.min()) >= 0.0
    assert float(draws.max()) < 1.0


@pytest.mark.parametrize("key", [0, 1, -1, 2**62 + 12345, -(2**63)])
def test_every_device_draws_the_same_numbers(key: int, device: torch.device) -> None:
    """The definition, MurmurHash3's finaliser of place and key, in Python's own whole numbers."""

    def finalized(word: int) -> int:
        word ^= word >> 16
        word = word * 0x85EBCA6B % 2**32
        word ^= word >> 13
        word = word * 0xC2B2AE35 % 2**32
        return word ^ word >> 16

    low, high = key % 2**32, (key >> 32) % 2**32
    expected = [finalized(finalized((i * 0x9E3779B1 + low) % 2**32) ^ high) * 2.0**-32 for i in range(3000)]
    shape = torch.Size([30, 100])
    drawn = keyed_uniform(torch.tensor(key, device=device), shape, device)
    assert drawn.shape == shape
    assert drawn.flatten().tolist() == expected
