"""The page as a browser without scripts sees it: complete, well formed, and harmless."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fabricated import Made, fabricate

from fairlead.reports import render_page, summarise_runs

VOID = {"meta", "input", "wbr", "br"}
HOSTILE = "<script>alert('x')<&\"> onload=1"


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    content: list[Element | str] = field(default_factory=list)

    @property
    def children(self) -> list[Element]:
        return [part for part in self.content if isinstance(part, Element)]

    @property
    def text(self) -> str:
        """Its own text, without that of elements inside."""
        return "".join(part for part in self.content if isinstance(part, str))

    def all(self, name: str | None = None, **attributes: str) -> list[Element]:
        """Elements below this one of the given name and attributes."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        found = []
        for child in self.children:
            has = all(value in (child.attributes.get(key) or "").split() for key, value in wanted.items())
            if name in (None, child.name) and has:
                found.append(child)
            found += child.all(name, **attributes)
        return found

    def words(self) -> str:
        """All text, in the order of reading."""
        return "".join(part if isinstance(part, str) else part.words() for part in self.content)


class Tree(HTMLParser):
    """Builds elements and refuses tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("root", {})
        self._open = [self.root]
        self.feed(page)
        self.close()
        assert [element.name for element in self._open] == ["root"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} repeats an attribute"
        element = Element(tag, dict(attrs))
        self._open[-1].content.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].content.append(data)


def page_of(*paths: Path, title: str = "Study") -> tuple[str, Element]:
    text = render_page(summarise_runs(paths), title)
    return text, Tree(text).root


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Three methods over two seeds, of which one run failed and one cannot be read."""
    for method, lead in (("fedavg", 0.0), ("fednova", 0.1), ("scaffold", 0.2)):
        for seed in (0, 1):
            accuracy = tuple(
                0.3 + 0.1 * place + lead + 0.01 * seed + 1e-5 * seed * lead for place in range(4)
            )
            failed = method == "fednova" and seed == 1
            fabricate(
                tmp_path / f"{method}-{seed}",
                Made(method, seed, accuracy, outcome="failed: it <burst>." if failed else "finished"),
            )
    broken = fabricate(tmp_path / "broken")
    (broken / "spec.toml").write_text("nonsense")
    return tmp_path


def test_nothing_is_fetched_and_only_the_pages_own_code_may_run(study: Path) -> None:
    text, page = page_of(study)
    (policy,) = page.all("meta", http_equiv="Content-Security-Policy")
    (style,), (script,) = page.all("style"), page.all("script")
    rules = dict(rule.strip().split(" ", 1) for rule in (policy.attributes["content"] or "").split(";"))
    for rule, element in (("style-src", style), ("script-src", script)):
        digest = b64encode(sha256(element.text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    every = page.all()
    links = [
        element.attributes[name]
        for element in every
        for name in ("src", "href")
        if name in element.attributes
    ]
    assert all(link and link.startswith("#") for link in links)
    assert not {"link", "img", "iframe", "object", "base"} & {element.name for element in every}
    assert not re.search(r"@import|url\((?!#)", text)


def test_no_element_has_handlers_or_styles_of_its_own(study: Path) -> None:
    _, page = page_of(study)
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
def test_ids_are_unique_and_links_lead_somewhere(
    study: Path, tmp_path: Path, accuracy: tuple[float | None, ...]
) -> None:
    """With all sections, and with those only that runs without evaluations or rounds can fill."""
    bare = fabricate(
        tmp_path / "bare", Made(accuracy=accuracy, planned=2, client_accuracy=None, outcome="running")
    )
    _, page = page_of(study if accuracy and accuracy[0] else bare)
    every = page.all()
    ids = [element.attributes["id"] for element in every if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    referred = [str(link.attributes["href"])[1:] for link in page.all("a")]
    referred += [str(element.attributes["aria-labelledby"]) for element in page.all("section")]
    referred += [str(element.attributes["for"]) for element in every if "for" in element.attributes]
    assert set(referred) <= set(ids)


def test_sections_in_their_order(study: Path) -> None:
    _, page = page_of(study)
    assert [heading.text for heading in page.all("h2")] == [
        "At a glance", "Learning curves", "Results", "Time to target", "Consistency", "Clients",
        "Cost of a run", "Runs that did not finish", "Runs",
    ]  # fmt: skip


def test_the_first_sentence_says_who_leads_and_by_how_much(study: Path) -> None:
    """SCAFFOLD ends 0.2 above FedAvg with either seed, within a few millionths."""
    _, page = page_of(study)
    (lead,) = page.all("p", class_="lead")
    assert lead.text == (
        "scaffold comes first with 80.5 % ± 6.4 accuracy over the last 10 % of rounds, 2 seeds, "
        "20.0 points above fedavg: more than the noise over seeds. Not every run finished: fednova (1 of 2 runs "
        "failed). Methods with such runs are not ranked."
    )
    (standing,) = page.all("ol", class_="standing")
    rows = [row for row in standing.all("li") if "data-method" in row.attributes]
    verdicts = [row.all("span", class_="verdict")[0].words() for row in rows]
    assert verdicts == [
        "better +20.0 ± 0.0 points",
        "baseline",
        "+10.0 points; one seed, so the noise is not known (1 of 2 runs failed)",
    ]


def test_a_difference_within_the_noise_is_called_so(tmp_path: Path) -> None:
    for seed, (ours, theirs) in enumerate([(0.5, 0.6), (0.8, 0.5)]):
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, ours)))
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, theirs)))
    _, page = page_of(tmp_path)
    assert (
        "10.0 points above fedavg, which is within the noise over seeds."
        in page.all("p", class_="lead")[0].text
    )
    assert [each.text for each in page.all("span", class_="unclear")] == ["no clear difference"]


