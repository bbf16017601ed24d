"""How the cost of a round grows: with the population, the cohort, the model, the local steps; and its memory.

    python -m benchmarks.scaling all [--device cuda] [--out benchmarks/results]
    python -m benchmarks.scaling population cohort

- population: 10² to 10⁶ clients with 4 examples of 16 numbers, 100 of them a round, logistic regression. Flat is ideal.
- cohort: 1 to 200 of 1000 clients with 64 examples a round, MLP 784-200-10, one epoch of batches of 16. Proportional
  to the clients is ideal, and less where they share overhead.
- model: MLP 784-h-10 for h from 16 to 4096, ten clients with 64 examples a round. The floor is the operations of the
  round at the speed of a large matrix product, measured in the same process.
- steps: 1 to 256 local steps of ten clients, MLP 784-200-10. Proportional is ideal.
- memory: two rounds of several methods, 10 and 40 of 100 clients, MLP 784-4096-10; the largest memory of a process
  beyond what it had before the world was built, against the data and what a run expects to need (`run_budget`).

Times are medians over rounds after two to warm up, with the least and the most.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.machine import describe_machine, flops_per_example, peak_flops, seconds_of, set_precision

import fairlead as fl
from fairlead.memory.run_budget import needs_of

CLASSES = 10


@dataclass(frozen=True)
class Point:
    """A measurement: milliseconds a round, or bytes, at some size."""

    x: float
    middle: float
    least: float
    most: float
    ideal: float | None = None
    """What it would be at best, where that can be computed."""
    of: str = ""
    """What was measured, where sizes do not tell."""


@dataclass(frozen=True)
class Curve:
    """A way to measure and what its axes mean."""

    measure: Callable[[torch.device, int], Iterator[Point]]
    x: str
    y: str
    ideal: str
    """What the dashed line shows."""


def population(device: torch.device, rounds: int) -> Iterator[Point]:
    """Time against the number of clients."""
    for num_clients in (10**2, 10**3, 10**4, 10**5, 10**6):
        run = _run(fl.LogisticRegression(), (16,), num_clients, 4, device, asked=100, epochs=1, batch_size=4)
        yield _timed(run, num_clients, rounds, device)


def cohort(device: torch.device, rounds: int) -> Iterator[Point]:
    """Time against the clients asked."""
    for asked in (1, 2, 5, 10, 20, 50, 100, 200):
        run = _run(fl.MLP((200,)), (784,), 1000, 64, device, asked=asked, epochs=1, batch_size=16)
        yield _timed(run, asked, rounds, device)


WIDTHS = (16, 64, 256, 1024, 4096)


def model(device: torch.device, rounds: int) -> Iterator[Point]:
    """Time against the parameters, with the floor."""
    peak = peak_flops("float32", device)
    for width in WIDTHS:
        run = _run(fl.MLP((width,)), (784,), 100, 64, device, asked=10, epochs=1, batch_size=16)
        inputs = torch.randn((16, 784), device=device)
        targets = torch.zeros(16, dtype=torch.int64, device=device)
        flops = 10 * 64 * flops_per_example(run.model().train(), inputs, targets)
        yield _timed(run, run.params.numel(), rounds, device, ideal=1e3 * flops / peak)


def steps(device: torch.device, rounds: int) -> Iterator[Point]:
    """Time against the local steps of every client."""
    for count in (1, 4, 16, 64, 256):
        run = _run(fl.MLP((200,)), (784,), 100, 64, device, asked=10, steps=count, batch_size=16)
        yield _timed(run, count, rounds, device)


def memory(device: torch.device, rounds: int) -> Iterator[Point]:
    """Bytes against the estimate, each in a process of its own, since a process does not give memory back."""
    for preset in ("fedavg", "fednova", "scaffold", "fedvarp", "fedaware"):
        for asked in (10, 40):
            command = [sys.executable, "-m", "benchmarks.scaling", "--peak-of", preset, str(asked)]
            answer = subprocess.run(
                [*command, "--device", str(device)], capture_output=True, text=True, check=True
            )
            peak, expected = json.loads(answer.stdout)
            yield Point(expected, peak, peak, peak, expected, f"{preset}, {asked} of 100 clients")


def peak_of(preset: str, asked: int, device: torch.device) -> tuple[int, int]:
    """Bytes that two rounds took at most, and bytes that they were expected to take."""
    # What the first use of torch's products and of a small world costs is not the round's.
    next(_run(fl.MLP((16,)), (784,), 20, 64, device, asked=10, epochs=1, batch_size=16).train(1))
    before = _memory(device)
    world = _run(fl.MLP((4096,)), (784,), 100, 64, device, asked=asked, epochs=1, batch_size=16).world
    method = getattr(fl.presets, preset)(lr=0.01, epochs=1, batch_size=16, cohort_size=asked)
    run = fl.Federation(method, world)
    expected = sum(need.size for need in needs_of(run.state, asked, asked, rounds=2))
    list(run.train(2))
    return _memory(device) - before, expected + 100 * 64 * (784 * 4 + 8)


CURVES: dict[str, Curve] = {
    "population": Curve(population, "clients", "ms a round", "flat"),
    "cohort": Curve(cohort, "clients a round", "ms a round", "proportional"),
    "model": Curve(model, "parameters", "ms a round", "operations at the speed of a large product"),
    "steps": Curve(steps, "local steps", "ms a round", "proportional"),
    "memory": Curve(memory, "bytes expected", "bytes", "as expected"),
}


def _run(
    network: fl.Model,
    shape: tuple[int, ...],
    num_clients: int,
    examples: int,
    device: torch.device,
    *,
    asked: int,
    batch_size: int,
    epochs: int | None = None,
    steps: int | None = None,
) -> fl.Federation:
    """A federation of equal clients with Gaussian examples of ten classes."""
    generator = torch.Generator().manual_seed(0)
    total = num_clients * examples
    inputs = torch.randn((total, *shape), generator=generator)
    targets = torch.randint(0, CLASSES, (total,), generator=generator)
    data = fl.ClientData(inputs, targets, torch.arange(num_clients + 1) * examples)
    work = {"epochs": epochs} if steps is None else {"steps": steps}
    algorithm = fl.Algorithm(
        fl.LocalSolver(fl.SGD(lr=0.01), batch_size=batch_size, **work),
        sampler=fl.UniformWithoutReplacement(asked),
    )
    return fl.Federation(algorithm, fl.SimulatedWorld(fl.Task(network), data, device=device))


def _timed(
    run: fl.Federation, x: float, rounds: int, device: torch.device, ideal: float | None = None
) -> Point:
    list(run.train(2))
    times = [1e3 * seconds_of(lambda: next(run.train(1)), device) for _ in range(rounds)]
    return Point(x, median(times), min(times), max(times), ideal)


def _memory(device: torch.device) -> int:
    """Largest memory of this process so far, on the device."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Not by getrusage, whose figure a process inherits from the one that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def with_ideal(name: str, points: list[Point]) -> list[float]:
    """The dashed line: computed, or drawn through the first point, or through the last for what overhead hides."""
    if all(point.ideal is not None for point in points):
        return [point.ideal or 0.0 for point in points]
    if name == "population":
        return [points[0].middle] * len(points)
    last = points[-1]
    return [last.middle * point.x / last.x for point in points]


