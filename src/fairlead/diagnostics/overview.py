"""Overview of a federation before training: data, work and arrival rates of every client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairlead.errors import FieldError
from fairlead.local_solver import LocalSolver
from fairlead.randomness import Key
from fairlead.text import ClientNames, shown

if TYPE_CHECKING:
    from fairlead.worlds.simulated import SimulatedWorld


@dataclass(frozen=True, eq=False)
class ClientOverview:
    """Facts of every client, averaged over the rounds considered; None if unknown to the world."""

    weights: Tensor
    """ω, (N,)."""
    sizes: Tensor
    """Examples held, (N,)."""
    label_counts: Tensor | None
    """(N, classes); None if targets are not single classes."""
    effective_steps: Tensor | None
    """Mean ‖a‖₁ of a round, (N,)."""
    arrival: Tensor | None
    """Mean probability that an update arrives, (N,)."""
    rounds: int
    names: ClientNames | None = None
    """Names of clients, (N,); None if they have only numbers."""
    num_dropped: int = 0
    """Rows of the data dropped because of a missing value."""
    num_test: int = 0
    """Examples of the test set."""
    test_sizes: Tensor | None = None
    """Those of each client, (N,), if the test set is divided among them."""
    features: tuple[str, ...] = ()
    """Columns of the inputs, if they come from a table."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes; None if they have only numbers."""

    @property
    def shown_names(self) -> list[str] | None:
        """Names for display, long ones shortened."""
        return None if self.names is None else [shown(name) for name in self.names.tolist()]

    @property
    def pull(self) -> Tensor | None:
        """Ω_i/ω_i of plain averaging, Ω ∝ ω(1 − q)‖a‖₁ (Weng 2025 §3): above 1 for over-weighted clients.

        None if it is unknown, or if no update arrives.
        """
        if self.effective_steps is None or self.arrival is None:
            return None
        strength = self.effective_steps * self.arrival
        total = self.weights @ strength
        return strength / total if total > 0 else None


def overview(world: SimulatedWorld, solver: LocalSolver, key: Key, rounds: int = 20) -> ClientOverview:
    """The overview of the given number of rounds, without training."""
    if rounds < 1:
        raise FieldError(f"overview needs rounds of at least 1, got {rounds}.")
    work: list[Tensor | None] = []
    arrival: list[Tensor | None] = []
    for round in range(rounds):
        conditions = world.conditions(round, solver, key)
        work.append(conditions.effective_steps)
        arrival.append(conditions.arrival)
    test = world.test
    is_divided = test is not None and test.num_clients == world.population.num_clients
    return ClientOverview(
        weights=world.population.weights,
        sizes=world.clients.sizes,
        label_counts=_label_counts(world),
        effective_steps=_mean(work),
        arrival=_mean(arrival),
        rounds=rounds,
        names=world.population.names,
        num_dropped=world.clients.num_dropped,
        num_test=0 if test is None else len(test.inputs),
        test_sizes=test.sizes if test is not None and is_divided else None,
        features=world.clients.features,
        class_names=world.clients.class_names,
    )


def _label_counts(world: SimulatedWorld) -> Tensor | None:
    targets = world.clients.targets.cpu()
    if targets.is_floating_point() or targets.ndim > 1 or not len(targets):
        return None
    classes, num_clients = int(targets.max()) + 1, world.population.num_clients
    owner = torch.repeat_interleave(torch.arange(num_clients), world.clients.sizes)
    return torch.bincount(owner * classes + targets, minlength=num_clients * classes).view(-1, classes)


def _mean(values: list[Tensor | None]) -> Tensor | None:
    known = [value for value in values if value is not None]
    return torch.stack(known).mean(0) if len(known) == len(values) else None