def test_runs_of_unequal_length_are_not_ranked(tmp_path: Path) -> None:
    """Neither in the lead nor row by row, whatever accuracy and objective say."""
    for seed in (0, 1):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, 0.5), objective=0.5))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, 0.5, 0.9), objective=0.6))
    _, page = page_of(tmp_path)
    assert page.all("p", class_="lead")[0].text == (
        "These runs are of 2 and 3 rounds, which cannot be compared: none is said to come first."
    )
    verdicts = [each.words() for each in page.all("span", class_="verdict")]
    assert verdicts == ["baseline", "3 rounds, not to be compared with 2"]


def test_runs_on_different_data_are_not_ranked(tmp_path: Path) -> None:
    """FedNova ends 0.4 higher and 0.1 lower in the objective with either seed, but of other clients."""
    for seed in (0, 1):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, 0.5), objective=0.5))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, 0.9), objective=0.4, optimum=2.0))
    _, page = page_of(tmp_path)
    assert page.all("p", class_="lead")[0].text == (
        "These runs are of different data, which cannot be compared: none is said to come first."
    )
    verdicts = [each.words() for each in page.all("span", class_="verdict")]
    assert verdicts == ["baseline", "other data, not to be compared with fedavg"]
    (standing,) = page.all("section", id="standing")
    assert "Sorted by" not in standing.words()
    assert not standing.all("path", class_="interval")


def survivors(tmp_path: Path, *failing: str) -> Element:
    """A page of three methods of three seeds, each 0.2 above the one before; the last run of some failed."""
    for place, method in enumerate(("fedavg", "fednova", "scaffold")):
        for seed in range(3):
            end, lost = 0.4 + 0.2 * place + (0.01 + 1e-6 * place) * seed, method in failing and seed == 2
            made = Made(method, seed, (0.1, end), outcome="failed: NaN." if lost else "finished")
            fabricate(tmp_path / f"{method}-{seed}", made)
    return page_of(tmp_path)[1]


def test_a_method_with_failed_runs_does_not_come_first(tmp_path: Path) -> None:
    page = survivors(tmp_path, "scaffold")
    lead = page.all("p", class_="lead")[0].text
    assert lead.startswith("fednova comes first with 61.0 %")
    assert lead.endswith(
        "Not every run finished: scaffold (1 of 3 runs failed). Methods with such runs are not ranked."
    )
    assert [each.words() for each in page.all("span", class_="verdict")] == [
        "better +20.0 ± 0.0 points",
        "baseline",
        "+40.0 ± 0.0 points on the seeds that both finished (1 of 3 runs failed)",
    ]


