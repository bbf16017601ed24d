"""Whether clients' gradients differ beyond chance, against the distributions that they were drawn from."""

from __future__ import annotations

import math

import pytest
import torch

import fairlead as fl
from fairlead.clients.synthetic import LinearModel
from fairlead.diagnostics.gradients import Dissimilarity, dissimilarity
from fairlead.worlds.simulated import SimulatedWorld

NUM_CLIENTS, NUM_EXAMPLES = 40, 50


def world_of(
    spread: float, seed: int, num_clients: int = NUM_CLIENTS, width: int = 1
) -> tuple[SimulatedWorld, torch.Tensor]:
    """Clients with targets ⟨m_i, x⟩ + noise, m_i ~ N(0, spread²), noise 1; x = 1 if `width` is 1, else x ~ N(0, 1)."""
    generator = torch.Generator().manual_seed(seed)
    means = spread * torch.randn(num_clients, width, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_clients, NUM_EXAMPLES, generator=generator, dtype=torch.float64)
    inputs = torch.ones(num_clients, NUM_EXAMPLES, width, dtype=torch.float64)
    if width > 1:
        inputs.normal_(generator=generator)
    targets = torch.einsum("cnd,cd->cn", inputs, means) + noise
    offsets = torch.arange(num_clients + 1) * NUM_EXAMPLES
    data = fl.ClientData(inputs.flatten(0, 1), targets.flatten(), offsets)
    task = fl.Task(LinearModel(), loss=lambda outputs, targets: (outputs - targets) ** 2 / 2, metrics=())
    return SimulatedWorld(task, data, dtype=torch.float64), means.flatten()


@pytest.mark.parametrize("seed", range(5))
def test_the_variance_of_means_is_found_without_the_noise_of_samples(seed: int) -> None:
    """F_i = ½E(w − y)² has G_i = w − m_i: between clients the variance of m_i, within them 1/n."""
    world, means = world_of(1.0, seed)
    found = dissimilarity(world, torch.zeros(1, dtype=torch.float64))
    assert found.between == pytest.approx(float(means.var(correction=0)), abs=found.margin)
    assert found.noise == pytest.approx(1 / NUM_EXAMPLES, rel=0.5)
    assert found.between > found.margin
    assert found.share > 0.9


@pytest.mark.parametrize("seed", range(5))
def test_samples_of_one_distribution_do_not_differ(seed: int) -> None:
    world, _ = world_of(0.0, seed)
    found = dissimilarity(world, torch.zeros(1, dtype=torch.float64))
    assert found.between <= found.margin
    assert found.between + found.margin < 1.5 / NUM_EXAMPLES


@pytest.mark.parametrize("num_clients", [4, 6, 9])
def test_verdicts_on_few_clients_seldom_err(num_clients: int) -> None:
    """At a risk of 1 %, 200 draws of equal clients err at most 8 times (P < 1e-3); different ones are found."""

    def draws(spread: float, number: int) -> list[Dissimilarity]:
        worlds = [world_of(spread, seed, num_clients, width=20)[0] for seed in range(number)]
        return [dissimilarity(world, torch.zeros(20, dtype=torch.float64)) for world in worlds]

    assert sum(found.between > found.margin for found in draws(0.0, 200)) <= 8
    apart = draws(1.0, 50)
    assert sum(found.between > found.margin for found in apart) >= {4: 10, 6: 40, 9: 48}[num_clients]
    assert min(found.at_most for found in apart) > 0.5


def test_two_clients_say_nothing() -> None:
    world, _ = world_of(1.0, 0, 2)
    found = dissimilarity(world, torch.zeros(1, dtype=torch.float64))
    assert (found.margin, found.at_most) == (math.inf, 1.0)