def draw(name: str, points: list[Point], file: Path) -> None:
    """A small plot with both axes logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    points = sorted(points, key=lambda point: point.x)
    curve, x = CURVES[name], [point.x for point in points]
    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure, axes = pyplot.subplots(figsize=(4, 3), layout="constrained")
        axes.fill_between(x, [p.least for p in points], [p.most for p in points], alpha=0.2, linewidth=0)
        axes.plot(x, [p.middle for p in points], marker="o", markersize=3, label="fairlead")
        axes.plot(x, with_ideal(name, points), linestyle="--", color="gray", label=curve.ideal)
        axes.set(xscale="log", yscale="log", xlabel=curve.x, ylabel=curve.y)
        axes.legend(frameon=False, fontsize="small")
        figure.savefig(file, metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    """Measure, print, and write JSON and plots where asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("curves", nargs="*", choices=[*CURVES, "all"], default="all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    set_precision("float32", device)
    if options.peak_of is not None:
        preset, asked = options.peak_of
        print(json.dumps(peak_of(preset, int(asked), device)))
        return
    results: dict[str, Any] = {"machine": describe_machine(device), "curves": {}}
    for name in CURVES if "all" in options.curves else options.curves:
        curve, points = CURVES[name], []
        print(f"\n{name}\n| {curve.x} | {curve.y} | least–most | {curve.ideal} |\n|---|---|---|---|")
        for point in curve.measure(device, options.rounds):
            points.append(point)
            ideal = "" if point.ideal is None else f"{point.ideal:,.2f}"
            print(
                f"| {point.x:,} | {point.middle:,.2f} | {point.least:,.2f}–{point.most:,.2f} | {ideal} | {point.of}",
                flush=True,
            )
        results["curves"][name] = [asdict(point) for point in points]
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            draw(name, points, options.out / f"scaling-{name}-{device.type}.svg")
    if options.out is not None:
        file = options.out / f"scaling-{device.type}.json"
        file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
