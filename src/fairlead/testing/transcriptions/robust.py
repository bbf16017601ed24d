"""Methods that distrust their clients: medians, trimmed means and bounded updates.

Signs as in the papers: g_i = x − y_i points along the gradient, and x ← x − η_g·direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Unpack

import numpy as np

from fairlead.testing.transcriptions.averaging import follow, local_updates
from fairlead.testing.transcriptions.script import Array, Round, Script, Solver


def _by_coordinate(
    script: Script, of_column: Callable[[list[tuple[float, float]]], float], server_lr: float, solver: Solver
) -> Array:
    """x_k ← x_k − η_g·(a number made of the sorted pairs of (g_i)_k and p̂_i)."""

    def step(round: Round, x: Array) -> Array:
        g, share = local_updates(script, round, x, solver), round.share
        columns = [sorted((g[i][k], share[i]) for i in g) for k in range(len(x))]
        return server_lr * np.array([of_column(column) for column in columns])

    return follow(script, step)


def coordinate_median(script: Script, *, server_lr: float = 1.0, **solver: Unpack[Solver]) -> Array:
    """Yin et al. 2018, Option I, weighted: the midpoint of all values with at most ½ on either side."""

    def median(column: list[tuple[float, float]]) -> float:
        half = [
            value
            for value, _ in column
            if sum(share for other, share in column if other < value) <= 0.5 + 1e-12
            and sum(share for other, share in column if other > value) <= 0.5 + 1e-12
        ]
        return (half[0] + half[-1]) / 2

    return _by_coordinate(script, median, server_lr, solver)


def trimmed_mean(
    script: Script, *, trim: float = 0.2, server_lr: float = 1.0, **solver: Unpack[Solver]
) -> Array:
    """Yin et al. 2018, Option II, weighted: β of the weight is taken away from below, then from above."""

    def mean(column: list[tuple[float, float]]) -> float:
        left = column
        for _ in range(2):
            excess, remaining = trim, []
            for value, share in left:
                taken = min(share, excess)
                excess -= taken
                remaining.append((value, share - taken))
            left = remaining[::-1]
        return sum(value * share for value, share in left) / (1 - 2 * trim)

    return _by_coordinate(script, mean, server_lr, solver)


def norm_bounded_mean(
    script: Script,
    *,
    bound: Literal["median"] | float = "median",
    server_lr: float = 1.0,
    **solver: Unpack[Solver],
) -> Array:
    """Sun et al. 2019: x ← x − η_g Σ_R p̂_i g_i/max(1, ‖g_i‖/b), b given or the weighted median length."""

    def step(round: Round, x: Array) -> Array:
        g, share = local_updates(script, round, x, solver), round.share
        b = _median_length(g, share) if bound == "median" else float(bound)
        rows = (share[i] * g[i] / max(1.0, float(np.linalg.norm(g[i])) / b) for i in g)
        return server_lr * sum(rows, script.zeros())

    return follow(script, step)


def _median_length(g: dict[int, Array], share: dict[int, float]) -> float:
    """The midpoint of where the running sum of p̂ over ascending lengths reaches ½ and passes it."""
    lengths = sorted((float(np.linalg.norm(g[i])), share[i]) for i in g)
    running = np.cumsum([weight for _, weight in lengths])
    reaches, passes = int(np.argmax(running >= 0.5 - 1e-12)), int(np.argmax(running > 0.5 + 1e-12))
    return (lengths[reaches][0] + lengths[passes][0]) / 2
