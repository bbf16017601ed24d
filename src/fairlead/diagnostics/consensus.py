"""The client consensus test: do the clients' drifts cancel at the optimum, or do they add up (Wang 2024)?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import torch
from torch import Tensor

from fairlead.diagnostics.diversity import mean_square
from fairlead.diagnostics.gradients import (
    NearOptimum,
    choose_clients,
    client_gradients,
    measuring,
    objective_value,
)
from fairlead.errors import FieldError
from fairlead.numerics.rows import combination, inner_products
from fairlead.randomness import Key
from fairlead.worlds.executor import draw_batches
from fairlead.worlds.simulated import SimulatedWorld

ConsensusVerdict = Literal["FedAvg is enough here", "drift matters", "not enough data to say"]

MIN_CLIENTS = 10
"""Effective clients below which a bootstrap over clients is meaningless."""
_ROUNDING = 1e-5
"""Drift, relative to the size of the clients' gradients, that is a rounding error."""
_AT_LEAST_RESAMPLES = 20


@dataclass(frozen=True)
class Drift:
    """The drift of H local steps from the tested point; all norms are Euclidean and in units of a gradient."""

    steps: int
    """H."""
    average: float
    """ρ = ‖E_c G_c(w)‖, the average pseudo-gradient (Wang 2024 (5))."""
    gap: float
    """‖E_c[G_c − ∇F_c](w)‖, the root of the left side of (7); ρ itself at an exact optimum."""
    bound: float
    """√E_c‖(G_c − ∇F_c)(w)‖², the root of the right side of (7)."""
    share: float
    """gap/bound estimated for an unlimited number of such clients: 0 is consensus, 1 is the worst case of older theory.

    The square is Σ_{i≠j} ω_iω_j⟨D_i, D_j⟩/(1 − Σω²) over Σ ω_i‖D_i‖² with D = G − ∇F, without pairs of a client
    with itself: the plain gap/bound of M unrelated clients is about 1/√M. A negative square, which occurs by chance
    near 0, counts as 0. NaN with a single client. At the optimum of these same clients the square may be low by up to
    1/(M − 1), since their gradients sum to zero there.
    """
    low: float
    """Lower end of the bootstrap interval of `share` over clients."""
    high: float
    """Upper end of it."""

    @property
    def ratio(self) -> float:
        """gap/bound of the given clients, between 0 and 1 by Jensen's inequality; 0 without drift."""
        return self.gap / self.bound if self.bound > 0 else 0.0


@dataclass(frozen=True)
class ConsensusReport:
    """The client consensus test of one point of one federation."""

    drifts: tuple[Drift, ...]
    """One for each number of local steps."""
    verdict: ConsensusVerdict
    reason: str
    num_clients: int
    gradient_norm: float
    """‖E_c ∇F_c(w)‖: 0 at an exact optimum."""
    dissimilarity: float
    """ζ = √E_c‖∇F_c(w) − ∇F(w)‖²."""
    lr: float
    batch_size: int | None
    """None for the deterministic test, Local GD."""
    centered: bool
    confidence: float

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.reason}", "steps  average      gap    bound  ratio  share  interval"]
        lines += [
            f"{d.steps:5d}  {d.average:7.2g}  {d.gap:7.2g}  {d.bound:7.2g}  {d.ratio:5.2f}  {d.share:5.2f}  "
            f"{d.low:.2f} to {d.high:.2f}"
            for d in self.drifts
        ]
        return "\n".join(lines)


