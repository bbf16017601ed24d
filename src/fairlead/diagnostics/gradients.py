"""Full gradients of clients, and points where their weighted mean is small.

All functions here treat F_i as a fixed function of the parameters: dropout and augmentation are off, and
normalization layers use the given running statistics. They compute in full precision, whatever the precision of
training.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.diagnostics.consistency import chi_square
from fairlead.errors import FieldError
from fairlead.federation import Federation
from fairlead.randomness import Key
from fairlead.records import Conditions, Contributions, GradientFigures, RoundRecord
from fairlead.results.estimates import student_quantile
from fairlead.round_record import diversity, length_ratio
from fairlead.theory.prediction import averaging
from fairlead.worlds.simulated import SimulatedWorld

_CHUNK = 4096
"""Examples whose losses are computed at a time."""
_SURE = 0.98
"""Of Student's t on both sides, so that 1 % is left on the side that decides."""
_ROUNDING = 1e-9
FEWEST = 3
"""Effective clients whose difference can be told from chance, at least."""
_HISTORY = 20
"""Pairs in the memory of L-BFGS."""


@contextmanager
def measuring(world: SimulatedWorld) -> Iterator[None]:
    """Fixed functions in full precision within the block: drifts are small differences of gradients.

    Clients' numbers of examples all differ, too many shapes to tune convolutions for.
    """
    world.objective.model.module.eval()
    with replace(world.arithmetic, precision="full").on(world.device, autotune=False):
        yield


def choose_clients(world: SimulatedWorld, clients: Sequence[int] | Tensor | None) -> Tensor:
    """The given clients in ascending order, or all that have weight in the objective; (c,) int64."""
    weights = world.population.weights
    if clients is None:
        return weights.nonzero().flatten()
    chosen = torch.tensor(sorted({int(client) for client in clients}), dtype=torch.int64)
    if not len(chosen) or bool((chosen < 0).any()) or int(chosen.max()) >= len(weights):
        raise FieldError(
            f"clients must be a list of at least one id from 0 to {len(weights) - 1}, got {list(clients)!r}."
        )
    if not bool((weights[chosen] > 0).all()):
        idle = int(chosen[weights[chosen] == 0][0])
        raise FieldError(f"clients must have weight in the objective, got client {idle} with none.")
    return chosen


def client_gradients(
    world: SimulatedWorld,
    params: Tensor,
    *,
    clients: Sequence[int] | Tensor | None = None,
    buffers: Tensor | None = None,
) -> Tensor:
    """∇F_i(params) over all examples of each client, (c, d); all clients that have weight unless given.

    It costs a pass over the clients' data and c·d numbers of memory: compute it every k-th round, not every round.
    """
    chosen = choose_clients(world, clients)
    running = _buffers(world, buffers)
    rows = params.new_empty((len(chosen), len(params)))
    with measuring(world):
        for place, client in enumerate(chosen.tolist()):
            rows[place] = world.objective.mean_gradient(params, running, world.clients.rows_of(client), None)
    return rows


class Dissimilarity(NamedTuple):
    """How much clients' gradients differ at one model, beyond chance."""

    between: float
    """Σ ω_i‖G_i − G‖² over the clients' distributions, without bias: chance alone has mean 0."""
    margin: float
    """Of `between`, at 99 % confidence on either side; inf with fewer than three effective clients."""
    noise: float
    """Σ ω_i E‖∇F_i − G_i‖²: how much the clients' samples add to it."""

    @property
    def share(self) -> float:
        """Share of the variance between ∇F_i that chance does not explain."""
        total = self.between + self.noise
        return min(max(self.between / total, 0.0), 1.0) if total > 0 else 0.0

    @property
    def at_most(self) -> float:
        """The upper end of the interval of `share`."""
        total = max(self.between, 0.0) + self.noise
        return min((max(self.between, 0.0) + self.margin) / total, 1.0) if total > 0 else 0.0


