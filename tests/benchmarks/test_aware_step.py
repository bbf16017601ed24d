"""The transcription of the authors' server step that fairlead's is timed against."""

from __future__ import annotations

import torch
from benchmarks.aware_step import best_pair_by_arrays, best_pair_by_loop, frank_wolfe, gap_of

from fairlead.numerics.minimum_norm import shortest_in_hull


def test_both_ways_find_the_same_best_pair() -> None:
    vectors = torch.randn((9, 5), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gram = vectors @ vectors.T
    by_loop, by_arrays = best_pair_by_loop(gram), best_pair_by_arrays(gram)
    assert by_loop[:2] == by_arrays[:2]
    assert abs(by_loop.share - by_arrays.share) < 1e-12


def test_two_vectors_are_solved_by_the_pair_alone() -> None:
    """v = (2, 0), w = (0, 1): the shortest γv + (1 − γ)w has γ = ⟨w, w − v⟩/‖v − w‖² = 1/5."""
    gram = torch.tensor([[4.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    weights = frank_wolfe(gram, best_pair_by_loop(gram)).weights
    torch.testing.assert_close(weights, torch.tensor([0.2, 0.8], dtype=torch.float64))


def test_frank_wolfe_comes_close_and_the_exact_solver_closer() -> None:
    vectors = 0.5 + torch.randn((30, 60), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gram = vectors @ vectors.T
    theirs, exact = frank_wolfe(gram, best_pair_by_arrays(gram)).weights, shortest_in_hull(gram)
    assert abs(float(theirs.sum()) - 1) < 1e-12
    assert gap_of(gram, exact.weights) <= 1e-12 < gap_of(gram, theirs) < 1e-2