def consensus_test(
    world: SimulatedWorld,
    params: Tensor,
    lr: float,
    *,
    steps: Sequence[int] = (1, 2, 5, 10, 20),
    clients: Sequence[int] | Tensor | int | None = None,
    batch_size: int | None = None,
    buffers: Tensor | None = None,
    centered: bool = True,
    threshold: float = 0.5,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> ConsensusReport:
    """Whether local steps from an (approximate) optimum cancel out over clients.

        G_c(w) = (w − w_c after H steps)/(ηH) = (1/H) Σ_{h<H} ∇F_c(w_c after h steps)
        ρ = ‖E_c G_c(w*)‖,   ‖E_c[G_c − ∇F_c]‖² ≤ E_c‖G_c − ∇F_c‖²   (7)

    Symbols: w `params` (see `near_optimum`), η `lr`, H each of `steps`, E_c the mean by the objective's
    weights over `clients` (ids, or how many to draw, or all). `batch_size` None is Local GD, the
    deterministic pseudo-gradient; a number is the stochastic one, whose right side of (7) includes the
    noise of batches.

    The verdict compares `Drift.share` with `threshold` at every H above 1, by an interval that holds with
    probability `confidence` over the choice of clients (bootstrap of `resamples` draws): enough if all of
    every interval and every `Drift.ratio` lie below, drift matters if all of one interval lies above. It
    needs at least 10 effective clients (1/Σω²), and a point where the remaining gradient is not larger than the
    clients' dissimilarity.

    The verdict concerns the population of such clients: a few different clients do not cancel exactly, which moves
    the limit of FedAvg about as far from the optimum as another draw of clients would move the optimum itself.
    If only the given clients count, read `Drift.gap` and `drift_price`.

    `centered` tests the clients F_c(y) − ⟨∇F(w), y⟩, of which w is an exact stationary point whatever gradient
    is left there: the same curvatures and differences, ρ equals the left side of (7), and clients that are
    all the same have no drift. *Differs from the paper*, which tests F_c as they are: `centered=False`. At an
    exact optimum both agree.

    Dropout is off and running statistics stay fixed. Memory: H-values × clients × parameters.

    Reference: wang2024unreasonable.
    """
    horizons = _refuse_senseless(lr, steps, batch_size, threshold, confidence, resamples)
    key = Key.from_seed(seed).fold("consensus")
    chosen = _draw(world, clients, key)
    weights = world.population.weights[chosen]
    weights = weights / weights.sum()
    gradients = client_gradients(world, params, clients=chosen, buffers=buffers)
    mean_gradient = weights.to(gradients) @ gradients
    tilt = mean_gradient if centered else torch.zeros_like(mean_gradient)
    with measuring(world):
        averages = _pseudo_gradients(world, params, chosen, lr, horizons, batch_size, buffers, tilt, key)
    draws = (
        key.fold("bootstrap").generator().multinomial(len(chosen), [1 / len(chosen)] * len(chosen), resamples)
    )
    counts = torch.from_numpy(draws).to(torch.float64)
    drifts = tuple(
        _drift(horizon, rows, gradients - tilt, weights, counts, confidence)
        for horizon, rows in zip(horizons, averages, strict=True)
    )
    size = math.sqrt(mean_square(gradients, weights))
    norm = float(torch.linalg.vector_norm(mean_gradient.double()))
    spread = math.sqrt(mean_square(gradients - mean_gradient, weights))
    verdict, reason = _judge(drifts, weights, norm, spread, size, threshold)
    return ConsensusReport(
        drifts, verdict, reason, len(chosen), norm, spread, lr, batch_size, centered, confidence
    )


def drift_price(
    world: SimulatedWorld, optimum: NearOptimum, lr: float, *, steps: int, rounds: int = 20
) -> float:
    """By how much Σ ω_i F_i rises in `rounds` of FedAvg with all clients and full batches from the optimum.

        w ← w − ηH E_c G_c(w)

    Symbols: η `lr`, H `steps`. It is what drift costs these clients, in the unit of the loss; below 0 where
    the point was no optimum. It takes rounds·H passes over all data.
    """
    (horizon,) = _refuse_senseless(lr, (steps,))
    chosen = choose_clients(world, None)
    weights = world.population.weights[chosen]
    params, still = optimum.params, torch.zeros_like(optimum.params)
    for round in range(rounds):
        key = Key.from_seed(round)
        with measuring(world):
            averages = _pseudo_gradients(
                world, params, chosen, lr, [horizon], None, optimum.buffers, still, key
            )
        params = params - lr * steps * (weights.to(params) @ averages[0])
    after, before = (objective_value(world, point, optimum.buffers) for point in (params, optimum.params))
    return after - before


def _pseudo_gradients(
    world: SimulatedWorld,
    params: Tensor,
    chosen: Tensor,
    lr: float,
    horizons: Sequence[int],
    batch_size: int | None,
    buffers: Tensor | None,
    tilt: Tensor,
    key: Key,
) -> Tensor:
    """G_c for every horizon and client, (horizons, c, d): the mean of the gradients along one path each.

    The mean, not the displacement over ηH: their difference is rounding, which would drown small drifts.
    """
    objective, data = world.objective, world.clients
    running = objective.model.initial_buffers() if buffers is None else buffers
    found = params.new_empty((len(horizons), len(chosen), len(params)))
    for place, client in enumerate(chosen.tolist()):
        first, size = int(data.offsets[client]), int(data.sizes[client])
        batches = None
        if batch_size is not None:
            stream = key.fold("batches", client)
            batches = draw_batches(first, size, horizons[-1], min(batch_size, size), stream)
        local, total = params, torch.zeros_like(params)
        for step in range(horizons[-1]):
            if batches is None:
                gradient = objective.mean_gradient(local, running, objective.data.rows_of(client), None)
            else:
                rows = batches[step][batches[step] >= 0].to(params.device)
                gradient = objective.gradient(local, running.clone(), rows, None)[1]
            gradient = gradient - tilt
            local, total = local - lr * gradient, total + gradient
            if step + 1 in horizons:
                found[horizons.index(step + 1), place] = total / (step + 1)
    if not bool(torch.isfinite(found).all()):
        raise FieldError(
            f"consensus_test with lr={lr:g} diverges within {horizons[-1]} local steps: lower lr."
        )
    return found


def _drift(
    steps: int, averages: Tensor, gradients: Tensor, weights: Tensor, counts: Tensor, confidence: float
) -> Drift:
    gram = inner_products(averages - gradients, torch.arange(len(averages))).cpu()
    gap = math.sqrt(max(float(weights @ gram @ weights), 0.0))
    bound = math.sqrt(float(weights @ gram.diagonal()))
    wide = averages.new_empty(0, dtype=torch.float64)
    average = float(torch.linalg.vector_norm(combination(weights, averages, like=wide)))
    share = float(_shares(gram, weights[None])[0])
    resampled = _shares(gram, counts * weights)
    known = resampled[resampled.isfinite()]
    if len(known) < _AT_LEAST_RESAMPLES:
        return Drift(steps, average, gap, bound, share, 0.0, 1.0)
    tail = (1 - confidence) / 2
    low, high = torch.quantile(known, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    # Jensen's inequality in rounded numbers may miss its limit by a few bits.
    return Drift(steps, average, min(gap, bound), bound, share, low, high)


def _shares(gram: Tensor, weights: Tensor) -> Tensor:
    """`Drift.share` under each row of weights, NaN where no two different clients are left."""
    own = gram.diagonal()
    total, squared = weights.sum(1), weights.square()
    pairs = total.square() - squared.sum(1)
    common = ((weights @ gram) * weights).sum(1) - squared @ own
    scale = weights @ own / total
    shares = (common / pairs / scale).clamp(0.0, 1.0).sqrt()
    shares = torch.where(scale > 0, shares, 0.0)
    return torch.where(pairs > 1e-12 * total.square(), shares, math.nan)


def _judge(
    drifts: Sequence[Drift], weights: Tensor, norm: float, spread: float, size: float, threshold: float
) -> tuple[ConsensusVerdict, str]:
    unsure: ConsensusVerdict = "not enough data to say"
    enough: ConsensusVerdict = "FedAvg is enough here"
    effective = float(1 / weights.square().sum())
    relevant = [drift for drift in drifts if drift.steps > 1]
    if not relevant:
        return unsure, "a single local step has no drift to test."
    if len(weights) > 1 and max(spread, *(drift.bound for drift in relevant)) <= _ROUNDING * size:
        return enough, "the clients do not differ, so there is no drift."
    if effective < MIN_CLIENTS * (1 - 1e-9):
        return unsure, f"there are only {effective:.3g} effective clients, and {MIN_CLIENTS} are needed."
    if norm > spread:
        found = f"its gradient of {norm:.2g} exceeds the clients' dissimilarity of {spread:.2g}"
        return unsure, f"the point is not an optimum: {found}."
    worst, widest = (max(relevant, key=attrgetter(end)) for end in ("low", "high"))
    if worst.low > threshold:
        return "drift matters", f"the average drift is {_interval(worst)}, above {threshold:g}."
    if max(widest.high, *(drift.ratio for drift in relevant)) <= threshold:
        return enough, f"the average drift is about {_interval(widest)}, below {threshold:g}."
    return unsure, f"the average drift is {_interval(widest)}, on both sides of {threshold:g}."


def _interval(drift: Drift) -> str:
    return f"{drift.share:.2f} ({drift.low:.2f} to {drift.high:.2f}) of its bound after {drift.steps} steps"


def _draw(world: SimulatedWorld, clients: Sequence[int] | Tensor | int | None, key: Key) -> Tensor:
    if not isinstance(clients, int):
        return choose_clients(world, clients)
    everyone = choose_clients(world, None)
    if not 1 <= clients <= len(everyone):
        raise FieldError(f"clients must be at least 1 and at most {len(everyone)}, got {clients}.")
    order = key.fold("clients").generator().permutation(len(everyone))
    return choose_clients(world, everyone[torch.from_numpy(order[:clients])])


def _refuse_senseless(
    lr: float,
    steps: Sequence[int],
    batch_size: int | None = None,
    threshold: float = 0.5,
    confidence: float = 0.95,
    resamples: int = 1000,
) -> list[int]:
    horizons = sorted(set(steps))
    limits = 0 < threshold < 1 and 0 < confidence < 1
    for holds, need in (
        (horizons and horizons[0] >= 1, f"steps of at least 1, got {tuple(steps)!r}"),
        (math.isfinite(lr) and lr > 0, f"a finite lr above 0, got {lr!r}"),
        (batch_size is None or batch_size >= 1, f"a batch_size of at least 1 or None, got {batch_size}"),
        (limits, f"threshold and confidence between 0 and 1, got {threshold!r} and {confidence!r}"),
        (resamples >= _AT_LEAST_RESAMPLES, f"at least {_AT_LEAST_RESAMPLES} resamples, got {resamples}"),
    ):
        if not holds:
            raise FieldError(f"consensus_test needs {need}.")
    return horizons
