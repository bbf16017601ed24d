"""Measures client consensus with convolutional networks, where Wang et al. (2024) did.

    python docs/consensus_convolutional.py --out FOLDER [--data ../shared/data] [--device cuda] [--processes 7]
    python docs/consensus_convolutional.py --table FOLDER/consensus_convolutional.json    (needs matplotlib)

The first form measures: FEMNIST by writer and dealt artificially, CIFAR-10 dealt to 200 clients of 100
examples. Every split is tested at three points: after 50 and 100 rounds of FedAvg on that split (the paper's
figure 4) and at a model trained centrally by mini-batch SGD (its figure 3). The second form prints the
tables of docs/consensus.md and draws docs/consensus_convolutional.svg.
"""

from __future__ import annotations

import argparse
import json
import math
import runpy
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import fairlead as fl
from fairlead.diagnostics import consensus_test, objective_value
from fairlead.errors import FieldError
from fairlead.models.base import Model

Row = dict[str, Any]
NAME = "consensus_convolutional"
LRS = {"FEMNIST": 0.1, "CIFAR-10": 0.5}
"""The paper's local learning rates, the latter for CIFAR-100."""
CENTRAL = "central SGD"
SPLITS: dict[str, dict[str, fl.Partitioner]] = {
    "FEMNIST": {
        "natural": fl.NaturalIdPartitioner(),
        "even": fl.IidPartitioner(),
        "Dirichlet(0.1)": fl.DirichletPartitioner(0.1, min_partition_size=2),
        "one label": fl.PathologicalPartitioner(1),
    },
    "CIFAR-10": {
        "even": fl.IidPartitioner(),
        "Dirichlet(0.1)": fl.InnerDirichletPartitioner(0.1),
        "one label": fl.PathologicalPartitioner(1, class_assignment_mode="deterministic"),
    },
}
MODELS: dict[str, Model] = {"FEMNIST": fl.DropoutCNN(), "CIFAR-10": fl.PooledCNN()}
# Differences between gradients need all digits.
torch.backends.cudnn.allow_tf32 = False


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    rounds: tuple[int, ...] = (50, 100)
    """Rounds of FedAvg after which its model is tested."""
    cohort_size: int = 10
    epochs: int = 20
    """Passes of central SGD over all examples."""
    steps: tuple[int, ...] = (1, 2, 5, 10, 20)
    power_iterations: int = 20
    """Products with ∇²F to find the top curvature."""
    writers: int = 105
    thinning: int = 1
    """Every how many of their examples are used."""
    image_clients: int = 200
    images_each: int = 100


SMALL = Scale((1, 2), 2, 1, (1, 2), 2, writers=12, thinning=20, image_clients=12, images_each=5)


@dataclass(frozen=True)
class Place:
    """Where the data lie and where to compute."""

    data: Path
    device: str
    scale: Scale


@dataclass(frozen=True, eq=False)
class Point:
    """A model at which clients are tested."""

    name: str
    params: Tensor


def examples(place: Place, name: str) -> tuple[fl.Pool, int]:
    """The examples of a data set, and how many clients share them."""
    scale, unpack = place.scale, runpy.run_path(str(place.data / "pack.py"))["load"]
    if name == "FEMNIST":
        femnist = unpack(place.data / "femnist/femnist105.npz.xz")
        some = np.flatnonzero(femnist["writer_train"] < scale.writers)[:: scale.thinning]
        ink = (255 - femnist["x_train"][some]).astype(np.float32) / 255
        people = torch.from_numpy(femnist["writer_train"][some].astype(np.int64))
        return pooled(ink[:, None], femnist["y_train"][some], people), scale.writers
    parts = [unpack(place.data / f"cifar10/train_{part}.npz.xz") for part in (1, 2)]
    pixels, labels = (np.concatenate([part[kind] for part in parts]) for kind in ("x", "y"))
    count = scale.image_clients * scale.images_each
    colors = pixels[:count].astype(np.float32).transpose(0, 3, 1, 2)
    standard = (colors - colors.mean((0, 2, 3), keepdims=True)) / colors.std((0, 2, 3), keepdims=True)
    return pooled(standard, labels[:count], None), scale.image_clients


def pooled(inputs: NDArray[Any], labels: NDArray[Any], people: Tensor | None) -> fl.Pool:
    """A pool of images."""
    images = torch.from_numpy(np.ascontiguousarray(inputs))
    return fl.Pool(images, torch.from_numpy(labels.astype(np.int64)), people)


