"""Methods whose server remembers no single client: they average, and some clients remember or hear more than the model.

Signs as in the papers: g_i = x − y_i points along the gradient, and x ← x − η_g·direction. A client whose upload is
lost keeps what it had (decision 5 of the conventions), and an empty round changes nothing (decision 1).
"""

from collections.abc import Callable
from typing import Literal, Unpack

import numpy as np
import torch

from fairlead.randomness import Key, keyed_uniform
from transcriptions.script import (
    Array,
    Round,
    Script,
    Solver,
    Updates,
    combined,
    effective_steps,
    follow,
    local_work,
)


def fedavg(script: Script, **solver: Unpack[Solver]) -> Array:
    """McMahan et al. 2017: x ← x − Σ_R p̂_i g_i."""
    return follow(script, solver, Round.mean)


def fedavgm(
    script: Script, *, server_momentum: float = 0.9, server_lr: float = 1.0, **solver: Unpack[Solver]
) -> Array:
    """Hsu et al. 2019: v ← βv + Σp̂g, x ← x − η_g v."""
    v = script.zeros()

    def step(round: Round, g: Updates) -> Array:
        nonlocal v
        v = server_momentum * v + round.mean(g)
        return server_lr * v

    return follow(script, solver, step)


def fedprox(script: Script, *, mu: float, **solver: Unpack[Solver]) -> Array:
    """Li et al. 2020: FedAvg on F_i(y) + (μ/2)‖y − x‖²."""
    return follow(script, solver, Round.mean, mu=mu)


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

    def step(round: Round, g: Updates) -> Array:
        nonlocal buffer
        a = {i: effective_steps(round.steps[i], solver, mu) for i in g}
        if tau_eff == "work":
            tau = sum(round.share[i] * a[i] for i in g)
        elif tau_eff == "steps":
            tau = sum(round.share[i] * round.steps[i] for i in g)
        else:
            tau = float(tau_eff)
        buffer = server_momentum * buffer + tau * round.mean({i: g[i] / a[i] for i in g})
        return buffer

    return follow(script, solver, step, mu=mu)


def _adaptive(
    second_moment: Callable[[Array, Array, float], Array], usual_beta1: float = 0.9
) -> Callable[..., Array]:
    """Reddi et al. 2021, Algorithm 2, for a rule that renews v from v, Δ² and β₂; no bias correction."""

    def transcription(
        script: Script,
        *,
        server_lr: float = 0.01,
        beta1: float = usual_beta1,
        beta2: float = 0.99,
        eps: float = 1e-4,
        initial_v: float = 0.0,
        **solver: Unpack[Solver],
    ) -> Array:
        m, v = script.zeros(), np.full_like(script.start, initial_v)

        def step(round: Round, g: Updates) -> Array:
            nonlocal m, v
            delta = -round.mean(g)
            m = beta1 * m + (1 - beta1) * delta
            v = second_moment(v, delta**2, beta2)
            return -server_lr * m / (np.sqrt(v) + eps)

        return follow(script, solver, step)

    return transcription


fedadam = _adaptive(lambda v, square, beta2: beta2 * v + (1 - beta2) * square)
"""v ← β₂v + (1 − β₂)Δ²."""
fedyogi = _adaptive(lambda v, square, beta2: v - (1 - beta2) * square * np.sign(v - square))
"""v ← v − (1 − β₂)Δ² sign(v − Δ²)."""
fedadagrad = _adaptive(lambda v, square, _: v + square, usual_beta1=0.0)
"""v ← v + Δ²."""


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

    def step(round: Round, g: Updates) -> Array:
        nonlocal m, v, v_hat
        delta = -round.mean(g)
        m = beta1 * m + (1 - beta1) * delta
        v = beta2 * v + (1 - beta2) * delta**2
        if option == 1:
            v_hat = np.maximum(np.maximum(v_hat, v), eps)
            return -server_lr * m / np.sqrt(v_hat)
        v_hat = np.maximum(v_hat, v)
        return -server_lr * m / (np.sqrt(v_hat) + eps)

    return follow(script, solver, step)


def anonymous_fedavg(script: Script, **solver: Unpack[Solver]) -> Array:
    """Weng 2025 (18)-(21): x ← x − Σ_R importance_i g_i, in which a lost update counts as zero.

    The importance is c_i/K for draws by ω ("IS") and by FedACS (15), (M/K)ω_i without replacement ("US"),
    ω_i for everybody ("full").
    """
    return follow(script, solver, lambda round, g: combined(g, round.asked))


def communication_aware_fedavg(script: Script, **solver: Unpack[Solver]) -> Array:
    """Weng 2025 (113): x ← x − Σ_R importance_i g_i/(1 − q_i)."""
    rates = script.rates
    return follow(script, solver, lambda round, g: combined({i: g[i] / rates[i] for i in g}, round.asked))


