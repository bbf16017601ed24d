"""The page of the gallery and the log of outcomes say what the entries and the kept files say."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from fairlead.reproductions import REPRODUCTIONS
from fairlead.reproductions.reproduction import load_outcomes, outcome_file

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "reproductions"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gallery_page", ROOT / "docs" / "reproductions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_up_to_date(script: ModuleType) -> None:
    """`python docs/reproductions.py` renews them."""
    for path, text in script.pages():
        assert path.read_text(encoding="utf-8") == text


def test_kept_outcomes_belong_to_the_gallery() -> None:
    for outcome in load_outcomes(KEPT):
        assert outcome_file(KEPT, outcome).exists()
        assert outcome.name in REPRODUCTIONS
        statements = [check.statement for check in outcome.checks]
        if statements:
            assert statements == [claim.statement for claim in REPRODUCTIONS[outcome.name].claims]
            assert (outcome.verdict == "holds") == all(check.holds for check in outcome.checks)
            released = () if outcome.released is None else outcome.released.checks
            assert [check.statement for check in released] == [
                claim.statement for claim in REPRODUCTIONS[outcome.name].released
            ]


def test_verdicts_of_the_page_tell_noise_and_what_is_open(script: ModuleType) -> None:
    kept = {(outcome.name, outcome.scale): outcome for outcome in load_outcomes(KEPT)}
    noisy = kept["wang2021_figure_5", "full"]
    assert script._verdict(noisy) == "holds, within the noise over seeds"
    lacking = replace(noisy.checks[0], holds=None, missing=("FedNova (all asked)",))
    part = replace(noisy, verdict="open", checks=(lacking, *noisy.checks[1:]))
    assert script._verdict(part) == "open: 2 of 3 comparisons hold, the others lack runs"
    failed = replace(part, checks=(replace(lacking, failed=lacking.missing),))
    assert script._verdict(failed) == "open: all 1 comparisons need runs that failed"


def test_outcomes_of_before_there_were_open_ones_are_read(tmp_path: Path) -> None:
    """Files that call it not run, and whose comparisons do not tell noise."""
    text = (KEPT / "wang2021_figure_5-full.json").read_text(encoding="utf-8")
    facts = json.loads(text) | {"verdict": "not run"}
    for check in facts["checks"]:
        check.pop("noise", None)
    (tmp_path / "old.json").write_text(json.dumps(facts), encoding="utf-8")
    (old,) = load_outcomes(tmp_path)
    assert (old.verdict, {check.noise for check in old.checks}) == ("not run", {None})


def test_the_page_says_what_came_of_the_method_as_published(script: ModuleType) -> None:
    """Beside the verdict on what is printed, in the same words."""
    outcome = next(each for each in load_outcomes(KEPT) if each.name == "zeng2023_table_1")
    assert outcome.released is not None
    one_seed = tuple(replace(check, noise="one seed") for check in outcome.checks)
    told = replace(
        outcome,
        verdict="does not hold",
        checks=one_seed,
        released=replace(outcome.released, verdict="holds", checks=()),
    )
    printed = "does not hold, but one seed cannot tell it from noise"
    assert script._verdict(told) == f"{printed}; as published: holds"
    assert script._verdict(replace(told, released=None)) == printed


def test_every_exact_result_is_kept_at_small_scale() -> None:
    kept = {outcome.name for outcome in load_outcomes(KEPT) if outcome.scale == "small"}
    assert {entry.name for entry in REPRODUCTIONS.values() if not entry.needs} <= kept