def world_of(place: Place, name: str, partition: fl.Partitioner | None) -> fl.SimulatedWorld:
    """The data set dealt by a partitioner, or held by a single client if there is none."""
    pool, num_clients = examples(place, name)
    alone = partition is None
    data = pool.deal(partition or fl.IidPartitioner(), num_clients=1 if alone else num_clients)
    return fl.SimulatedWorld(fl.Task(MODELS[name]), data, device=place.device)


def central_point(place: Place, name: str) -> Point:
    """A model trained on all examples at once, which is the same for every split (ω = n_i/n)."""
    run = fl.Federation(fl.presets.fedavg(lr=0.1, epochs=1, batch_size=50), world_of(place, name, None))
    for _ in run.train(place.scale.epochs, evaluate_every=0):
        pass
    return Point(CENTRAL, run.state.params.cpu())


def federated_points(place: Place, world: fl.SimulatedWorld) -> Iterator[Point]:
    """Models on the way of FedAvg as Reddi et al. (2021) run it: ten clients, one epoch, batches of 20."""
    algorithm = fl.presets.fedavg(lr=0.1, epochs=1, batch_size=20, cohort_size=place.scale.cohort_size)
    run = fl.Federation(algorithm, world)
    for rounds in place.scale.rounds:
        for _ in run.train(rounds - run.state.round, evaluate_every=0):
            pass
        yield Point(f"round {rounds}", run.state.params)


def top_curvature(world: fl.SimulatedWorld, params: Tensor, iterations: int) -> float:
    """The largest eigenvalue of ∇²F by size, from power iteration on at most 4,000 examples.

    Steps of GD with lr above 2/curvature move away from a minimum instead of towards it.
    """
    objective = world.objective
    objective.model.module.eval()
    count = len(world.clients.inputs)
    rows = torch.from_numpy(np.linspace(0, count - 1, min(count, 4000)).astype(np.int64)).to(params.device)
    point = params.detach().requires_grad_()
    loss = objective.losses(point, objective.model.initial_buffers(), rows, None).mean()
    (gradient,) = torch.autograd.grad(loss, point, create_graph=True)
    direction, value = torch.ones_like(params) / len(params) ** 0.5, 0.0
    for _ in range(iterations):
        (image,) = torch.autograd.grad(gradient, point, direction, retain_graph=True)
        value = float(direction @ image)
        direction = image / torch.linalg.vector_norm(image)
    return value


def measure(place: Place, name: str, split: str, central: Point | None) -> list[Row]:
    """The tests of one split at a central model, or on the way of FedAvg."""
    started = perf_counter()
    world = world_of(place, name, SPLITS[name][split])
    rows = []
    for point in [central] if central is not None else federated_points(place, world):
        params = point.params.to(world.device)
        where = {
            "data": name,
            "split": split,
            "point": point.name,
            "loss": objective_value(world, params),
            "curvature": top_curvature(world, params, place.scale.power_iterations),
        }
        for centered in (True, False):
            rows.append(where | tested(world, params, LRS[name], place.scale.steps, centered))
        print(f"{name}, {split}, {point.name}: {perf_counter() - started:.0f} s", flush=True)
    return rows


def tested(
    world: fl.SimulatedWorld, params: Tensor, lr: float, steps: tuple[int, ...], centered: bool
) -> Row:
    """The report of a consensus test, over fewer steps where more do not stay finite."""
    try:
        report = consensus_test(world, params, lr, steps=steps, centered=centered)
    except FieldError:
        if len(steps) == 1:
            raise
        return tested(world, params, lr, steps[:-1], centered)
    return {
        "lr": lr,
        "centered": centered,
        "clients": report.num_clients,
        "left": report.gradient_norm,
        "dissimilarity": report.dissimilarity,
        "verdict": report.verdict,
        "reason": report.reason,
        "drifts": [asdict(drift) | {"ratio": drift.ratio} for drift in report.drifts],
    }


def measure_all(place: Place, processes: int, out: Path) -> None:
    """Both data sets and all splits, side by side: a single process cannot keep an accelerator busy.

    Whatever has been measured is saved as soon as it is known, so that a case that fails costs only itself.
    """
    rows: list[Row] = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        central = {name: pool.submit(central_point, place, name) for name in SPLITS}
        cases = [(name, split) for name, splits in SPLITS.items() for split in splits]
        work = [pool.submit(measure, place, *case, None) for case in cases]
        work += [pool.submit(measure, place, *case, central[case[0]].result()) for case in cases]
        for done in as_completed(work):
            if (failure := done.exception()) is not None:
                print(f"A case failed: {failure!r}", flush=True)
                continue
            rows += done.result()
            out.write_text(json.dumps(rows, indent=1))


