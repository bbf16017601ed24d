"""The kept results of `fairlead benchmark`: their figures, the page that shows them, and the advice they support."""

from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

import fairlead as fl
from fairlead.diagnostics.advice import Situation, rule_for
from fairlead.experiments.benchmark import suite_named
from fairlead.results.estimates import estimate, paired_difference

ROOT = Path(__file__).parents[2]
WRITER = run_path(str(ROOT / "docs" / "benchmark.py"))
FACTS: dict[str, Any] = json.loads(WRITER["RESULTS"].read_text(encoding="utf-8"))
CELLS: dict[str, dict[str, Any]] = {cell["cell"]: cell for cell in FACTS["cells"]}
PAGE = WRITER["PAGE"].read_text(encoding="utf-8")


def method(cell: str, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [each for each in CELLS[cell]["methods"] if each["method"] == name]
    return found[0]


def test_they_are_of_the_suite_of_the_package() -> None:
    suite = suite_named("quick")
    cells, _ = suite.cells()
    cells = [cell for cell in cells if cell.name in CELLS]
    assert list(CELLS) == [cell.name for cell in cells]
    assert {cell["kind"] for cell in FACTS["cells"]} == set(suite.table["kinds"])
    assert FACTS["seeds"] == suite.seeds
    assert FACTS["tuning"]["rule"] == suite.rule
    entrants = {each.name: {"is": each.text, "tried": list(each.tune)} for each in suite.entrants(None)}
    assert FACTS["tuning"]["methods"] == entrants
    for cell in cells:
        assert CELLS[cell.name]["learning_rates"] == cell.lr


def test_every_figure_has_its_seeds_and_its_tuning() -> None:
    for cell in CELLS.values():
        tuned = {each["method"]: each for each in cell["tuning"]}
        for row in cell["methods"]:
            assert sorted(map(int, row["by_seed"])) == FACTS["seeds"]
            assert not set(tuned[row["method"]]["seeds"]) & set(FACTS["seeds"])
            assert len(tuned[row["method"]]["chosen"]) == 1
            assert row["failures"] == []


def test_verdicts_follow_from_the_seeds() -> None:
    for cell in CELLS.values():
        first = {int(seed): value for seed, value in cell["methods"][0]["by_seed"].items()}
        for row in cell["methods"]:
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


def test_the_page_shows_them() -> None:
    written = PAGE.split(WRITER["BEGIN"])[1].split(WRITER["END"])[0]
    assert written == WRITER["tables"](FACTS)


def situation(cell: str) -> Situation:
    """A cell in the words of the rules: its clients differ, return often and train with SGD."""
    _, kind = cell.split("/")
    return Situation(
        work="equal" if kind in ("data", "links") else "unequal",
        links="equal" if kind in ("data", "work") else "unequal",
        drift="yes",
        clients="different",
        cohort="some",
    )


@pytest.mark.parametrize("cell", CELLS)
def test_the_advised_method_is_not_worse_than_fedavg(cell: str) -> None:
    advised = rule_for(situation(cell)).preset
    assert advised == "scaffold"
    assert method(cell, advised)["standing"] in ("better", "unclear", "equal")


@pytest.mark.parametrize("cell", ["digits-mlp/links", "synthetic/all"])
def test_diagnose_gives_this_advice_in_the_cells(cell: str) -> None:
    (found,), _ = suite_named("quick").cells(cell)
    assert fl.diagnose(found.experiment).advice.preset == "scaffold"


def test_choosing_cites_the_cells() -> None:
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    better = [cell for cell in CELLS if method(cell, "scaffold")["standing"] == "better"]
    cited = ", ".join(f"`{cell}`" for cell in better)
    assert f"FedAvg beyond noise in {len(better)} of {len(CELLS)} cells ({cited}) and worse in none" in text


def test_the_candidate_has_the_figures_of_the_page() -> None:
    summary = {row["label"]: row for row in FACTS["summary"]}
    found, other = summary["control_momentum"], summary["normalized_momentum"]
    assert len(found["leads"]) >= 0.7 * len(CELLS)
    assert (found["worse"], found["lost"]) == ([], [])
    assert len(other["behind"]) == 1
    text = " ".join(PAGE.split())
    assert f"best or within noise of the best in {len(found['leads'])} of {len(CELLS)} cells, worse" in text
    assert f"FedAvg passes the same test in {len(summary['fedavg']['leads'])} of {len(CELLS)} cells" in text
    judged = [each["standing"] for cell in CELLS.values() for each in cell["methods"][1:]]
    counts = f"Of {len(judged)} comparisons with FedAvg, {judged.count('better')} are better and "
    assert f"{counts}{judged.count('worse')} worse beyond noise." in text
