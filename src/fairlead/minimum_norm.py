"""The shortest vector in a convex hull, found from inner products alone.

    λ* = argmin ‖Σ λ_i v_i‖²  over  Σ λ_i = 1, λ_i ≥ 0   (or lower_i ≤ λ_i ≤ upper_i)

The vector d* = Σ λ*_i v_i is unique; λ* is not where the v_i are affinely dependent. On the simplex d is
optimal if and only if ⟨v_i, d⟩ ≥ ‖d‖² for every i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_TOLERANCE = 1e-13
"""Violation of ⟨v_i, d⟩ ≥ ‖d‖², in units of ‖v_i‖·Σ λ_j‖v_j‖, that rounding alone can cause."""
_INDEPENDENT = 1e-13
"""Squared distance from the span of others, relative to the squared length, below which it is noise."""
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
        return self.squared_norm <= 10 * _TOLERANCE * self.length**2


def shortest_in_hull(gram: Tensor, start: Tensor | None = None) -> ShortestPoint:
    """The shortest vector in the convex hull of v_1, ..., v_n; `gram` holds ⟨v_i, v_j⟩ in float64.

    `start` may hold the weights of a similar problem, whose support is then the first guess. Vectors enter
    and leave the support in blocks until all signs are right, which takes a few factorisations whatever
    n is. Where that fails, since vectors are dependent or the blocks cycle, Wolfe's method exchanges
    them one at a time, each time for a shorter vector.

    >>> point = shortest_in_hull(torch.tensor([[4.0, 0.0], [0.0, 1.0]], dtype=torch.float64))
    >>> [round(weight, 3) for weight in point.weights.tolist()], round(point.squared_norm, 3)
    ([0.2, 0.8], 0.8)
    """
    gram, unit = _rescaled(gram)
    start = None if start is None else start.to(gram)
    lengths = _lengths(gram)
    zero = lengths <= lengths.max() * _VANISHING
    if bool(zero.any()):
        return ShortestPoint(zero.to(gram.dtype) / zero.sum(), 0.0, 0.0, 0.0)
    known = start is not None and bool((start > 0).any())
    shortest = lengths <= lengths.kthvalue(min(len(gram), _FIRST_GUESS)).values
    first = start if start is not None and known else shortest.to(gram.dtype)
    weights = _exchanged_in_blocks(gram, first > 0)
    if weights is not None:
        point = _in_hull(gram, weights, unit)
        if point.gap <= 10 * _TOLERANCE:
            return point
    lower, upper = torch.zeros_like(lengths), torch.full_like(lengths, math.inf)
    start = first / first.sum() if known else _lowest(lengths, lower, upper)
    return _in_hull(gram, _exchanged_singly(gram, start, lower, upper), unit)


def shortest_in_box(gram: Tensor, lower: Tensor, upper: Tensor) -> ShortestPoint:
    """The shortest Σ λ_i v_i with Σ λ_i = 1 and lower_i ≤ λ_i ≤ upper_i, for bounds that allow one.

    `gap` is here ‖d‖² − min ⟨d', d⟩ over all d' that the bounds allow, in units of (Σ λ_i‖v_i‖)².
    """
    gram, unit = _rescaled(gram)
    corner = _lowest(gram.diagonal(), lower, upper)
    weights = _exchanged_singly(gram, corner, lower, upper)
    gradient = gram @ weights
    squared_norm, length = max(float(weights @ gradient), 0.0), float(weights @ _lengths(gram))
    reachable = float(_lowest(gradient, lower, upper) @ gradient)
    gap = max((squared_norm - reachable) / length**2, 0.0) if length > 0 else 0.0
    return ShortestPoint(weights, squared_norm * unit, length * math.sqrt(unit), gap)


def _in_hull(gram: Tensor, weights: Tensor, unit: float) -> ShortestPoint:
    weights = weights / weights.sum()
    gradient, lengths = gram @ weights, _lengths(gram)
    squared_norm, length = max(float(weights @ gradient), 0.0), float(weights @ lengths)
    gap = float(((squared_norm - gradient) / (lengths * length)).max()) if length > 0 else 0.0
    return ShortestPoint(weights, squared_norm * unit, length * math.sqrt(unit), max(gap, 0.0))


def _lengths(gram: Tensor) -> Tensor:
    return gram.diagonal().clamp(min=0).sqrt()


def _rescaled(gram: Tensor) -> tuple[Tensor, float]:
    """The matrix in units in which squares of its entries neither overflow nor vanish, and the unit."""
    largest = float(gram.diagonal().max())
    if largest <= 0 or 1e-60 < largest < 1e60:
        return gram, 1.0
    return gram / largest, largest


def _lowest(cost: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The weights within bounds of the smallest Σ cost_i λ_i: filled up in the order of cost."""
    order = cost.argsort(stable=True)
    filled = (upper - lower)[order].cumsum(0).clamp(max=float(1.0 - lower.sum()))
    weights = lower.clone()
    weights[order] += filled.diff(prepend=filled.new_zeros(1))
    return torch.minimum(weights, upper)