def show(rows: list[Row]) -> None:
    """Print both tables and draw the figure."""
    order = [(name, split) for name, splits in SPLITS.items() for split in splits]
    rows = sorted(rows, key=lambda row: (order.index((row["data"], row["split"])), turn(row["point"])))
    published, centered = (select(rows, centered=centered) for centered in (False, True))
    print(
        "| data | split | point | loss | left | ζ | lr·curvature | ρ | gap | bound | ratio | ratio centered | "
        "share centered (interval) | verdict |\n" + "|---" * 14 + "|"
    )
    for plain, other in zip(published, centered, strict=True):
        print(summary(plain, other))
    steps = sorted({drift["steps"] for row in rows for drift in row["drifts"]} - {1})
    heads = " | ".join(f"H = {count}" for count in steps)
    print(f"\n| data | split | point | lr | centered | {heads} |\n" + "|---" * (5 + len(steps)) + "|")
    for row in (row for pair in zip(published, centered, strict=True) for row in pair):
        found = {drift["steps"]: f"{drift['ratio']:.2f}" for drift in row["drifts"]}
        ratios = " | ".join(found.get(count, "not finite") for count in steps)
        kind = "yes" if row["centered"] else "no"
        print(f"| {row['data']} | {row['split']} | {row['point']} | {row['lr']:g} | {kind} | {ratios} |")
    draw(rows)


def turn(point: str) -> float:
    """Where a point stands among others: by its round, the central model last."""
    return math.inf if point == CENTRAL else int(point.removeprefix("round "))


def select(rows: list[Row], **wanted: Any) -> list[Row]:
    """The rows that have the given values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def summary(plain: Row, centered: Row) -> str:
    """A row of the first table, from the test as published and the centered one."""
    drift, other = (max(row["drifts"], key=lambda drift: int(drift["steps"])) for row in (plain, centered))
    return (
        f"| {plain['data']} | {plain['split']} | {plain['point']} | {plain['loss']:.3f} | {plain['left']:.2g} | "
        f"{plain['dissimilarity']:.2g} | {plain['lr'] * plain['curvature']:.2g} | {drift['average']:.2g} | "
        f"{drift['gap']:.2g} | {drift['bound']:.2g} | {drift['ratio']:.2f} | {other['ratio']:.2f} | "
        f"{other['share']:.2f} ({other['low']:.2f}–{other['high']:.2f}) | {centered['verdict']} |"
    )


def draw(rows: list[Row]) -> None:
    """The figure: both sides of (7) as published, on FEMNIST, where all steps stay finite."""
    import matplotlib.pyplot as plt  # where measuring happens it may not be installed

    plt.rcParams["svg.fonttype"] = "none"
    points = list(dict.fromkeys(row["point"] for row in rows))
    figure, axes = plt.subplots(1, len(points), figsize=(11, 3), layout="constrained", sharey=True)
    for axis, point in zip(axes, points, strict=True):
        axis.set(xscale="log", yscale="log", title=f"FEMNIST, {point}", xlabel="local steps H")
        axis.spines[["top", "right"]].set_visible(False)
        for place, row in enumerate(select(rows, data="FEMNIST", point=point, centered=False)):
            drifts = [drift for drift in row["drifts"] if drift["steps"] > 1]
            steps, color = [drift["steps"] for drift in drifts], f"C{place}"
            axis.plot(steps, [drift["bound"] for drift in drifts], "--", color=color, lw=1.2)
            axis.plot(steps, [drift["gap"] for drift in drifts], color=color, lw=1.6, label=row["split"])
            axis.set_xticks(steps, labels=[str(count) for count in steps])
        axis.set_xticks((), minor=True)
    axes[0].set(ylabel="gap (solid), bound (dashed)")
    axes[0].legend(frameon=False, fontsize=7)
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


def main() -> None:
    """Measure, or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--small", action="store_true", help="a few clients, rounds and steps: a rehearsal")
    parser.add_argument("--table", type=Path, help="show the results in this file instead of measuring")
    arguments = parser.parse_args()
    if arguments.table is not None:
        show(json.loads(arguments.table.read_text()))
        return
    place = Place(arguments.data, arguments.device, SMALL if arguments.small else Scale())
    measure_all(place, arguments.processes, arguments.out / f"{NAME}.json")


if __name__ == "__main__":
    main()