def dissimilarity(
    world: SimulatedWorld, params: Tensor, *, clients: Tensor | None = None, buffers: Tensor | None = None
) -> Dissimilarity:
    """Whether clients' gradients differ by more than their samples do by chance; a pass over their data.

        Σ ω_i ⟨g_i − ḡ, g'_i − ḡ'⟩

    Symbols: g_i and g'_i the gradients over two random halves of client i's examples, ḡ and ḡ' their weighted means.
    The noise of the halves is independent, so that only the difference of distributions is left in the product. Its
    margin is t_{m−1} √(Σ ω_i²(p_i − p̄)² m/(m − 2)) with the products p_i of mean p̄, m = 1/Σ ω_i² effective clients and
    Student's t: because all gradients are centered by the same means, products of equal clients have correlation
    1/(m − 1)², which m/(m − 2) corrects.
    """
    chosen, running = choose_clients(world, clients), _buffers(world, buffers)
    chosen = chosen[world.clients.sizes[chosen] > 1]
    weights = world.population.weights[chosen] / world.population.weights[chosen].sum()
    halves = params.new_empty((2, len(chosen), len(params)))
    with measuring(world):
        for place, client in enumerate(chosen.tolist()):
            rows = world.clients.rows_of(client)
            order = Key.from_seed(0).fold("halves", client).generator().permutation(rows.stop - rows.start)
            for half in (0, 1):
                some = rows.start + torch.from_numpy(order[half::2])
                halves[half, place] = world.objective.mean_gradient(params, running, some, None)
    centered = (
        halves.double() - torch.einsum("c,hcd->hd", weights.to(halves.device), halves.double())[:, None]
    )
    products = (centered[0] * centered[1]).sum(1).cpu()
    between = float(weights @ products)
    effective = float(1 / weights.square().sum()) + _ROUNDING
    margin = math.inf
    if effective >= FEWEST:
        deviation = float(torch.linalg.vector_norm(weights * (products - between)))
        student = student_quantile(int(effective) - 1, _SURE)
        margin = student * deviation * math.sqrt(effective / (effective - 2))
    noise = float(weights @ (centered[0] - centered[1]).square().sum(1).cpu()) / 4
    return Dissimilarity(between, margin, noise)


def objective_value(world: SimulatedWorld, params: Tensor, buffers: Tensor | None = None) -> float:
    """Σ ω_i F_i over the clients' own examples, with or without a test set."""
    data, running = world.clients, _buffers(world, buffers)
    shares = torch.repeat_interleave(world.population.weights / data.sizes.clamp(min=1), data.sizes)
    rows = torch.arange(len(shares), device=params.device)
    total = 0.0
    with measuring(world), torch.no_grad():
        for part, share in zip(torch.split(rows, _CHUNK), torch.split(shares, _CHUNK), strict=True):
            losses = world.objective.losses(params, running.clone(), part, None)
            total += float(share @ losses.cpu().to(torch.float64))
    return total


@dataclass(frozen=True, eq=False)
class NearOptimum:
    """A point at which the gradient of the objective is small, and how small it is."""

    params: Tensor
    buffers: Tensor
    loss: float
    """Σ ω_i F_i there."""
    gradient_norm: float
    """‖Σ ω_i ∇F_i‖ there; 0 at a true optimum."""
    evaluations: int
    """Passes over all data."""


def near_optimum(
    world: SimulatedWorld,
    *,
    params: Tensor | None = None,
    buffers: Tensor | None = None,
    weights: Tensor | None = None,
    iterations: int = 200,
) -> NearOptimum:
    """Minimize Σ w_i F_i centrally by L-BFGS with a strong Wolfe line search.

    Symbols: w `weights`, ω of the objective unless given; weight on a single client finds that client's own
    optimum. The start is `params`, else the world's initial model under seed 0. The search ends after `iterations`, or
    where the gradient is zero. A model that can fit all data exactly has its optimum at infinity or at interpolation:
    check the gradient norm of the result.
    """
    if iterations < 1:
        raise FieldError(f"near_optimum needs iterations of at least 1, got {iterations}.")
    start = world.initial_model(Key.from_seed(0))[0] if params is None else params
    running = _buffers(world, buffers)
    point = start.detach().clone().requires_grad_()
    data, objective = world.clients, world.objective
    omega = world.population.weights if weights is None else weights.to(torch.float64)
    if len(omega) != data.num_clients:
        raise FieldError(
            f"weights must have one number per client ({data.num_clients}), got {len(omega)} numbers."
        )
    by_example = torch.repeat_interleave(omega / data.sizes.clamp(min=1), data.sizes)
    used = by_example.nonzero().flatten()
    shares = by_example[used].to(start)
    evaluations = 0

    def evaluate() -> Tensor:
        nonlocal evaluations
        evaluations += 1
        point.grad = None
        total = torch.zeros((), dtype=torch.float64)
        for part, share in zip(torch.split(used, _CHUNK), torch.split(shares, _CHUNK), strict=True):
            loss = share @ objective.losses(point, running.clone(), part, None).to(share)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach().double().cpu()
        return total

    search = torch.optim.LBFGS(
        [point],
        max_iter=iterations,
        max_eval=2 * iterations + 10,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        history_size=_HISTORY,
        line_search_fn="strong_wolfe",
    )
    with measuring(world):
        search.step(lambda: float(evaluate()))  # type: ignore[no-untyped-call]
        loss = float(evaluate())
    assert point.grad is not None
    norm = float(torch.linalg.vector_norm(point.grad.double()))
    return NearOptimum(point.detach(), running, loss, norm, evaluations)


