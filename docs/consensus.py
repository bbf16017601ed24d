"""Measures client consensus on real data and draws docs/consensus.svg.

    python docs/consensus.py [--data ../shared/data] [--only splits|distance]        (needs matplotlib)

Every data set is dealt four ways to the same number of clients: to the people it comes from, evenly at
random, by Dirichlet(0.1) over labels and one label per client. Each split gets an approximate optimum, the
deterministic consensus test there, and rounds of FedAvg that start from it. A second table follows the test
from the start of training to the optimum. Prints the tables of docs/consensus.md.
"""

from __future__ import annotations

import argparse
import io
import lzma
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray

import fairlead as fl
from fairlead.diagnostics import ConsensusReport, NearOptimum, consensus_test, near_optimum
from fairlead.models.base import Model

STEPS = (2, 5, 10, 20, 50)
SPLITS: dict[str, fl.Partitioner] = {
    "natural": fl.NaturalIdPartitioner(),
    "even": fl.IidPartitioner(),
    "Dirichlet(0.1)": fl.DirichletPartitioner(0.1, min_partition_size=2),
    "one label": fl.PathologicalPartitioner(1),
}
ROUNDS, LOCAL_STEPS = 20, 20


@dataclass(frozen=True, eq=False)
class Setting:
    """A data set with a model, the clients' learning rate and how long the optimum is searched for."""

    name: str
    pool: fl.Pool
    model: Model
    lr: float
    iterations: int


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    """What a compressed .npz file holds."""
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as content:
        return dict(content)


def halved(images: NDArray[Any]) -> NDArray[Any]:
    """Images of 28 x 28 bytes as 14 x 14 means in [0, 1], flat."""
    blocks = images.reshape(len(images), 14, 2, 14, 2).mean((2, 4)) / 255
    return blocks.reshape(len(images), -1)


def standardized(features: NDArray[Any]) -> NDArray[Any]:
    """Columns with mean 0 and variance 1, gaps filled with the mean."""
    filled = np.where(np.isnan(features), np.nanmean(features, 0), features)
    return (filled - filled.mean(0)) / (filled.std(0) + 1e-6)


def pooled(inputs: NDArray[Any], labels: NDArray[Any], people: NDArray[Any]) -> fl.Pool:
    """A pool whose natural clients are people."""
    numbers = np.unique(people, return_inverse=True)[1]
    return fl.Pool(
        torch.from_numpy(inputs.astype(np.float32)),
        torch.from_numpy(labels.astype(np.int64)),
        torch.from_numpy(numbers),
    )


def settings(data: Path) -> list[Setting]:
    """The four data sets with logistic regression, and one with a network that is not trained out."""
    mnist = arrays(data / "mnist/mnist.npz.xz")
    some = np.isin(mnist["writer_train"], np.unique(mnist["writer_train"])[::5])
    digits = pooled(halved(mnist["x_train"][some]), mnist["y_train"][some], mnist["writer_train"][some])
    femnist = arrays(data / "femnist/femnist105.npz.xz")
    letters = pooled(halved(255 - femnist["x_train"]), femnist["y_train"], femnist["writer_train"])
    har = arrays(data / "uci_har_acc/uci_har_acc.npz.xz")
    windows, activities, subjects = (
        np.concatenate([har[f"{kind}_train"], har[f"{kind}_test"]]) for kind in ("x", "y", "subject")
    )
    motion = pooled(standardized(windows.reshape(len(windows), -1) / 1e4), activities, subjects)
    wisdm = arrays(data / "wisdm/wisdm.npz.xz")
    phones = pooled(standardized(wisdm["x"]), wisdm["y"], wisdm["user"])
    linear = fl.LogisticRegression()
    return [
        Setting("MNIST by writer", digits, linear, 0.1, 300),
        Setting("FEMNIST", letters, linear, 0.1, 300),
        Setting("UCI HAR", motion, linear, 0.02, 300),
        Setting("WISDM", phones, linear, 0.1, 300),
        Setting("WISDM, network", phones, fl.MLP(hidden=(64,)), 0.1, 40),
    ]


