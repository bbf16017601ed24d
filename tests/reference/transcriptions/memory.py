"""Methods whose server remembers its clients: last updates, participation, moving averages.

Signs as in the papers: g_i = x − y_i points along the gradient, and x ← x − η_g·direction.
"""

from collections.abc import Callable
from typing import Literal, Unpack

import numpy as np

from fairlead.randomness import Key
from transcriptions.script import (
    Array,
    Round,
    Script,
    Solver,
    Updates,
    combined,
    follow,
    smallest_in_hull,
)


def fedvarp(script: Script, *, server_lr: float = 1.0, **solver: Unpack[Solver]) -> Array:
    """Jhunjhunwala et al. 2022: v = Σ_R p̂_i(g_i − y_i) + Σ_j ω_j y_j with the old y; then y_i ← g_i on R."""
    y = script.zero_rows()

    def step(round: Round, g: Updates) -> Array:
        v = script.weights @ y + round.mean({i: g[i] - y[i] for i in g})
        y[list(g)] = list(g.values())
        return server_lr * v

    return follow(script, solver, step)


def fedvarp_stale(script: Script, **solver: Unpack[Solver]) -> Array:
    """Weng 2025 (114): the last received update stands in for a client that was drawn and lost."""
    last = script.zero_rows()

    def step(round: Round, g: Updates) -> Array:
        for i in g:
            last[i] = g[i]
        return combined({i: last[i] for i in round.asked}, round.asked)

    return follow(script, solver, step, on_empty=lambda round: step(round, {}))


def mifa(script: Script, *, server_lr: float = 1.0, **solver: Unpack[Solver]) -> Array:
    """Gu et al. 2021: y_i ← g_i on R, x ← x − η_g Σ_j ω_j y_j."""
    y = script.zero_rows()

    def step(round: Round, g: Updates) -> Array:
        y[list(g)] = list(g.values())
        mean: Array = server_lr * (script.weights @ y)
        return mean

    return follow(script, solver, step)


def fedau(
    script: Script, *, cutoff: int | None = 50, server_lr: float = 1.0, **solver: Unpack[Solver]
) -> Array:
    """Wang and Ji 2024: x ← x − η_g Σ_R ω_i w_i g_i, w_i the mean interval between participations.

    After the round S_i += 1; if i ∈ R or S_i = K, w_i ← the running mean of the S_i so far and S_i = 0.
    """
    w, intervals, waited = (np.full(script.num_clients, first) for first in (1.0, 0.0, 0.0))

    def count(round: Round) -> None:
        for n in range(script.num_clients):
            waited[n] += 1
            if n in round.received or waited[n] == cutoff:
                first = intervals[n] == 0
                w[n] = waited[n] if first else (intervals[n] * w[n] + waited[n]) / (intervals[n] + 1)
                intervals[n] += 1
                waited[n] = 0

    def step(round: Round, g: Updates) -> Array:
        move = combined(g, script.weights * w)
        count(round)
        return server_lr * move

    return follow(script, solver, step, on_empty=count)


def fedmgda_plus(
    script: Script, *, epsilon: float = 0.1, server_lr: float = 1.0, **solver: Unpack[Solver]
) -> Array:
    """Hu et al. 2022: unit rows u_i = g_i/‖g_i‖, λ* = argmin ‖Σλ_i u_i‖ with |λ_i − p̂_i| ≤ ε."""

    def step(round: Round, g: Updates) -> Array:
        rows = np.array([g[i] / np.linalg.norm(g[i]) for i in g])
        prior = np.array(list(round.share.values()))
        weights = smallest_in_hull(rows, np.maximum(prior - epsilon, 0.0), np.minimum(prior + epsilon, 1.0))
        direction: Array = server_lr * (weights @ rows)
        return direction

    return follow(script, solver, step)


Start = Literal["seen", "all_seen", "zero"]
"""Until every client was received: hull of the seen, a FedAvg step, or zero rows in the hull."""
RowLength = Literal["raw", "unit", "equal"]
"""m_i as they are, scaled to length 1, or to their mean length."""
FirstVisit = Literal["update", "scaled"]
"""m_i after the first visit: g_i, as Zeng 2025's analysis has it, or αg_i, as its code does."""


