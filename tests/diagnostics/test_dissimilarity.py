"""Whether clients' gradients differ beyond chance, against the distributions that they were drawn from."""

from __future__ import annotations

import pytest
import torch

import fairlead as fl
from fairlead.clients.synthetic import LinearModel
from fairlead.diagnostics.gradients import dissimilarity
from fairlead.worlds.simulated import SimulatedWorld

NUM_CLIENTS, NUM_EXAMPLES = 40, 50


def world_of(spread: float, seed: int) -> tuple[SimulatedWorld, torch.Tensor]:
    """Clients whose targets have means m_i ~ N(0, spread²) and noise 1, under a constant model."""
    generator = torch.Generator().manual_seed(seed)
    means = spread * torch.randn(NUM_CLIENTS, 1, generator=generator, dtype=torch.float64)
    targets = means + torch.randn(NUM_CLIENTS, NUM_EXAMPLES, generator=generator, dtype=torch.float64)
    inputs = torch.ones(NUM_CLIENTS * NUM_EXAMPLES, 1, dtype=torch.float64)
    offsets = torch.arange(NUM_CLIENTS + 1) * NUM_EXAMPLES
    data = fl.ClientData(inputs, targets.flatten(), offsets)
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
