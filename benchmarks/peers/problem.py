"""A workload made ready: everything that all systems share, down to the order of every client's examples."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from benchmarks.machine import Precision, flops_per_example, storage_type
from benchmarks.peers.workloads import SEED, Workload
from torch import Tensor, nn

import fairlead as fl
from fairlead.worlds.executor import draw_batches


@dataclass(frozen=True, eq=False)
class Problem:
    """Data on the device, the initial model, and who trains when."""

    workload: Workload
    clients: fl.ClientData
    test: fl.ClientData | None
    module: nn.Module
    cohorts: tuple[tuple[int, ...], ...]
    """Who is asked in each round, ascending."""
    precision: Precision
    device: torch.device
    world_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of fairlead's `SimulatedWorld` beyond those that all systems share, such as `lanes`."""

    @staticmethod
    def build(
        workload: Workload,
        rounds: int,
        precision: Precision,
        device: torch.device,
        folder: str | None = None,
        world_options: Mapping[str, Any] | None = None,
    ) -> Problem:
        key, dtype = fl.Key.from_seed(SEED), storage_type(precision)
        federated = workload.data(folder)
        clients = _on_device(federated.train, device, dtype)
        test = None if federated.test is None else _on_device(federated.test, device, dtype)
        world = fl.SimulatedWorld(fl.Task(workload.model), clients, device=device, dtype=dtype)
        module = world.module(*world.initial_model(key)).train()
        able = clients.sizes.nonzero().flatten().numpy()
        generator = key.fold("cohorts").generator()
        cohorts = tuple(
            tuple(sorted(generator.choice(able, workload.cohort_size, replace=False).tolist()))
            for _ in range(rounds)
        )
        return Problem(workload, clients, test, module, cohorts, precision, device, world_options or {})

    def without_dropout(self) -> Problem:
        """The same with nothing random in the model: masks differ between systems, so updates would too."""
        module = copy.deepcopy(self.module)
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        return replace(self, module=module)

    @property
    def has_dropout(self) -> bool:
        return any(isinstance(part, nn.Dropout) and part.p > 0 for part in self.module.modules())

    def new_module(self) -> nn.Module:
        """A model of its own for a system, at the common start."""
        return copy.deepcopy(self.module)

    @cached_property
    def start(self) -> Tensor:
        """The initial parameters."""
        return flat_parameters(self.module)

    @cached_property
    def orders(self) -> dict[tuple[int, int], list[Tensor]]:
        """By round and client, the rows of its examples in the order of each epoch: those that fairlead draws."""
        return {
            (round, client): self._epochs(round, client)
            for round, cohort in enumerate(self.cohorts)
            for client in cohort
        }

    def _epochs(self, round: int, client: int) -> list[Tensor]:
        size = int(self.clients.sizes[client])
        batch_size = min(self.workload.batch_size, size)
        num_steps = self.steps_of(client)
        stream = fl.Key.from_seed(SEED).fold("batches", round, client)
        first_row = int(self.clients.offsets[client])
        batches = draw_batches(first_row, size, num_steps, batch_size, stream)
        epochs = batches.reshape(self.workload.epochs, -1)
        return [rows[rows >= 0].to(self.device) for rows in epochs]

    def epoch(self, round: int, client: int, number: int) -> tuple[Tensor, Tensor]:
        """A client's examples in the order of one of its epochs."""
        rows = self.orders[round, client][number]
        return self.clients.inputs[rows], self.clients.targets[rows]

    def steps_of(self, client: int) -> int:
        """Local steps that a client takes in a round."""
        return self.workload.epochs * -(-int(self.clients.sizes[client]) // self.workload.batch_size)

    @property
    def num_steps(self) -> int:
        """Local steps of all clients in all rounds."""
        return sum(self.steps_of(client) for cohort in self.cohorts for client in cohort)

    @property
    def longest(self) -> int:
        """Local steps of each round's busiest client, added up: what no number of lanes can shorten."""
        return sum(max(map(self.steps_of, cohort)) for cohort in self.cohorts)

    @property
    def flops(self) -> float:
        """Floating-point operations of all rounds, without evaluation."""
        batch = slice(0, min(16, len(self.clients.inputs)))
        each = flops_per_example(self.new_module(), self.clients.inputs[batch], self.clients.targets[batch])
        examples = sum(int(self.clients.sizes[client]) for cohort in self.cohorts for client in cohort)
        return each * examples * self.workload.epochs


def flat_parameters(module: nn.Module) -> Tensor:
    """All parameters in their order as one vector, float64 on the CPU."""
    return torch.cat([p.detach().reshape(-1).to("cpu", torch.float64) for p in module.parameters()])


def _on_device(data: fl.ClientData, device: torch.device, dtype: torch.dtype) -> fl.ClientData:
    """Real numbers on the device: pixels are scaled once, so that no system does it in the timed part."""
    if data.inputs.dtype == torch.uint8:
        data = replace(data, inputs=data.inputs.to(dtype) / 255)
    return data.to(device, dtype)
