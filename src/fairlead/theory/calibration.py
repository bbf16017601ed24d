"""Learning rates that give different participation rules the same expected step (Weng 2025 I.2)."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.errors import FieldError
from fairlead.records import Conditions, NotKnown
from fairlead.theory.prediction import expected_contributions

PerClient = Tensor | NDArray[np.float64] | Sequence[float]


def step_length(
    algorithm: Algorithm, *, weights: PerClient, arrival: PerClient, effective_steps: PerClient
) -> float:
    """Local gradient steps that a round of an algorithm is worth on average: its step is η times that long.

        Σ C_i‖a_i‖₁, with C_i the mean coefficient of client i in large cohorts, which gives

        Σ ω(1−q)‖a‖₁                rules that correct no links, and FedNova as Weng 2025 has it
        Σ ω‖a‖₁                     c-a-FedAvg, c-a-FedNova, FedVARP, MIFA, FedAU
        1/Σ [ω/((1−q)‖a‖₁)]         FedACS

    Symbols: ω `weights`, 1 − q `arrival`, ‖a‖₁ `effective_steps`, one number per client. Clients of weight 0 do
    not count.

    Differs from the paper for FedAU: Weng 2025 counts it with the rules that correct no links, because its
    weights are hard to predict.
    """
    share, chance, work = _columns(weights, arrival, effective_steps)
    conditions = Conditions(0, share, lambda: work, lambda: chance)
    # Without outcomes to enumerate or draw, ratios of means remain.
    expected = expected_contributions(algorithm, [conditions], outcomes=0)
    if isinstance(expected, NotKnown):
        raise FieldError(f"The step length of this algorithm is not known. {expected.reason}")
    contributions, _ = expected
    return float(contributions.coefficient @ work)


def calibrated_lr(
    algorithm: Algorithm,
    lr: float,
    *,
    weights: PerClient,
    arrival: PerClient,
    effective_steps: PerClient | Callable[[float], PerClient],
) -> float:
    """The learning rate with which an algorithm takes steps as long as importance sampling does with `lr`.

        η · step_length(algorithm) = lr · Σ ω(1−q)‖a‖₁

    The methods then differ in the direction of their steps, not in the length (Weng 2025 I.2). Where conditions
    change from round to round, call it with those of each round. For a proximal solver ‖a‖₁ depends on the learning
    rate: give `effective_steps` as a function of it, and the equation is solved by iteration.

    >>> from fairlead import SGD, LocalSolver, Proximal, presets
    >>> facts = {"weights": [0.5, 0.5], "arrival": [1.0, 0.5], "effective_steps": [1.0, 4.0]}
    >>> fedacs = presets.fedacs(lr=0.1, steps=1, cohort_size=2)
    >>> round(calibrated_lr(fedacs, 0.1, **facts), 4)
    0.1125
    >>> steps = torch.tensor([1, 4])
    >>> def work(lr: float) -> Tensor:
    ...     return LocalSolver(SGD(lr), steps=1, corrections=[Proximal(1.0)]).accumulation(steps, 0).l1
    >>> round(calibrated_lr(fedacs, 0.1, **{**facts, "effective_steps": work}), 4)
    0.108
    """

    def work_at(rate: float) -> PerClient:
        return effective_steps(rate) if callable(effective_steps) else effective_steps

    share, chance, work = _columns(weights, arrival, work_at(lr))
    target = lr * float((share * chance) @ work)
    current = lr
    for _ in range(500):
        length = step_length(algorithm, weights=weights, arrival=arrival, effective_steps=work_at(current))
        previous, current = current, target / length
        if math.isclose(previous, current, rel_tol=1e-13):
            return previous
    raise FieldError(
        f"No learning rate gives this algorithm the step length of importance sampling with lr={lr:g}: the local "
        "solver saturates. Use a smaller lr."
    )


def _columns(weights: PerClient, arrival: PerClient, work: PerClient) -> tuple[Tensor, Tensor, Tensor]:
    columns = [torch.as_tensor(values, dtype=torch.float64) for values in (weights, arrival, work)]
    if len({column.shape for column in columns}) != 1:
        raise FieldError(
            "weights, arrival and effective_steps must have one number per client each, got "
            f"{', '.join(str(len(column)) for column in columns)}."
        )
    share, chance, steps = columns
    counts = share > 0
    if not bool(counts.any()) or not bool((~counts | ((chance > 0) & (steps > 0))).all()):
        raise FieldError("Clients of positive weight must have arrival and effective_steps above 0.")
    return share / share.sum(), chance, steps
