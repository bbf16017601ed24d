"""Full gradients of clients, and points where their weighted mean is small.

Everything here treats F_i as a fixed function of the parameters: dropout and augmentation are off, and
normalisation layers use the running statistics they are given. It is computed in full precision, whatever that of
the world's training is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairlead.errors import FieldError
from fairlead.randomness import Key
from fairlead.worlds.simulated import SimulatedWorld

_CHUNK = 4096
"""Examples whose losses are computed at a time."""
_HISTORY = 20
"""Pairs that L-BFGS remembers."""


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

    It costs a pass over the clients' data and c·d numbers of memory: ask for it every k-th round, not
    every round.
    """
    chosen = choose_clients(world, clients)
    running = _buffers(world, buffers)
    rows = params.new_empty((len(chosen), len(params)))
    with measuring(world):
        for place, client in enumerate(chosen.tolist()):
            rows[place] = world.objective.full_gradient(params, running, client, None)
    return rows


def objective_value(world: SimulatedWorld, params: Tensor, buffers: Tensor | None = None) -> float:
    """Σ ω_i F_i over the clients' own examples, whether or not the world has a test set."""
    data, running = world.clients, _buffers(world, buffers)
    shares = torch.repeat_interleave(world.population.weights / data.sizes.clamp(min=1), data.sizes)
    rows = torch.arange(len(shares), device=params.device)
    total = 0.0
    with measuring(world), torch.no_grad():
        for part, share in zip(torch.split(rows, _CHUNK), torch.split(shares, _CHUNK), strict=True):
            losses = world.objective.losses(params, running.clone(), part, None)
            total += float(share @ losses.to("cpu", torch.float64))
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
    """Passes over all data that it took."""


def near_optimum(
    world: SimulatedWorld,
    *,
    params: Tensor | None = None,
    buffers: Tensor | None = None,
    weights: Tensor | None = None,
    iterations: int = 200,
    tolerance: float = 0.0,
    seed: int = 0,
) -> NearOptimum:
    """Minimise Σ w_i F_i centrally by L-BFGS with a strong Wolfe line search.

    Symbols: w `weights`, ω of the objective unless given; weight on one client alone finds that client's own
    optimum. The start is `params`, else the world's initial model under `seed`. The search ends after
    `iterations` or as soon as no entry of the gradient exceeds `tolerance`. A model that can fit all data
    exactly has its optimum at infinity or at interpolation: judge by the gradient norm that comes back.
    """
    if iterations < 1:
        raise FieldError(f"near_optimum needs iterations of at least 1, got {iterations}.")
    start = world.initial_model(Key.from_seed(seed))[0] if params is None else params
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
    rows = used.to(start.device)
    evaluations = 0

    def evaluate() -> Tensor:
        nonlocal evaluations
        evaluations += 1
        point.grad = None
        total = torch.zeros((), dtype=torch.float64)
        for part, share in zip(torch.split(rows, _CHUNK), torch.split(shares, _CHUNK), strict=True):
            loss = share @ objective.losses(point, running.clone(), part, None)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach().double().cpu()
        return total

    search = torch.optim.LBFGS(
        [point],
        max_iter=iterations,
        max_eval=2 * iterations + 10,
        tolerance_grad=tolerance,
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


def client_optima(
    world: SimulatedWorld,
    params: Tensor,
    *,
    clients: Sequence[int] | Tensor | None = None,
    buffers: Tensor | None = None,
    iterations: int = 100,
) -> Tensor:
    """Each client's own optimum as far as L-BFGS finds it from `params`, (c, d)."""
    chosen = choose_clients(world, clients)
    alone = torch.eye(world.population.num_clients, dtype=torch.float64)[chosen]
    return torch.stack(
        [
            near_optimum(world, params=params, buffers=buffers, weights=only, iterations=iterations).params
            for only in alone
        ]
    )


def _buffers(world: SimulatedWorld, buffers: Tensor | None) -> Tensor:
    return world.objective.model.initial_buffers() if buffers is None else buffers
