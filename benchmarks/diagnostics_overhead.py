"""Times the live figures of a round against the round itself.

    python benchmarks/diagnostics_overhead.py [--device cuda] [--rounds 15]

Every round is timed as a whole; the same updates are then observed again, which is what the record's
diversity, consensus, coherence and drift cost. Figures are medians over rounds after one to warm up.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

import torch

import fairlead as fl
from fairlead.models.base import Model
from fairlead.round_record import update_statistics

WORKLOADS: dict[str, tuple[Model, tuple[int, ...], int, int]] = {
    "logistic regression, 10 of 30 clients": (fl.LogisticRegression(), (60,), 30, 10),
    "MLP 784-200-10, 10 of 100 clients": (fl.MLP(hidden=(200,)), (784,), 100, 10),
    "MLP 784-200-10, 100 of 100 clients": (fl.MLP(hidden=(200,)), (784,), 100, 100),
}
EXAMPLES_EACH = 100


def synthetic_clients(shape: tuple[int, ...], num_clients: int) -> fl.ClientData:
    """Gaussian inputs of ten classes, equally many for every client."""
    generator = torch.Generator().manual_seed(0)
    total = EXAMPLES_EACH * num_clients
    inputs = torch.randn((total, *shape), generator=generator)
    targets = torch.randint(0, 10, (total,), generator=generator)
    return fl.ClientData(inputs, targets, torch.arange(num_clients + 1) * EXAMPLES_EACH)


def timed(function: Callable[[], object], device: str) -> float:
    """Seconds until the work is really done."""
    started = perf_counter()
    function()
    if device != "cpu":
        torch.cuda.synchronize()
    return perf_counter() - started


def main() -> None:
    """Print one line per workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    print(f"{arguments.device}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print("| workload | updates | round, ms | figures, ms | share |\n|---|---|---|---|---|")
    for name, (model, shape, num_clients, cohort_size) in WORKLOADS.items():
        data = synthetic_clients(shape, num_clients)
        world = fl.SimulatedWorld(fl.Task(model), data, device=arguments.device)
        algorithm = fl.presets.fedavg(lr=0.05, epochs=2, batch_size=20, cohort_size=cohort_size)
        run = fl.Federation(algorithm, world)
        delta = torch.randn((cohort_size, world.population.num_parameters), device=arguments.device)
        importance = torch.full((cohort_size,), 1 / cohort_size, dtype=torch.float64)
        rounds, figures = [], []
        for _ in range(arguments.rounds + 1):
            rounds.append(timed(lambda run=run: next(run.train(1)), arguments.device))
            observe = partial(update_statistics, delta, importance)
            figures.append(timed(lambda observe=observe: observe()(), arguments.device))
        whole, own = 1e3 * median(rounds[1:]), 1e3 * median(figures[1:])
        print(f"| {name} | {tuple(delta.shape)} | {whole:.1f} | {own:.2f} | {own / whole:.2%} |")


if __name__ == "__main__":
    main()
