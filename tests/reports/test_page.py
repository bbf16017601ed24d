"""The page as a browser without scripts sees it: complete, well formed, and harmless."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

import pytest
from fabricated import Made, fabricate, fabricate_study
from page_tree import Element, page_of

from fairlead.reports import summarize_settings
from fairlead.reports.paper_files import csv_table, latex_table
from fairlead.reports.tables import report_tables

HOSTILE = "<script>alert('x')<&\"> onload=1"


def test_nothing_is_fetched_and_only_the_pages_own_code_may_run(tmp_path: Path) -> None:
    text, page = page_of(fabricate_study(tmp_path))
    (policy,) = page.all("meta", http_equiv="Content-Security-Policy")
    (style,), (script,) = page.all("style"), page.all("script")
    rules = dict(rule.strip().split(" ", 1) for rule in (policy.attributes["content"] or "").split(";"))
    for rule, element in (("style-src", style), ("script-src", script)):
        digest = b64encode(sha256(element.text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    every = page.all()
    links = [
        (element.attributes[name] or "", "download" in element.attributes)
        for element in every
        for name in ("src", "href")
        if name in element.attributes
    ]
    # A file to download is in its own link.
    assert all(link.startswith("data:" if download else "#") for link, download in links)
    assert rules["img-src"] == "data:"
    assert not {"link", "img", "iframe", "object", "base"} & {element.name for element in every}
    assert not re.search(r"@import|url\((?!#)", text)


def test_no_element_has_handlers_or_styles_of_its_own(tmp_path: Path) -> None:
    _, page = page_of(fabricate_study(tmp_path))
    names = {name for element in page.all() for name in element.attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]


def test_hostile_names_are_text(tmp_path: Path) -> None:
    """In labels, paths, specs, reasons, metrics and titles alike."""
    name = HOSTILE.replace("/", "")
    fabricate(tmp_path / name / "0", Made("fedavg"))
    fabricate(tmp_path / "fednova" / "0", Made("fednova", outcome=f"failed: {HOSTILE}", metric=HOSTILE))
    _, page = page_of(tmp_path, title=HOSTILE)
    assert len(page.all("script")) == 1
    (heading,) = page.all("h1")
    assert heading.text == HOSTILE
    assert any(element.attributes.get("data-label") == name for element in page.all("g"))
    assert any(HOSTILE in element.text for element in page.all("td", class_="reason"))
    assert any(HOSTILE.capitalize() in element.text for element in page.all("h3"))


@pytest.mark.parametrize("accuracy", [(0.1, 0.2), (None, None), ()])
def test_ids_are_unique_and_links_lead_somewhere(tmp_path: Path, accuracy: tuple[float | None, ...]) -> None:
    """With all sections, and with those only that runs without evaluations or rounds can fill."""
    bare = fabricate(
        tmp_path / "bare", Made(accuracy=accuracy, planned=2, client_accuracy=None, outcome="running")
    )
    _, page = page_of(fabricate_study(tmp_path) if accuracy and accuracy[0] else bare)
    every = page.all()
    ids = [element.attributes["id"] for element in every if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    links = [link for link in page.all("a") if "download" not in link.attributes]
    referred = [str(link.attributes["href"])[1:] for link in links]
    referred += [str(element.attributes["aria-labelledby"]) for element in page.all("section")]
    referred += [str(element.attributes["for"]) for element in every if "for" in element.attributes]
    assert set(referred) <= set(ids)


def test_sections_in_their_order(tmp_path: Path) -> None:
    _, page = page_of(fabricate_study(tmp_path))
    assert [heading.text for heading in page.all("h2")] == [
        "At a glance", "Learning curves", "Results", "Time to target", "Consistency", "Clients",
        "Cost of a run", "Unfinished or repeated runs", "Runs",
    ]  # fmt: skip


def test_runs_that_did_not_finish_have_their_reason(tmp_path: Path) -> None:
    _, page = page_of(fabricate_study(tmp_path))
    (alert,) = page.all("p", class_="alert")
    assert "2 of 7 runs did not finish." in alert.words()
    (section,) = page.all("section", id="unfinished")
    reasons = [cell.text for cell in section.all("td", class_="reason")]
    assert reasons[0] == "Failed after 4 of 4 rounds: it <burst>."
    assert "broken" in reasons[1]


def test_every_run_has_its_spec_and_provenance(tmp_path: Path) -> None:
    _, page = page_of(fabricate_study(tmp_path))
    entries = page.all("details")
    assert len(entries) == 7
    first = entries[0]
    assert first.all("pre")[0].text == (tmp_path / "fedavg-0" / "spec.toml").read_text().strip()
    facts = {
        row.all("th")[0].text: row.all("td")[0].text
        for row in first.all("table", class_="plain")[0].all("tr")
    }
    assert facts["device"] == "cpu"
    assert facts["outcome"] == "finished"
    assert facts["next round"] == "4"
    assert facts["ended"] == "–"


def test_clients_are_shown_with_asked_and_real_weight(tmp_path: Path) -> None:
    """Asked ¼ and ¾; with 3 against 1 steps, really ¾ and ¼: three times too much, a third."""
    fabricate(tmp_path / "run", Made(steps=(3, 1)))
    _, page = page_of(tmp_path)
    (clients,) = page.all("details")[0].all("table", class_="sortable")
    assert [head.text for head in clients.all("th", scope="col")][-1] == "Accuracy (training)"
    rows = clients.all("tbody")[0].all("tr")
    assert [[cell.text for cell in row.all("td")] for row in rows] == [
        ["25.0 %", "75.0 %", "3.00×", "50.0 %"],
        ["75.0 %", "25.0 %", "0.33×", "100.0 %"],
    ]
    (strips,) = page.all("section", id="consistency")[0].all("ul", class_="strips")
    titles = [dot.all("title")[0].text for dot in strips.all("circle")]
    assert titles == ["client 0, seed 0: Ω/ω 3", "client 1, seed 0: Ω/ω 0.333"]


@pytest.mark.parametrize(
    ("arrived", "hint"), [((0, 1), "left of 1: under-weighted"), ((1,), "left end: no update arrived")]
)
def test_the_axis_of_weights_says_where_clients_stand_that_never_counted(
    tmp_path: Path, arrived: tuple[int, ...], hint: str
) -> None:
    fabricate(tmp_path / "run", Made(arrived=arrived))
    _, page = page_of(tmp_path)
    (section,) = page.all("section", id="consistency")
    assert section.all("text", class_="axis")[0].text.endswith(f"({hint})")


def test_runs_under_other_conditions_are_not_passed_over(tmp_path: Path) -> None:
    fabricate(tmp_path / "a-0", Made("fedavg"))
    fabricate(tmp_path / "b-0", Made("fednova", steps=(2, 2)))
    _, page = page_of(tmp_path)
    assert "Besides the method, these runs differ in work." in page.words()


def test_one_run_alone(tmp_path: Path) -> None:
    fabricate(tmp_path / "run")
    _, page = page_of(tmp_path / "run")
    assert page.all("p", class_="lead")[0].text == (
        "run: 60.0 % accuracy over the last 10 % of rounds, 1 seed."
    )
    assert page.all("div", class_="legend") == []
    assert "unfinished" not in [section.attributes["id"] for section in page.all("section")]


def test_twenty_methods_can_be_told_apart(tmp_path: Path) -> None:
    for place in range(20):
        fabricate(tmp_path / f"m{place}" / "0", Made(lr=0.01 * (place + 1)))
    _, page = page_of(tmp_path)
    assert len(page.all("label", title="m19")) == 1
    looks = set()
    for group in page.all("div", class_="by-rounds")[0].all("g", class_="method"):
        (line,), (marker,) = group.all("path", class_="line"), group.all("path", class_="marker")
        shape = re.sub(r"^M[\d.]+ [\d.]+", "", str(marker.attributes["d"])).split("M")[0]
        looks.add((group.attributes["class"], line.attributes.get("stroke-dasharray"), shape))
    assert len(looks) == 20
    assert len(page.all("div", class_="crowded")) == 1


def test_a_page_of_nothing_but_unreadable_runs(tmp_path: Path) -> None:
    (fabricate(tmp_path / "run") / "spec.toml").write_text("rounds = -1")
    _, page = page_of(tmp_path)
    assert [heading.text for heading in page.all("h2")] == ["Unfinished or repeated runs", "Runs"]


def test_a_run_that_failed_in_its_first_round(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made(accuracy=(), planned=3, outcome="failed: at once."))
    _, page = page_of(tmp_path)
    assert page.all("p", class_="lead")[0].text == (
        "No run was evaluated, so there is nothing to compare yet. Not every run finished: fedavg (1 of 1 run failed)."
    )
    assert "Failed after 0 of 3 rounds: at once." in page.words()


def test_runs_that_were_never_evaluated(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made(accuracy=(None, None)))
    _, page = page_of(tmp_path)
    titles = [heading.text for heading in page.all("h3")]
    assert titles == ["Training loss", "Update diversity (e-LUD)", "Weight error χ²(ω‖Ω)"]


def _head(page: Element) -> dict[str, list[str]]:
    (head,) = page.all("dl", class_="conditions")
    return {
        row.all("dt")[0].text: [span.words() for span in row.all("dd")[0].all("span")]
        for row in head.all("div")
    }


def test_the_head_has_the_conditions_of_the_runs(tmp_path: Path) -> None:
    """Two clients that take one and three steps over perfect links; methods are named where they differ."""
    fabricate(tmp_path / "fedavg-0", Made("fedavg", steps=(1, 3)))
    _, page = page_of(tmp_path)
    head = _head(page)
    assert list(head) == ["Data", "Model", "Clients", "Work", "Links", "Learning rate", "Rounds"]
    assert head["Clients"] == ["all 2 in each round"]
    assert head["Work"] == ["FixedSteps(steps=[1, 3])"]
    assert head["Links"] == ["PerfectLink"]
    assert head["Learning rate"] == ["0.1; SGD, batches of 32"]
    assert head["Rounds"] == ["2, evaluated every round"]
    fabricate(tmp_path / "fednova-0", Made("fednova", steps=(1, 3), lr=0.2))
    _, page = page_of(tmp_path)
    assert _head(page)["Learning rate"] == [
        "fedavg: 0.1; SGD, batches of 32",
        "fednova: 0.2; SGD, batches of 32",
    ]


def test_the_ranking_says_who_gained_and_lost_weight(tmp_path: Path) -> None:
    """Asked ¼ and ¾; with 3 against 1 steps, really ¾ and ¼."""
    fabricate(tmp_path / "fedavg-0", Made("fedavg", steps=(3, 1)))
    fabricate(tmp_path / "scaffold-0", Made("scaffold", steps=(3, 1)))
    _, page = page_of(tmp_path)
    reasons = {
        row.all("span", class_="label")[0].words(): row.all("span", class_="why")[0].text
        for row in page.all("ol", class_="standing")[0].all("li")[:2]
    }
    assert reasons["fedavg"] == (
        "It optimized another objective: 1 of 2 clients got 75% of the weight instead of 25%. Client 0 gained most "
        "(3.00× its weight), client 1 lost most (0.33×)."
    )
    assert reasons["scaffold"].startswith("It optimized the intended objective by design")


def test_every_table_of_figures_can_be_saved(tmp_path: Path) -> None:
    """As the files that --tables writes."""
    (summary,) = summarize_settings([fabricate_study(tmp_path)])
    _, page = page_of(tmp_path)
    files = {
        str(link.attributes["download"]): unquote(str(link.attributes["href"]).split(",", 1)[1])
        for link in page.all("a")
        if "download" in link.attributes
    }
    labels = [method.label for method in summary.methods]
    tables = report_tables(summary)
    assert files == {f"{table.name}.csv": csv_table(table, labels) for table in tables} | {
        f"{table.name}.tex": latex_table(table, labels) for table in tables
    }


def test_a_run_with_a_notice_tells_the_weights_of_its_end(tmp_path: Path) -> None:
    """The notice is of the round in which it was first given."""
    run = fabricate(tmp_path / "fedavg-0", Made("fedavg", steps=(3, 1)))
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "notice": "After 10 rounds, early."}))
    _, page = page_of(tmp_path)
    (notice,) = page.all("p", class_="notice")
    assert notice.text.startswith("Over 2 rounds, 50.0% of the objective's weight was misplaced")
