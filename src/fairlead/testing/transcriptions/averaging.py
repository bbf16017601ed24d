"""Methods that only average: FedAvg and its samplings, FedProx, FedNova, and optimizers on the server.

Signs as in the papers: g_i = x − y_i points along the gradient, and x ← x − η_g·direction.
"""

from collections.abc import Callable
from typing import Literal, Unpack

import numpy as np

from fairlead.testing.transcriptions.script import Array, Round, Script, Solver, effective_steps, local_work


def local_updates(
    script: Script, round: Round, x: Array, solver: Solver, mu: float = 0.0
) -> dict[int, Array]:
    """g_i = x − y_i of every client in R, with the gradient of (μ/2)‖y − x‖² added."""
    return {i: x - local_work(script, round, i, x, solver, pull=mu) for i in round.received}


def follow(
    script: Script, step: Callable[[Round, Array], Array], on_empty: Callable[[Round], None] | None = None
) -> Array:
    """The model after every round: x ← x − step(round, x), unchanged when nothing was received."""
    x, path = script.start, []
    for round in script.rounds():
        if round.received:
            x = x - step(round, x)
        elif on_empty is not None:
            on_empty(round)
        path.append(x)
    return np.array(path)


def fedavg(script: Script, **solver: Unpack[Solver]) -> Array:
    """McMahan et al. 2017: x ← x − Σ_R p̂_i g_i."""

    def step(round: Round, x: Array) -> Array:
        g, share = local_updates(script, round, x, solver), round.share
        return sum((share[i] * g[i] for i in g), script.zeros())

    return follow(script, step)


def fedavgm(
    script: Script, *, server_momentum: float = 0.9, server_lr: float = 1.0, **solver: Unpack[Solver]
) -> Array:
    """Hsu et al. 2019: v ← βv + Σp̂g, x ← x − η_g v."""
    v = script.zeros()

    def step(round: Round, x: Array) -> Array:
        nonlocal v
        g, share = local_updates(script, round, x, solver), round.share
        v = server_momentum * v + sum((share[i] * g[i] for i in g), script.zeros())
        return server_lr * v

    return follow(script, step)


def fedprox(script: Script, *, mu: float, **solver: Unpack[Solver]) -> Array:
    """Li et al. 2020: FedAvg on F_i(y) + (μ/2)‖y − x‖²."""

    def step(round: Round, x: Array) -> Array:
        g, share = local_updates(script, round, x, solver, mu), round.share
        return sum((share[i] * g[i] for i in g), script.zeros())

    return follow(script, step)


def fednova(
    script: Script,
    *,
    tau_eff: Literal["work", "steps"] | float = "work",
    server_momentum: float = 0.0,
    mu: float = 0.0,
    **solver: Unpack[Solver],
) -> Array:
    """Wang 2021 (20): x ← x − τ_eff Σ_R p̂_i g_i/‖a_i‖₁, through a momentum buffer if asked."""
    buffer = script.zeros()

    def step(round: Round, x: Array) -> Array:
        nonlocal buffer
        g, share = local_updates(script, round, x, solver, mu), round.share
        a = {i: effective_steps(round.steps[i], solver, mu) for i in g}
        if tau_eff == "work":
            tau = sum(share[i] * a[i] for i in g)
        elif tau_eff == "steps":
            tau = sum(share[i] * round.steps[i] for i in g)
        else:
            tau = float(tau_eff)
        d = sum((share[i] * g[i] / a[i] for i in g), script.zeros())
        buffer = server_momentum * buffer + tau * d
        return buffer

    return follow(script, step)


def _adaptive(
    script: Script,
    second_moment: Callable[[Array, Array], Array],
    *,
    server_lr: float,
    beta1: float,
    eps: float,
    initial_v: float,
    solver: Solver,
) -> Array:
    m, v = script.zeros(), np.full_like(script.start, initial_v)

    def step(round: Round, x: Array) -> Array:
        nonlocal m, v
        g, share = local_updates(script, round, x, solver), round.share
        delta = -sum((share[i] * g[i] for i in g), script.zeros())
        m = beta1 * m + (1 - beta1) * delta
        v = second_moment(v, delta**2)
        return -server_lr * m / (np.sqrt(v) + eps)

    return follow(script, step)


def fedadam(
    script: Script,
    *,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-4,
    initial_v: float = 0.0,
    **solver: Unpack[Solver],
) -> Array:
    """Reddi et al. 2021, Algorithm 2: v ← β₂v + (1 − β₂)Δ², no bias correction."""

    def second_moment(v: Array, square: Array) -> Array:
        return beta2 * v + (1 - beta2) * square

    return _adaptive(
        script,
        second_moment,
        server_lr=server_lr,
        beta1=beta1,
        eps=eps,
        initial_v=initial_v,
        solver=solver,
    )


def fedyogi(
    script: Script,
    *,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-4,
    initial_v: float = 0.0,
    **solver: Unpack[Solver],
) -> Array:
    """Reddi et al. 2021, Algorithm 2: v ← v − (1 − β₂)Δ² sign(v − Δ²)."""

    def second_moment(v: Array, square: Array) -> Array:
        return v - (1 - beta2) * square * np.sign(v - square)

    return _adaptive(
        script,
        second_moment,
        server_lr=server_lr,
        beta1=beta1,
        eps=eps,
        initial_v=initial_v,
        solver=solver,
    )


