"""Methods in which clients remember or hear more than the model.

Signs as in the papers: g_i = x − y_i points along the gradient. A client whose upload is lost keeps what it
had (decision 5 of the conventions), and an empty round changes nothing (decision 1).
"""

from typing import Literal, Unpack

import numpy as np

from fairlead.testing.transcriptions.script import Array, Script, Solver, effective_steps, local_work


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
            x = sum((round.share[i] * y for i, y in local.items()), script.zeros())
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
            x = sum((round.share[i] * y for i, y in local.items()), script.zeros()) - h / alpha
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