class _Corral:
    """Vectors whose weights are free, with the Cholesky factor of their shifted inner products.

    The matrix is ⟨v_i, v_j⟩ + s, scaled to unit diagonal: the inner products of the longer vectors (v_i, √s).
    Affine dependence of the v_i is linear dependence of these, and the shortest point of an affine hull
    solves one system with it (Wolfe 1976). s is the smallest positive ‖v_i‖²: the scale of the solution.
    """

    def __init__(self, gram: Tensor) -> None:
        squares = gram.diagonal().clamp(min=0)
        positive = squares[squares > 0]
        self.gram = gram
        self.shift = positive.min() if len(positive) else squares.new_tensor(1.0)
        self.scale = (squares + self.shift).rsqrt()
        self.members = torch.empty(0, dtype=torch.int64, device=gram.device)
        self.factor = gram.new_empty((0, 0))

    def assign(self, members: Tensor) -> bool:
        """Make these the members, if they are affinely independent."""
        scale = self.scale[members]
        matrix = (self.gram[members[:, None], members] + self.shift) * scale[:, None] * scale
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if int(failed) or bool((factor.diagonal().square() < _INDEPENDENT).any()):
            return False
        self.members, self.factor = members, factor
        return True

    def admit(self, index: int) -> bool:
        """Add one member, if it is affinely independent of the others."""
        column = (self.gram[self.members, index] + self.shift) * self.scale[self.members] * self.scale[index]
        row = torch.linalg.solve_triangular(self.factor, column[:, None], upper=False)[:, 0]
        pivot = 1.0 - float(row @ row)
        if pivot < _INDEPENDENT:
            return False
        size = len(self.members)
        factor = self.factor.new_zeros((size + 1, size + 1))
        factor[:size, :size] = self.factor
        factor[size, :size] = row
        factor[size, size] = math.sqrt(pivot)
        self.members, self.factor = torch.cat([self.members, self.members.new_tensor([index])]), factor
        return True

    def solve(self, right: Tensor) -> Tensor:
        """x with Σ_j (⟨v_i, v_j⟩ + s) x_j = right_i over the members."""
        scale = self.scale[self.members]
        return scale * torch.cholesky_solve((scale * right)[:, None], self.factor)[:, 0]

    def combination(self, index: int) -> Tensor:
        """Coefficients with which the members make up a vector that depends on them."""
        return self.solve(self.gram[self.members, index] + self.shift)


def _exchanged_in_blocks(gram: Tensor, support: Tensor) -> Tensor | None:
    """The weights on the simplex by block principal pivoting; None where it fails.

    All signs that are wrong change sides at once (Júdice and Pires 1994). Exact when it ends, and it ends
    after a few rounds unless vectors are nearly dependent.
    """
    corral, lengths = _Corral(gram), _lengths(gram)
    fewest, patience = len(gram) + 1, 3
    while patience >= 0:
        members = support.nonzero()[:, 0]
        if len(members) == 0 or not corral.assign(members):
            return None
        free = corral.solve(torch.ones_like(lengths[members]))
        weights = torch.zeros_like(lengths)
        weights[members] = free / free.sum()
        gradient = gram @ weights
        violation = (weights @ gradient - gradient) / lengths
        wrong = torch.where(support, weights <= 0, violation > _TOLERANCE * (weights.abs() @ lengths))
        count = int(wrong.sum())
        if count == 0:
            return weights
        patience = 3 if count < fewest else patience - 1
        fewest, support = min(fewest, count), support ^ wrong
    return None


