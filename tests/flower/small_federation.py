"""Three clients with unequal data, as a simulated world and as ClientApps of the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from flwr.app import Context, Message, MessageType
from flwr.clientapp import ClientApp
from torch import Tensor, nn

import fairlead as fl
from fairlead.experiments.experiment import Experiment
from fairlead.flower import RoundRules, client_of, make_client_app

SIZES = (12, 7, 20)
QUICK = RoundRules(deadline=0.05, poll=0.01, patience=60.0)


def build_model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def build_frozen() -> nn.Module:
    module = build_model()
    next(module.children()).requires_grad_(False)
    return module


def examples_of(client: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 + client)
    inputs = torch.randn(SIZES[client], 4, generator=generator) + client
    targets = torch.randint(3, (SIZES[client],), generator=generator)
    return inputs, targets


def get_data(context: Context) -> tuple[Tensor, Tensor]:
    return examples_of(client_of(context))


def client_apps(*, capacity: int = 10**6, weak: Sequence[int] = ()) -> dict[int, ClientApp]:
    """One app for all clients, of which the `weak` take few steps."""
    app = make_client_app(
        build_model, get_data, capacity=lambda context: capacity if client_of(context) in weak else 10**6
    )
    return dict.fromkeys(range(len(SIZES)), app)


def round_of(message: Message) -> int | None:
    """The round of a question; None for any other message."""
    return int(message.metadata.group_id) if message.metadata.message_type == MessageType.TRAIN else None


def simulated(
    algorithm: fl.Algorithm,
    *,
    link: fl.LinkModel | None = None,
    work: fl.WorkModel | None = None,
    seed: int = 3,
) -> fl.Federation:
    """The federation in simulation, trained by the loop engine from the same initial model."""
    inputs, targets = zip(*map(examples_of, range(len(SIZES))), strict=True)
    data = fl.ClientData.from_lists(inputs, targets)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fl.Key.from_seed(seed).fold("init").torch_seed())
        module = build_model()
    world = fl.SimulatedWorld(fl.Task(module), data, link=link, work=work, engine="loop")
    return fl.Federation(algorithm, world, seed)


def experiment(algorithm: fl.Algorithm, rounds: int, seed: int = 3) -> Experiment:
    return Experiment(fl.RealClients(len(SIZES)), algorithm, rounds=rounds, seed=seed, evaluate_every=0)


def asking(algorithm: fl.Algorithm, cohorts: tuple[tuple[int, ...], ...]) -> fl.Algorithm:
    return replace(algorithm, sampler=fl.ScriptedSampler(cohorts, importance="weights"))


METHODS = {
    "fednova": fl.presets.fednova(lr=0.1, momentum=0.9, epochs=2, batch_size=5),
    "scaffold": fl.presets.scaffold(lr=0.1, epochs=2, batch_size=5),
    "fedaware": fl.presets.fedaware(lr=0.1, epochs=2, batch_size=5),
}
"""Those whose numbers real nodes must give."""
ROUNDS = {"fednova": 1, "scaffold": 2, "fedaware": 2}
"""Enough for memories to have been used."""
