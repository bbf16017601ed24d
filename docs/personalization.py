"""The table of docs/personalization.md: personal methods on dealt digits and on a natural split.

    python docs/personalization.py [FOLDER]

FOLDER holds the packed data sets of the project (`uci_har_acc`); without it only the digits are run.
"""

from __future__ import annotations

import math
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

import fairlead as fl
from fairlead.diagnostics.personal import personal_gain

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedper:own=*": {"own": ("*",)},
    "fedavg_finetuned": {},
    "fedper": {},
    "fedrep": {},
    "ditto": {"mu": 0.1},
    "apfl": {},
    "pfedme": {"mu": 2.0, "inner_steps": 3},
    "per_fedavg": {},
}
SEEDS = (0, 1, 2)
CLIENTS = {"lr": 0.1, "epochs": 2, "batch_size": 16}


def digits(alpha: float, seed: int) -> fl.SimulatedWorld:
    data = fl.Digits(num_clients=20, partition=fl.DirichletPartitioner(alpha), holdout=0.3)
    experiment = fl.Experiment(data, fl.presets.fedavg(lr=0.1), 1, fl.Task(fl.MLP(hidden=(64,))), seed=seed)
    world = experiment.build().world.simulation
    assert world is not None
    return world


def activities(folder: Path, seed: int) -> fl.SimulatedWorld:
    """Acceleration of 30 subjects, standardized."""
    found = spec_from_file_location("pack", folder / "pack.py")
    assert found is not None
    assert found.loader is not None
    pack = module_from_spec(found)
    found.loader.exec_module(pack)
    parts = pack.load(folder / "uci_har_acc" / "uci_har_acc.npz.xz")
    inputs, targets, subjects = (
        np.concatenate([parts[f"{name}_train"], parts[f"{name}_test"]]) for name in ("x", "y", "subject")
    )
    inputs, targets = inputs.reshape(len(inputs), -1).astype(np.float32), targets.astype(np.int64)
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    places = [np.flatnonzero(subjects == subject) for subject in np.unique(subjects)]
    whole = fl.ClientData.from_lists([inputs[rows] for rows in places], [targets[rows] for rows in places])
    train, held_out = whole.hold_out(0.3, fl.Key.from_seed(seed).fold("holdout"))
    return fl.SimulatedWorld(fl.Task(fl.MLP(hidden=(64,))), train, held_out=held_out)


def figures(world: fl.SimulatedWorld, method: str, seed: int, rounds: int) -> tuple[float, float]:
    """Mean accuracy of the clients' own models after the last round, and that of the worst tenth of clients."""
    algorithm = fl.presets.METHODS[method.partition(":")[0]].build(**CLIENTS, **METHODS[method])
    run = fl.Federation(algorithm, world, seed)
    last = list(run.train(rounds, evaluate_every=rounds, per_client=True))[-1].evaluation
    assert last is not None
    each = sorted(value for value in last.of_clients("personal_accuracy") if math.isfinite(value))
    return mean(each), mean(each[: max(len(each) // 10, 1)])


def table(name: str, worlds: dict[int, fl.SimulatedWorld], rounds: int) -> None:
    print(f"\n{name}\n\n| method | mean over clients | worst tenth |\n|---|---|---|")
    for method in METHODS:
        found = [figures(world, method, seed, rounds) for seed, world in worlds.items()]
        cells = [f"{100 * mean(part):.1f} ± {100 * stdev(part):.1f}" for part in zip(*found, strict=True)]
        print(f"| `{method}` | {' | '.join(cells)} |", flush=True)
    for seed, world in worlds.items():
        run = fl.Federation(fl.presets.fedavg(**CLIENTS), world, seed)
        list(run.train(20))
        gain = personal_gain(run, world, 50)
        assert gain is not None
        print(f"seed {seed}: gain {gain.mean:+.3f} ± {gain.margin:.3f}: {gain.verdict}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for alpha in (0.1, 0.5, 100.0):
        table(f"Digits, Dirichlet {alpha:g}", {seed: digits(alpha, seed) for seed in SEEDS}, 60)
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        table("UCI HAR, 30 subjects", {seed: activities(folder, seed) for seed in SEEDS}, 40)
