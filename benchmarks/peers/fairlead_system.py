"""fairlead as its users run it: a simulated world, a federation, and its `train`."""

from __future__ import annotations

from time import perf_counter
from typing import ClassVar, Literal

import torch
from benchmarks.machine import Precision, storage_type, synchronize
from benchmarks.peers.problem import Problem
from benchmarks.peers.systems import Pass, System, durations
from benchmarks.peers.workloads import SEED

import fairlead as fl

_PRECISIONS: dict[Precision, Literal["full", "tf32", "bfloat16"]] = {
    "float64": "full",
    "float32": "full",
    "tf32": "tf32",
    "bfloat16": "bfloat16",
}


class FairleadSystem(System):
    """The engine is the world's own choice; batches are drawn in the timed part, as in any run."""

    setup: ClassVar[str] = "SimulatedWorld with the engine of its choice; batches drawn in the timed part"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        workload = problem.workload
        self._world = fl.SimulatedWorld(
            fl.Task(problem.module),
            problem.clients,
            test=problem.test,
            device=problem.device,
            dtype=storage_type(problem.precision),
            **{"precision": _PRECISIONS[problem.precision], **problem.world_options},
        )
        self._algorithm = fl.Algorithm(
            sampler=fl.ScriptedSampler(problem.cohorts),
            solver=fl.LocalSolver(
                fl.SGD(lr=workload.lr), epochs=workload.epochs, batch_size=workload.batch_size
            ),
        )

    def run(self, rounds: int) -> Pass:
        device, every = self.problem.device, self.problem.workload.evaluate_every
        run = fl.Federation(self._algorithm, self._world, seed=SEED)
        marks = [perf_counter()]
        for record in run.train(rounds):
            if every and (record.round + 1) % every == 0:
                run.evaluate()
            synchronize(device)
            marks.append(perf_counter())
        return Pass(durations(marks), run.params.to("cpu", torch.float64))

    @property
    def choice(self) -> str:
        asked_for = "".join(f"{name}={value}, " for name, value in self.problem.world_options.items())
        return f"{asked_for}{self._world.engine}: {self._world.engine_reason}"


SYSTEM = FairleadSystem
