"""The table of docs/choosing.md says what `fairlead diagnose` would."""

from __future__ import annotations

import itertools
import re

from page_blocks import ROOT

from fairlead.diagnostics.advice import Situation, rule_for

PAGE = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
WORDS = {
    "any": ("yes", "no", "equal", "unequal", "told", "estimated", "linear", "not linear", "clipped"),
    "known": ("told",),
    "not known": ("estimated",),
    "SGD": ("linear",),
    "Adam": ("not linear",),
    "Adam, or clipped": ("not linear", "clipped"),
}
"""What the page says for the words of the rules."""
FIELDS = ("drift", "work", "links", "rates", "solver")


def rows() -> list[tuple[dict[str, tuple[str, ...]], str]]:
    """Conditions and advice of each row."""
    found = []
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.search(r"\| (`\w+`|no advice) \|$", line):
            said = {field: WORDS.get(cell, (cell,)) for field, cell in zip(FIELDS, cells, strict=False)}
            found.append((said, cells[-1].strip("`")))
    return found


def advice(situation: Situation) -> str:
    return rule_for(situation).preset or "no advice"


def test_the_table_advises_what_the_rules_advise() -> None:
    """In every situation in which all is known and enough was measured, by the first row that fits."""
    table = rows()
    assert len(table) == 11
    met = set()
    for drift, work, links, rates, solver in itertools.product(
        ("yes", "no"),
        ("equal", "unequal"),
        ("equal", "unequal"),
        ("told", "estimated"),
        ("linear", "not linear", "clipped"),
    ):
        facts = {"drift": drift, "work": work, "links": links, "rates": rates, "solver": solver}
        place, said = next(
            (place, said)
            for place, (wanted, said) in enumerate(table)
            if all(facts[field] in values for field, values in wanted.items())
        )
        met.add(place)
        assert said == advice(Situation(**facts)), facts  # type: ignore[arg-type]
    assert met == set(range(len(table)))


def test_no_advice_where_the_page_says_so() -> None:
    known = {"work": "unequal", "links": "equal", "drift": "no"}
    assert advice(Situation(**known, length="too few rounds")) == "no advice"  # type: ignore[arg-type]
    assert advice(Situation(**known, reach="not everybody")) == "no advice"  # type: ignore[arg-type]
