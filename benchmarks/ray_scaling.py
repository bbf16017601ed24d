"""A round on Ray actors: its time and memory against the population, and against one process.

    python -m benchmarks.ray_scaling [--clients 10000 100000 1000000] [--actors 1 2] [--rounds 10] [--out FILE]

Clients have four examples of 16 numbers; 1000 of them a round take five epochs of full batches through an MLP
16-32-10, in blocks of 64. Times are medians over rounds after two to warm up. Memory of processes is their
proportional set size, in which a page that n processes share counts 1/n for each. Every run must end with the
bits of the one process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import ray
import torch
from benchmarks.machine import describe_machine

import fairlead as fl

EXAMPLES, WIDTH, CLASSES, ASKED, BLOCK, WARM_UP = 4, 16, 10, 1000, 64, 2


@dataclass(frozen=True)
class Measured:
    """One way to compute at one size."""

    clients: int
    actors: int
    """0 for one process without Ray."""
    milliseconds: float
    """A round, median."""
    least: float
    most: float
    start_seconds: float
    """Until the first round has ended, starting of actors and sending of shards included."""
    data_mib: float
    driver_mib: float
    """Of the process of the world, its data included."""
    actor_mib: float
    """Of each actor, at most."""


def population(num_clients: int) -> fl.SimulatedWorld:
    """A world whose clients' examples are drawn from ten noisy directions."""
    draw = torch.Generator().manual_seed(0)
    directions = torch.randn((CLASSES, WIDTH), generator=draw)
    targets = torch.randint(0, CLASSES, (num_clients * EXAMPLES,), generator=draw)
    inputs = directions[targets] + torch.randn((len(targets), WIDTH), generator=draw)
    data = fl.ClientData(inputs, targets, torch.arange(num_clients + 1) * EXAMPLES)
    return fl.SimulatedWorld(fl.Task(fl.MLP((32,))), data, engine="batched", block=BLOCK)


def measure(simulation: fl.SimulatedWorld, actors: int, rounds: int) -> tuple[Measured, torch.Tensor]:
    """Rounds of a simulation on some actors, and the final parameters."""
    started = perf_counter()
    world: fl.World = simulation
    if actors:
        world = fl.RayWorld(simulation, fl.RayCluster(actors))
    algorithm = fl.presets.fedavg(lr=0.05, epochs=5, cohort_size=ASKED)
    run = fl.Federation(algorithm, world)
    next(run.train(1))
    start = perf_counter() - started
    list(run.train(WARM_UP + rounds - 1))
    taken = [1e3 * record.seconds for record in list(run.records)[WARM_UP:]]
    processes = world.executor.pool.processes() if isinstance(world, fl.RayWorld) else []
    data = simulation.clients
    measured = Measured(
        simulation.population.num_clients,
        actors,
        round(median(taken), 1),
        round(min(taken), 1),
        round(max(taken), 1),
        round(start, 1),
        round((data.inputs.nbytes + data.targets.nbytes + data.offsets.nbytes) / 2**20, 1),
        round(_proportional_mib(os.getpid())),
        max((round(_proportional_mib(process)) for process in processes), default=0),
    )
    return measured, run.params


def _proportional_mib(process: int) -> float:
    """Memory of a process of this machine (Linux)."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, flags=re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=sum(options.actors),
        object_store_memory=2**30,
        include_dashboard=False,
        log_to_driver=False,
    )
    results = []
    for num_clients in options.clients:
        simulation = population(num_clients)
        _, expected = measure(simulation, 0, options.rounds)
        for actors in (0, *options.actors):
            measured, params = measure(simulation, actors, options.rounds)
            assert torch.equal(params, expected)
            print(measured, flush=True)
            results.append(asdict(measured))
    if options.out is not None:
        machine = describe_machine(torch.device("cpu"), ("ray",))
        options.out.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
