"""Measures of data heterogeneity as theory bounds them (Zeng 2025 Table 1, Wang 2024 Table 1, Weng 2025 Table 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.diagnostics.diversity import gradient_diversity
from fairlead.diagnostics.gradients import client_gradients, client_optima
from fairlead.errors import FieldError
from fairlead.worlds.simulated import SimulatedWorld


@dataclass(frozen=True, eq=False)
class Heterogeneity:
    """What the clients' gradients ∇F_i at one point say about their differences.

    All are squares, as in Weng 2025; Zeng 2025 prints some of them without, Wang 2024 the first.
    """

    mean_norm: float
    """‖∇F‖² of the weighted mean ∇F = Σ ω_i∇F_i."""
    mean_square: float
    """Σ ω_i‖∇F_i‖²: the dissimilarity at the optimum if the point is one."""
    distances: Tensor
    """ζ_i = ‖∇F_i − ∇F‖² of each client (Zeng 2023; D_m² of Weng 2025 Assumption 4), (N,) float64."""
    dissimilarity: float
    """Σ ω_i‖∇F_i − ∇F‖², D² of Weng 2025 Assumption 5."""
    diversity: float
    """γ², the least with Σ ω_i‖∇F_i‖² ≤ γ²‖∇F‖²; inf at an optimum that clients do not share."""
    norm_bound: float
    """max ‖∇F_i‖², G² of Weng 2025 Assumption 7."""


def gradient_heterogeneity(gradients: Tensor, weights: Tensor | None = None) -> Heterogeneity:
    """Measures at one point from the clients' gradients there, (N, d); weights ω are uniform unless given.

    Mean square = mean norm + dissimilarity, whatever the weights.
    """
    rows = gradients.to("cpu", torch.float64)
    omega = (
        torch.ones(len(rows), dtype=torch.float64) if weights is None else weights.to("cpu", torch.float64)
    )
    diversity = gradient_diversity(rows, omega)
    omega = omega / omega.sum()
    squares, mean = rows.square().sum(1), omega @ rows
    distances = (rows - mean).square().sum(1)
    return Heterogeneity(
        mean_norm=float(mean.square().sum()),
        mean_square=float(omega @ squares),
        distances=distances,
        dissimilarity=float(omega @ distances),
        diversity=diversity**2,
        norm_bound=float(squares.max()),
    )


@dataclass(frozen=True)
class GeneralBound:
    """Σ ω_i‖∇F_i‖² ≤ β²‖∇F‖² + κ² (Wang 2021 Assumption 3, Weng 2025 Assumption 3), with β² ≥ 1 and κ² ≥ 0."""

    beta_square: float
    kappa_square: float


def fit_general_bound(points: Sequence[Heterogeneity], *, envelope: bool = True) -> GeneralBound:
    """(β², κ²) from measures at several points, such as those that a run passes.

        y_k = Σ ω_i‖∇F_i(x_k)‖²,   z_k = ‖∇F(x_k)‖²

    With `envelope`, the bound that holds at every point with the least total slack Σ (β²z_k + κ² − y_k): one
    of the edges of the upper hull of the points. Without, least squares, which is exceeded at about half of
    the points. Both subject to β² ≥ 1 and κ² ≥ 0; no theorem is meant for points that were not looked at.
    """
    if not points:
        raise FieldError("fit_general_bound needs measures of at least one point, got none.")
    z = torch.tensor([point.mean_norm for point in points], dtype=torch.float64)
    y = torch.tensor([point.mean_square for point in points], dtype=torch.float64)
    return _envelope(z, y) if envelope else _least_squares(z, y)


def _envelope(z: Tensor, y: Tensor) -> GeneralBound:
    rise, run = y[:, None] - y, z[:, None] - z
    slopes = torch.cat([torch.ones(1, dtype=torch.float64), (rise / run).flatten(), y / z])
    slopes = slopes[slopes.isfinite() & (slopes >= 1.0)]
    # The slack is piecewise linear in β², so one of its corners is the best.
    offsets = (y - slopes[:, None] * z).amax(1).clamp(min=0.0)
    slack = slopes * z.mean() + offsets
    best = int(slack.argmin())
    return GeneralBound(float(slopes[best]), float(offsets[best]))


def _least_squares(z: Tensor, y: Tensor) -> GeneralBound:
    spread = (z - z.mean()).square().sum()
    slope = float(((z - z.mean()) * (y - y.mean())).sum() / spread) if float(spread) > 0 else 1.0
    candidates: list[tuple[float, float | None]] = [(max(slope, 1.0), None), (1.0, None)]
    if float(z.square().sum()) > 0:
        candidates.append((max(float((z @ y) / z.square().sum()), 1.0), 0.0))

    def complete(beta: float, kappa: float | None) -> GeneralBound:
        return GeneralBound(beta, max(float(y.mean() - beta * z.mean()), 0.0) if kappa is None else kappa)

    def error(bound: GeneralBound) -> float:
        return float((bound.beta_square * z + bound.kappa_square - y).square().sum())

    return min((complete(beta, kappa) for beta, kappa in candidates), key=error)


def optimum_difference(client_optima: Tensor, optimum: Tensor, weights: Tensor | None = None) -> float:
    """‖Σ ω_i w_i* − w*‖² (Wang 2024 Table 1), w_i* `client_optima` (N, d), w* `optimum`, ω uniform unless given."""
    rows = client_optima.to("cpu", torch.float64)
    omega = (
        torch.ones(len(rows), dtype=torch.float64) if weights is None else weights.to("cpu", torch.float64)
    )
    mean = omega @ rows / omega.sum()
    return float((mean - optimum.to(mean)).square().sum())


def work_heterogeneity(distances: Tensor, num_steps: Tensor, lr: float) -> float:
    """Φ = Σ 30η_l(K_i − K_min)ζ_i (Zeng 2023): 0 where all clients take the same number of steps.

    Symbols: ζ_i `distances` as in `Heterogeneity`, K_i `num_steps`, η_l `lr`.
    """
    extra = (num_steps - num_steps.min()).to(torch.float64)
    return float(30 * lr * (extra @ distances))


@dataclass(frozen=True, eq=False)
class HeterogeneityReport:
    """All measures of the three tables on one federation."""

    at_optimum: Heterogeneity
    """At the point that was given as the optimum."""
    along_the_way: tuple[Heterogeneity, ...]
    """At the other points."""
    bound: GeneralBound
    """Over all points."""
    optimum_difference: float | None
    """None unless asked for: it takes a search for every client."""

    @property
    def dissimilarity(self) -> float:
        """The largest Σ ω_i‖∇F_i − ∇F‖² met."""
        return max(point.dissimilarity for point in (self.at_optimum, *self.along_the_way))

    @property
    def norm_bound(self) -> float:
        """The largest ‖∇F_i‖² met."""
        return max(point.norm_bound for point in (self.at_optimum, *self.along_the_way))

    @property
    def diversity(self) -> float:
        """The largest γ² met away from the optimum, NaN without other points."""
        return max((point.diversity for point in self.along_the_way), default=math.nan)


def measure_heterogeneity(
    world: SimulatedWorld,
    optimum: Tensor,
    points: Sequence[Tensor] = (),
    *,
    buffers: Tensor | None = None,
    with_client_optima: bool = False,
    iterations: int = 100,
) -> HeterogeneityReport:
    """Measures at an optimum (see `near_optimum`) and at other points, such as models of a run.

    It costs a pass over all data for every point, and with `with_client_optima` up to twice
    `iterations` more.
    """
    weights = world.population.weights
    weights = weights[weights > 0]
    found = [
        gradient_heterogeneity(client_gradients(world, point, buffers=buffers), weights)
        for point in (optimum, *points)
    ]
    difference = None
    if with_client_optima:
        own = client_optima(world, optimum, buffers=buffers, iterations=iterations)
        difference = optimum_difference(own, optimum, weights)
    return HeterogeneityReport(found[0], tuple(found[1:]), fit_general_bound(found), difference)
