"""What in the released code of FedAWARE makes it learn where the printed method does not.

    python -m benchmarks.aware_variants --data FOLDER [--rounds 150] [--examples 10000] [--only NAME ...]

The setting of Zeng 2025 on CIFAR-10 (100 clients by Dirichlet(0.1), ten a round, five-layer CNN) on some of its
examples, in bfloat16 products. As released, the first ten rounds hear everyone once, with FedAvg's steps, and a row is
αΔ at its first visit. Then rows of length 1 are combined by:

- λ of the shortest vector, exactly or by the released Frank–Wolfe steps (`benchmarks.aware_step`);
- rows that hold a client's own updates, or those of other clients of the same round, since the released sampler trains
  its draw in ascending order and files what comes back in the order drawn.

Printed are test accuracy and the length of the direction every 25 rounds.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from benchmarks.aware_step import best_pair_by_arrays, frank_wolfe
from torch import Tensor

import fairlead as fl
from fairlead.aggregators.base import normalized, weighted_sum
from fairlead.client_table import PartState, tensor_in
from fairlead.clients.source import Excerpt
from fairlead.numerics.minimum_norm import shortest_in_hull
from fairlead.reproductions.data_sets import source_of
from fairlead.settings import fedaware_cifar10

NUM_CLIENTS, COHORT_SIZE, ALPHA = 100, 10, 0.5
EVERY = 25


@dataclass(frozen=True)
class ReleasedFedAWARE(fl.Aggregator):
    """FedAWARE with rows of length 1, each part of the released code by itself."""

    exact: bool
    own: bool

    references: ClassVar[tuple[str, ...]] = ("zeng2025fedaware",)
    needs_effective_steps: ClassVar[bool] = False
    needs_arrival: ClassVar[bool] = False

    def init(self, population: fl.Population) -> PartState:
        shape = (population.num_clients, population.num_parameters)
        return {
            "averages": torch.zeros(shape),
            "seen": torch.zeros(population.num_clients, dtype=torch.bool),
        }

    def aggregate(
        self, updates: fl.ClientUpdates, state: PartState, conditions: fl.Conditions
    ) -> fl.Aggregate:
        averages, seen = tensor_in(state, "averages").clone(), tensor_in(state, "seen").clone()
        owners = updates.clients
        if not self.own:
            draw = torch.Generator().manual_seed(conditions.round)
            owners = owners[torch.randperm(len(owners), generator=draw)]
        averages[owners] = torch.lerp(averages[owners], updates.delta, ALPHA)
        seen[updates.clients] = True
        after: PartState = {"averages": averages, "seen": seen}
        share = normalized(updates.importance)
        if not seen.all():
            return fl.Aggregate(weighted_sum(share, updates.delta), after, share)
        units = averages / averages.norm(dim=1, keepdim=True)
        return fl.Aggregate(weighted_sum(self._weights(units), units), after, None)

    def _weights(self, units: Tensor) -> Tensor:
        wide = units.double()
        gram = wide @ wide.T
        if self.exact:
            return shortest_in_hull(gram).weights
        return frank_wolfe(gram, best_pair_by_arrays(gram)).weights


AGGREGATORS: dict[str, fl.Aggregator] = {
    "exact-own": ReleasedFedAWARE(exact=True, own=True),
    "exact-others": ReleasedFedAWARE(exact=True, own=False),
    "frank-wolfe-own": ReleasedFedAWARE(exact=False, own=True),
    "frank-wolfe-others": ReleasedFedAWARE(exact=False, own=False),
    "fedavg": fl.WeightedMean(),
}


def cohorts(rounds: int) -> tuple[tuple[int, ...], ...]:
    """Everyone once in the first rounds, then ten clients at random."""
    draw = torch.Generator().manual_seed(3)
    asked = list(torch.randperm(NUM_CLIENTS, generator=draw).view(-1, COHORT_SIZE))
    while len(asked) < rounds:
        asked.append(torch.randperm(NUM_CLIENTS, generator=draw)[:COHORT_SIZE])
    return tuple(tuple(sorted(clients.tolist())) for clients in asked[:rounds])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--only", nargs="+", choices=AGGREGATORS, default=list(AGGREGATORS))
    options = parser.parse_args()
    setting = fedaware_cifar10()
    clients = setting.deal(Excerpt(source_of("cifar10", options.data), options.examples))
    usual = fl.presets.fedavg(**setting.client_side())
    for name in options.only:
        algorithm = replace(
            usual,
            aggregator=AGGREGATORS[name],
            sampler=fl.ScriptedSampler(cohorts(options.rounds), importance="weights"),
        )
        experiment = fl.Experiment(
            clients,
            algorithm,
            options.rounds,
            task=fl.Task(fl.FiveLayerCNN()),
            evaluate_every=EVERY,
            precision="bfloat16",
        )
        for record in experiment.build().train():
            if record.evaluation is not None:
                accuracy = record.evaluation.metrics["accuracy"]
                print(f"{name}: round {record.round + 1}, {accuracy:.1%}, ‖d‖ {record.direction_norm:.3f}")


if __name__ == "__main__":
    main()
