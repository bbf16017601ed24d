"""The client of the Flower benchmark, in a module of its own: Ray ships code that is not importable at every call."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from benchmarks.machine import autocast, set_precision
from benchmarks.peers.problem import Problem
from benchmarks.peers.systems import Batches
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn import functional as F

app = ClientApp()


@lru_cache(maxsize=1)
def _problem(file: Path) -> Problem:
    """The problem, read once by every worker process."""
    problem: Problem = torch.load(file, weights_only=False)
    torch.set_num_threads(1)
    set_precision(problem.precision, problem.device)
    return problem


@lru_cache(maxsize=1)
def _module(file: Path) -> torch.nn.Module:
    return _problem(file).new_module()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Local work of the client that the message names."""
    order = message.content["order"]
    file = Path(str(order["file"]))
    problem, module = _problem(file), _module(file)
    workload = problem.workload
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=workload.lr)
    batches = Batches(problem, int(order["round"]), int(order["client"]))
    with autocast(problem.precision, problem.device):
        for _ in range(workload.epochs):
            for inputs, targets in batches:
                optimizer.zero_grad()
                F.cross_entropy(module(inputs), targets).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    content = RecordDict(
        {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": 1})}
    )
    return Message(content=content, reply_to=message)
