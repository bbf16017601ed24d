"""The shortest vector in a convex hull, found from inner products alone.

    λ* = argmin ‖Σ λ_i v_i‖²  over  Σ λ_i = 1, λ_i ≥ 0   (or lower_i ≤ λ_i ≤ upper_i)

The vector d* = Σ λ*_i v_i is unique; λ* is not where the v_i are affinely dependent. On the simplex d is
optimal if and only if ⟨v_i, d⟩ ≥ ‖d‖² for every i.
"""

import math
from dataclasses import dataclass, replace

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


_NEAR = 1 / 8
"""Share of a factorized support that may change before another factorization costs less."""
_SMALL = 200
"""Vectors whose factorization costs no more than the few short operations that it saves."""


def exchanged_in_blocks(gram: Tensor, support: Tensor) -> Tensor | None:
    """The weights on the simplex by block principal pivoting; None if it fails.

    All signs that are wrong change sides at once (Júdice and Pires 1994). Exact when it ends, and it ends
    after a few rounds unless vectors are nearly dependent. A support is factorized anew only where it is far from the
    one factorized last, or where the solution by that one's factor does not hold to rounding.
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
    """The vector with the largest violation at its bound, relative to its length, and that violation."""
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


_VANISHING = 1e-140
"""Length, relative to the longest vector, whose square is on the way to underflow: it counts as zero."""
_FIRST_GUESS = 1024
"""Vectors above which a first factorization of all of them is not worth its cost."""


@dataclass(frozen=True, eq=False)
class ShortestPoint:
    """The shortest vector d = Σ λ_i v_i of a convex hull, and how close to optimal it is."""

    weights: Tensor
    """λ, (n,) float64, sum 1."""
    squared_norm: float
    """‖d‖²."""
    length: float
    """Σ λ_i‖v_i‖: the value of ‖d‖ without cancellation."""
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
        """Whether ‖d‖² is a rounding error of 0."""
        return self.squared_norm <= 10 * TOLERANCE * self.length**2


def shortest_in_hull(gram: Tensor, start: Tensor | None = None) -> ShortestPoint:
    """The shortest vector in the convex hull of v_1, ..., v_n; `gram` holds ⟨v_i, v_j⟩ in float64.

    `start` may hold the weights of a similar problem, whose support is then the first guess; it may lie on the host.
    Vectors enter and leave the support in blocks until all signs are right, which takes a few factorizations whatever
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


def shortest_in_ridged_hull(gram: Tensor, rho: float, start: Tensor | None = None) -> ShortestPoint:
    """The point of a hull with the smallest ‖Σ λ_i v_i‖² + ρ s‖λ‖², where s is the mean of ‖v_i‖².

    This is the shortest vector for the longer vectors (v_i, √(ρs) e_i), so the same solver finds it. For ρ > 0 the
    problem is strongly convex: λ is unique, and ‖λ − λ'‖ ≤ ‖(G − G')λ‖/(ρs) for two matrices of inner products.
    Reduces to `shortest_in_hull` for ρ = 0 and to equal weights for ρ → ∞. `squared_norm` and `length` are those of
    Σ λ_i v_i; `gap` is that of the regularized problem.

    >>> gram = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
    >>> [round(weight, 3) for weight in shortest_in_ridged_hull(gram, 2.0).weights.tolist()]
    [0.4, 0.6]
    """
    ridge = rho * float(gram.diagonal().clamp(min=0).mean())
    if ridge == 0:
        return shortest_in_hull(gram, start)
    point = shortest_in_hull(gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device), start)
    weights = point.weights
    squared_norm = max(float(weights @ (gram @ weights)), 0.0)
    return replace(point, squared_norm=squared_norm, length=float(weights @ lengths_of(gram)))


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
