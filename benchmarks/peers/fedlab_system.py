"""FedLab 1.3: `SGDSerialClientTrainer`, `SyncServerHandler` and `StandalonePipeline`, its simulation on one machine.

The trainer, the server and the loop are FedLab's own. Replaced are the draw of the cohort and the data loader: in
place of a `DataLoader`, which collates example by example, it gets tensors that are already batches. What
FedLab does at every round stays: models travel as flat CPU tensors and are copied on the way.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Any, ClassVar

import torch
from benchmarks.machine import autocast, synchronize
from benchmarks.peers.problem import Problem, flat_parameters
from benchmarks.peers.systems import Batches, Pass, System, durations
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline

# On import FedLab lets every library write to the screen.
logging.getLogger().setLevel(logging.WARNING)


class _ScriptedData:
    """What the trainer takes its clients' batches from."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.round = 0

    def get_dataloader(self, id: int, batch_size: int) -> Batches:
        return Batches(self._problem, self.round, id)


class _ScriptedServer(SyncServerHandler):
    """FedLab's server with cohorts from a list."""

    def __init__(self, problem: Problem, rounds: int, data: _ScriptedData) -> None:
        share = problem.workload.cohort_size / problem.clients.num_clients
        # A hair more, since FedLab rounds the size of the cohort down.
        super().__init__(problem.new_module(), rounds, share + 1e-9, **_place(problem))
        self._cohorts, self._data = problem.cohorts, data

    def sample_clients(self) -> list[int]:
        self._data.round = self.round
        return list(self._cohorts[self.round])


class _Pipeline(StandalonePipeline):
    """FedLab's loop with a clock and, where the workload has one, the evaluation."""

    def __init__(self, problem: Problem, server: _ScriptedServer, trainer: SGDSerialClientTrainer) -> None:
        super().__init__(server, trainer)
        self._problem = problem
        self.marks = [perf_counter()]

    def evaluate(self) -> None:
        every, test = self._problem.workload.evaluate_every, self._problem.test
        if every and test is not None and self.handler.round % every == 0:
            model = self.handler.model.eval()
            with torch.no_grad():
                for inputs, targets in zip(
                    torch.split(test.inputs, 2000), torch.split(test.targets, 2000), strict=True
                ):
                    outputs = model(inputs)
                    torch.nn.functional.cross_entropy(outputs, targets, reduction="sum").item()
                    (outputs.argmax(1) == targets).sum().item()
        synchronize(self._problem.device)
        self.marks.append(perf_counter())


class FedLabSystem(System):
    """FedLab's own trainer, server and loop."""

    setup: ClassVar[str] = "SGDSerialClientTrainer, SyncServerHandler, StandalonePipeline; batches as tensors"

    def run(self, rounds: int) -> Pass:
        problem, workload = self.problem, self.problem.workload
        data = _ScriptedData(problem)
        trainer = SGDSerialClientTrainer(problem.new_module(), problem.clients.num_clients, **_place(problem))
        trainer.setup_dataset(data)
        trainer.setup_optim(workload.epochs, workload.batch_size, workload.lr)
        server = _ScriptedServer(problem, rounds, data)
        with autocast(problem.precision, problem.device):
            pipeline = _Pipeline(problem, server, trainer)
            pipeline.main()
        return Pass(durations(pipeline.marks), flat_parameters(server.model))


def _place(problem: Problem) -> dict[str, Any]:
    cuda = problem.device.type == "cuda"
    return {"cuda": cuda, "device": str(problem.device) if cuda else None}


SYSTEM = FedLabSystem
