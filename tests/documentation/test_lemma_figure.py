"""docs/lemma_1.py draws what it says: the minimum of the surrogate objective, and runs that go there."""

from __future__ import annotations

from importlib import import_module

import pytest
from page_blocks import ROOT

import fairlead as fl


def test_runs_end_where_the_lemma_and_the_exact_limit_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """τ steps of rate η on (x − c)²/2 move by κ(c − x), κ = 1 − (1 − η)^τ, so that FedAvg rests where
    κ_1(−1 − x) + κ_2(1 − x) = 0, at x = (κ_2 − κ_1)/(κ_2 + κ_1). For η → 0, κ ≈ ητ: Lemma 1.
    """
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    figure = import_module("lemma_1")
    few, many = (1 - (1 - figure.LR) ** steps for steps in (figure.FEW, figure.SHOWN))
    end = figure.limit(fl.presets.fedavg(lr=figure.LR), figure.SHOWN)
    assert end == pytest.approx((many - few) / (many + few), abs=1e-4)
    assert figure.surrogate_minimum(figure.SHOWN) == pytest.approx(0.6)
    assert abs(end - 0.6) < figure.LR * figure.SHOWN / 4
