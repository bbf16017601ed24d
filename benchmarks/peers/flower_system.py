"""Flower 1.4x: `FedAvg` and a `ClientApp` in the simulation runtime, with one Ray worker per thread of the others.

Strategy, aggregation and transport are Flower's own. Ten nodes are enough, since a message says which client a
node plays; workers hold the data in memory after their first message. Each worker computes with one thread:
two processes of one thread are what Flower's documentation suggests on two cores. The reply counts one example,
so that the weighted mean of the strategy is the plain one. Starting Ray and a first round, in which workers read the
data, are not timed. CPU only.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, ClassVar

import torch
from torch.nn import functional as F

# Read when Flower and Ray are imported or started: nothing of a benchmark is to be reported to anyone.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
# At its end Ray would end every process that this one started, those of other systems among them.
os.environ["RAY_kill_child_processes_on_worker_exit"] = "0"  # noqa: SIM112  (Ray spells it so)

from benchmarks.peers import flower_client
from benchmarks.peers.problem import Problem, flat_parameters
from benchmarks.peers.systems import Pass, System, durations
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


class _ScriptedFedAvg(FedAvg):
    """Flower's strategy with cohorts from a list, a clock, and a round before the first whose result is dropped."""

    def __init__(self, problem: Problem, file: Path) -> None:
        size = problem.workload.cohort_size
        super().__init__(
            fraction_evaluate=0.0, min_train_nodes=size, min_evaluate_nodes=0, min_available_nodes=size
        )
        self._problem, self._file = problem, file
        self.marks: list[float] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.marks.append(perf_counter())
        round = max(server_round - 2, 0)
        cohort = self._problem.cohorts[round]
        while len(nodes := list(grid.get_node_ids())) < len(cohort):
            sleep(0.1)
        return [
            Message(
                content=RecordDict({"arrays": arrays, "order": self._order(round, client)}),
                message_type=MessageType.TRAIN,
                dst_node_id=node,
            )
            for node, client in zip(nodes, cohort, strict=False)
        ]

    def _order(self, round: int, client: int) -> ConfigRecord:
        return ConfigRecord({"file": str(self._file), "round": round, "client": client})

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        if failed := [reply for reply in replies if reply.has_error()]:
            raise RuntimeError(f"{len(failed)} Flower clients failed: {failed[0].error.reason}")
        arrays, metrics = super().aggregate_train(server_round, replies)
        return (None, None) if server_round == 1 else (arrays, metrics)


class FlowerSystem(System):
    """Flower's simulation on the CPU."""

    setup: ClassVar[str] = "FedAvg, ClientApp, run_simulation; Ray workers of one thread, as many as threads"
    in_this_process: ClassVar[bool] = False

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        if problem.device.type != "cpu":
            raise NotImplementedError("Flower is measured on the CPU only")
        for name in ("flwr", "ray"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name) / "problem.pt"
        assert problem.orders, "drawn before the problem is written, as for all peers"
        torch.save(problem, self._file)

    def run(self, rounds: int) -> Pass:
        strategy = _ScriptedFedAvg(self.problem, self._file)
        results: list[ArrayRecord] = []
        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            start = ArrayRecord(self.problem.new_module().state_dict())
            result = strategy.start(grid, start, num_rounds=rounds + 1, evaluate_fn=self._evaluate)
            strategy.marks.append(perf_counter())
            results.append(result.arrays)

        threads = torch.get_num_threads()
        run_simulation(
            server_app=server,
            client_app=flower_client.app,
            num_supernodes=self.problem.workload.cohort_size,
            backend_config={
                "init_args": {"num_cpus": threads, "include_dashboard": False, "log_to_driver": False},
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )
        if not results:
            raise RuntimeError("the Flower simulation ended without a model")
        module = self.problem.new_module()
        module.load_state_dict(results[0].to_torch_state_dict())
        return Pass(durations(strategy.marks[1:]), flat_parameters(module))

    def _evaluate(self, server_round: int, arrays: ArrayRecord) -> Any:
        every, test = self.problem.workload.evaluate_every, self.problem.test
        done = server_round - 1
        if not every or test is None or done < 1 or done % every:
            return None
        module = self.problem.new_module().eval()
        module.load_state_dict(arrays.to_torch_state_dict())
        loss, correct = 0.0, 0
        with torch.no_grad():
            for inputs, targets in zip(
                torch.split(test.inputs, 2000), torch.split(test.targets, 2000), strict=True
            ):
                outputs = module(inputs)
                loss += F.cross_entropy(outputs, targets, reduction="sum").item()
                correct += int((outputs.argmax(1) == targets).sum())
        return MetricRecord({"loss": loss / len(test.targets), "accuracy": correct / len(test.targets)})


SYSTEM = FlowerSystem
