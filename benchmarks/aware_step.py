"""FedAWARE's server step against the algorithm as its authors wrote it.

    python -m benchmarks.aware_step [--device cuda] [--size 1000x1000000 ...] [--rounds 5] [--out FOLDER]

Everybody arrives once; then ten clients a round send float32 updates with a common part, and three ways to take the
server's step are timed on the same memory in every round:

- fairlead: `FedAWARE(rows="unit").aggregate`, which renews the inner products of the ten rows that changed, solves
  exactly from the last solution, and adds up the rows;
- the authors' algorithm as released: every row scaled to length 1 and copied into one matrix, all inner products anew
  by one product, the best pair of vectors by a loop over all pairs that reads one inner product at a time, then
  Frank–Wolfe with the step in its closed form, kept within 0.001 and 0.999, until λ moves by less than 1e-5 in sum or
  for 1000 iterations; at last all rows copied once more, side by side, multiplied by λ in float64 and added up;
- the same by arrays, the kindest reading of it: no copy of the rows, all pairs at once, one product for the sum.

Beyond 2000 clients only fairlead's step is taken, since theirs take minutes; what does not fit into memory is said.
An implementation of its own: the authors' code is not used. The gap is that of `ShortestPoint`, for
all three from inner products in float64.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.machine import describe_machine, seconds_of, set_precision, synchronize
from torch import Tensor

import fairlead as fl
from fairlead.client_table import table_in, tensor_in
from fairlead.testing.rounds import make_conditions, make_updates

ASKED, ALPHA = 10, 0.5
SIZES = {
    "cpu": ["100x100000", "100x1000000", "1000x100000", "1000x1000000"],
    "cuda": ["100x880000", "1000x880000", "1000x10000000", "10000x1000000"],
}
_MOST_IN_PAIRS = 2000
_ARRIVED_AT_ONCE = 2000
"""Clients whose first updates are held beside the memory of all."""
_LOWEST, _HIGHEST = 0.001, 0.999
_ENOUGH, _MOST_ITERATIONS = 1e-5, 1000


class Solution(NamedTuple):
    """Weights on the simplex and how many iterations they took."""

    weights: Tensor
    iterations: int


class Pair(NamedTuple):
    """The shortest point on the segment between two vectors: `share` of the first."""

    first: int
    second: int
    share: float


def share_of_first(own: float, product: float, other: float) -> float:
    """γ of the shortest γv + (1 − γ)w, from ⟨v, v⟩, ⟨v, w⟩ and ⟨w, w⟩, never 0 or 1."""
    if product >= own:
        return _HIGHEST
    if product >= other:
        return _LOWEST
    return (other - product) / (own + other - 2 * product)


def best_pair_by_loop(gram: Tensor) -> Pair:
    """The pair whose segment comes closest to zero, one pair after another, each product read by itself."""
    lowest, best = float("inf"), Pair(0, 0, 1.0)
    squares = [gram[i, i].item() for i in range(len(gram))]
    for i, own in enumerate(squares):
        for j in range(i + 1, len(squares)):
            product, other = gram[i, j].item(), squares[j]
            share = share_of_first(own, product, other)
            if product >= own:
                cost = own
            elif product >= other:
                cost = other
            else:
                cost = other + share * (product - other)
            if cost < lowest:
                lowest, best = cost, Pair(i, j, share)
    return best


def best_pair_by_arrays(gram: Tensor) -> Pair:
    """The same pair, all at once."""
    squares = gram.diagonal()
    own, other = squares[:, None], squares[None, :]
    inner = other + (other - gram) / (own + other - 2 * gram) * (gram - other)
    cost = torch.where(gram >= own, own, torch.where(gram >= other, other, inner))
    cost.fill_diagonal_(float("inf"))
    i, j = sorted(divmod(int(cost.argmin()), len(gram)))
    return Pair(i, j, share_of_first(float(gram[i, i]), float(gram[i, j]), float(gram[j, j])))


def frank_wolfe(gram: Tensor, pair: Pair) -> Solution:
    """Weights from the best pair on, moving towards one vector at a time; in NumPy, whose calls cost less."""
    products = gram.cpu().double().numpy()
    weights = np.zeros(len(products))
    weights[pair.first], weights[pair.second] = pair.share, 1 - pair.share
    iterations = 0
    while iterations < _MOST_ITERATIONS:
        iterations += 1
        slope = products @ weights
        target = int(slope.argmin())
        keep = share_of_first(float(weights @ slope), float(slope[target]), float(products[target, target]))
        moved = keep * weights
        moved[target] += 1 - keep
        if np.abs(moved - weights).sum() < _ENOUGH:
            break
        weights = moved
    return Solution(torch.from_numpy(weights), iterations)


class Step(NamedTuple):
    """A direction, and the weights of the rows scaled to length 1 in it."""

    direction: Tensor
    solution: Solution


def as_released(rows: Tensor, asked: Tensor, delta: Tensor) -> Step:
    """Every row scaled and all of them copied into one matrix; pairs in a loop, and the rows as columns in the end."""
    torch.lerp(rows[asked], delta, ALPHA)
    units = torch.stack([row / row.norm() for row in rows])
    gram = units @ units.T
    solution = frank_wolfe(gram, best_pair_by_loop(gram))
    side_by_side = torch.stack(units.unbind(), dim=-1) * solution.weights.to(units.device)
    return Step(side_by_side.sum(1).to(units), solution)


def by_arrays(rows: Tensor, asked: Tensor, delta: Tensor) -> Step:
    """Rows where they are, their products scaled instead; pairs all at once."""
    torch.lerp(rows[asked], delta, ALPHA)
    gram = rows @ rows.T
    scale = gram.diagonal().rsqrt()
    gram = gram * scale[:, None] * scale
    solution = frank_wolfe(gram, best_pair_by_arrays(gram))
    return Step((solution.weights.to(rows) * scale) @ rows, solution)


@dataclass
class Figures:
    """What was measured of one way."""

    milliseconds: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)


def gap_of(gram: Tensor, weights: Tensor) -> float:
    """max_i (‖d‖² − ⟨v_i, d⟩)/(‖v_i‖ Σ λ_j‖v_j‖), as in `ShortestPoint`."""
    weights = weights.to(gram)
    slope, lengths = gram @ weights, gram.diagonal().sqrt()
    return max(float(((weights @ slope - slope) / (lengths * (weights @ lengths))).max()), 0.0)


def rounds_of(
    num_clients: int, dim: int, rounds: int, device: torch.device
) -> Iterator[tuple[fl.ClientUpdates, int]]:
    """Updates of everyone, in rounds up to 0, then of ten clients a round."""
    generator = torch.Generator(device).manual_seed(0)
    common = torch.randn(dim, generator=generator, device=device)
    weights = torch.full((num_clients,), 1 / num_clients, dtype=torch.float64)
    cohorts = list(torch.split(torch.arange(num_clients), _ARRIVED_AT_ONCE))
    first = 1 - len(cohorts)
    for round in range(1, rounds + 1):
        order = torch.randperm(num_clients, generator=torch.Generator().manual_seed(round))
        cohorts.append(order[:ASKED].sort().values)
    for round, asked in enumerate(cohorts, first):
        delta = torch.randn((len(asked), dim), generator=generator, device=device).add_(common, alpha=0.3)
        yield make_updates(asked.tolist(), asked.tolist(), weights[asked], delta), round


def measure(num_clients: int, dim: int, rounds: int, device: torch.device) -> dict[str, Figures]:
    """Figures by way, from rounds in which all ways take their step one after another."""
    aggregator = fl.FedAWARE(alpha=ALPHA, rows="unit")
    weights = torch.full((num_clients,), 1 / num_clients, dtype=torch.float64)
    state = aggregator.init(fl.Population(weights, {"x": dim}, device, torch.float32))
    theirs = {"authors, by arrays": by_arrays, "authors, as released": as_released}
    ways = theirs if num_clients <= _MOST_IN_PAIRS else {}
    figures = {name: Figures() for name in ("fairlead", *ways)}
    for updates, round in rounds_of(num_clients, dim, rounds + 1, device):
        results: list[fl.Aggregate] = []
        before, conditions = state, make_conditions(weights, max(round, 0))
        own = seconds_of(lambda: results.append(aggregator.aggregate(updates, before, conditions)), device)  # noqa: B023
        state = results[0].state
        # Everyone has arrived by round 0, and round 1 warms up.
        if round < 2:
            continue
        table, products = table_in(state, "averages"), table_in(state, "products")
        gram, positions = products.rows[:, products.clients], table.positions(updates.clients).to(device)
        scale = gram.diagonal().rsqrt()
        gram = gram * scale[:, None] * scale
        figures["fairlead"].milliseconds.append(1e3 * own)
        figures["fairlead"].gaps.append(gap_of(gram, tensor_in(state, "lambda")[products.clients]))
        for name, way in list(ways.items()):
            steps: list[Step] = []
            try:
                taken = seconds_of(lambda: steps.append(way(table.rows, positions, updates.delta)), device)  # noqa: B023
            except torch.OutOfMemoryError:
                print(f"{name}: out of memory with {num_clients:,} clients and {dim:,} parameters")
                del ways[name], figures[name]
                continue
            figures[name].milliseconds.append(1e3 * taken)
            figures[name].gaps.append(gap_of(gram, steps[0].solution.weights))
            figures[name].iterations.append(steps[0].solution.iterations)
    return figures


def line(num_clients: int, dim: int, name: str, figures: Figures, own: Figures) -> str:
    """A line of the table."""
    times = figures.milliseconds
    ratio = [theirs / ours for theirs, ours in zip(times, own.milliseconds, strict=True)]
    faster = "–" if figures is own else f"{median(ratio):.1f} x ({min(ratio):.1f}–{max(ratio):.1f})"
    iterations = f"{median(figures.iterations):.0f}" if figures.iterations else "–"
    return (
        f"| {num_clients:,} | {dim:,} | {name} | {median(times):.1f} ({min(times):.1f}–{max(times):.1f}) | "
        f"{faster} | {max(figures.gaps):.0e} | {iterations} |"
    )


def main() -> None:
    """Print a table, and write it as JSON where asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", nargs="+", help="clients x parameters, such as 1000x100000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    set_precision("float32", device)
    machine = describe_machine(device)
    print(
        f"{machine['processor']}, {options.threads} threads, {machine['device']}, torch {torch.__version__}, "
        f"load {machine['load']}\n"
    )
    print(
        "| N | d | way | ms | fairlead is faster | gap at most | iterations |\n|---|---|---|---|---|---|---|"
    )
    results: list[dict[str, Any]] = []
    for size in options.size or SIZES[device.type]:
        num_clients, dim = map(int, size.split("x"))
        figures = measure(num_clients, dim, options.rounds, device)
        for name, own in figures.items():
            print(line(num_clients, dim, name, own, figures["fairlead"]), flush=True)
            results.append({"clients": num_clients, "parameters": dim, "way": name, **vars(own)})
        synchronize(device)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        file = options.out / f"aware-step-{device.type}.json"
        file.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