def fedadagrad(
    script: Script,
    *,
    server_lr: float = 0.01,
    beta1: float = 0.0,
    eps: float = 1e-4,
    initial_v: float = 0.0,
    **solver: Unpack[Solver],
) -> Array:
    """Reddi et al. 2021, Algorithm 2: v ← v + Δ²."""
    return _adaptive(
        script,
        lambda v, square: v + square,
        server_lr=server_lr,
        beta1=beta1,
        eps=eps,
        initial_v=initial_v,
        solver=solver,
    )


def fedams(
    script: Script,
    *,
    option: Literal[1, 2] = 1,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-8,
    **solver: Unpack[Solver],
) -> Array:
    """Wang, Lin and Chen 2022: v̂ ← max(v̂, v, ε), m/√v̂ (1) or v̂ ← max(v̂, v), m/(√v̂ + ε) (2)."""
    m, v, v_hat = script.zeros(), script.zeros(), script.zeros()

    def step(round: Round, x: Array) -> Array:
        nonlocal m, v, v_hat
        g, share = local_updates(script, round, x, solver), round.share
        delta = -sum((share[i] * g[i] for i in g), script.zeros())
        m = beta1 * m + (1 - beta1) * delta
        v = beta2 * v + (1 - beta2) * delta**2
        if option == 1:
            v_hat = np.maximum(np.maximum(v_hat, v), eps)
            return -server_lr * m / np.sqrt(v_hat)
        v_hat = np.maximum(v_hat, v)
        return -server_lr * m / (np.sqrt(v_hat) + eps)

    return follow(script, step)


def anonymous_fedavg(script: Script, **solver: Unpack[Solver]) -> Array:
    """Weng 2025 (18)-(21): x ← x − Σ_R importance_i g_i, in which a lost update counts as zero.

    The importance is c_i/K for draws by ω ("IS") and by FedACS (15), (M/K)ω_i without replacement ("US"),
    ω_i for everybody ("full").
    """

    def step(round: Round, x: Array) -> Array:
        g = local_updates(script, round, x, solver)
        return sum((round.asked[i] * g[i] for i in g), script.zeros())

    return follow(script, step)


def communication_aware_fedavg(script: Script, **solver: Unpack[Solver]) -> Array:
    """Weng 2025 (113): x ← x − Σ_R importance_i g_i/(1 − q_i)."""
    rates = script.arrival_rates
    assert rates is not None

    def step(round: Round, x: Array) -> Array:
        g = local_updates(script, round, x, solver)
        return sum((round.asked[i] * g[i] / rates[i] for i in g), script.zeros())

    return follow(script, step)


def anonymous_fednova(script: Script, **solver: Unpack[Solver]) -> Array:
    """Weng 2025 (116): x ← x − Σ_R importance_i (T_eff/‖a_i‖₁) g_i, T_eff = Σω(1−q)‖a‖₁/Σω(1−q) over all."""
    rates = script.arrival_rates
    assert rates is not None

    def step(round: Round, x: Array) -> Array:
        g = local_updates(script, round, x, solver)
        a = [effective_steps(tau, solver) for tau in round.steps]
        mass = script.weights * np.array(rates)
        total = float(mass @ np.array(a) / mass.sum())
        return sum((round.asked[i] * total / a[i] * g[i] for i in g), script.zeros())

    return follow(script, step)


def communication_aware_fednova(script: Script, **solver: Unpack[Solver]) -> Array:
    """Both corrections of Weng 2025: x ← x − Σ_R importance_i/(1 − q_i)·(T_eff/‖a_i‖₁) g_i, T_eff = Σω‖a‖₁."""
    rates = script.arrival_rates
    assert rates is not None

    def step(round: Round, x: Array) -> Array:
        g = local_updates(script, round, x, solver)
        a = [effective_steps(tau, solver) for tau in round.steps]
        total = float(script.weights @ np.array(a))
        return sum((round.asked[i] / rates[i] * total / a[i] * g[i] for i in g), script.zeros())

    return follow(script, step)


def optimal_sampling(script: Script, *, floor: float = 0.1, **solver: Unpack[Solver]) -> Array:
    """Weng 2025 (20): x ← x − (1/K) Σ_R c_i (ω_i/p_i) g_i with p_i ∝ ω_i‖g_i‖, here of the last g_i received.

    p is mixed with ω by `floor`; a client never received counts with the largest norm known, 1 if none is
    positive.
    """
    norms = np.full(script.num_clients, np.nan)

    def step(round: Round, x: Array) -> Array:
        largest = max((norm for norm in norms if norm > 0), default=1.0)
        known = np.where(np.isnan(norms), largest, norms)
        ideal = script.weights * known
        ideal = ideal / ideal.sum() if ideal.sum() > 0 else script.weights
        p = (1 - floor) * ideal + floor * script.weights
        g = local_updates(script, round, x, solver)
        for i in g:
            norms[i] = np.linalg.norm(g[i])
        return sum((round.asked[i] * script.weights[i] / p[i] * g[i] for i in g), script.zeros())

    return follow(script, step)
