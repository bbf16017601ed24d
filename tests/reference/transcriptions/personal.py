"""Personal methods: clients keep some parameters, a model of their own, or train the global one further for themselves.

Each returns the global model after every round, as all transcriptions do, and writes the model that client i uses after
the last round into `models[i]`, if given. `own` are the coordinates that clients keep.
"""

from collections.abc import Callable
from typing import Unpack

import numpy as np

from transcriptions.script import Array, Round, Script, Solver, follow

Models = dict[int, Array]


def descend(script: Script, client: int, y: Array, lr: float, steps: int, mask: Array | float = 1.0) -> Array:
    """y after so many steps along the masked gradient."""
    for _ in range(steps):
        y = y - lr * mask * script.gradient(client, y)
    return y


def fedavg_finetuned(
    script: Script,
    *,
    personal_lr: float | None = None,
    personal_steps: int = 1,
    models: Models | None = None,
    **solver: Unpack[Solver],
) -> Array:
    """Yu et al. 2020: FedAvg; in the end every client takes a few steps from x."""
    path = follow(script, solver, Round.mean)
    lr = personal_lr or solver["lr"]
    _all_models(script, models, lambda i: descend(script, i, path[-1], lr, personal_steps))
    return path


def _shared_body(
    script: Script, own: tuple[int, ...], models: Models | None, lr: float, head_lr: float, head_steps: int
) -> Array:
    """Clients with heads v_i of their own on a body x; `head_steps` > 0 trains the head alone before the body alone."""
    head = np.isin(np.arange(len(script.start)), own).astype(float)
    x, path = script.start, []
    heads = dict.fromkeys(range(script.num_clients), script.start)
    for round in script.rounds():
        move = script.zeros()
        for i in round.received:
            start = (1 - head) * x + head * heads[i]
            y = descend(script, i, start, head_lr, head_steps, head)
            y = descend(script, i, y, lr, round.steps[i], 1 - head if head_steps else 1.0)
            move = move + round.share[i] * (1 - head) * (y - x)
            heads[i] = y
        x = x + move
        path.append(x)
    _all_models(script, models, lambda i: (1 - head) * x + head * heads[i])
    return np.array(path)


def fedper(
    script: Script, *, own: tuple[int, ...] = (), models: Models | None = None, **solver: Unpack[Solver]
) -> Array:
    """Arivazhagan et al. 2019, Algorithms 1 and 2: SGD on body and head together, the mean of the bodies."""
    return _shared_body(script, own, models, solver["lr"], 0.0, 0)


fedbn = fedper
"""Li et al. 2021, Algorithm 1: the same with normalization layers for the head."""


def fedrep(
    script: Script,
    *,
    own: tuple[int, ...] = (),
    personal_lr: float | None = None,
    personal_steps: int = 1,
    models: Models | None = None,
    **solver: Unpack[Solver],
) -> Array:
    """Collins et al. 2021, Algorithm 1: steps on the head under the body received, then steps on the body."""
    return _shared_body(script, own, models, solver["lr"], personal_lr or solver["lr"], personal_steps)


def ditto(
    script: Script,
    *,
    mu: float,
    personal_lr: float | None = None,
    personal_steps: int = 1,
    models: Models | None = None,
    **solver: Unpack[Solver],
) -> Array:
    """Li et al. 2021, Algorithm 1: v_i ← v_i − η(∇F_i(v_i) + λ(v_i − x)) beside FedAvg, from the first x received."""
    path, lr = follow(script, solver, Round.mean), personal_lr or solver["lr"]
    before = [script.start, *path]
    v: Models = {}
    for round in script.rounds():
        x = before[round.number]
        for i in round.received:
            y = v.get(i, x)
            for _ in range(personal_steps):
                y = y - lr * (script.gradient(i, y) + mu * (y - x))
            v[i] = y
    _all_models(script, models, lambda i: v.get(i, path[-1]))
    return path


def _all_models(script: Script, models: Models | None, use: Callable[[int], Array]) -> None:
    if models is not None:
        models.update({i: use(i) for i in range(script.num_clients)})


