"""Methods compared in Python, without the command line: the same clients and luck, seed by seed."""

from collections.abc import Sequence
from dataclasses import replace

import fairlead as fl

METHODS = {
    "FedAvg": fl.presets.fedavg(lr=0.1, cohort_size=10),
    "FedNova": fl.presets.fednova(lr=0.1, cohort_size=10),
    # A round of FedACS is worth fewer local steps: `fl.diagnose` names the server's learning rate that makes up for it.
    "FedACS": replace(fl.presets.fedacs(lr=0.1, cohort_size=10), server=fl.SGD(lr=3.6)),
    "SCAFFOLD": fl.presets.scaffold(lr=0.1, cohort_size=10),
}


def main(rounds: int = 40, seeds: Sequence[int] = (0, 1, 2, 3, 4)) -> fl.ComparedMethods:
    """The methods by the objective that was asked for; the table goes to standard output."""
    experiment = fl.Experiment(
        fl.Digits(num_clients=20, partition=fl.DirichletPartitioner(alpha=0.3)),
        fl.presets.fedavg(lr=0.1),
        rounds=rounds,
        work=fl.TwoGroupEpochs(boundary=5, first=(6, 8), second=(1, 1)),
        link=fl.UniformBernoulliLink(0.0, 0.5),
    )
    comparison = fl.compare(experiment, METHODS, seeds=seeds, metric="objective")
    print(comparison)
    for method in comparison:
        print(method.objective_verdict())
    return comparison


if __name__ == "__main__":
    main()
