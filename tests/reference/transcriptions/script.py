"""A scripted federation of quadratics, and local work and rounds on it, for all transcriptions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple, Required, TypedDict

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Updates = dict[int, Array]
"""g_i = x − y_i of every client in R, by client."""


class Solver(TypedDict, total=False):
    """The clients' SGD: v ← ρv + g, y ← y − ηv, or y ← y − η(g + ρv) with Nesterov's look-ahead."""

    lr: Required[float]
    momentum: float
    nesterov: bool


class Round(NamedTuple):
    """What happens in one round."""

    number: int
    asked: dict[int, float]
    """Importance of each distinct client that was drawn."""
    received: tuple[int, ...]
    """R, ascending."""
    steps: Sequence[int]
    """τ_i of every client."""

    @property
    def share(self) -> dict[int, float]:
        """p̂_i: importance normalized over R."""
        total = sum(self.asked[i] for i in self.received)
        return {i: self.asked[i] / total for i in self.received}

    def mean(self, g: Updates) -> Array:
        """Σ_R p̂_i g_i."""
        return combined(g, self.share)


def combined(g: Updates, coefficients: Mapping[int, float] | Array) -> Array:
    """Σ_R c_i g_i."""
    total: Array = np.sum([coefficients[i] * row for i, row in g.items()], axis=0)
    return total


@dataclass(frozen=True, eq=False)
class Script:
    """Clients F_i(x) = ½x'H_i x − e_i'x, and who is drawn, works and gets through in every round.

    `cohorts` lists the draws of each round, an id twice for a client drawn twice; `steps` has a row of τ_i
    per round; `arrivals` lists whose link works; `arrival_rates` are 1 − q_i where a method may know them.
    With c_i how often i is among K draws, its importance is c_i/K ("draws": with replacement), c_i ω_i
    ("weights": everybody) or (N/K) ω_i ("uniform": K of N without replacement).
    """

    hessians: Array
    linear: Array
    weights: Array
    start: Array
    cohorts: Sequence[Sequence[int]]
    steps: Sequence[Sequence[int]]
    arrivals: Sequence[Sequence[int]]
    arrival_rates: Sequence[float] | None = None
    importance: Literal["draws", "weights", "uniform"] = "draws"

    @property
    def num_clients(self) -> int:
        return len(self.weights)

    @property
    def rates(self) -> Array:
        """1 − q_i of every client, for the methods that know it."""
        assert self.arrival_rates is not None
        return np.array(self.arrival_rates)

    def gradient(self, client: int, x: Array) -> Array:
        """∇F_i(x)."""
        slope: Array = self.hessians[client] @ x - self.linear[client]
        return slope

    def rounds(self) -> Iterator[Round]:
        """The rounds in order."""
        for number, (draws, steps, arrivals) in enumerate(
            zip(self.cohorts, self.steps, self.arrivals, strict=True)
        ):
            asked = {i: self._importance(i, draws) for i in sorted(set(draws))}
            received = tuple(i for i in asked if i in set(arrivals))
            yield Round(number, asked, received, steps)

    def _importance(self, client: int, draws: Sequence[int]) -> float:
        drawn, weight = draws.count(client), float(self.weights[client])
        if self.importance == "draws":
            return drawn / len(draws)
        return drawn * weight * (self.num_clients / len(draws) if self.importance == "uniform" else 1.0)

    def zeros(self) -> Array:
        """A zero vector for the model."""
        return np.zeros_like(self.start)

    def zero_rows(self) -> Array:
        """A zero vector for each client."""
        return np.zeros((self.num_clients, len(self.start)))


def local_work(
    script: Script,
    round: Round,
    client: int,
    start: Array,
    solver: Solver,
    *,
    scale: float = 1.0,
    shift: Array | float = 0.0,
    pull: float = 0.0,
) -> Array:
    """y_i after τ_i steps from `start` along scale·∇F_i(y) + shift + pull·(y − start)."""
    y, v = start, np.zeros_like(start)
    rho = solver.get("momentum", 0.0)
    for _ in range(round.steps[client]):
        g = scale * script.gradient(client, y) + shift + pull * (y - start)
        v = rho * v + g
        y = y - solver["lr"] * (g + rho * v if solver.get("nesterov", False) else v)
    return y


def follow(
    script: Script,
    solver: Solver,
    step: Callable[[Round, Updates], Array],
    *,
    mu: float = 0.0,
    on_empty: Callable[[Round], Array | None] | None = None,
) -> Array:
    """The model after every round: x ← x − step(round, g), unchanged when nothing was received, but for `on_empty`.

    Clients start from x and add the gradient of (μ/2)‖y − x‖².
    """
    x, path = script.start, []
    for round in script.rounds():
        if round.received:
            g = {i: x - local_work(script, round, i, x, solver, pull=mu) for i in round.received}
            x = x - step(round, g)
        elif on_empty is not None and (moved := on_empty(round)) is not None:
            x = x - moved
        path.append(x)
    return np.array(path)


def effective_steps(steps: int, solver: Solver, mu: float = 0.0) -> float:
    """‖a‖₁: how far the solver goes when every gradient is 1, in units of the step size."""
    lr, rho = solver["lr"], solver.get("momentum", 0.0)
    y = v = 0.0
    for _ in range(steps):
        g = 1.0 - mu * y
        v = rho * v + g
        y = y + lr * (g + rho * v if solver.get("nesterov", False) else v)
    return y / lr


def smallest_in_hull(rows: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """argmin ‖Σ λ_i row_i‖ over Σλ = 1, low ≤ λ ≤ high, by trying every set of active bounds.

    On each face the minimum solves a linear system; the smallest one that lies within the bounds is the
    answer. The cost is 3^n, so that this serves a few rows only and needs no iteration.
    """
    n = len(rows)
    low = np.zeros(n) if low is None else low
    high = np.ones(n) if high is None else high
    gram = rows @ rows.T
    gram = gram / max(float(np.trace(gram)), np.finfo(float).tiny)
    best, best_norm = None, np.inf
    for face in product("-f+", repeat=n):
        free = [i for i in range(n) if face[i] == "f"]
        weights = np.where([place == "-" for place in face], low, high)
        weights[free] = 0.0
        if free:
            k = len(free)
            system = np.zeros((k + 1, k + 1))
            system[:k, :k] = gram[np.ix_(free, free)]
            system[:k, k] = system[k, :k] = 1.0
            target = np.append(-(gram @ weights)[free], 1.0 - weights.sum())
            weights[free] = np.linalg.lstsq(system, target, rcond=None)[0][:k]
        inside = bool(np.all((weights > low - 1e-12) & (weights < high + 1e-12)))
        norm = float(weights @ gram @ weights)
        if inside and abs(weights.sum() - 1.0) < 1e-9 and norm < best_norm:
            best, best_norm = weights, norm
    if best is None:
        raise ValueError("The bounds leave no weights that sum to 1.")
    chosen: Array = best
    return chosen
