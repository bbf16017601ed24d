"""Clipped gradients move the fixed point of every method, so nothing may be claimed about its weights."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.diagnostics import gradient_figures, predicted_consistency

LINEAR = np.array([0.0, 1.0, 10.0])
"""e of F_i = ½x² − e_i x: the optimum is their mean, 3.667."""
CLIPPED = {
    "feddyn": partial(fl.presets.feddyn, alpha=0.5),
    "scaffold": partial(fl.presets.scaffold, estimate="anchor"),
}


def trained(name: str, clip: float | None, rounds: int = 500) -> fl.Federation:
    problem = fl.Quadratics(linear=tuple((e,) for e in LINEAR)).problem(fl.Key.from_seed(0))
    algorithm = CLIPPED[name](lr=0.1, steps=5, batch_size=None, clip=clip)
    run = fl.Federation(algorithm, fl.SimulatedWorld(problem.task(), problem.data(), dtype=torch.float64))
    list(run.train(rounds))
    return run


def test_feddyn_rests_where_clipped_gradients_balance() -> None:
    """Σ clip(x − e_i) = 1 + 0 − 1 = 0 at x = 1, and not at the optimum, where it is 1 + 1 − 1."""

    def balance(x: float) -> float:
        return float(np.clip(x - LINEAR, -1.0, 1.0).sum())

    assert float(trained("feddyn", 1.0).params) == pytest.approx(1.0, abs=1e-9)
    assert balance(1.0) == 0.0
    assert balance(LINEAR.mean()) == 1.0


@pytest.mark.parametrize("name", CLIPPED)
def test_nothing_is_claimed_with_clipped_gradients(name: str) -> None:
    run, whole = trained(name, 1.0), trained(name, None)
    assert abs(float(run.params) - LINEAR.mean()) > 2
    assert float(whole.params) == pytest.approx(LINEAR.mean(), abs=1e-6)
    before, after = predicted_consistency(run.algorithm, run.world), run.consistency()
    for report in (before, after):
        assert not report.restored
        assert report.surrogate is None
        assert report.predicted_weights is None
        assert "not linear in their gradients" in str(report)
    assert gradient_figures(run, run.records[-1]).surrogate_norm is None
    assert run.notice is None
    assert whole.consistency().restored
    assert gradient_figures(whole, whole.records[-1]).surrogate_norm == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", CLIPPED)
def test_a_diagnosis_says_that_the_weights_are_not_known(name: str) -> None:
    found = fl.diagnose(trained(name, 1.0, rounds=10), quick=True)
    foreseen, measured = found.finding("foreseen"), found.finding("measured")
    assert foreseen is not None
    assert measured is not None
    assert (foreseen.evidence["misplaced_weight"], measured.evidence["misplaced_weight"]) == (None, None)
    assert (foreseen.confidence, measured.confidence) == ("none", "none")