def anonymous_fednova(script: Script, **solver: Unpack[Solver]) -> Array:
    """Weng 2025 (116): x ← x − Σ_R importance_i (T_eff/‖a_i‖₁) g_i, T_eff = Σω(1−q)‖a‖₁/Σω(1−q) over all."""
    mass = script.weights * script.rates

    def step(round: Round, g: Updates) -> Array:
        a = np.array([effective_steps(tau, solver) for tau in round.steps])
        return float(mass @ a / mass.sum()) * combined({i: g[i] / a[i] for i in g}, round.asked)

    return follow(script, solver, step)


def communication_aware_fednova(script: Script, **solver: Unpack[Solver]) -> Array:
    """Both corrections of Weng 2025: x ← x − Σ_R importance_i/(1 − q_i)·(T_eff/‖a_i‖₁) g_i, T_eff = Σω‖a‖₁."""
    rates = script.rates

    def step(round: Round, g: Updates) -> Array:
        a = np.array([effective_steps(tau, solver) for tau in round.steps])
        return float(script.weights @ a) * combined({i: g[i] / (rates[i] * a[i]) for i in g}, round.asked)

    return follow(script, solver, step)


def optimal_sampling(script: Script, *, floor: float = 0.1, **solver: Unpack[Solver]) -> Array:
    """Weng 2025 (20): x ← x − (1/K) Σ_R c_i (ω_i/p_i) g_i with p_i ∝ ω_i‖g_i‖, here of the last g_i received.

    p is mixed with ω by `floor`; a client never received counts with the largest norm known, 1 if none is
    positive.
    """
    norms = np.full(script.num_clients, np.nan)

    def step(round: Round, g: Updates) -> Array:
        largest = max((norm for norm in norms if norm > 0), default=1.0)
        ideal = script.weights * np.where(np.isnan(norms), largest, norms)
        ideal = ideal / ideal.sum() if ideal.sum() > 0 else script.weights
        p = (1 - floor) * ideal + floor * script.weights
        for i in g:
            norms[i] = np.linalg.norm(g[i])
        return combined({i: script.weights[i] / p[i] * g[i] for i in g}, round.asked)

    return follow(script, solver, step)


def scaffold(
    script: Script,
    *,
    estimate: Literal["path", "anchor"] = "path",
    server_lr: float = 1.0,
    **solver: Unpack[Solver],
) -> Array:
    """Karimireddy et al. 2020, Algorithm 1 with options II ("path") and I ("anchor").

    y ← y − η(g_i(y) − c_i + c); c_i⁺ = c_i − c + (x − y_i)/(τ_iη) or ∇F_i(x); c ← c + Σ_R ω_i(c_i⁺ − c_i).
    """
    x, path = script.start, []
    c, c_own = script.zeros(), script.zero_rows()
    for round in script.rounds():
        move, change = script.zeros(), script.zeros()
        for i in round.received:
            y = local_work(script, round, i, x, solver, shift=c - c_own[i])
            if estimate == "anchor":
                c_new = script.gradient(i, x)
            else:
                c_new = c_own[i] - c + (x - y) / (effective_steps(round.steps[i], solver) * solver["lr"])
            move = move + round.share[i] * (y - x)
            change = change + script.weights[i] * (c_new - c_own[i])
            c_own[i] = c_new
        x, c = x + server_lr * move, c + change
        path.append(x)
    return np.array(path)


def fednova_vr(
    script: Script, *, tau_eff: Literal["work", "steps"] | float = "work", **solver: Unpack[Solver]
) -> Array:
    """Wang 2021 with variance reduction: the local gradient is g_i(y) + Σ_j ω_j d_j − d_i.

    d_i is the mean raw gradient of the client's last round, 0 at first.
    """
    x, path = script.start, []
    d = script.zero_rows()
    for round in script.rounds():
        mean = script.weights @ d
        new, direction, work, count = d.copy(), script.zeros(), 0.0, 0.0
        for i in round.received:
            shift = mean - d[i]
            y = local_work(script, round, i, x, solver, shift=shift)
            a = effective_steps(round.steps[i], solver)
            corrected = (x - y) / (solver["lr"] * a)
            new[i] = corrected - shift
            direction = direction + round.share[i] * solver["lr"] * corrected
            work += round.share[i] * a
            count += round.share[i] * round.steps[i]
        scale = {"work": work, "steps": count}[tau_eff] if isinstance(tau_eff, str) else tau_eff
        x, d = x - scale * direction, new
        path.append(x)
    return np.array(path)


def vrlsgd(script: Script, **solver: Unpack[Solver]) -> Array:
    """Liang et al. 2019: y ← y − η(g_i(y) − Δ_i); Δ_i ← Δ_i + (x̂ − y_i)/(τ_iη), x̂ the new mean."""
    x, path = script.start, []
    drift = script.zero_rows()
    for round in script.rounds():
        local = {i: local_work(script, round, i, x, solver, shift=-drift[i]) for i in round.received}
        if local:
            x = round.mean(local)
        for i, y in local.items():
            drift[i] = drift[i] + (x - y) / (effective_steps(round.steps[i], solver) * solver["lr"])
        path.append(x)
    return np.array(path)


