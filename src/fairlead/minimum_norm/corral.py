"""Vectors whose weights are free, and the shortest point of their affine hull."""

from __future__ import annotations

import math

import torch
from torch import Tensor

TOLERANCE = 1e-13
"""Violation of ⟨v_i, d⟩ ≥ ‖d‖², in units of ‖v_i‖·Σ λ_j‖v_j‖, that rounding alone can cause."""
_INDEPENDENT = 1e-13
"""Squared distance from the span of others, relative to the squared length, below which it is noise."""


def lengths_of(gram: Tensor) -> Tensor:
    """‖v_i‖."""
    return gram.diagonal().clamp(min=0).sqrt()


class Corral:
    """Vectors whose weights are free, with the Cholesky factor of their shifted inner products.

    The matrix is K_ij = ⟨v_i, v_j⟩ + s, scaled to unit diagonal: the inner products of the longer vectors (v_i, √s).
    Affine dependence of the v_i is linear dependence of these, and the shortest point of an affine hull
    solves one system with it (Wolfe 1976). s is the smallest positive ‖v_i‖²: the scale of the solution.
    """

    def __init__(self, gram: Tensor) -> None:
        squares = gram.diagonal().clamp(min=0)
        self.gram = gram
        self.shift = torch.where(squares > 0, squares, math.inf).min().nan_to_num(posinf=1.0)
        self.scale = (squares + self.shift).rsqrt()
        self.members = torch.empty(0, dtype=torch.int64, device=gram.device)
        self.factor = gram.new_empty((0, 0))

    def matrix(self, rows: Tensor, columns: Tensor) -> Tensor:
        """K between some vectors and others."""
        # Whole rows are copied fast; picking both indices at once takes twice as long.
        entries = self.gram[rows].gather(1, columns.expand(len(rows), -1))
        return entries.add_(self.shift).mul_(self.scale[rows, None]).mul_(self.scale[columns])

    def assign(self, members: Tensor) -> bool:
        """Make these the members, if they are affinely independent."""
        factor, failed = torch.linalg.cholesky_ex(self.matrix(members, members))
        if not bool((failed == 0) & (factor.diagonal().square() >= _INDEPENDENT).all()):
            return False
        self.members, self.factor = members, factor
        return True

    def admit(self, index: int) -> bool:
        """Add one member, if it is affinely independent of the others."""
        column = self.matrix(self.members.new_tensor([index]), self.members).mT
        row = torch.linalg.solve_triangular(self.factor, column, upper=False)[:, 0]
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