def test_nobody_is_judged_against_a_baseline_with_failed_runs(tmp_path: Path) -> None:
    page = survivors(tmp_path, "fedavg")
    assert page.all("p", class_="lead")[0].text.startswith(
        "scaffold comes first with 81.0 % ± 2.5 accuracy over the last 10 % of rounds, 3 seeds. Not every run finished"
    )
    assert [each.words() for each in page.all("span", class_="verdict")] == [
        "+40.0 ± 0.0 points on the seeds that both finished",
        "+20.0 ± 0.0 points on the seeds that both finished",
        "baseline (1 of 3 runs failed)",
    ]


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        (("fednova", "scaffold"), "fedavg alone has finished all its runs: none is said to come first."),
        (
            ("fedavg", "fednova", "scaffold"),
            "No method has finished all its runs: none is said to come first.",
        ),
    ],
)
def test_it_takes_two_methods_without_failures_to_rank(
    tmp_path: Path, failing: tuple[str, ...], words: str
) -> None:
    assert survivors(tmp_path, *failing).all("p", class_="lead")[0].text.startswith(words)


def test_an_interval_that_leaves_its_row_has_an_arrow_head(tmp_path: Path) -> None:
    """FedNova differs by 0.1 and −0.2 over two seeds: ± 1.9, on an axis of ± 0.1; SCAFFOLD by 0.05 throughout."""
    for seed, ahead in enumerate((0.1, -0.2)):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, 0.5)))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, 0.5 + ahead)))
        fabricate(tmp_path / f"scaffold-{seed}", Made("scaffold", seed, (0.1, 0.55)))
    _, page = page_of(tmp_path)
    rows = [row for row in page.all("ol", class_="standing")[0].all("li") if "data-method" in row.attributes]
    heads = {
        row.attributes["data-method"]: [
            str(head.attributes["d"])[:5] for head in row.all("path", class_="beyond")
        ]
        for row in rows
    }
    # Tips at both ends of a row of 400, not beyond it, where they would be cut off.
    assert heads == {"0": [], "1": ["M0 13", "M400 "], "2": []}


def test_who_leads_on_other_seeds_only_is_not_said_to_lead(tmp_path: Path) -> None:
    """FedNova's mean is raised by seed 1, which FedAvg does not have; on seed 0 it is behind."""
    fabricate(tmp_path / "fedavg-0", Made("fedavg", 0, (0.1, 0.5)))
    fabricate(tmp_path / "fednova-0", Made("fednova", 0, (0.1, 0.4)))
    fabricate(tmp_path / "fednova-1", Made("fednova", 1, (0.1, 0.9)))
    _, page = page_of(tmp_path)
    lead = page.all("p", class_="lead")[0].text
    assert lead.endswith("2 seeds, but is not ahead of fedavg on the seeds that both have.")


def test_a_baseline_that_leads(tmp_path: Path) -> None:
    """FedNova is 0.1 behind with either seed, SCAFFOLD 0.1 and 0.3: only the first interval excludes 0."""
    for seed, behind in enumerate((0.1, 0.3)):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, 0.8)))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, 0.7 + 1e-5 * seed)))
        fabricate(tmp_path / f"scaffold-{seed}", Made("scaffold", seed, (0.1, 0.8 - behind)))
    _, page = page_of(tmp_path)
    lead = page.all("p", class_="lead")[0].text
    assert lead.endswith("2 seeds. Only fednova is worse by more than the noise.")


def test_an_objective_that_says_something_else_is_mentioned(tmp_path: Path) -> None:
    """FedNova is 0.1 behind in accuracy and 0.002 ahead in the objective, with each of three seeds."""
    for seed in (0, 1, 2):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, 0.8), objective=0.5))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, 0.7), objective=0.498))
    _, page = page_of(tmp_path)
    assert page.all("p", class_="lead")[0].text.endswith(
        "Only fednova is worse by more than the noise. On the objective that was asked for, fednova is better than "
        "fedavg by 0.002 ± 0."
    )
    verdicts = [each.words() for each in page.all("span", class_="verdict")]
    assert verdicts == ["baseline", "worse −10.0 ± 0.0 points; objective better by 0.002 ± 0"]


