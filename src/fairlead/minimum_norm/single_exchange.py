"""The shortest vector within bounds by exchanging one vector at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairlead.minimum_norm.corral import TOLERANCE, Corral, lengths_of


def exchanged_singly(gram: Tensor, weights: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The weights within bounds by exchanging one vector at a time (Wolfe 1976, there on the simplex).

    `weights` are the start. Those strictly inside their bounds are free and go to their common optimum;
    then the one that most wants to leave its bound joins them.
    """
    corral = Corral(gram)
    if not corral.assign(((weights > lower) & (weights < upper)).nonzero()[:, 0]):
        weights = lowest(gram.diagonal(), lower, upper)
        corral.assign(((weights > lower) & (weights < upper)).nonzero()[:, 0])
    lengths = lengths_of(gram)
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
        spare -= violation < 100 * TOLERANCE
        if violation <= TOLERANCE or spare < 0:
            break
        weights = _joined(corral, entrant, gradient, weights, lower, upper)
    return best


def lowest(cost: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The weights within bounds of the smallest Σ cost_i λ_i: filled up in the order of cost."""
    order = cost.argsort(stable=True)
    filled = (upper - lower)[order].cumsum(0).clamp(max=float(1.0 - lower.sum()))
    weights = lower.clone()
    weights[order] += filled.diff(prepend=filled.new_zeros(1))
    return torch.minimum(weights, upper)


def _settled(corral: Corral, weights: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
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
    corral: Corral, entrant: int, gradient: Tensor, weights: Tensor, lower: Tensor, upper: Tensor
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
