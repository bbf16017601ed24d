"""The kept results of `benchmarks/advice.py`: at least 90 % in both halves, of these federations and these rules."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks.advice import BEGIN, END, NUMBERS, PAGE, RESULTS, drawn, score, table

import fairlead as fl

ROWS: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))


def test_the_results_are_of_the_drawn_federations() -> None:
    assert [row["number"] for row in ROWS] == list(NUMBERS)
    assert [row["name"] for row in ROWS] == [drawn(number).name for number in NUMBERS]
    assert len({row["name"] for row in ROWS}) == len(ROWS) >= 30


@pytest.mark.parametrize("held_out", [False, True])
def test_the_advised_method_is_at_least_as_good_as_fedavg(held_out: bool) -> None:
    found = score([row for row in ROWS if row["held_out"] == held_out])
    assert found.kept >= 0.9
    assert found.advised >= found.federations / 2
    assert found.gained >= 0.9 * found.advised
    assert found.better > 5 * found.worse
    assert found.missed <= found.enough / 2


def test_the_page_shows_them() -> None:
    assert PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0] == table(ROWS)


@pytest.mark.parametrize("number", [4, 8, 22])
def test_the_rules_still_give_the_advice_that_was_tested(number: int) -> None:
    (row,) = (row for row in ROWS if row["number"] == number)
    advice = fl.diagnose(drawn(number).experiment).advice
    assert ("fedavg" if advice.decision == "keep" else advice.preset) == row["advised"]
