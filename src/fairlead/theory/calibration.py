"""Learning rates that give different participation rules the same expected step (Weng 2025 I.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.errors import FieldError, did_you_mean

PerClient = Tensor | NDArray[np.float64] | Sequence[float]

_UNCORRECTED = (
    "importance_sampling",
    "uniform_sampling",
    "optimal_sampling",
    "full_participation",
    "anonymous_fednova",
    "fedau",
)
_LINKS_CORRECTED = (
    "communication_aware_fedavg",
    "communication_aware_fednova",
    "fedvarp",
    "fedvarp_stale",
    "mifa",
)
_SAMPLED_AGAINST_BOTH = ("fedacs", "fedacs_estimated")
_KNOWN = (*_UNCORRECTED, *_LINKS_CORRECTED, *_SAMPLED_AGAINST_BOTH)


def step_length(method: str, *, weights: PerClient, arrival: PerClient, effective_steps: PerClient) -> float:
    """Local gradient steps that a round of a method is worth on average: its step is η times that long.

        Σ ω(1−q)‖a‖₁                the rules that correct no links, and FedNova as Weng 2025 has it
        Σ ω‖a‖₁                     c-a-FedAvg, c-a-FedNova, FedVARP, MIFA
        1/Σ [ω/((1−q)‖a‖₁)]         FedACS

    Symbols: ω `weights`, 1 − q `arrival`, ‖a‖₁ `effective_steps`, one number per client; `method` is the name
    of a preset. Clients of weight 0 do not count.

    Differs from what happens for FedAU: Weng 2025 counts it with the uncorrected rules, because its weights
    are hard to foresee, although they tend to those of c-a-FedAvg.
    """
    share, chance, work = _columns(weights, arrival, effective_steps)
    if method in _UNCORRECTED:
        return float((share * chance) @ work)
    if method in _LINKS_CORRECTED:
        return float(share @ work)
    if method in _SAMPLED_AGAINST_BOTH:
        return float(1 / (share / (chance * work)).sum())
    raise FieldError(
        f"The method of step_length must be one of {', '.join(_KNOWN)}, got {method!r}."
        + did_you_mean(method, _KNOWN)
    )


def calibrated_lr(
    method: str,
    lr: float,
    *,
    weights: PerClient,
    arrival: PerClient,
    effective_steps: PerClient | Callable[[float], PerClient],
) -> float:
    """The learning rate with which a method takes steps as long as importance sampling does with `lr`.

        η_method · step_length(method) = lr · step_length("importance_sampling")

    The methods then differ in where they go, not in how far (Weng 2025 I.2). Where conditions change from
    round to round, call it with those of each round. For a proximal solver ‖a‖₁ depends on the learning
    rate: give `effective_steps` as a function of it, and the equation is solved by iteration.

    >>> facts = {"weights": [0.5, 0.5], "arrival": [1.0, 0.5], "effective_steps": [1.0, 4.0]}
    >>> round(calibrated_lr("fedacs", 0.1, **facts), 4)
    0.1125
    >>> from fairlead import SGD, LocalSolver, Proximal
    >>> steps = torch.tensor([1, 4])
    >>> def work(lr: float) -> Tensor:
    ...     return LocalSolver(SGD(lr), steps=1, corrections=[Proximal(1.0)]).accumulation(steps, 0).l1
    >>> round(calibrated_lr("fedacs", 0.1, **{**facts, "effective_steps": work}), 4)
    0.108
    """

    def length(rule: str, at: float) -> float:
        work = effective_steps(at) if callable(effective_steps) else effective_steps
        return step_length(rule, weights=weights, arrival=arrival, effective_steps=work)

    target = lr * length("importance_sampling", lr)
    current = lr
    for _ in range(500):
        previous, current = current, target / length(method, current)
        if math.isclose(previous, current, rel_tol=1e-13):
            return current
    raise FieldError(
        f"No learning rate gives {method} the step length of importance sampling with lr={lr:g}: the local "
        "solver saturates, so start from a smaller one."
    )


def _columns(weights: PerClient, arrival: PerClient, work: PerClient) -> tuple[Tensor, Tensor, Tensor]:
    columns = [torch.as_tensor(values, dtype=torch.float64) for values in (weights, arrival, work)]
    if len({column.shape for column in columns}) != 1:
        raise FieldError(
            "weights, arrival and effective_steps must have one number per client each, got "
            f"{', '.join(str(len(column)) for column in columns)}."
        )
    kept = columns[0] > 0
    share, chance, steps = (column[kept] for column in columns)
    if not len(share) or not bool(((chance > 0) & (steps > 0)).all()):
        raise FieldError("Clients of positive weight must have arrival and effective_steps above 0.")
    return share / share.sum(), chance, steps