def feddyn(script: Script, *, alpha: float, **solver: Unpack[Solver]) -> Array:
    """Acar et al. 2021: local objective F_i(y) − ⟨L_i, y⟩ + (α/2)‖y − x‖²; L_i ← L_i − α(y_i − x).

    Server: h ← h − α Σ_R ω_i(y_i − x); x ← Σ_R p̂_i y_i − h/α.
    """
    x, path = script.start, []
    h, slope = script.zeros(), script.zero_rows()
    for round in script.rounds():
        local = {
            i: local_work(script, round, i, x, solver, shift=-slope[i], pull=alpha) for i in round.received
        }
        if local:
            for i, y in local.items():
                slope[i] = slope[i] - alpha * (y - x)
                h = h - alpha * script.weights[i] * (y - x)
            x = round.mean(local) - h / alpha
        path.append(x)
    return np.array(path)


def fedcm(script: Script, *, alpha: float = 0.1, server_lr: float = 1.0, **solver: Unpack[Solver]) -> Array:
    """Xu et al. 2021: y ← y − η[αg_i(y) + (1 − α)Δ]; Δ⁺ = Σ_R p̂_i g_i/(ητ_i); x ← x − η_g Σ_R p̂_i g_i."""
    x, path = script.start, []
    momentum = script.zeros()
    for round in script.rounds():
        new, move = script.zeros(), script.zeros()
        for i in round.received:
            y = local_work(script, round, i, x, solver, scale=alpha, shift=(1 - alpha) * momentum)
            work = solver["lr"] * effective_steps(round.steps[i], solver)
            new = new + round.share[i] * (x - y) / work
            move = move + round.share[i] * (x - y)
        if round.received:
            x, momentum = x - server_lr * move, new
        path.append(x)
    return np.array(path)


def fedawe(script: Script, *, echo: float = 1.0, **solver: Unpack[Solver]) -> Array:
    """Xiang et al. 2024: clients work on their own stale model and echo the update once per missed round.

    x_i† = x_i − γ(t − t_i)(x_i − y_i); x = Σ_R p̂_i x_i†; the received adopt x and t_i = t.
    """
    x, path = script.start, []
    own = np.tile(script.start, (script.num_clients, 1))
    last = np.full(script.num_clients, -1)
    for round in script.rounds():
        mean = script.zeros()
        for i in round.received:
            y = local_work(script, round, i, own[i], solver)
            echoed = own[i] - echo * (round.number - last[i]) * (own[i] - y)
            mean = mean + round.share[i] * echoed
        if round.received:
            x = mean
        for i in round.received:
            own[i], last[i] = x, round.number
        path.append(x)
    return np.array(path)


def fedavg_compressed(
    script: Script, *, share: float = 0.1, bits: int | None = None, seed: int = 3, **solver: Unpack[Solver]
) -> Array:
    """Error feedback (Karimireddy et al. 2019, Algorithm 2) on −Δ: p = g + e, q = C(p), e ← p − q; x ← x − Σp̂q.

    C keeps the largest entries; with bits they become σ/(1 + β)·{−s, ..., s}, rounded at random by the run's own keys.
    """
    e, dim = script.zero_rows(), len(script.start)
    k = max(int(np.ceil(round(share * dim, 9))), 1)

    def compressed(p: Array, round: Round, i: int) -> Array:
        places = np.sort(np.argsort(-np.abs(p), kind="stable")[:k])
        q = np.zeros(dim)
        if bits is None:
            q[places] = p[places]
            return q
        s = 2 ** (bits - 1) - 1
        sigma = np.abs(p).max() / s
        key = Key.from_seed(seed).fold("noise", round.number, i, "upload").torch_seed()
        u = keyed_uniform(torch.tensor(key), torch.Size([k]), torch.device("cpu")).numpy()
        variance = 0.0
        for place, chance in zip(places, u, strict=True):
            level = abs(p[place]) / sigma
            above = level - np.floor(level)
            variance += above * (1 - above) * sigma**2
            q[place] = np.sign(p[place]) * sigma * min(np.floor(level) + (chance < above), s)
        square = float(p[places] @ p[places])
        return q / (1 + variance / square)

    def step(round: Round, g: Updates) -> Array:
        sent = {}
        for i in g:
            p = g[i] + e[i]
            sent[i] = compressed(p, round, i)
            e[i] = p - sent[i]
        return round.mean(sent)

    return follow(script, solver, step)


def fedexp(script: Script, *, eps: float = 1e-3, **solver: Unpack[Solver]) -> Array:
    """Jhunjhunwala et al. 2023, Algorithm 1 with p̂_i for 1/M: η_g = max(1, Σp̂‖g‖²/(2(‖Σp̂g‖² + ε)))."""

    def step(round: Round, g: Updates) -> Array:
        mean = round.mean(g)
        squares = sum(round.share[i] * float(g[i] @ g[i]) for i in g)
        return max(1.0, squares / (2 * (float(mean @ mean) + eps))) * mean

    return follow(script, solver, step)
