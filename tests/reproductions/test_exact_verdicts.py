"""Results that need no data hold at small scale, and their verdicts can turn out otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import fairlead as fl
from fairlead.reproductions import REPRODUCTIONS
from fairlead.reproductions.claims import TableCell
from fairlead.reproductions.closed_form import BIAS_TABLE, every_set
from fairlead.reproductions.reproduction import Computation, Request
from fairlead.reproductions.weng2025 import FIGURE_7

pytestmark = pytest.mark.full

EXACT = [entry.name for entry in REPRODUCTIONS.values() if not entry.needs]


def test_the_exact_ones_are_all_there() -> None:
    assert EXACT == [
        "wang2021_lemma_1",
        "wang2021_lemma_5",
        "wang2021_theorem_4",
        "wang2021_figure_2",
        "wang2021_figure_4",
        "wang2021_figure_5",
        "wang2024_theorem_3",
        "wang2024_theorem_2",
        "weng2025_figure_4",
        "weng2025_figure_7",
        "bias_table",
        "zeng2023_bounds",
    ]


@pytest.mark.parametrize("name", EXACT)
def test_the_claim_holds_at_small_scale(name: str, tmp_path: Path) -> None:
    """In its corrected form, where the printed one is wrong."""
    outcome = REPRODUCTIONS[name].reproduce(Request(tmp_path))
    found = outcome.released or outcome
    assert [check for check in found.checks if not check.holds] == []
    assert found.verdict == "holds"
    assert found.checks


def bias(rows: Mapping[str, float]) -> Computation:
    """Fig. 7 with other biases than computed."""
    figures = {
        TableCell(row, f"{panel}: {column}"): value if column == "bias" else 0.0
        for row, value in rows.items()
        for panel in ("static", "dynamic")
        for column in ("bias", "apart, in errors")
    }
    return replace(FIGURE_7, compute=lambda request, seed: figures)


def test_a_method_that_misses_the_optimum_loses_its_verdict(tmp_path: Path) -> None:
    right = {"FedAvg": 0.4, "c-a-FedAvg": 0.3, "FedVarp": 0.3, "FedNova": 0.1, "FedAU": 0.3, "FedACS": 0.02}
    assert bias(right).reproduce(Request(tmp_path)).verdict == "holds"
    wrong = bias({**right, "FedACS": 0.2}).reproduce(Request(tmp_path))
    assert wrong.verdict == "does not hold"
    assert [check.statement for check in wrong.checks if not check.holds] == [
        "FedACS is the smallest in static: bias",
        "FedACS is the smallest in dynamic: bias",
    ]


def test_biases_of_figure_7_by_hand(tmp_path: Path) -> None:
    """x̃ = Σ w_m e_m with w ∝ C_m κ_m, κ = 1 − (1 − η)^T; FedACS has C ∝ 1/T and the learning rate of I.2.

    η₂ = η Σω(1 − q)T · Σω/((1 − q)T), T = 1, 3, ..., 39 and 1 − q = 0.60, 0.62, ..., 0.98.
    """
    centers = fl.settings.fedacs_quadratics_static().clients
    assert isinstance(centers, fl.Quadratics)
    e = centers.problem(fl.Key.from_seed(3).fold("data")).linear.numpy()
    steps, arrival, lr = np.arange(1, 40, 2), np.linspace(0.60, 0.98, 20), 0.002

    def distance(coefficient: NDArray[np.float64], rate: float) -> float:
        mass = coefficient * (1 - (1 - rate) ** steps)
        return float(np.linalg.norm(mass @ e / mass.sum() - e.mean(0)))

    faster = float(lr * np.mean(arrival * steps) * np.mean(1 / (arrival * steps)))
    slower = float(lr * np.mean(arrival * steps) / np.mean(steps))
    request = Request(tmp_path, scale="smoke", seeds=(3,))
    found = {(f.row, f.column): f.ours for f in FIGURE_7.reproduce(request).figures}
    assert found["FedAvg", "static: bias"] == pytest.approx(distance(arrival, lr))
    assert found["c-a-FedAvg", "static: bias"] == pytest.approx(distance(np.ones(20), slower))
    assert found["FedNova", "static: bias"] == pytest.approx(distance(arrival / steps, lr))
    assert found["FedACS", "static: bias"] == pytest.approx(distance(1 / steps, faster))


def test_every_set_of_arrivals_comes_as_often_as_it_should() -> None:
    """Rates 1, ½ and ¼: of eight rounds client 1 is in four, client 2 in two, both of them in one."""
    period = every_set((1.0, 0.5, 0.25)).arrivals
    assert len(period) == 8
    assert [sum(client in arrived for arrived in period) for client in range(3)] == [8, 4, 2]
    assert sum(arrived == (0, 1, 2) for arrived in period) == 1
    assert every_set((1.0, 1.0)).arrivals == ((0, 1),)


def test_the_bias_table_knows_who_is_claimed_to_reach_the_optimum() -> None:
    """FedAvg misses it in all three columns, SCAFFOLD in none; 17 methods have three claims each."""
    statements = [claim.statement for claim in BIAS_TABLE.claims]
    assert len(statements) == 51
    assert [text for text in statements if "FedAvg (" in text and "c-a" not in text] == [
        "0.2 is below FedAvg (unequal work)",
        "0.2 is below FedAvg (unequal links)",
        "0.2 is below FedAvg (both)",
    ]
    assert "SCAFFOLD (both) is below 0.15" in statements
    assert "0.2 is below FedNova (both)" in statements
    assert "FedACS (both) is below 0.15" in statements


def test_smoke_does_not_judge_what_needs_rounds(tmp_path: Path) -> None:
    outcome = replace(FIGURE_7, compute=lambda request, seed: {TableCell("a", "b"): 1.0}).reproduce(
        Request(tmp_path, scale="smoke")
    )
    assert (outcome.verdict, outcome.checks) == ("not judged", ())
    assert outcome.reason == "The scale 'smoke' only shows that everything runs; it cannot test the claim."
