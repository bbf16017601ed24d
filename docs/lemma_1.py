"""Draws docs/lemma_1.svg: the objective that FedAvg minimizes when clients take unequal numbers of steps.

python docs/lemma_1.py        (needs matplotlib)

Two clients of equal weight on a line, F_i(x) = (x − c_i)²/2 with c = −1 and 1. With τ_1 = 2 steps and τ_2 of them
the surrogate objective weighs the clients by τ_i/(τ_1 + τ_2), so that for small learning rates the limit is
(τ_2 − τ_1)/(τ_2 + τ_1) instead of 0 (Wang 2021, Lemma 1).
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch

import fairlead as fl

MINIMA, FEW = (-1.0, 1.0), 2
MANY = (2, 4, 8, 20)
SHOWN = 8
LR, ROUNDS = 0.01, 250


def surrogate_minimum(many: int) -> float:
    """Where Lemma 1 says that FedAvg ends."""
    return (many - FEW) / (many + FEW)


def limit(algorithm: fl.Algorithm, many: int) -> float:
    """Where a run ends."""
    problem = fl.Quadratics(linear=tuple((minimum,) for minimum in MINIMA)).problem(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(
        problem.task(),
        problem.data(),
        work=fl.FixedSteps((FEW, many)),
        weights="uniform",
        dtype=torch.float64,
    )
    run = fl.Federation(algorithm, world)
    for _ in run.train(ROUNDS):
        pass
    return float(run.params)


def main() -> None:
    """Write the figure beside this file."""
    plt.rcParams["svg.hashsalt"] = "lemma_1"
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    x = torch.linspace(-1.6, 1.6, 161)
    losses = [(x - minimum) ** 2 / 2 for minimum in MINIMA]
    share = SHOWN / (SHOWN + FEW)
    left.plot(x, losses[0], color="0.75", lw=1, label=f"client 0, {FEW} steps")
    left.plot(x, losses[1], color="0.75", lw=1, ls="--", label=f"client 1, {SHOWN} steps")
    left.plot(x, (losses[0] + losses[1]) / 2, label="asked for: ω = ½, ½")
    left.plot(
        x, (1 - share) * losses[0] + share * losses[1], label=f"optimized: Ω = {1 - share:g}, {share:g}"
    )
    for algorithm, mark, name in (
        (fl.presets.fedavg(lr=LR), "v", "FedAvg ends here"),
        (fl.presets.fednova(lr=LR), "*", "FedNova ends here"),
    ):
        left.plot(limit(algorithm, SHOWN), 0.03, mark, color="black", ms=9, label=name)
    left.set(xlabel="x", ylabel="loss", ylim=(0, 2.6))
    left.legend(frameon=False, fontsize=8, loc="upper center")
    ends = {
        name: [limit(algorithm, many) for many in MANY]
        for name, algorithm in (("FedAvg", fl.presets.fedavg(lr=LR)), ("FedNova", fl.presets.fednova(lr=LR)))
    }
    ratios = [many / FEW for many in MANY]
    steps = range(MANY[0], MANY[-1] + 1)
    right.plot(
        [many / FEW for many in steps], [surrogate_minimum(many) for many in steps], "0.6", label="Lemma 1"
    )
    right.plot(ratios, ends["FedAvg"], "v", color="black", label="FedAvg, run")
    right.plot(ratios, ends["FedNova"], "*", color="black", ms=9, label="FedNova, run")
    right.set(xlabel="local steps of client 1 / those of client 0", ylabel="limit (0 was asked for)")
    right.legend(frameon=False, fontsize=8)
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
