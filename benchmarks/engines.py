"""Times the engines against each other on the same work, and checks that they agree.

    python -m benchmarks.engines [--device cuda] [--engines loop batched branches] [--workloads mlp cnn]

The work: 100 clients, 10 a round, 3 local epochs of batches of 64 over 50,000 synthetic examples, sizes
log-normal as under Dirichlet(0.1); logistic regression with 30 clients and batches of 20. Rounds of the
engines are interleaved; the figures are medians over rounds after one to warm up, and ratios to the first
engine are taken round by round.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from statistics import median
from typing import get_args

import numpy as np
import torch
from benchmarks.machine import describe_machine, seconds_of

import fairlead as fl
from fairlead.clients.partitioners import LogNormalPartitioner
from fairlead.models.base import Model
from fairlead.worlds.base import EngineName
from fairlead.worlds.device import Precision


@dataclass(frozen=True)
class Workload:
    """A model and the clients that train it."""

    model: Model
    shape: tuple[int, ...]
    num_clients: int
    batch_size: int


WORKLOADS: dict[str, Workload] = {
    "lr": Workload(fl.LogisticRegression(), (60,), 30, 20),
    "mlp": Workload(fl.MLP(hidden=(200,)), (784,), 100, 64),
    "cnn": Workload(fl.FedAvgCNN(), (3, 32, 32), 100, 64),
}


def synthetic_clients(workload: Workload) -> fl.ClientData:
    """50,000 Gaussian examples of ten classes, dealt in sizes as unequal as under Dirichlet(0.1)."""
    generator = np.random.default_rng(0)
    inputs = torch.from_numpy(generator.standard_normal((50_000, *workload.shape), dtype=np.float32))
    targets = torch.from_numpy(generator.integers(0, 10, 50_000))
    deal = LogNormalPartitioner(sigma=1.2).deal(targets.numpy(), workload.num_clients, fl.Key.from_seed(0))
    return fl.ClientData.from_owners(inputs, targets, torch.from_numpy(deal), workload.num_clients)


def measure(workload: Workload, options: argparse.Namespace) -> str:
    """Microseconds a client-step of every engine with the path that ran, and ratios to the first engine."""
    data, device = synthetic_clients(workload), torch.device(options.device)
    algorithm = fl.presets.fedavg(lr=0.05, epochs=3, batch_size=workload.batch_size, cohort_size=10)
    runs = {
        engine: fl.Federation(
            algorithm,
            fl.SimulatedWorld(
                fl.Task(workload.model), data, engine=engine, device=device, precision=options.precision
            ),
        )
        for engine in options.engines
    }
    seconds: dict[str, list[float]] = {engine: [] for engine in runs}
    for _ in range(options.rounds + 1):
        for engine, run in runs.items():
            seconds[engine].append(seconds_of(lambda run=run: next(run.train(rounds=1)), device))
    first, *_ = runs
    steps = [sum(record.num_steps) for record in runs[first].records]
    parts = []
    for engine, run in runs.items():
        per_step = median(s / n for s, n in zip(seconds[engine][1:], steps[1:], strict=True))
        ratio = median(a / b for a, b in zip(seconds[first][1:], seconds[engine][1:], strict=True))
        gap = float((runs[first].params - run.params).abs().max())
        assert isinstance(run.world, fl.SimulatedWorld)
        paths = " and ".join(dict.fromkeys(path.path for path in run.world.workings.paths))
        speed = f"{per_step * 1e6:.0f} us a client-step, {ratio:.1f} x, {gap:.0e} apart"
        parts.append(f"{engine} by {paths} {speed}")
    return "; ".join(parts)


def main() -> None:
    """Print the machine and one line per workload."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [name for name in get_args(EngineName) if name != "auto"]
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--engines", nargs="+", choices=names, default=["loop", "batched"])
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=["lr", "mlp"])
    parser.add_argument("--precision", choices=get_args(Precision), default="full")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(describe_machine(torch.device(options.device), ("numba",)))
    for name in options.workloads:
        print(f"{name}: {measure(WORKLOADS[name], options)}", flush=True)


if __name__ == "__main__":
    main()