def test_several_methods_that_the_objective_judges_otherwise_are_named(tmp_path: Path) -> None:
    for method, objective in (("fedavg", 0.5), ("fednova", 0.4), ("scaffold", 0.6)):
        for seed in (0, 1, 2):
            fabricate(tmp_path / f"{method}-{seed}", Made(method, seed, objective=objective))
    _, page = page_of(tmp_path)
    assert page.all("p", class_="lead")[0].text.endswith(
        " On the objective that was asked for, fednova and scaffold stand otherwise: see below."
    )


def test_every_axis_has_charts_with_a_curve_for_each_method(study: Path) -> None:
    _, page = page_of(study)
    for axis in ("rounds", "virtual", "compute", "steps", "bytes"):
        plots = page.all("div", class_=f"by-{axis}")
        # χ² has no curve for SCAFFOLD, which restores the weights by design.
        assert [len(plot.all("g", class_="method")) for plot in plots] == [3, 3, 3, 3, 3, 2]
    for group in page.all("g", class_="method"):
        (line,) = group.all("path", class_="line")
        points = (line.attributes["d"] or "")[1:].split("L")
        assert len(points) == len(str(group.attributes["data-y"]).split("|"))
        assert len(points) == len(str(group.attributes["data-x"]).split("|"))


def test_curves_go_where_the_numbers_are(tmp_path: Path) -> None:
    """Accuracy 0, ½ and 1 after rounds 1, 2 and 3: evenly spaced to the right, and evenly upwards."""
    fabricate(tmp_path / "run", Made(accuracy=(0.0, 0.5, 1.0)))
    _, page = page_of(tmp_path)
    (line,) = page.all("div", class_="by-rounds")[0].all("path", class_="line")
    points = [tuple(map(float, pair.split())) for pair in (line.attributes["d"] or "")[1:].split("L")]
    (x1, y1), (x2, y2), (x3, y3) = points
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.15)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.15)
    assert x2 > x1
    assert y2 < y1


@pytest.mark.parametrize("num_seeds", [1, 3])
def test_a_single_evaluation_is_a_point_against_every_axis(tmp_path: Path, num_seeds: int) -> None:
    """Each seed has a clock of its own, so that no two were evaluated at the same time."""
    for seed in range(num_seeds):
        made = Made(seed=seed, accuracy=(None, 0.5 + 0.1 * seed), seconds=10.0 + seed)
        fabricate(tmp_path / f"fedavg-{seed}", made)
    _, page = page_of(tmp_path)
    accuracy = page.all("figure")[0]
    charts = accuracy.all("svg", class_="chart")
    assert len(charts) == 5
    for chart in charts:
        (curve,) = chart.all("g", class_="method")
        (marker,) = curve.all("path", class_="marker")
        assert str(marker.attributes["d"]).count("M") == 1
        assert len(curve.all("path", class_="whisker")) == (num_seeds > 1)
    (curves,) = page.all("section", id="curves")
    said = (
        "What was measured once is a point, as evaluations are where evaluate_every is not below rounds."
        + " The upright bar through it is its interval." * (num_seeds > 1)
    )
    assert curves.all("p", class_="note")[0].text.endswith(said)


def test_points_stand_side_by_side_with_all_of_their_intervals(tmp_path: Path) -> None:
    """Accuracies of 0.61 ± 0.13 and 0.50 ± 0.25 after round 2: bars at two places, of which no end leaves the chart."""
    for seed in (0, 1):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (None, 0.6 + 0.02 * seed)))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (None, 0.48 + 0.04 * seed)))
    _, page = page_of(tmp_path)
    chart = page.all("figure")[0].all("svg", class_="chart")[0]
    bars = [str(bar.attributes["d"]).strip("Mz").split("L") for bar in chart.all("path", class_="whisker")]
    (first, *_), (second, *_) = bars
    assert first.split()[0] != second.split()[0]
    limits = float(str(chart.attributes["data-top"])), float(str(chart.attributes["data-bottom"]))
    heights = [float(point.split()[1]) for bar in bars for point in bar]
    assert limits[0] <= min(heights) < max(heights) <= limits[1]


