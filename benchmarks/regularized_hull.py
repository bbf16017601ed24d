"""The solver of the regularized hull against that of FedAWARE's hull, interleaved, from a cold start.

    python -m benchmarks.regularized_hull [--rho 1.0]

Rows have unit length and a common part, as updates of clients have.
"""

import argparse
from statistics import median
from time import perf_counter

import torch

from fairlead.numerics.minimum_norm import shortest_in_ridged_hull

SIZES = {100: 30, 1_000: 8, 10_000: 1}
"""Repetitions by the number of rows."""


def timed(gram: torch.Tensor, rho: float) -> tuple[float, int]:
    """Milliseconds, and the number of rows with weight."""
    begin = perf_counter()
    point = shortest_in_ridged_hull(gram, rho)
    return 1000 * (perf_counter() - begin), int((point.weights > 0).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rho", type=float, default=1.0)
    rho = parser.parse_args().rho
    generator = torch.Generator().manual_seed(0)
    print("rows     ρ = 0, ms  with weight  regularized, ms  with weight  ratio")
    for count, repetitions in SIZES.items():
        common = 0.3 * torch.randn(2_000, dtype=torch.float64, generator=generator)
        rows = torch.randn(count, 2_000, dtype=torch.float64, generator=generator) + common
        rows /= rows.norm(dim=1, keepdim=True)
        gram = rows @ rows.T
        pairs = [(timed(gram, 0.0), timed(gram, rho)) for _ in range(repetitions)]
        plain, regularized = (median(pair[which][0] for pair in pairs) for which in (0, 1))
        (_, few), (_, many) = pairs[-1]
        print(
            f"{count:6,d} {plain:11.1f} {few:12d} {regularized:16.1f} {many:12d} {regularized / plain:6.2f}"
        )


if __name__ == "__main__":
    main()
