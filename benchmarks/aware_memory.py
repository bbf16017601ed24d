"""What saving memory costs FedAWARE in accuracy, and how long its server step takes.

    python benchmarks/aware_memory.py accuracy [--seeds 5] [--rounds 200]
    python benchmarks/aware_memory.py speed [--device cuda]
    python benchmarks/aware_memory.py solver

Accuracy: the embedded digits dealt to 40 clients by Dirichlet(0.3) with at least 20 examples each, 8 asked a
round, 2 to 5 local epochs drawn anew each time, batches of 16, client learning rate 0.05, server learning
rate 1, α = ½; a network 64-64-10. Every variant meets the same data, cohorts, batches and work. The figure of
a run is the mean test accuracy of its last 20 rounds; the table has mean and standard deviation over seeds,
and those of the difference, seed by seed, to the same method with everything remembered.

Speed: random float32 rows with a common part, 10 of N clients a round after a first round with everyone; the
median over 10 rounds of one call of `FedAWARE.aggregate`, in wall and in processor time, and of the solver
alone on the same inner products, warm-started.

Solver: processor time of `shortest_in_hull` on Gaussian vectors, cold (the best of three), and started from
the last solution after ten vectors moved half way to new ones (the median of three).
"""

from __future__ import annotations

import argparse
import platform
import tempfile
from collections.abc import Iterator
from statistics import mean, median, stdev
from time import perf_counter, process_time
from typing import Literal

import torch

import fairlead as fl
from fairlead.client_table import table_in, tensor_in
from fairlead.numerics.minimum_norm import shortest_in_hull
from fairlead.presets import ClientSide, fedavg, fedaware, fedaware_na
from fairlead.records import Aggregate
from fairlead.testing.rounds import make_conditions, make_updates

NUM_CLIENTS, COHORT_SIZE, LAST_LAYER = 40, 8, "3.*"


def federated_digits(seed: int) -> tuple[fl.SimulatedWorld, tuple[int, ...]]:
    """A world of the embedded digits, and for each client the label that it has most of."""
    partition = fl.DirichletPartitioner(0.3, min_partition_size=20)
    data = fl.Digits(num_clients=NUM_CLIENTS, partition=partition).load(fl.Key.from_seed(seed).fold("data"))
    favourite = tuple(
        int(data.train.targets[data.train.rows_of(client)].bincount().argmax())
        for client in range(NUM_CLIENTS)
    )
    task = fl.Task(fl.MLP(hidden=(64,)))
    return fl.SimulatedWorld(task, data.train, test=data.test, work=fl.RandomEpochs(2, 5)), favourite


def variants(favourite: tuple[int, ...], folder: str) -> dict[str, dict[str, fl.Algorithm]]:
    """By method, the ways to save memory; the first of each remembers everything."""
    side = ClientSide(lr=0.05, batch_size=16, cohort_size=COHORT_SIZE)

    def aware(rows: Literal["raw", "unit"], memory: fl.UpdateMemory | None = None) -> fl.Algorithm:
        return fedaware(rows=rows, memory=memory, **side)

    at_random = tuple(client % 10 for client in range(NUM_CLIENTS))
    return {
        "FedAWARE, unit rows": {
            "everything": aware("unit"),
            "bfloat16": aware("unit", fl.UpdateMemory(dtype="bfloat16")),
            "in a mapped file": aware("unit", fl.UpdateMemory(folder=folder)),
            "10 clusters by main label": aware("unit", fl.UpdateMemory(clusters=favourite)),
            "10 clusters at random": aware("unit", fl.UpdateMemory(clusters=at_random)),
        },
        "FedAWARE, raw rows": {
            "everything": aware("raw"),
            "bfloat16": aware("raw", fl.UpdateMemory(dtype="bfloat16")),
            "last layer": aware("raw", fl.UpdateMemory(layers=(LAST_LAYER,))),
            "last layer, bfloat16": aware("raw", fl.UpdateMemory(layers=(LAST_LAYER,), dtype="bfloat16")),
            "10 clusters by main label": aware("raw", fl.UpdateMemory(clusters=favourite)),
            "10 clusters at random": aware("raw", fl.UpdateMemory(clusters=at_random)),
        },
        "FedAWARE-NA": {
            "everything": fedaware_na(**side),
            "bfloat16": fedaware_na(memory=fl.UpdateMemory(dtype="bfloat16"), **side),
        },
        "FedAvg": {"nothing": fedavg(**side)},
    }


