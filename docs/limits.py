"""Draws docs/limits.svg: where methods end up when clients do unequal work over unequal links.

python docs/limits.py        (needs matplotlib)
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch

import fairlead as fl

MINIMA = ((-1.0, -0.6), (0.2, 1.2), (1.2, -0.5))
STEPS, DROP = (2, 8, 20), (0.6, 0.3, 0.0)
ROUNDS, RUNS = 500, 8
METHODS = {
    "FedAvg": fl.presets.fedavg(lr=0.01),
    "FedNova": fl.presets.fednova(lr=0.01),
    "FedACS": fl.presets.fedacs(lr=0.01, cohort_size=3),
    "SCAFFOLD": fl.presets.scaffold(lr=0.01),
}


def mean_path(algorithm: fl.Algorithm) -> torch.Tensor:
    """The model after each round, averaged over independent runs of the links."""
    problem = fl.Quadratics(linear=MINIMA).problem(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(
        problem.task(torch.tensor([-1.6, 1.3])),
        problem.data(),
        work=fl.FixedSteps(STEPS),
        link=fl.BernoulliLink(DROP),
        weights="uniform",
        dtype=torch.float64,
    )
    paths = []
    for seed in range(RUNS):
        run = fl.Federation(algorithm, world, seed=seed)
        points = [run.params]
        for _ in run.train(ROUNDS):
            points.append(run.params)
        paths.append(torch.stack(points))
    return torch.stack(paths).mean(0)


def main() -> None:
    """Write the figure beside this file."""
    problem = fl.Quadratics(linear=MINIMA).problem(fl.Key.from_seed(0))
    figure, axes = plt.subplots(figsize=(7.2, 4.4))
    minima = torch.tensor(MINIMA)
    for radius in (0.3, 0.7, 1.1, 1.5, 1.9):
        axes.add_patch(plt.Circle(problem.optimum.tolist(), radius, fill=False, color="0.85", lw=0.8))
    for name, algorithm in METHODS.items():
        path = mean_path(algorithm)
        (line,) = axes.plot(path[::5, 0], path[::5, 1], lw=1.6, label=name)
        end = path[-200:].mean(0)
        axes.plot(end[0], end[1], "o", color=line.get_color(), ms=7)
    axes.plot(minima[:, 0], minima[:, 1], "s", color="0.35", ms=7)
    for client, (x, y) in enumerate(MINIMA):
        label = f"client {client}: {STEPS[client]} steps, {1 - DROP[client]:.0%} arrive"
        axes.annotate(label, (x, y), (0, 9), textcoords="offset points", ha="center", fontsize=8, color="0.3")
    axes.plot(*problem.optimum.tolist(), "*", color="black", ms=14, label="the optimum asked for")
    axes.set(aspect="equal", xlim=(-2.1, 2.9), ylim=(-1.05, 1.65), xticks=[], yticks=[])
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    for side in axes.spines.values():
        side.set_visible(False)
    figure.savefig(Path(__file__).with_suffix(".svg"), bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