def test_curves_of_several_evaluations_have_no_words_on_points(study: Path) -> None:
    _, page = page_of(study)
    (curves,) = page.all("section", id="curves")
    assert "measured once" not in curves.words()
    assert not curves.all("path", class_="whisker")


def test_a_chart_without_a_common_stretch_says_so(tmp_path: Path) -> None:
    """Evaluated from 15 to 20 s and from 45 to 60 s, in the same rounds; losses from 5 to 20 s and 15 to 60 s."""
    for seed, seconds in ((0, 10.0), (1, 30.0)):
        made = Made(seed=seed, accuracy=(None, None, 0.4, 0.5), seconds=seconds)
        fabricate(tmp_path / f"fedavg-{seed}", made)
    _, page = page_of(tmp_path)
    accuracy = page.all("figure")[0]
    for axis, drawn in (("rounds", True), ("virtual", False), ("bytes", True)):
        (plot,) = accuracy.all("div", class_=f"by-{axis}")
        said = "No curve: runs do not know their virtual time, or have no stretch of it in common."
        assert (len(plot.all("svg")), plot.words() == said) == ((1, False) if drawn else (0, True))


def test_runs_that_did_not_finish_have_their_reason(study: Path) -> None:
    _, page = page_of(study)
    (alert,) = page.all("p", class_="alert")
    assert "2 of 7 runs did not finish." in alert.words()
    (section,) = page.all("section", id="unfinished")
    reasons = [cell.text for cell in section.all("td", class_="reason")]
    assert reasons[0] == "Failed after 4 of 4 rounds: it <burst>."
    assert "broken" in reasons[1]


def test_every_run_has_its_spec_and_provenance(study: Path) -> None:
    _, page = page_of(study)
    entries = page.all("details")
    assert len(entries) == 7
    first = entries[0]
    assert first.all("pre")[0].text == (study / "fedavg-0" / "spec.toml").read_text().strip()
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


@pytest.mark.parametrize(("heard", "hint"), [((0, 1), "left of 1: too little"), ((1,), "left end: never")])
def test_the_axis_of_weights_says_where_clients_stand_that_never_counted(
    tmp_path: Path, heard: tuple[int, ...], hint: str
) -> None:
    fabricate(tmp_path / "run", Made(heard=heard))
    _, page = page_of(tmp_path)
    (section,) = page.all("section", id="consistency")
    assert section.all("text", class_="axis")[0].text.endswith(f"({hint})")


def test_runs_under_other_conditions_are_not_passed_over(tmp_path: Path) -> None:
    fabricate(tmp_path / "a-0", Made("fedavg"))
    fabricate(tmp_path / "b-0", Made("fednova", steps=(2, 2)))
    _, page = page_of(tmp_path)
    assert "These runs differ in more than the method: also in work." in page.words()


def test_one_run_alone(tmp_path: Path) -> None:
    fabricate(tmp_path / "run")
    _, page = page_of(tmp_path / "run")
    assert page.all("p", class_="lead")[0].text == (
        "run reaches 60.0 % accuracy over the last 10 % of rounds, one seed."
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
    assert [heading.text for heading in page.all("h2")] == ["Runs that did not finish", "Runs"]


def test_a_run_that_failed_in_its_first_round(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made(accuracy=(), planned=3, outcome="failed: at once."))
    _, page = page_of(tmp_path)
    assert page.all("p", class_="lead")[0].text == (
        "No run was evaluated: there is nothing to compare yet. Not every run finished: fedavg (1 of 1 run failed)."
    )
    assert "Failed after 0 of 3 rounds: at once." in page.words()


def test_runs_that_were_never_evaluated(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made(accuracy=(None, None)))
    _, page = page_of(tmp_path)
    titles = [heading.text for heading in page.all("h3")]
    assert titles == ["Training loss", "e-LUD", "χ²(ω‖Ω)"]
