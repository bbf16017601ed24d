"""What may be diagnosed, and the forms in which the answer comes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from constructed import (
    CASES,
    RATES,
    STEPS,
    WEIGHTS,
    experiment,
    finding,
    misplaced,
)

import fairlead as fl
from fairlead.errors import FairleadError, FieldError


def test_a_federation_is_not_changed_and_its_own_rounds_are_used() -> None:
    run = experiment(*CASES["both"]).build()
    fresh = fl.diagnose(run, rounds=7)
    assert (fresh.rounds, run.state.round, run.records) == (7, 0, [])
    list(run.train(9))
    params = run.params.clone()
    assert fl.diagnose(run).rounds == 9
    assert torch.equal(run.params, params)
    assert run.state.round == 9


def test_the_folder_of_a_run_is_judged_by_its_rounds(tmp_path: Path) -> None:
    subject = replace(experiment(*CASES["both"]), rounds=12, evaluate_every=0)
    fl.run_experiment(subject, tmp_path / "run")
    found = fl.diagnose(tmp_path / "run")
    assert (found.rounds, found.advice.preset) == (12, "scaffold")
    again = fl.diagnose(tmp_path / "run" / "rounds.jsonl")
    assert again.to_dict() == {**found.to_dict(), "source": again.source}


def test_against_compares_presets_by_theory() -> None:
    found = fl.diagnose(
        experiment(*CASES["both"]), against=["importance_sampling", "anonymous_fednova", "fedaware"]
    )
    shares = {method.preset: method.misplaced for method in found.against}
    assert shares["importance_sampling"] == pytest.approx(misplaced(WEIGHTS * RATES * STEPS))
    assert shares["anonymous_fednova"] == pytest.approx(misplaced(WEIGHTS * RATES))
    assert shares["fedaware"] is None


@pytest.mark.parametrize("preset", sorted(fl.presets.METHODS))
def test_every_preset_can_be_compared(preset: str) -> None:
    (method,) = fl.diagnose(experiment(*CASES["both"]), rounds=5, quick=True, against=[preset]).against
    assert method.surrogate.explanation
    if method.misplaced is None:
        means = ("coordinate_median", "norm_bounded_mean", "trimmed_mean")
        robust = (*means, "geometric_median", "krum", "multi_krum")
        own_parameters = ("fedper", "fedrep", "fedbn")
        by_loss = ("fedmgda_plus", "power_of_choice")
        assert preset.startswith("fedaware") or preset in (*by_loss, *robust, *own_parameters)
    else:
        assert 0 <= method.misplaced < 0.5


def test_quick_leaves_the_consensus_test_out() -> None:
    found = fl.diagnose(experiment(*CASES["neither"]), quick=True)
    assert (found.rounds, found.evidence.consensus) == (10, None)
    assert "the quick probe skips it" in finding(found, "consensus").statement
    assert found.advice.preset is None


def test_the_same_subject_has_the_same_diagnosis() -> None:
    subject = experiment(*CASES["both"])
    assert fl.diagnose(subject).to_dict() == fl.diagnose(subject).to_dict()


SCHEMA = {
    "source": str,
    "rounds": int,
    "clients": int,
    "findings": list,
    "advice": dict,
    "against": list,
}


@pytest.mark.parametrize("case", CASES)
def test_plain_data_have_a_fixed_shape(case: str) -> None:
    plain = json.loads(json.dumps(fl.diagnose(experiment(*CASES[case])).to_dict()))
    assert {name: type(value) for name, value in plain.items()} == SCHEMA
    for each in plain["findings"]:
        assert set(each) == {"kind", "statement", "evidence", "confidence"}
        assert each["confidence"] in ("high", "moderate", "low", "none")
    assert set(plain["advice"]) == {
        "decision",
        "preset",
        "arguments",
        "server_lr",
        "reason",
        "expected",
        "confidence",
        "alternatives",
        "remarks",
        "python",
        "toml",
        "command",
    }
    kinds = [each["kind"] for each in plain["findings"]]
    assert [kind for kind in kinds if kind not in ("clients", "unheard")] == [
        "sizes",
        "work",
        "links",
        "foreseen",
        "measured",
        "dissimilarity",
        "consensus",
        "diversity",
        "dynamics",
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_text_holds_every_statement(case: str) -> None:
    found = fl.diagnose(experiment(*CASES[case]))
    text = str(found)
    assert all(each.statement in text for each in found.findings)
    assert found.advice.reason in text


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ({"rounds": 0}, "diagnose needs rounds of at least 1, got 0."),
        ({"against": ["fednowa"]}, "'fednowa' is not a preset. Did you mean 'fednova'?"),
    ],
)
def test_senseless_questions_are_refused(subject: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError) as refusal:
        fl.diagnose(experiment(), **subject)
    assert str(refusal.value) == message


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FairleadError, match="is not the folder of a run"):
        fl.diagnose(tmp_path)
