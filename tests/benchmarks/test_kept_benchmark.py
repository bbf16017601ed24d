"""The kept results of `fairlead benchmark`: their figures, the page that shows them, and the advice they support."""

from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from benchmarks.advice import RESULTS as FEDERATIONS

import fairlead as fl
from fairlead.diagnostics.advice import RULES, Rule, Situation, rule_for
from fairlead.experiments.benchmark import suite_named
from fairlead.results.estimates import estimate, paired_difference

ROOT = Path(__file__).parents[2]
WRITER = run_path(str(ROOT / "docs" / "benchmark.py"))
FACTS: dict[str, dict[str, Any]] = {
    suite: json.loads(file.read_text(encoding="utf-8")) for suite, file in WRITER["RESULTS"].items()
}
CELLS: dict[str, dict[str, Any]] = {cell["cell"]: cell for facts in FACTS.values() for cell in facts["cells"]}
SUITE_OF = {cell["cell"]: suite for suite, facts in FACTS.items() for cell in facts["cells"]}
PAGE = WRITER["PAGE"].read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())


def method(cell: str, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [each for each in CELLS[cell]["methods"] if each["method"] == name]
    return found[0]


@pytest.mark.parametrize("name", FACTS)
def test_they_are_of_the_suite_of_the_package(name: str, tmp_path: Path) -> None:
    suite, facts = suite_named(name), FACTS[name]
    assert facts["seeds"] == suite.result_seeds
    assert facts["tuning"]["rule"] == suite.rule
    entrants = {each.name: {"is": each.text, "tried": list(each.tune)} for each in suite.entrants(None)}
    assert facts["tuning"]["methods"] == entrants
    assert facts["tuning"]["seeds"] == suite.tune_seeds
    for source in (each for task in suite.tasks.values() for each in task.sources):
        (tmp_path / source["path"]).mkdir(parents=True, exist_ok=True)
    digests = {cell.name: cell.digest for cell in suite.cells(data=tmp_path)[0]}
    for cell in facts["cells"]:
        assert cell["experiment"] == digests[cell["cell"]]
        task = suite.tasks[cell["task"]]
        assert cell["kind"] in (task.kinds or suite.kinds)
        assert cell["learning_rates"] == task.lr
        assert [row["method"] for row in cell["methods"]] == list(entrants)


def test_the_quick_suite_is_complete() -> None:
    cells, _ = suite_named("quick").cells()
    assert [cell["cell"] for cell in FACTS["quick"]["cells"]] == [cell.name for cell in cells]


@pytest.mark.parametrize("cell", CELLS)
def test_every_figure_has_its_seeds_and_its_tuning(cell: str) -> None:
    tuned = {each["method"]: each for each in CELLS[cell]["tuning"]}
    seeds = FACTS[SUITE_OF[cell]]["seeds"]
    for row in CELLS[cell]["methods"]:
        assert sorted(map(int, row["by_seed"])) == seeds
        assert not set(tuned[row["method"]]["seeds"]) & set(seeds)
        assert len(tuned[row["method"]]["chosen"]) == 1
        assert row["failures"] == []


@pytest.mark.parametrize("cell", CELLS)
def test_verdicts_follow_from_the_seeds(cell: str) -> None:
    first = {int(seed): value for seed, value in CELLS[cell]["methods"][0]["by_seed"].items()}
    for row in CELLS[cell]["methods"]:
        own = {int(seed): value for seed, value in row["by_seed"].items()}
        mean = estimate(list(own.values()))
        assert mean is not None
        assert row["value"]["mean"] == pytest.approx(mean.mean, rel=1e-4)
        assert row["value"]["half_width"] == pytest.approx(mean.half_width, rel=1e-3)
        difference = paired_difference(own, first)
        assert difference is not None
        if row["method"] != "fedavg":
            judged = difference.judged(higher=True)
            assert row["standing"] == (judged or ("equal" if difference.is_zero else "unclear"))


@pytest.mark.parametrize("suite", FACTS)
def test_the_page_shows_them(suite: str) -> None:
    written = PAGE.split(WRITER["BEGIN"].format(suite))[1].split(WRITER["END"])[0]
    assert written == WRITER["tables"](FACTS[suite])
    judged = [each["standing"] for cell in FACTS[suite]["cells"] for each in cell["methods"][1:]]
    counts = f"Of {len(judged)} comparisons with FedAvg in the {suite} suite, {judged.count('better')} are better and "
    assert f"{counts}{judged.count('worse')} worse beyond noise." in TEXT


def situation(cell: str) -> Situation:
    """A cell in the words of the rules: its clients differ, return often and train with SGD."""
    kind = CELLS[cell]["kind"]
    return Situation(
        work="equal" if kind in ("data", "links") else "unequal",
        links="equal" if kind in ("data", "work") else "unequal",
        drift="yes",
        clients="different",
        cohort="some",
    )


def test_every_cell_is_cited_by_the_rule_that_applies_there() -> None:
    """So that no rule cites only the cells that suit it."""
    for rule in RULES:
        assert list(rule.cells) == [cell for cell in CELLS if rule_for(situation(cell)) is rule]


@pytest.mark.parametrize("cell", ["digits-mlp/links", "synthetic/all"])
def test_diagnose_applies_the_same_rule_in_the_cells(cell: str) -> None:
    (found,), _ = suite_named("quick").cells(cell)
    assert fl.diagnose(found.experiment).advice.preset == rule_for(situation(cell)).preset


def evidence(rule: Rule) -> str:
    """How the preset of a rule did against FedAvg where the rule applies."""
    kept = json.loads(FEDERATIONS.read_text(encoding="utf-8"))
    drawn = [each["verdict"] for each in kept if each["when"] == rule.when]
    if rule.preset == "fedavg" and drawn:
        found = f"in {len(drawn) - drawn.count('better')} of {len(drawn)} drawn federations"
        return f"{found} no other method was better than FedAvg beyond noise"
    places = {"drawn federations": drawn}
    if rule.cells:
        standings = [method(cell, str(rule.preset))["standing"] for cell in rule.cells]
        places = {"benchmark cells": standings, **places}
    counts = [f"{each.count('better')} of {len(each)} {name}" for name, each in places.items()]
    worse = sum(each.count("worse") for each in places.values())
    if not drawn and not rule.cells:
        return "theory alone, as no benchmark cell or drawn federation has such clients"
    return f"better than FedAvg beyond noise in {' and '.join(counts)}, worse in {worse}"


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.preset], ids=str)
def test_rules_say_how_their_preset_did(rule: Rule) -> None:
    assert rule.evidence == evidence(rule)
    choosing = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    assert f"| {rule.evidence} |" in choosing


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.preset != "fedavg"], ids=str)
def test_no_rule_advises_a_method_that_lost_where_it_applies(rule: Rule) -> None:
    assert all(method(cell, str(rule.preset))["standing"] != "worse" for cell in rule.cells)


def test_rules_without_a_preset_cite_nothing() -> None:
    assert all(not rule.cells and not rule.evidence for rule in RULES if rule.preset is None)