def _buffers(world: SimulatedWorld, buffers: Tensor | None) -> Tensor:
    return world.objective.model.initial_buffers() if buffers is None else buffers


@dataclass(frozen=True)
class Stationarity:
    """Lengths of the gradients of both objectives at one model."""

    true_gradient: float
    """‖Σ ω_i∇F_i‖."""
    surrogate_gradient: float
    """‖Σ Ω_i∇F_i‖."""
    gap_bound: float
    """√(χ² Σ Ω_i‖∇F_i‖²), which bounds the length of their difference (Wang 2021, Theorem 2)."""
    mean_square: float
    """Σ ω_i‖∇F_i‖²."""


def stationarity(
    world: SimulatedWorld,
    params: Tensor,
    buffers: Tensor,
    surrogate: Tensor,
    *,
    weight_decay: float = 0.0,
) -> Stationarity:
    """Full gradients at a model, one client after another.

    Every F_i includes the penalty ½·weight_decay·‖x‖² that the clients' optimizer adds. Dropout and
    augmentation are off. The cost is one pass over all data and memory for two vectors.
    """
    weights, objective = world.population.weights, world.objective
    true, biased = torch.zeros_like(params), torch.zeros_like(params)
    squares = torch.zeros_like(weights)
    with measuring(world):
        for client in ((weights > 0) | (surrogate > 0)).nonzero().flatten().tolist():
            gradient = (
                objective.mean_gradient(params, buffers, objective.data.rows_of(client), None)
                + weight_decay * params
            )
            true += float(weights[client]) * gradient
            biased += float(surrogate[client]) * gradient
            squares[client] = float(torch.linalg.vector_norm(gradient)) ** 2
    divergence, surrogate_square = chi_square(weights, surrogate), float(surrogate @ squares)
    return Stationarity(
        float(torch.linalg.vector_norm(true)),
        float(torch.linalg.vector_norm(biased)),
        math.sqrt(divergence * surrogate_square) if surrogate_square > 0 else 0.0,
        float(weights @ squares),
    )


def gradient_figures(federation: Federation, record: RoundRecord) -> GradientFigures:
    """The figures at the model with which the latest round of a simulated federation ended.

        D = √(Σ ω_i‖∇F_i‖²)/‖Σ ω_i∇F_i‖,   D̃ = √(Σ ω_i‖∇F_i‖²)/‖Σ λ̃_i∇F_i‖   (Zeng 2023 (3), (6))

    Symbols: λ̃ `round_weights`. Every F_i includes the penalty of the clients' weight decay.
    """
    algorithm, state, world = federation.algorithm, federation.state, federation.world.simulation
    if world is None:
        raise FieldError("gradient_figures needs the clients' data: only a simulated world has them.")
    conditions = world.conditions(record.round, algorithm.solver, federation.key)
    applied = round_weights(algorithm, record, conditions)
    weights = conditions.weights if applied is None else applied
    decay = algorithm.solver.optimizer.weight_decay
    found = stationarity(world, state.params, state.buffers, weights, weight_decay=decay)
    figures = found.true_gradient, diversity(found.mean_square, found.true_gradient**2)
    if applied is None:
        return GradientFigures(*figures)
    surrogate = found.surrogate_gradient
    return GradientFigures(*figures, surrogate, length_ratio(found.mean_square, surrogate**2))


def round_weights(algorithm: Algorithm, record: RoundRecord, conditions: Conditions) -> Tensor | None:
    """λ̃: how much each client's gradient counts in the step of one round, to first order in the learning rate, (N,).

        λ̃_i ∝ (coefficient_i + remembered_i)‖a_i‖₁

    A remembered update is assumed to have the work that is planned for its client now. ω under
    corrections that restore the weights. None if it is unknown: no update arrived, updates are not linear in
    gradients, or gradients of other rounds act.
    """
    work, corrections = conditions.effective_steps, algorithm.solver.corrections
    if algorithm.solver.clip is not None or any(part.hides_weights for part in algorithm.transforms):
        return None
    if any(correction.restores_weights for correction in corrections):
        return conditions.weights
    if work is None or (record.coefficients is None and not record.remembered):
        return None
    coefficient = torch.zeros_like(conditions.weights)
    if record.coefficients is not None:
        arrived = torch.tensor(record.arrived, dtype=torch.int64)
        coefficient[arrived] = torch.tensor(record.coefficients, dtype=coefficient.dtype)
    for client, share in record.remembered.items():
        coefficient[client] += share
    mass = coefficient * work
    facts = Contributions(conditions.weights, coefficient, mass, work, echoed=work, steady=True)
    by = averaging(algorithm)
    mixed = any(correction.weights_under(facts, by) is not None for correction in corrections)
    if mixed or bool((mass < 0).any()) or not bool(mass.sum() > 0):
        return None
    return mass / mass.sum()