def loss_after_fedavg(world: fl.SimulatedWorld, start: NearOptimum, lr: float) -> float:
    """Σ ω_i F_i after rounds of FedAvg with all clients and full batches that start at the optimum."""
    run = fl.Federation(fl.presets.fedavg(lr=lr, steps=LOCAL_STEPS, batch_size=None), world)
    run.state = replace(run.state, params=start.params, buffers=start.buffers)
    for _ in run.train(ROUNDS):
        pass
    return run.evaluate().loss


def line(setting: Setting, split: str, optimum: NearOptimum, report: ConsensusReport, after: float) -> str:
    """A row of the table: figures after LOCAL_STEPS local steps."""
    drift = next(drift for drift in report.drifts if drift.steps == LOCAL_STEPS)
    return (
        f"| {setting.name} | {split} | {report.num_clients} | {optimum.loss:.3f} | "
        f"{optimum.gradient_norm:.1g} | {report.dissimilarity:.2f} | {drift.gap:.4f} | {drift.bound:.3f} | "
        f"{drift.ratio:.2f} | {drift.share:.2f} ({drift.low:.2f}–{drift.high:.2f}) | {report.verdict} | "
        f"{after - optimum.loss:+.4f} |"
    )


def measure_splits(chosen: list[Setting]) -> None:
    """The first table and the figure, which leaves out the last setting."""
    plt.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(1, len(chosen) - 1, figsize=(11, 2.8), layout="constrained")
    for place, setting in enumerate(chosen):
        for shade, (split, partition) in enumerate(SPLITS.items()):
            started = perf_counter()
            world = dealt(setting, partition)
            optimum = near_optimum(world, iterations=setting.iterations)
            report = consensus_test(world, optimum.params, setting.lr, steps=STEPS)
            after = loss_after_fedavg(world, optimum, setting.lr)
            print(
                line(setting, split, optimum, report, after), f"{perf_counter() - started:.0f} s", flush=True
            )
            if setting is chosen[-1]:
                continue
            axis, color = axes[place], f"C{shade}"
            axis.plot(STEPS, [d.bound for d in report.drifts], "--", color=color, lw=1.2)
            axis.plot(STEPS, [d.gap for d in report.drifts], "-", color=color, lw=1.6, label=split)
            axis.set(xscale="log", yscale="log", title=setting.name, xlabel="local steps H")
            axis.set_xticks(STEPS, labels=[str(steps) for steps in STEPS])
            axis.set_xticks((), minor=True)
    axes[0].set(ylabel="ρ (solid), its bound (dashed)")
    axes[0].legend(frameon=False, fontsize=7)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


def measure_distance(setting: Setting) -> None:
    """The second table: gap/bound at points on the way to the optimum, as the paper has it and centered."""
    for split, partition in SPLITS.items():
        world = dealt(setting, partition)
        for iterations in (1, 5, 20, setting.iterations):
            point = near_optimum(world, iterations=iterations)
            plain, centered = (
                consensus_test(world, point.params, setting.lr, steps=(LOCAL_STEPS,), centered=centered)
                for centered in (False, True)
            )
            print(
                f"| {split} | {iterations} | {point.loss:.3f} | {plain.gradient_norm:.2g} | "
                f"{plain.dissimilarity:.2g} | {plain.drifts[0].ratio:.2f} | {centered.drifts[0].ratio:.2f} |",
                flush=True,
            )


def dealt(setting: Setting, partition: fl.Partitioner) -> fl.SimulatedWorld:
    """The setting's examples with as many clients as there are people."""
    assert setting.pool.natural is not None
    num_clients = int(setting.pool.natural.max()) + 1
    data = setting.pool.deal(partition, num_clients=num_clients, key=fl.Key.from_seed(0))
    return fl.SimulatedWorld(fl.Task(setting.model), data)


def main() -> None:
    """Print the tables and write the figure beside this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--only", choices=("splits", "distance"))
    arguments = parser.parse_args()
    chosen = settings(arguments.data)
    if arguments.only != "distance":
        measure_splits(chosen)
    if arguments.only != "splits":
        measure_distance(chosen[-2])


if __name__ == "__main__":
    main()
