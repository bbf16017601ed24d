"""Full gradients of the true and of the surrogate objective: which of them a model is stationary for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.diagnostics.consistency import chi_square
from fairlead.diagnostics.gradients import measuring
from fairlead.worlds.simulated import SimulatedWorld


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

    def __str__(self) -> str:
        true, surrogate = self.true_gradient, self.surrogate_gradient
        if max(true, surrogate) < 2 * min(true, surrogate):
            tail = "neither is much nearer to rest."
        elif surrogate < true:
            tail = "the model rests for the surrogate, not for the objective asked for."
        else:
            tail = "the model rests for the objective asked for, not for the surrogate."
        return f"The objective's gradient has length {true:.3g}, the surrogate's {surrogate:.3g}: {tail}"


def stationarity(
    world: SimulatedWorld,
    params: Tensor,
    buffers: Tensor,
    surrogate: Tensor,
    *,
    weight_decay: float = 0.0,
    chunk: int = 1024,
) -> Stationarity:
    """Full gradients at a model, one client after another and `chunk` examples at a time.

    Every F_i includes the penalty ½·weight_decay·‖x‖² that the clients' optimizer adds. Dropout and
    augmentation are off. The cost is one pass over all data and memory for two vectors.
    """
    weights, objective = world.population.weights, world.objective
    true, biased = torch.zeros_like(params), torch.zeros_like(params)
    squares = torch.zeros_like(weights)
    with measuring(world):
        for client in ((weights > 0) | (surrogate > 0)).nonzero().flatten().tolist():
            gradient = objective.full_gradient(params, buffers, client, None, chunk) + weight_decay * params
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
