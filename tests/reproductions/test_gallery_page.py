"""The page of the gallery and the log of outcomes say what the entries and the kept files say."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from fairlead.reproductions import REPRODUCTIONS
from fairlead.reproductions.outcome_files import load_outcomes, outcome_file

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
        if outcome.verdict != "not run":
            assert statements == [claim.statement for claim in REPRODUCTIONS[outcome.name].claims]
            assert (outcome.verdict == "holds") == all(check.holds for check in outcome.checks)
            released = () if outcome.released is None else outcome.released.checks
            assert [check.statement for check in released] == [
                claim.statement for claim in REPRODUCTIONS[outcome.name].released
            ]


def test_the_page_says_what_came_of_the_released_method(script: ModuleType) -> None:
    """Beside the verdict on what is printed, in the same words."""
    outcome = next(each for each in load_outcomes(KEPT) if each.name == "zeng2023_table_1")
    assert outcome.released is not None
    told = replace(outcome, verdict="does not hold", released=replace(outcome.released, verdict="holds"))
    assert script._verdict(told) == "does not hold; as released: holds"
    assert script._verdict(replace(told, released=None)) == "does not hold"


def test_every_exact_result_is_kept_at_small_scale() -> None:
    kept = {outcome.name for outcome in load_outcomes(KEPT) if outcome.scale == "small"}
    assert {entry.name for entry in REPRODUCTIONS.values() if not entry.needs} <= kept
