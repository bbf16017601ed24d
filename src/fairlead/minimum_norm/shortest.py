"""The two problems, and how good a solution is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.minimum_norm.block_exchange import exchanged_in_blocks
from fairlead.minimum_norm.corral import TOLERANCE, lengths_of
from fairlead.minimum_norm.single_exchange import exchanged_singly, lowest

_VANISHING = 1e-140
"""Length, relative to the longest vector, whose square is on the way to underflow: it counts as zero."""
_FIRST_GUESS = 1024
"""Beyond so many vectors a first factorisation of all of them costs more than it tells."""


@dataclass(frozen=True, eq=False)
class ShortestPoint:
    """The shortest vector d = Σ λ_i v_i of a convex hull, and how close to optimal it is."""

    weights: Tensor
    """λ, (n,) float64, sum 1."""
    squared_norm: float
    """‖d‖²."""
    length: float
    """Σ λ_i‖v_i‖: what ‖d‖ would be if nothing cancelled."""
    gap: float
    """max_i (‖d‖² − ⟨v_i, d⟩)/(‖v_i‖ Σ λ_j‖v_j‖), at least 0.

    It does not change with the scale of a vector that has no weight. With d* the true solution,
    ‖d − d*‖² ≤ gap·(Σ λ_j‖v_j‖)(Σ λ*_j‖v_j‖).
    """

    @property
    def support(self) -> int:
        """How many vectors have a positive weight."""
        return int((self.weights > 0).sum())

    @property
    def is_zero(self) -> bool:
        """Whether ‖d‖² is no more than what rounding leaves where everything cancels."""
        return self.squared_norm <= 10 * TOLERANCE * self.length**2


def shortest_in_hull(gram: Tensor, start: Tensor | None = None) -> ShortestPoint:
    """The shortest vector in the convex hull of v_1, ..., v_n; `gram` holds ⟨v_i, v_j⟩ in float64.

    `start` may hold the weights of a similar problem, whose support is then the first guess; it may lie on the host.
    Vectors enter and leave the support in blocks until all signs are right, which takes a few factorisations whatever
    n is, and one from a good guess. Where that fails, since vectors are dependent or the blocks cycle, Wolfe's method
    exchanges them one at a time, each time for a shorter vector.

    >>> point = shortest_in_hull(torch.tensor([[4.0, 0.0], [0.0, 1.0]], dtype=torch.float64))
    >>> [round(weight, 3) for weight in point.weights.tolist()], round(point.squared_norm, 3)
    ([0.2, 0.8], 0.8)
    """
    gram, unit = _rescaled(gram)
    lengths = lengths_of(gram)
    zero = lengths <= lengths.max() * _VANISHING
    if bool(zero.any()):
        return ShortestPoint(zero.to(gram.dtype) / zero.sum(), 0.0, 0.0, 0.0)
    if start is None or not bool((start > 0).any()):
        start = None
        support = lengths <= lengths.kthvalue(min(len(gram), _FIRST_GUESS)).values
    else:
        support = start > 0
    weights = exchanged_in_blocks(gram, support)
    if weights is not None:
        point = _in_hull(gram, weights, unit)
        if point.gap <= 10 * TOLERANCE:
            return point
    lower, upper = torch.zeros_like(lengths), torch.full_like(lengths, math.inf)
    first = lowest(lengths, lower, upper) if start is None else (start / start.sum()).to(gram)
    return _in_hull(gram, exchanged_singly(gram, first, lower, upper), unit)


def shortest_in_box(gram: Tensor, lower: Tensor, upper: Tensor) -> ShortestPoint:
    """The shortest Σ λ_i v_i with Σ λ_i = 1 and lower_i ≤ λ_i ≤ upper_i, for bounds that allow one.

    `gap` is here ‖d‖² − min ⟨d', d⟩ over all d' that the bounds allow, in units of (Σ λ_i‖v_i‖)².
    """
    gram, unit = _rescaled(gram)
    corner = lowest(gram.diagonal(), lower, upper)
    weights = exchanged_singly(gram, corner, lower, upper)
    gradient = gram @ weights
    squared_norm, length = max(float(weights @ gradient), 0.0), float(weights @ lengths_of(gram))
    reachable = float(lowest(gradient, lower, upper) @ gradient)
    gap = max((squared_norm - reachable) / length**2, 0.0) if length > 0 else 0.0
    return ShortestPoint(weights, squared_norm * unit, length * math.sqrt(unit), gap)


def _in_hull(gram: Tensor, weights: Tensor, unit: float) -> ShortestPoint:
    weights = weights / weights.sum()
    gradient, lengths = gram @ weights, lengths_of(gram)
    square, length = (weights @ gradient).clamp(min=0), weights @ lengths
    gap = ((square - gradient) / (lengths * length)).max().clamp(min=0)
    squared_norm, total, largest_gap = torch.stack([square, length, gap]).tolist()
    return ShortestPoint(weights, squared_norm * unit, total * math.sqrt(unit), largest_gap)


def _rescaled(gram: Tensor) -> tuple[Tensor, float]:
    """The matrix in units in which squares of its entries neither overflow nor vanish, and the unit."""
    largest = float(gram.diagonal().max())
    if largest <= 0 or 1e-60 < largest < 1e60:
        return gram, 1.0
    return gram / largest, largest
