"""The shortest vector in a convex hull, found from inner products alone.

    λ* = argmin ‖Σ λ_i v_i‖²  over  Σ λ_i = 1, λ_i ≥ 0   (or lower_i ≤ λ_i ≤ upper_i)

The vector d* = Σ λ*_i v_i is unique; λ* is not where the v_i are affinely dependent. On the simplex d is
optimal if and only if ⟨v_i, d⟩ ≥ ‖d‖² for every i.
"""

from fairlead.minimum_norm.shortest import ShortestPoint, shortest_in_box, shortest_in_hull

__all__ = ["ShortestPoint", "shortest_in_box", "shortest_in_hull"]
