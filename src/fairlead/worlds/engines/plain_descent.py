"""Which solvers take nothing but plain steps, so that a kernel may take them in their place."""

from __future__ import annotations

from typing import NamedTuple

from fairlead.corrections.proximal import Proximal
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.sgd import SGD


class PlainDescent(NamedTuple):
    """y ← y − η (g + λ y + μ (y − anchor))."""

    weight_decay: float
    """λ."""
    mu: float
    """μ."""


def plain_descent(solver: LocalSolver) -> PlainDescent | None:
    """The steps of SGD without momentum and clipping, with no correction but `Proximal`; None for any other solver."""
    optimizer, corrections = solver.optimizer, solver.corrections
    penalties = [correction.mu for correction in corrections if type(correction) is Proximal]
    if type(optimizer) is not SGD or optimizer.momentum or solver.clip is not None:
        return None
    if len(penalties) < len(corrections):
        return None
    return PlainDescent(float(optimizer.weight_decay), float(sum(penalties)))