def _exchanged_singly(gram: Tensor, weights: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The weights within bounds by exchanging one vector at a time (Wolfe 1976, there on the simplex).

    `weights` are the start. Those strictly inside their bounds are free and go to their common optimum;
    then the one that most wants to leave its bound joins them.
    """
    corral = _Corral(gram)
    if not corral.assign(((weights > lower) & (weights < upper)).nonzero()[:, 0]):
        weights = _lowest(gram.diagonal(), lower, upper)
        corral.assign(((weights > lower) & (weights < upper)).nonzero()[:, 0])
    lengths = _lengths(gram)
    lengths = torch.where(lengths > 0, lengths, lengths.max().clamp(min=1e-150))
    best, smallest, spare = weights, math.inf, 50
    for _ in range(20 * len(gram) + 100):
        weights = _settled(corral, weights, lower, upper)
        gradient = gram @ weights
        entrant, violation = _most_eager(gradient, lengths, corral.members, weights, lower, upper)
        violation /= float(weights @ lengths)
        if violation < smallest:
            best, smallest = weights, violation
        # So close to the end rounding may let the same few vectors come and go.
        spare -= violation < 100 * _TOLERANCE
        if violation <= _TOLERANCE or spare < 0:
            break
        weights = _joined(corral, entrant, gradient, weights, lower, upper)
    return best


def _settled(corral: _Corral, weights: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The weights after the free ones went to their optimum, or stopped at bounds on the way."""
    while len(corral.members):
        members = corral.members
        fixed = weights.clone()
        fixed[members] = 0.0
        level = corral.solve(torch.ones_like(fixed[members]))
        target = level / level.sum()
        if bool(fixed.any()):
            offset = corral.solve((corral.gram @ fixed)[members])
            target = target * (1.0 - fixed.sum() + offset.sum()) - offset
        change = target - weights[members]
        share, bound = _room(weights, change, members, lower, upper)
        weights = weights.clone()
        step = share.min()
        if step > 1:
            weights[members] = target
            break
        weights[members] = torch.where(share <= step, bound, weights[members] + step * change)
        corral.assign(members[share > step])
    return weights


def _room(
    weights: Tensor, change: Tensor, moving: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor]:
    """How often each weight could change so before it meets a bound, and which bound that is."""
    bound = torch.where(change < 0, lower[moving], upper[moving])
    return torch.where(change == 0, math.inf, (bound - weights[moving]) / change), bound


def _most_eager(
    gradient: Tensor, lengths: Tensor, free: Tensor, weights: Tensor, lower: Tensor, upper: Tensor
) -> tuple[int, float]:
    """The vector whose weight most wants to leave its bound, and how much for its length."""
    can_rise, can_fall = weights < upper, weights > lower
    if len(free):
        level = gradient[free].mean()
    else:
        level = gradient[can_fall].max() if bool(can_fall.any()) else gradient.min()
    excess = (gradient - level) / lengths
    violation = torch.maximum(torch.where(can_rise, -excess, 0.0), torch.where(can_fall, excess, 0.0))
    violation[free] = 0.0
    entrant = int(violation.argmax())
    return entrant, float(violation[entrant])


def _joined(
    corral: _Corral, entrant: int, gradient: Tensor, weights: Tensor, lower: Tensor, upper: Tensor
) -> Tensor:
    """Let a vector join the free ones; weights change only where it depends on them.

    In exact arithmetic it never does: all points that the free vectors make up have the same product with
    d, and the entrant has another. Where rounding makes it so, the weights move along the dependence, which
    shortens d, until a vector leaves.
    """
    if len(corral.members) == 0:
        # The sum of the weights is fixed: with none free, one can rise only if another falls.
        partner = torch.where(weights > lower, gradient, -math.inf).argmax()
        corral.assign(corral.members.new_tensor([int(partner), entrant]))
        return weights
    if corral.admit(entrant):
        return weights
    rises = bool(weights[entrant] < upper[entrant])
    moving = torch.cat([corral.members, corral.members.new_tensor([entrant])])
    change = torch.cat([corral.combination(entrant), weights.new_tensor([-1.0])]) * (-1.0 if rises else 1.0)
    share, bound = _room(weights, change, moving, lower, upper)
    step = share.min()
    weights = weights.clone()
    weights[moving] = torch.where(share <= step, bound, weights[moving] + step * change)
    corral.assign(moving[share > step])
    return weights
