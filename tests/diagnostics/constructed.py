"""Federations whose right diagnosis is known, as experiments and as the records that a server would log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fairlead as fl
from fairlead.clients.data import ClientData
from fairlead.diagnostics import Diagnosis, Finding
from fairlead.records import RoundRecord

NUM_CLIENTS = 12
SOURCE = fl.Quadratics(num_clients=NUM_CLIENTS, dim=3, weights=(2.0, 3.0) * 6)
WEIGHTS = torch.tensor((2.0, 3.0) * 6, dtype=torch.float64) / 30
EQUAL_WORK, UNEQUAL_WORK = fl.FixedSteps((3,) * NUM_CLIENTS), fl.FixedSteps((1, 2, 3, 9) * 3)
STEPS = torch.tensor(UNEQUAL_WORK.steps, dtype=torch.float64)
RATES = torch.tensor((1.0, 0.4, 0.7) * 4, dtype=torch.float64)
PERFECT, UNEQUAL_LINKS = fl.PerfectLink(), fl.BernoulliLink(tuple((1 - RATES).tolist()))
CASES: dict[str, tuple[fl.WorkModel, fl.LinkModel]] = {
    "neither": (EQUAL_WORK, PERFECT),
    "work": (UNEQUAL_WORK, PERFECT),
    "links": (EQUAL_WORK, UNEQUAL_LINKS),
    "both": (UNEQUAL_WORK, UNEQUAL_LINKS),
}


def expected_shares(weights: Tensor, arrival: Tensor) -> Tensor:
    """E[ω_i/Σ_R ω_j; i ∈ R] over Bernoulli links with the given arrival rates, (N,).

    The mean coefficient of each client under full participation and the mean over arrivals; an empty
    round contributes nothing. All 2^N sets R are enumerated.
    """
    shares = torch.zeros_like(weights)
    for arrives in product((0.0, 1.0), repeat=len(weights)):
        received = torch.tensor(arrives, dtype=weights.dtype)
        chance = torch.where(received > 0, arrival, 1 - arrival).prod()
        if any(arrives):
            shares += chance * received * weights / (received @ weights)
    return shares


def experiment(
    work: fl.WorkModel = EQUAL_WORK,
    link: fl.LinkModel = PERFECT,
    algorithm: fl.Algorithm | None = None,
    clients: fl.ClientSource = SOURCE,
) -> fl.Experiment:
    """Quadratics in float64, by default under FedAvg with everyone asked."""
    method = algorithm or fl.presets.fedavg(lr=0.01, steps=3)
    return fl.Experiment(clients, method, rounds=60, work=work, link=link, dtype="float64")


def skewed_labels(num_clients: int = 24) -> fl.Federation:
    """Clients of one label each, of which those of label 1 have features that vary eight times as much.

    Equal work, perfect links; curvature goes with the label, so that local steps do not cancel.
    """
    labels = [int(client % 4 != 0) for client in range(num_clients)]
    wave = torch.tensor([1.0, -1.0] * 4)
    inputs = [(1.0 + 8.0 * label * wave)[:, None] for label in labels]
    targets = [torch.full((8,), label) for label in labels]
    world = fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), ClientData.from_lists(inputs, targets))
    return fl.Federation(fl.presets.fedavg(lr=0.05, steps=5, batch_size=None), world)


def minimal_lines(
    records: Sequence[RoundRecord], fields: Sequence[str] = (), weights: bool = True
) -> list[dict[str, Any]]:
    """What a server that knows little would log of some rounds, and further fields on demand."""
    needed = ("round", "asked", "arrived", "num_steps")
    lines = [{name: getattr(record, name) for name in (*needed, *fields)} for record in records]
    if weights:
        lines[0]["weights"] = {str(client): 2 + client % 2 for client in range(NUM_CLIENTS)}
    return lines


def write_lines(path: Path, lines: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def logged(path: Path, subject: fl.Experiment, rounds: int, fields: Sequence[str] = ()) -> Path:
    """The records of an experiment's first rounds, as another server would have logged them."""
    return write_lines(path, minimal_lines(list(subject.build().train(rounds)), fields))


def finding(found: Diagnosis, kind: Any) -> Finding:
    answer = found.finding(kind)
    assert answer is not None
    return answer


def number(found: Diagnosis, kind: Any, name: str) -> float:
    value = finding(found, kind).evidence[name]
    assert isinstance(value, int | float)
    return value


def misplaced(surrogate: Tensor) -> float:
    return float((WEIGHTS - surrogate / surrogate.sum()).abs().sum() / 2)
