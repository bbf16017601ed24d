"""pfl in several processes, as its documentation proposes for speed: each trains a part of every cohort.

The processes are those of `pfl_worker`, one for each thread that the other systems have, and share cohorts by the
clients' numbers of steps, so that none waits long. CPU only: on GPUs pfl gives every process one of its own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

# Only to learn here, and not in the processes, that it is missing.
import pfl  # noqa: F401
import torch
from benchmarks.peers.problem import Problem
from benchmarks.peers.systems import Pass, System


class PflWorkersSystem(System):
    """pfl in as many processes as the others have threads."""

    setup: ClassVar[str] = "as pfl, in as many processes of one thread as the others have threads"
    in_this_process: ClassVar[bool] = False

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        if problem.device.type != "cpu":
            raise NotImplementedError("pfl in several processes needs as many GPUs")
        assert problem.orders, "drawn before the problem is written, as for all peers"
        self._folder = tempfile.TemporaryDirectory()
        self._results = Path(self._folder.name) / "params.pt"
        torch.save(problem, Path(self._folder.name) / "problem.pt")
        size, port = torch.get_num_threads(), _free_port()
        self._workers = [self._start(rank, size, port) for rank in range(size)]

    def _start(self, rank: int, size: int, port: int) -> subprocess.Popen[str]:
        # What torchrun would set.
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
        group = {
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RUN_ID": "benchmark",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers.pfl_worker", self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **{name: str(value) for name, value in own.items()},
                **group,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
        )

    def run(self, rounds: int) -> Pass:
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{rounds}\n")
            worker.stdin.flush()
        answers = [self._answer(worker) for worker in self._workers]
        return Pass(tuple(json.loads(answers[0])), torch.load(self._results))

    def _answer(self, worker: subprocess.Popen[str]) -> str:
        assert worker.stdout is not None
        while line := worker.stdout.readline():
            # Libraries may write to the screen too.
            if line.startswith("["):
                return line
        raise RuntimeError("a pfl process ended")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


SYSTEM = PflWorkersSystem
