"""Whom AWARE follows, told from the records of its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from constructed import UNEQUAL_WORK, experiment

import fairlead as fl
from fairlead.diagnostics import draw_diagnosis
from fairlead.diagnostics.findings import mean_aware_weights
from fairlead.records import RoundRecord

AWARE = fl.presets.fedaware(lr=0.01, steps=3)
PROJECTED = fl.presets.with_aware(fl.presets.fedavgm(lr=0.01, steps=3))


def rounds(*remembered: dict[int, float]) -> list[RoundRecord]:
    (record,) = experiment().build().train(1)
    facts = {"aware_support": 1.0, "aware_gap": 0.0}
    return [replace(record, coefficients=None, remembered=shares, facts=facts) for shares in remembered]


def test_shares_are_averaged_over_the_rounds_that_have_some() -> None:
    """(0.2, 0.8), nothing, and 3 of unit rows, which count as 1: means (0.1, 0.9)."""
    found = mean_aware_weights(rounds({0: 0.2, 1: 0.8}, {}, {1: 3.0}), 3)
    assert found is not None
    assert found.tolist() == pytest.approx([0.1, 0.9, 0.0])


def test_other_memories_are_not_taken_for_aware() -> None:
    records = experiment(algorithm=fl.presets.fedvarp(lr=0.01, steps=3)).build().train(3)
    assert mean_aware_weights(list(records), 12) is None


@pytest.mark.parametrize("algorithm", [AWARE, PROJECTED], ids=["aggregator", "projection"])
def test_a_diagnosis_says_and_draws_whom_it_follows(algorithm: fl.Algorithm, tmp_path: Path) -> None:
    found = fl.diagnose(experiment(UNEQUAL_WORK, algorithm=algorithm), quick=True)
    told = found.finding("aware")
    assert told is not None
    shares = mean_aware_weights(found.evidence.records, found.clients)
    assert shares is not None
    leaders = shares.argsort(descending=True)[:3].tolist()
    leading = told.evidence["share"]
    assert isinstance(leading, Mapping)
    assert dict(leading) == pytest.approx({f"client {i}": float(shares[i]) for i in leaders})
    support = [len(record.remembered) for record in found.evidence.records]
    assert told.evidence["support"] == pytest.approx(sum(support) / len(support))
    assert "<!-- λ of AWARE now, on average -->" in draw_diagnosis(found, tmp_path)[0].read_text()


def test_a_step_that_rests_on_clusters_rests_on_their_clients() -> None:
    """All clients share one row, which has all of the weight."""
    memory = fl.UpdateMemory(clusters=(0,) * 12)
    algorithm = fl.presets.fedaware(lr=0.01, steps=3, memory=memory)
    told = fl.diagnose(experiment(algorithm=algorithm), quick=True).finding("aware")
    assert told is not None
    assert told.evidence["support"] == 12


def test_methods_without_aware_are_not_said_to_follow_anybody() -> None:
    assert fl.diagnose(experiment(), quick=True).finding("aware") is None
