"""The shortest vector of a hull by exchanging many vectors at once, with one factorisation for similar supports."""

from __future__ import annotations

import torch
from torch import Tensor

from fairlead.minimum_norm.corral import TOLERANCE, Corral, lengths_of

_NEAR = 1 / 8
"""Share of a factorised support that may change before another factorisation costs less."""
_SMALL = 200
"""Vectors whose factorisation costs no more than the few short operations that it saves."""


def exchanged_in_blocks(gram: Tensor, support: Tensor) -> Tensor | None:
    """The weights on the simplex by block principal pivoting; None where it fails.

    All signs that are wrong change sides at once (Júdice and Pires 1994). Exact when it ends, and it ends
    after a few rounds unless vectors are nearly dependent. A support is factorised anew only where it is far from the
    one factorised last, or where the solution by that one's factor does not hold to rounding.
    """
    corral, lengths = Corral(gram), lengths_of(gram)
    # Supports are kept on the host, where their bookkeeping waits for no device.
    support = support.cpu()
    border: Border | None = None
    fewest, patience = len(gram) + 1, 3
    while patience >= 0:
        members = support.nonzero()[:, 0].to(gram.device)
        if border is None or not border.is_near(support):
            if len(members) == 0 or not corral.assign(members):
                return None
            border = Border(corral, support)
        weights = border.weights(support)
        # A copy of the rows in use costs four times as much as reading those that are not.
        few = 4 * len(members) < len(gram)
        gradient = weights[members] @ gram[members] if few else gram @ weights
        violation = (weights @ gradient - gradient) / (lengths * (weights.abs() @ lengths))
        inside = support.to(gram.device)
        signs = torch.where(inside, weights <= 0, violation > TOLERANCE)
        wrong, inexact = torch.stack([signs, inside & ~(violation.abs() <= TOLERANCE)]).cpu()
        if bool(inexact.any()) and not torch.equal(support, border.base):
            border = None
            continue
        count = int(wrong.sum())
        if count == 0:
            return weights
        patience = 3 if count < fewest else patience - 1
        fewest, support = min(fewest, count), support ^ wrong
    return None


class Border:
    """Shortest points of affine hulls whose vectors are nearly the members of a corral, from its one factor.

        ⎡K_SS  B⎤ ⎡x⎤   ⎡r_S   ⎤       B = [K_SA, E_R],    z = (y, μ),
        ⎣Bᵀ    C⎦ ⎣z⎦ = ⎣r_A, 0⎦,      C = diag(K_AA, 0)

    Symbols: S the members, A the vectors that joined them, R the members that left, E_R their unit vectors, K
    the corral's matrix and r its right-hand side; x and y the solution on S and on A, where μ keeps x_R at zero. With
    K_SS = LLᵀ, u = L⁻¹r_S and V = L⁻¹B,

        z = (C − VᵀV)⁻¹ ((r_A, 0) − Vᵀu),    x = L⁻ᵀ(u − Vz).

    A vector's column of V is found once, in |S|² operations, however often the vector changes sides.
    """

    def __init__(self, corral: Corral, support: Tensor) -> None:
        self.corral, self.base = corral, support
        right = corral.scale[corral.members, None]
        self.right: Tensor = torch.linalg.solve_triangular(corral.factor, right, upper=False)[:, 0]
        self.columns: Tensor = self.right.new_empty((0, len(corral.members)))
        self.column_of = torch.full((len(support),), -1)

    def is_near(self, support: Tensor) -> bool:
        """Whether so few vectors changed sides that the factor still serves."""
        size = len(self.right)
        return size > _SMALL and int((support ^ self.base).sum()) <= _NEAR * size

    def weights(self, support: Tensor) -> Tensor:
        """λ of the shortest point of the affine hull of `support`, (n,); negative where it lies outside the hull."""
        corral, changed = self.corral, (support ^ self.base).nonzero()[:, 0]
        solution, rest = torch.zeros_like(corral.scale), self.right
        if len(changed):
            columns, at = self._columns_of(changed), changed.to(rest.device)
            joined = support[changed].to(rest)
            corner = corral.matrix(at, at).mul_(joined[:, None]).mul_(joined)
            right = corral.scale[at] * joined - columns @ rest
            solution[at] = torch.linalg.solve_ex(corner.addmm_(columns, columns.mT, alpha=-1), right)[0]
            rest = rest - solution[at] @ columns
        inner = torch.linalg.solve_triangular(corral.factor.mT, rest[:, None], upper=True)
        solution[corral.members] = inner[:, 0]
        weights = torch.where(support.to(rest.device), corral.scale * solution, 0.0)
        return weights / weights.sum()

    def _columns_of(self, changed: Tensor) -> Tensor:
        """Vᵀ for these vectors, after finding what is new of it."""
        new = changed[self.column_of[changed] < 0]
        if len(new):
            self.column_of[new] = torch.arange(len(new)) + len(self.columns)
            at = new.to(self.right.device)
            border = self.corral.matrix(at, self.corral.members)
            unit = (at[:, None] == self.corral.members).to(border)
            border = torch.where(self.base[new].to(at.device)[:, None], unit, border)
            columns = torch.linalg.solve_triangular(self.corral.factor, border.mT, upper=False)
            self.columns = torch.cat([self.columns, columns.mT])
        return self.columns[self.column_of[changed]]
