"""Ray actors on GPUs: the bits of one process, whoever dies on the way, and the time of a round.

    python -m benchmarks.ray_gpus [--device cuda] [--actors 1 2 4] [--gpus 0.1] [--out FILE]
                                  [--clients 40] [--block 8] [--rounds 3]

Every engine trains FedAvg, SCAFFOLD and FedAWARE with clients of 16 to 400 examples, one to three epochs and links
that lose up to half of the updates; three in five clients are asked a round. Each actor takes a part of a GPU, so that
all of them share one unless told otherwise. Where two work, one is killed before SCAFFOLD is trained once more. Then
rounds that ask all clients to train a convolutional network, in two blocks, are timed in one process and on one actor.
Ends with status 1 if bits differ.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import ray
import torch
from benchmarks.machine import describe_machine, seconds_of

import fairlead as fl
from fairlead.models.base import Model
from fairlead.worlds.base import EngineName

CASES: tuple[tuple[EngineName, Model, tuple[int, ...]], ...] = (
    ("batched", fl.MLP(hidden=(64,)), (784,)),
    ("branches", fl.FiveLayerCNN(), (3, 32, 32)),
    ("loop", fl.MLP(hidden=(64,)), (784,)),
)
"""Engine, model and shape of an example."""
KILLED_AMONG = 2
TIMED_ROUNDS, WARM_UP = 4, 2


def simulation(
    case: tuple[EngineName, Model, tuple[int, ...]], clients: int, block: int, device: str
) -> fl.SimulatedWorld:
    """Unequal clients with random examples, the same whenever they are made."""
    engine, model, shape = case
    draw = torch.Generator().manual_seed(4)
    sizes = [16 + (37 * client) % 400 for client in range(clients)]
    data = fl.ClientData.from_lists(
        [torch.randn((size, *shape), generator=draw) for size in sizes],
        [torch.randint(0, 10, (size,), generator=draw) for size in sizes],
    )
    return fl.SimulatedWorld(
        fl.Task(model),
        data,
        work=fl.RandomEpochs(1, 3),
        link=fl.BernoulliLink(tuple(0.25 * (client % 3) for client in range(clients))),
        engine=engine,
        lanes=8,
        block=block,
        device=device,
        reproducible=True,
    )


def methods(clients: int) -> dict[str, fl.Algorithm]:
    presets = {"FedAvg": fl.presets.fedavg, "SCAFFOLD": fl.presets.scaffold, "FedAWARE": fl.presets.fedaware}
    return {
        name: preset(lr=0.05, cohort_size=max(3 * clients // 5, 1), batch_size=32)
        for name, preset in presets.items()
    }


class Ending(NamedTuple):
    """What a run ended with."""

    params: torch.Tensor
    loss: float

    def has_bits_of(self, other: Ending) -> bool:
        return torch.equal(self.params, other.params) and self.loss == other.loss


def trained(algorithm: fl.Algorithm, world: fl.World, rounds: int) -> Ending:
    run = fl.Federation(algorithm, world, seed=5)
    list(run.train(rounds))
    return Ending(run.params, run.evaluate().loss)


def compared(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """What was run, and whether it ended with the bits of one process."""
    algorithms, rounds = methods(options.clients), options.rounds
    for case in CASES:
        alone, engine = simulation(case, options.clients, options.block, options.device), case[0]
        expected = {name: trained(each, alone, rounds) for name, each in algorithms.items()}
        for name, each in algorithms.items():
            again = trained(each, alone, rounds)
            yield f"{engine}, {name}, one process again", again.has_bits_of(expected[name])
        for actors in options.actors:
            world = fl.RayWorld(alone, cluster(actors, options))
            for name, each in algorithms.items():
                spread = trained(each, world, rounds)
                yield f"{engine}, {name}, actors: {actors}", spread.has_bits_of(expected[name])
            if actors == KILLED_AMONG:
                os.kill(world.executor.pool.processes()[0], signal.SIGKILL)
                survived = trained(algorithms["SCAFFOLD"], world, rounds)
                yield f"{engine}, SCAFFOLD, an actor killed", survived.has_bits_of(expected["SCAFFOLD"])
            # Actors end with the last world that uses them, and leave their CPUs to the next.
            del world
            gc.collect()


def cluster(actors: int, options: argparse.Namespace) -> fl.RayCluster:
    return fl.RayCluster(actors, gpus=options.gpus if options.device == "cuda" else 0.0)


def milliseconds(world: fl.World, clients: int) -> float:
    """A round with all clients, mean."""
    algorithm = fl.presets.fedavg(lr=0.05, cohort_size=clients, batch_size=32)
    run = fl.Federation(algorithm, world)
    list(run.train(WARM_UP))
    device = world.population.device
    return 1e3 * seconds_of(lambda: list(run.train(TIMED_ROUNDS)), device) / TIMED_ROUNDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--gpus", type=float, default=0.1)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    # As many as in an actor: sums are divided among threads.
    torch.set_num_threads(1)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=max(options.actors) + 1,
        object_store_memory=2**30,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    checks = {}
    for what, agrees in compared(options):
        print(f"{what}: {'the same bits' if agrees else 'OTHER BITS'}", flush=True)
        checks[what] = agrees
    alone = simulation(CASES[1], options.clients, -(-options.clients // 2), options.device)
    times = {
        "one process": milliseconds(alone, options.clients),
        "one actor": milliseconds(fl.RayWorld(alone, cluster(1, options)), options.clients),
    }
    for place, time in times.items():
        print(f"{place}: {time:.0f} ms a round")
    if options.out is not None:
        machine = describe_machine(torch.device(options.device), ("ray",))
        found = {"machine": machine, "same_bits": checks, "milliseconds": times}
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if all(checks.values()) else 1)


if __name__ == "__main__":
    main()
