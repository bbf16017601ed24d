"""Times the engines against each other on the same work, and checks that they agree.

    python benchmarks/engines.py [--device cuda] [--rounds 5]

The work: 100 clients, 10 a round, 3 local epochs of batches of 64 over 50,000 synthetic examples, sizes
log-normal as under Dirichlet(0.1); logistic regression with 30 clients and batches of 20. Rounds of the
engines are interleaved; the figures are medians over rounds and the ratio is taken round by round.
"""

from __future__ import annotations

import argparse
import platform
from statistics import median
from time import perf_counter

import numpy as np
import torch

import fairlead as fl
from fairlead.clients.partitioners import LogNormalPartitioner
from fairlead.models import Model

WORKLOADS: dict[str, tuple[Model, tuple[int, ...], int, int, int]] = {
    "logistic regression, d = 610": (fl.LogisticRegression(), (60,), 30, 10, 20),
    "MLP 784-200-10": (fl.MLP(hidden=(200,)), (784,), 100, 10, 64),
}


def synthetic_clients(shape: tuple[int, ...], num_clients: int) -> fl.ClientData:
    """50,000 Gaussian examples of ten classes, dealt in sizes as unequal as under Dirichlet(0.1)."""
    generator = np.random.default_rng(0)
    inputs = torch.from_numpy(generator.standard_normal((50_000, *shape), dtype=np.float32))
    targets = torch.from_numpy(generator.integers(0, 10, 50_000))
    owner = LogNormalPartitioner(sigma=1.2).deal(targets.numpy(), num_clients, fl.Key.from_seed(0))
    return fl.ClientData.from_owners(inputs, targets, torch.from_numpy(owner), num_clients)


def main() -> None:
    """Print one line per workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {arguments.device}, torch {torch.__version__}")
    for name, (model, shape, num_clients, cohort_size, batch_size) in WORKLOADS.items():
        data = synthetic_clients(shape, num_clients)
        algorithm = fl.presets.fedavg(lr=0.05, epochs=3, batch_size=batch_size, cohort_size=cohort_size)
        runs = {
            engine: fl.Federation(
                algorithm,
                fl.SimulatedWorld(fl.Task(model), data, engine=engine, device=arguments.device),
            )
            for engine in ("loop", "batched")
        }
        seconds: dict[str, list[float]] = {engine: [] for engine in runs}
        steps: list[int] = []
        for round in range(arguments.rounds + 1):
            for engine, run in runs.items():
                started = perf_counter()
                (record,) = run.train(rounds=1)
                if arguments.device == "cuda":
                    torch.cuda.synchronize()
                if round:
                    seconds[engine].append(perf_counter() - started)
            steps.append(sum(record.num_steps))
        gap = (runs["loop"].params - runs["batched"].params).abs().max()
        ratio = median(a / b for a, b in zip(seconds["loop"], seconds["batched"], strict=True))
        per_step = {e: median(s / n for s, n in zip(v, steps[1:], strict=True)) for e, v in seconds.items()}
        print(
            f"{name}: loop {per_step['loop'] * 1e6:.0f} us, batched {per_step['batched'] * 1e6:.0f} us a "
            f"client-step, {ratio:.1f} x; largest difference of parameters {gap:.1e}"
        )


if __name__ == "__main__":
    main()