def accuracy(seeds: int, rounds: int) -> None:
    """Print the table of accuracy and memory."""
    figures: dict[tuple[str, str], list[float]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for seed in range(seeds):
        world, favourite = federated_digits(seed)
        with tempfile.TemporaryDirectory() as folder:
            for method, ways in variants(favourite, folder).items():
                for way, algorithm in ways.items():
                    run = fl.Federation(algorithm, world, seed=seed)
                    scores = [
                        record.evaluation.metrics["accuracy"]
                        for record in run.train(rounds, evaluate_every=1)
                        if record.evaluation is not None
                    ]
                    figures.setdefault((method, way), []).append(100 * mean(scores[-20:]))
                    state = run.state.aggregator
                    rows = table_in(state, "averages").rows if "averages" in state else torch.empty(0)
                    sizes[method, way] = rows.numel() * rows.element_size()
    print("| method | remembered | accuracy, % | difference | bytes of rows |\n|---|---|---|---|---|")
    for (method, way), values in figures.items():
        whole = next(full for (name, _), full in figures.items() if name == method)
        differences = [value - reference for value, reference in zip(values, whole, strict=True)]
        compared = f"{mean(differences):+.2f} ± {stdev(differences):.2f}" if values is not whole else "–"
        print(
            f"| {method} | {way} | {mean(values):.2f} ± {stdev(values):.2f} | {compared} | "
            f"{sizes[method, way]:,} |"
        )


def aware_rounds(num_clients: int, dim: int, device: str) -> Iterator[tuple[Aggregate, float, float]]:
    """Server steps of FedAWARE with wall and processor time, after everyone arrived."""
    generator = torch.Generator(device).manual_seed(0)
    common = torch.randn(dim, generator=generator, device=device)
    aggregator = fl.FedAWARE()
    weights = torch.full((num_clients,), 1 / num_clients, dtype=torch.float64)
    state = aggregator.init(fl.Population(weights, {"x": dim}, torch.device(device), torch.float32))
    for round in range(12):
        size = num_clients if round == 0 else 10
        clients = torch.randperm(num_clients, generator=torch.Generator().manual_seed(round))[:size]
        asked = clients.sort().values.tolist()
        noise = torch.randn((size, dim), generator=generator, device=device)
        updates = make_updates(asked, asked, weights[asked], noise.add_(common, alpha=0.3))
        started, began = perf_counter(), process_time()
        result = aggregator.aggregate(updates, state, make_conditions(weights, round))
        if device != "cpu":
            torch.cuda.synchronize()
        wall, processor = perf_counter() - started, process_time() - began
        state = result.state
        if round > 1:
            yield result, wall, processor


def speed(device: str) -> None:
    """Print the table of times."""
    sizes = [(100, 10**6), (1000, 10**5)]
    if device != "cpu":
        sizes = [(100, 880_000), (1000, 880_000), (1000, 11_200_000)]
    print("| N | d | wall, ms | processor, ms | solver, ms | support | gap |\n|---|---|---|---|---|---|---|")
    for num_clients, dim in sizes:
        walls, processors, alone = [], [], []
        for result, wall, processor in aware_rounds(num_clients, dim, device):
            walls.append(1e3 * wall)
            processors.append(1e3 * processor)
            table = table_in(result.state, "products")
            gram, last = table.rows[:, table.clients], tensor_in(result.state, "lambda")[table.clients]
            began = process_time()
            point = shortest_in_hull(gram, last)
            alone.append(1e3 * (process_time() - began))
        print(
            f"| {num_clients} | {dim:,} | {median(walls):.0f} | {median(processors):.0f} | "
            f"{median(alone):.1f} | {point.support} | {point.gap:.0e} |"
        )


def gaussian_sets() -> dict[str, torch.Tensor]:
    """Vectors in float64 that are hard in different ways."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "100 in 1,000 dimensions": normal(100, 1000),
        "1,000 in 5,000 dimensions": normal(1000, 5000),
        "1,000 in 3,000, with a common part of 0.3": normal(1000, 3000) + 0.3 * normal(1, 3000),
        "1,000 of rank 3 around a common part": normal(1000, 3) @ normal(3, 50) + 5 * normal(1, 50),
        "1,000 in 500, with a common part of 0.3": normal(1000, 500) + 0.3 * normal(1, 500),
        "1,000 in 500 dimensions": normal(1000, 500),
    }


def solver() -> None:
    """Print the table of the solver's times."""
    print("| vectors | support | cold, ms | ten moved, ms | gap |\n|---|---|---|---|---|")
    for name, vectors in gaussian_sets().items():
        generator = torch.Generator().manual_seed(1)
        cold, moved = [], []
        for _ in range(3):
            gram = vectors @ vectors.T
            began = process_time()
            point = shortest_in_hull(gram)
            cold.append(1e3 * (process_time() - began))
        for first in (0, 10, 20):
            some = slice(first, first + 10)
            new = torch.randn(vectors[some].shape, generator=generator, dtype=torch.float64)
            vectors[some] = 0.5 * vectors[some] + 0.5 * vectors.std() * new
            gram = vectors @ vectors.T
            began = process_time()
            point = shortest_in_hull(gram, point.weights)
            moved.append(1e3 * (process_time() - began))
        print(f"| {name} | {point.support} | {min(cold):.1f} | {median(moved):.1f} | {point.gap:.0e} |")


def main() -> None:
    """Run one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "speed", "solver"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    threads = torch.get_num_threads()
    print(f"{platform.machine()}, threads: {threads}, {arguments.device}, torch {torch.__version__}\n")
    if arguments.what == "accuracy":
        accuracy(arguments.seeds, arguments.rounds)
    elif arguments.what == "speed":
        speed(arguments.device)
    else:
        solver()


if __name__ == "__main__":
    main()
