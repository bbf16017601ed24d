"""Diagnoses of few clients: differences are measured where they can be, and not asserted where they were not."""

from __future__ import annotations

import numpy as np
import pytest

import fairlead as fl
from fairlead.diagnostics.diagnosis import Diagnosis


def diagnosed(num_clients: int, shift: float, seed: int = 0) -> Diagnosis:
    """FedAvg under unequal work and links; labels follow x₀ ± shift·x₁, with the sign of the client, and noise."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(600, 50))
    client = np.arange(600) % num_clients
    y = (x[:, 0] + shift * x[:, 1] * (-1.0) ** client + random.normal(size=600) > 0).astype(int)
    experiment = fl.Experiment(
        fl.InMemory((x.astype(np.float32), y, client)),
        fl.presets.fedavg(lr=0.1),
        rounds=40,
        work=fl.RandomEpochs(1, 8),
        link=fl.UniformBernoulliLink(0, 0.6),
    )
    return fl.diagnose(experiment, quick=True)


def gradients(found: Diagnosis) -> str:
    finding = found.finding("dissimilarity")
    assert finding is not None
    return finding.statement


@pytest.mark.parametrize("num_clients", [6, 9])
@pytest.mark.parametrize("seed", range(3))
def test_clients_dealt_at_random_are_never_called_different(num_clients: int, seed: int) -> None:
    found = diagnosed(num_clients, 0.0, seed)
    assert "clients differ beyond chance" not in gradients(found)
    assert "Clients differ" not in found.advice.reason


@pytest.mark.parametrize("num_clients", [4, 6, 9])
def test_clients_of_other_distributions_are_found_to_differ(num_clients: int) -> None:
    found = diagnosed(num_clients, 3.0)
    assert "clients differ beyond chance" in gradients(found)
    assert "Clients differ, and control variates" in found.advice.reason


def test_two_clients_are_not_tested_and_may_differ() -> None:
    found = diagnosed(2, 3.0)
    assert gradients(found) == (
        "Gradients: not tested, because fewer than 3 clients of positive weight have two examples."
    )
    assert found.advice.reason.startswith("Use scaffold. Clients may differ, and control variates")