def _averaged(script: Script, train: Callable[[Round, int, Array], Array], server_lr: float) -> Array:
    """x ← x + η_g Σ_R p̂_i (y_i − x) with y_i = train(round, i, x)."""
    x, path = script.start, []
    for round in script.rounds():
        if round.received:
            x = x + server_lr * round.mean({i: train(round, i, x) - x for i in round.received})
        path.append(x)
    return np.array(path)


def pfedme(
    script: Script,
    *,
    mu: float = 15.0,
    inner_lr: float | None = None,
    inner_steps: int = 5,
    server_lr: float = 1.0,
    personal_steps: int = 1,
    models: Models | None = None,
    **solver: Unpack[Solver],
) -> Array:
    """T. Dinh et al. 2020, Algorithm 1: R = τ_i local rounds, each with K steps on θ and one on w.

    w ← w − ηλ(w − θ); x ← (1 − β)x + βΣp̂w. θ continues from one local round to the next (released code).
    """
    alpha = inner_lr or solver["lr"]

    def train(round: Round, i: int, x: Array) -> Array:
        w = theta = x
        for _ in range(round.steps[i]):
            for _ in range(inner_steps):
                theta = theta - alpha * (script.gradient(i, theta) + mu * (theta - w))
            w = w - solver["lr"] * mu * (w - theta)
        return w

    path = _averaged(script, train, server_lr)

    def use(i: int) -> Array:
        theta: Array = path[-1]
        for _ in range(personal_steps):
            theta = theta - alpha * (script.gradient(i, theta) + mu * (theta - path[-1]))
        return theta

    _all_models(script, models, use)
    return path


def per_fedavg(
    script: Script,
    *,
    inner_lr: float | None = None,
    delta: float | None = None,
    server_lr: float = 1.0,
    personal_steps: int = 1,
    models: Models | None = None,
    **solver: Unpack[Solver],
) -> Array:
    """Fallah et al. 2020, Algorithm 1 with (7), or without the second-order term.

    A step needs two batches, or three with `delta`; of τ_i batches what is left over is dropped, and a client with too
    few uses its last one again.
    """
    alpha, batches = inner_lr or solver["lr"], 2 if delta is None else 3

    def train(round: Round, i: int, x: Array) -> Array:
        w = x
        for _ in range(max(round.steps[i] // batches, 1)):
            g = script.gradient(i, w - alpha * script.gradient(i, w))
            if delta is None:
                d = 0.0 * g
            else:
                d = (script.gradient(i, w + delta * g) - script.gradient(i, w - delta * g)) / (2 * delta)
            w = w - solver["lr"] * (g - alpha * d)
        return w

    path = _averaged(script, train, server_lr)
    _all_models(script, models, lambda i: descend(script, i, path[-1], alpha, personal_steps))
    return path


def apfl(
    script: Script,
    *,
    mix: float = 0.5,
    adaptive: bool = False,
    steps: int = 1,
    models: Models | None = None,
    **solver: Unpack[Solver],
) -> Array:
    """Deng et al. 2020, Algorithm 1; `steps` of w and v a round, of which v stays with the client.

    Adaptive: α ← α − η⟨v − w, ∇f(αv + (1 − α)w)⟩ once a round, from the v, w and gradient of its first step.
    """
    path, lr = follow(script, solver, Round.mean), solver["lr"]
    before = [script.start, *path]
    v: Models = {}
    alpha = dict.fromkeys(range(script.num_clients), mix)
    for round in script.rounds():
        for i in round.received:
            w = before[round.number]
            own = v.get(i, w)
            for step in range(steps):
                a = alpha[i]
                gradient = script.gradient(i, a * own + (1 - a) * w)
                if adaptive and step == 0:
                    alpha[i] = min(max(a - lr * float((own - w) @ gradient), 0.0), 1.0)
                w, own = w - lr * script.gradient(i, w), own - lr * a * gradient
            v[i] = own
    _all_models(script, models, lambda i: alpha[i] * v.get(i, path[-1]) + (1 - alpha[i]) * path[-1])
    return path