class _Memory:
    """Moving averages m_i ← (1 − α)m_i + αg_i of the clients' updates (Zeng 2025 (3)).

    Zeng 2023 writes the same with α for what Zeng 2025 calls 1 − α: that is `retention`.
    """

    def __init__(
        self, script: Script, alpha: float | None, retention: float | None, first_visit: FirstVisit
    ) -> None:
        if retention is not None:
            alpha = 1 - retention
        self.alpha = 0.5 if alpha is None else alpha
        self.rows, self.first_visit = script.zero_rows(), first_visit
        self.seen: set[int] = set()

    @property
    def complete(self) -> bool:
        return len(self.seen) == len(self.rows)

    def learn(self, updates: Updates) -> None:
        for i, g in updates.items():
            if i not in self.seen and self.first_visit == "update":
                self.rows[i] = g
            else:
                self.rows[i] = (1 - self.alpha) * self.rows[i] + self.alpha * g
            self.seen.add(i)

    def shortest(self, length: RowLength = "raw", *, unseen: bool = False, rho: float = 0.0) -> Array:
        """d = Σλ_i m_i of minimum norm on the simplex, with ρ times the mean ‖m_i‖² times ‖λ‖² added to it."""
        rows = self.rows if unseen else self.rows[sorted(self.seen)]
        if length != "raw":
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            rows = rows / np.where(norms > 0, norms, 1.0) * (norms.mean() if length == "equal" else 1.0)
        ridge = np.sqrt(rho * (rows**2).sum(1).mean()) * np.eye(len(rows))
        combined: Array = smallest_in_hull(np.hstack([rows, ridge])) @ rows
        return combined


def fedaware(
    script: Script,
    *,
    alpha: float | None = None,
    retention: float | None = None,
    start: Start = "seen",
    rows: RowLength = "raw",
    first_visit: FirstVisit = "update",
    server_lr: float = 1.0,
    **solver: Unpack[Solver],
) -> Array:
    """Zeng 2025, Algorithm 1: m_i as above on R, then x ← x − η_g Σλ_i m_i of minimum norm."""
    memory = _Memory(script, alpha, retention, first_visit)

    def step(round: Round, g: Updates) -> Array:
        memory.learn(g)
        if start == "all_seen" and not memory.complete:
            return server_lr * round.mean(g)
        return server_lr * memory.shortest(rows, unseen=start == "zero")

    return follow(script, solver, step)


def fedaware_ridge(
    script: Script,
    *,
    rho: float = 1.0,
    alpha: float = 0.8,
    rows: RowLength = "unit",
    server_lr: float = 4.0,
    **solver: Unpack[Solver],
) -> Array:
    """The regularized hull over rows u_i of one length: x ← x − η_g Σλ_i u_i, λ = argmin ‖Σλ_i u_i‖² + ρ‖u‖²‖λ‖²."""
    memory = _Memory(script, alpha, None, "update")

    def step(round: Round, g: Updates) -> Array:
        memory.learn(g)
        return server_lr * memory.shortest(rows, rho=rho)

    return follow(script, solver, step)


def fedaware_published(
    script: Script, *, alpha: float = 0.5, server_lr: float = 1.0, **solver: Unpack[Solver]
) -> Array:
    """Zeng 2023 as run: unit rows, and every update filed under another client of its round, by the round's key."""
    memory = _Memory(script, alpha, None, "scaled")

    def step(round: Round, g: Updates) -> Array:
        order = Key.from_seed(0).fold("credit", round.number).generator().permutation(len(g))
        filed = [list(g)[place] for place in order]
        memory.learn(dict(zip(filed, g.values(), strict=True)))
        return server_lr * memory.shortest("unit")

    return follow(script, solver, step)


def fedaware_na(
    script: Script,
    *,
    alpha: float | None = None,
    retention: float | None = None,
    first_visit: FirstVisit = "update",
    server_lr: float = 1.0,
    **solver: Unpack[Solver],
) -> Array:
    """Zeng 2025's ablation: the same memory with static weights, x ← x − η_g Σ_i ω_i m_i over all clients."""
    memory = _Memory(script, alpha, retention, first_visit)

    def step(round: Round, g: Updates) -> Array:
        memory.learn(g)
        direction: Array = server_lr * (script.weights @ memory.rows)
        return direction

    return follow(script, solver, step)


