"""The table of docs/choosing.md says what `fairlead diagnose` would."""

from __future__ import annotations

import re
from itertools import product
from typing import get_args, get_type_hints

from page_blocks import ROOT

from fairlead.diagnostics.advice import Situation, rule_for

PAGE = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
SOLVERS = {"linear": "SGD", "not linear": "Adam", "clipped": "clipped"}


def rows() -> list[list[str]]:
    """Conditions and advice of each row."""
    table = PAGE[PAGE.index("| do clients differ?") :].split("\n\n")[0]
    lines = [line for line in table.splitlines() if re.search(r"\| (`\w+`|no advice) \|$", line)]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def facts(situation: Situation) -> list[set[str]]:
    """The words of the page that are true of a situation, by column."""
    sources = set()
    if situation.bias == "large":
        sources |= {"work"} if situation.work == "unequal" else set()
        known = situation.links == "unequal" and situation.rates == "told"
        sources |= {"links with known rates"} if known else set()
    differ = "no" if situation.clients == "alike" else "yes"
    return [{differ}, {situation.trouble}, {SOLVERS[situation.solver]}, {situation.returns}, sources]


def advice(situation: Situation) -> str:
    return rule_for(situation).preset or "no advice"


def test_the_table_advises_what_the_rules_advise() -> None:
    """In every situation in which all is known and enough was measured, by the first row that fits."""
    table, met = rows(), set()
    assert len(table) == 8
    choices = [get_args(hint) for hint in get_type_hints(Situation).values()]
    for values in product(*choices):
        situation = Situation(*values)
        known = "unknown" not in (situation.work, situation.links, situation.drift)
        if not known or situation.reach != "everybody" or situation.length != "enough rounds":
            continue
        words = facts(situation)
        place, said = next(
            (place, said)
            for place, (*wanted, said) in enumerate(table)
            if all(cell == "any" or cell in true for cell, true in zip(wanted, words, strict=True))
        )
        met.add(place)
        assert said == advice(situation), situation
    assert met == set(range(len(table)))


def test_no_advice_where_the_page_says_so() -> None:
    assert advice(Situation("unequal", "equal", "no", length="too few rounds")) == "no advice"
    assert advice(Situation("unequal", "equal", "no", reach="not everybody")) == "no advice"
    assert advice(Situation("unequal", "unknown", "no")) == "no advice"
