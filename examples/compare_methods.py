"""Methods compared in Python, without the command line: the same clients and luck, seed by seed."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

import fairlead as fl
from fairlead.results.estimates import estimate

METHODS = {
    "FedAvg": fl.presets.fedavg(lr=0.1, cohort_size=10),
    "FedNova": fl.presets.fednova(lr=0.1, cohort_size=10),
    # A round of FedACS is worth fewer local steps: `fl.diagnose` names the server's learning rate that makes up for it.
    "FedACS": replace(fl.presets.fedacs(lr=0.1, cohort_size=10), server=fl.SGD(lr=3.6)),
    "SCAFFOLD": fl.presets.scaffold(lr=0.1, cohort_size=10),
}


def main(rounds: int = 40, seeds: Sequence[int] = (0, 1, 2, 3, 4)) -> dict[str, list[float]]:
    """Losses of the objective that was asked for, by method and seed; a table goes to standard output."""
    experiment = fl.Experiment(
        fl.Digits(num_clients=20, partition=fl.DirichletPartitioner(alpha=0.3)),
        fl.presets.fedavg(lr=0.1),
        rounds=rounds,
        work=fl.TwoGroupEpochs(boundary=5, first=(6, 8), second=(1, 1)),
        link=fl.UniformBernoulliLink(0.0, 0.5),
    )
    losses: dict[str, list[float]] = {name: [] for name in METHODS}
    misplaced: dict[str, list[float]] = {name: [] for name in METHODS}
    for seed in seeds:
        for method in fl.compare(replace(experiment, seed=seed), METHODS):
            losses[method.name].append(method.objective)
            misplaced[method.name].append(method.consistency.total_variation or 0.0)
    baseline = losses["FedAvg"]
    print("method     objective  difference to FedAvg  misplaced weight")
    for name, found in losses.items():
        differences = [own - other for own, other in zip(found, baseline, strict=True)]
        # ± is half of the 95 % interval over seeds, as everywhere in fairlead.
        difference = estimate(differences)
        half = (
            "" if difference is None or difference.half_width is None else f" ± {difference.half_width:.4f}"
        )
        print(
            f"{name:<10} {mean(found):9.4f}  {mean(differences):+9.4f}{half:<10}  {mean(misplaced[name]):.0%}"
        )
    return losses


if __name__ == "__main__":
    main()
