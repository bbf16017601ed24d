"""Accumulation vectors and mean shares by enumeration, which share no code with the library's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairlead.theory.quadratics import LocalWork


def accumulation(work: LocalWork) -> Tensor:
    """a, (τ,): the update is −η Σ_j a_j g_j for raw gradients g_j (Wang 2021 §IV).

    The state (z, v) moves by s ← A_k s + b_k g_k; a_j is the effect of an impulse at step j on the final z.
    """
    columns: list[Tensor] = []
    for step in range(work.num_steps):
        rate = work.lr * work.decay**step
        # v' = ρv + (1 − δ)(g + μz); z' = z − rate·(v' or g + μz + ρv').
        kept, fresh = work.momentum, 1 - work.dampening
        of_old_v = work.momentum**2 if work.nesterov else kept
        of_g = 1 + work.momentum * fresh if work.nesterov else fresh
        advance = torch.tensor(
            [[1 - rate * of_g * work.mu, -rate * of_old_v], [fresh * work.mu, kept]], dtype=torch.float64
        )
        columns = [advance @ column for column in columns]
        columns.append(torch.tensor([-rate * of_g, fresh], dtype=torch.float64))
    return torch.stack([-column[0] for column in columns]) / work.lr


def effective_steps(works: Sequence[LocalWork]) -> Tensor:
    """‖a_i‖₁ of every client, (N,)."""
    return torch.stack([accumulation(work).abs().sum() for work in works])
