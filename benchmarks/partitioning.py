"""Time to deal 60,000 examples to 10,000 clients, and the memory of a federation of a million.

python benchmarks/partitioning.py            both parts
python benchmarks/partitioning.py million    the second alone, for a clean reading of memory
"""

from __future__ import annotations

import resource
import sys
from time import perf_counter

import numpy as np
import torch

import fairlead as fl

EXAMPLES, CLIENTS, LABELS = 60_000, 10_000, 10
PARTITIONERS: tuple[fl.Partitioner, ...] = (
    fl.IidPartitioner(),
    fl.DirichletPartitioner(0.01),
    fl.DirichletPartitioner(0.5, min_partition_size=2),
    fl.DirichletPartitioner(0.1, self_balancing=True),
    fl.InnerDirichletPartitioner(0.01),
    fl.InnerDirichletPartitioner(1.0),
    fl.DirichletSizePartitioner(0.01),
    fl.ShardPartitioner(2),
    fl.PathologicalPartitioner(2),
    fl.LogNormalPartitioner(2.0),
    fl.PowerLawPartitioner(1.5),
)
MILLION = 1_000_000


def seconds_to_deal(partitioner: fl.Partitioner, repeats: int = 5) -> float:
    """The best of some deals."""
    labels = np.random.default_rng(0).integers(0, LABELS, EXAMPLES)
    times = []
    for seed in range(repeats):
        started = perf_counter()
        partitioner.deal(labels, CLIENTS, fl.Key.from_seed(seed))
        times.append(perf_counter() - started)
    return min(times)


def peak_gib() -> float:
    """Largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def run_a_million_clients() -> None:
    """Two examples of 8 numbers for each of a million clients, and five rounds with 100 of them."""
    print(f"{'with torch and fairlead imported':48s} {peak_gib():6.2f} GiB")
    generator = torch.Generator().manual_seed(0)
    started = perf_counter()
    pool = fl.Pool(
        torch.rand(2 * MILLION, 8, generator=generator),
        torch.randint(10, (2 * MILLION,), generator=generator),
    )
    clients = pool.deal(fl.DirichletPartitioner(0.1), MILLION)
    del pool
    print(f"{'dealt':48s} {peak_gib():6.2f} GiB {perf_counter() - started:6.1f} s")
    started = perf_counter()
    world = fl.SimulatedWorld(
        fl.Task(fl.LogisticRegression()), clients, work=fl.RandomEpochs(1, 3), link=fl.BernoulliLink(0.2)
    )
    algorithm = fl.presets.fedavg(lr=0.1, epochs=1, cohort_size=100)
    run = fl.Federation(algorithm, world)
    arrived = [len(record.arrived) for record in run.train(5)]
    what = f"five rounds, {sum(arrived)} updates"
    print(f"{what:48s} {peak_gib():6.2f} GiB {perf_counter() - started:6.1f} s")


def main() -> None:
    if "million" not in sys.argv[1:]:
        print(f"{EXAMPLES:,} examples of {LABELS} labels to {CLIENTS:,} clients")
        for partitioner in PARTITIONERS:
            print(f"{partitioner!s:92.92s} {1e3 * seconds_to_deal(partitioner):8.1f} ms")
    print(f"{MILLION:,} clients")
    run_a_million_clients()


if __name__ == "__main__":
    main()