def aware_projection(
    script: Script,
    base: Callable[[Updates, dict[int, float]], Array],
    *,
    alpha: float | None = None,
    first_visit: FirstVisit = "update",
    **solver: Unpack[Solver],
) -> Array:
    """Zeng 2025, Proposition 3.1: the step of any method, projected on the minimum-norm d of the memory.

    `base` maps the updates g_i and their shares p̂_i to the method's own step η_g d̃ and keeps its state, which
    never sees the projection. A zero d leaves the model where it is.
    """
    memory = _Memory(script, alpha, None, first_visit)

    def step(round: Round, g: Updates) -> Array:
        proposal = base(g, round.share)
        memory.learn(g)
        d = memory.shortest()
        square = float(d @ d)
        return (float(proposal @ d) / square) * d if square > 0 else script.zeros()

    return follow(script, solver, step)


def _by_coordinate(
    script: Script, of_column: Callable[[list[tuple[float, float]]], float], server_lr: float, solver: Solver
) -> Array:
    """x_k ← x_k − η_g·(a number made of the sorted pairs of (g_i)_k and p̂_i)."""

    def step(round: Round, g: Updates) -> Array:
        columns = [sorted((g[i][k], round.share[i]) for i in g) for k in range(len(script.start))]
        return server_lr * np.array([of_column(column) for column in columns])

    return follow(script, solver, step)


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

    def step(round: Round, g: Updates) -> Array:
        b = _median_length(g, round.share) if bound == "median" else float(bound)
        return server_lr * round.mean({i: g[i] / max(1.0, float(np.linalg.norm(g[i])) / b) for i in g})

    return follow(script, solver, step)


def _median_length(g: Updates, share: dict[int, float]) -> float:
    """The midpoint of where the running sum of p̂ over ascending lengths reaches ½ and passes it."""
    lengths = sorted((float(np.linalg.norm(g[i])), share[i]) for i in g)
    running = np.cumsum([weight for _, weight in lengths])
    reaches, passes = int(np.argmax(running >= 0.5 - 1e-12)), int(np.argmax(running > 0.5 + 1e-12))
    return (lengths[reaches][0] + lengths[passes][0]) / 2


def krum(
    script: Script,
    *,
    hostile: float = 0.2,
    keep: int | None = 1,
    server_lr: float = 1.0,
    **solver: Unpack[Solver],
) -> Array:
    """Blanchard et al. 2017, by brute force: every distance, every score, ties by importance."""

    def step(round: Round, g: Updates) -> Array:
        m = len(g)
        f = int(np.ceil(round_off(hostile * m)))
        scores = {}
        for i in g:
            near = sorted(float(np.sum((g[i] - g[j]) ** 2)) for j in g if j != i)
            scores[i] = round_off(sum(near[: max(m - f - 2, 1)]))
        order = sorted(g, key=lambda i: (scores[i], -round_off(round.share[i]), i))
        chosen = order[: max(m - f, 1) if keep is None else keep]
        total = sum(round.share[i] for i in chosen)
        return server_lr * combined({i: g[i] for i in chosen}, {i: round.share[i] / total for i in chosen})

    return follow(script, solver, step)


def round_off(value: float) -> float:
    """Equal numbers where sums in another order differ in their last bits."""
    return float(f"{value:.9e}")


def multi_krum(
    script: Script, *, hostile: float = 0.2, server_lr: float = 1.0, **solver: Unpack[Solver]
) -> Array:
    """Blanchard et al. 2017, Multi-Krum with m − f updates."""
    return krum(script, hostile=hostile, keep=None, server_lr=server_lr, **solver)


def geometric_median(
    script: Script, *, smoothing: float = 1e-6, server_lr: float = 1.0, **solver: Unpack[Solver]
) -> Array:
    """Pillutla et al. 2022, Algorithm 2 from the mean on, until it stands still."""

    def step(round: Round, g: Updates) -> Array:
        z = round.mean(g)
        for _ in range(3000):
            beta = {i: round.share[i] / max(smoothing, float(np.linalg.norm(z - g[i]))) for i in g}
            z = combined(g, beta) / sum(beta.values())
        return server_lr * z

    return follow(script, solver, step)
