"""Who leads, by how much, and whether that is more than noise: the page's first sentence and its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from fabricated import Made, fabricate, fabricate_study
from page_tree import Element, page_of


def test_the_first_sentence_says_who_leads_and_by_how_much(tmp_path: Path) -> None:
    """SCAFFOLD ends 0.2 above FedAvg with either seed, within a few millionths."""
    _, page = page_of(fabricate_study(tmp_path))
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
        "+10.0 points; one seed, so the noise is unknown (1 of 2 runs failed)",
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
        "These runs are of 2 and 3 rounds, which cannot be compared, so no method is ranked first."
    )
    verdicts = [each.words() for each in page.all("span", class_="verdict")]
    assert verdicts == ["baseline", "3 rounds, not comparable with 2"]


def test_many_lengths_are_counted_and_not_listed(tmp_path: Path) -> None:
    for rounds in range(2, 8):
        fabricate(tmp_path / f"{rounds}-rounds", Made("fednova", accuracy=(0.5,) * rounds, lr=rounds / 100))
    _, page = page_of(tmp_path)
    assert page.all("p", class_="lead")[0].text == (
        "These runs are of 6 different lengths, from 2 to 7 rounds, which cannot be compared, so no method is "
        "ranked first."
    )


def test_runs_on_different_data_are_not_ranked(tmp_path: Path) -> None:
    """FedNova ends 0.4 higher and 0.1 lower in the objective with either seed, but of other clients."""
    for seed in (0, 1):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, 0.5), objective=0.5))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, 0.9), objective=0.4, optimum=2.0))
    _, page = page_of(tmp_path)
    assert page.all("p", class_="lead")[0].text == (
        "These runs are of different data, which cannot be compared, so no method is ranked first."
    )
    verdicts = [each.words() for each in page.all("span", class_="verdict")]
    assert verdicts == ["baseline", "other data, not comparable with fedavg"]
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
        (("fednova", "scaffold"), "Only fedavg has finished all its runs, so no method is ranked first."),
        (
            ("fedavg", "fednova", "scaffold"),
            "No method has finished all its runs, so no method is ranked first.",
        ),
    ],
)
def test_it_takes_two_methods_without_failures_to_rank(
    tmp_path: Path, failing: tuple[str, ...], words: str
) -> None:
    assert survivors(tmp_path, *failing).all("p", class_="lead")[0].text.startswith(words)


def test_an_interval_that_leaves_its_row_has_an_arrow_head(tmp_path: Path) -> None:
    """FedNova differs by 0.1 and −0.2 over two seeds: ± 1.9, on an axis of ± 0.2; SCAFFOLD by 0.05 throughout."""
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


def test_the_interval_of_a_single_rival_is_seen_whole(tmp_path: Path) -> None:
    """Ahead by 0.1 and −0.2, ± 1.9: nothing else is on the axis."""
    for seed, ahead in enumerate((0.1, -0.2)):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, 0.5)))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, 0.5 + ahead)))
    _, page = page_of(tmp_path)
    assert page.all("path", class_="beyond") == []


def test_who_leads_on_other_seeds_only_is_not_said_to_lead(tmp_path: Path) -> None:
    """FedNova's mean is raised by seed 1, which FedAvg does not have; on seed 0 it is behind."""
    fabricate(tmp_path / "fedavg-0", Made("fedavg", 0, (0.1, 0.5)))
    fabricate(tmp_path / "fednova-0", Made("fednova", 0, (0.1, 0.4)))
    fabricate(tmp_path / "fednova-1", Made("fednova", 1, (0.1, 0.9)))
    _, page = page_of(tmp_path)
    lead = page.all("p", class_="lead")[0].text
    assert lead.endswith("2 seeds, but is not ahead of fedavg on the seeds that both have.")


def test_runs_that_are_not_done_are_told_so_far(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made("fedavg", 0, (0.1, 0.5), outcome="interrupted", planned=9))
    _, page = page_of(tmp_path)
    assert page.all("p", class_="lead")[0].text.startswith(
        "fedavg: 50.0 % accuracy over the last 10 % of rounds so far, 1 seed."
    )


def test_methods_of_the_same_figure_are_level(tmp_path: Path) -> None:
    """0.3 and 0.1 + 0.2 differ in the last bit alone."""
    for seed in (0, 1):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, 0.3)))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, 0.1 + 0.2)))
        fabricate(tmp_path / f"scaffold-{seed}", Made("scaffold", seed, (0.1, 0.2)))
    _, page = page_of(tmp_path)
    lead = page.all("p", class_="lead")[0].text
    assert lead.startswith("fednova and fedavg are tied at 30.0 %")


def test_a_baseline_that_leads(tmp_path: Path) -> None:
    """FedNova is 0.1 behind with either seed, SCAFFOLD 0.1 and 0.3: only the first interval excludes 0."""
    for seed, behind in enumerate((0.1, 0.3)):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, 0.8)))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, 0.7 + 1e-5 * seed)))
        fabricate(tmp_path / f"scaffold-{seed}", Made("scaffold", seed, (0.1, 0.8 - behind)))
    _, page = page_of(tmp_path)
    lead = page.all("p", class_="lead")[0].text
    assert lead.endswith("2 seeds. Only fednova is worse by more than the noise.")


def test_a_baseline_that_leads_is_not_held_against_methods_that_failed(tmp_path: Path) -> None:
    """FedNova differs by ± 0.01 over three seeds, and SCAFFOLD lost a run: it is not among those that can be judged."""
    for seed, more in enumerate((0.01, -0.02, -0.01)):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, 0.8)))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, 0.8 + more)))
        outcome = "finished" if seed else "failed: NaN."
        fabricate(tmp_path / f"scaffold-{seed}", Made("scaffold", seed, (0.1, 0.3), outcome))
    _, page = page_of(tmp_path)
    assert "3 seeds. fednova is not worse by more than the noise." in page.all("p", class_="lead")[0].text
    for seed, more in enumerate((0.02, -0.03, -0.01)):
        fabricate(tmp_path / f"fedaware-{seed}", Made("fedaware", seed, (0.1, 0.8 + more)))
    _, page = page_of(tmp_path)
    lead = page.all("p", class_="lead")[0].text
    assert "3 seeds. None of the 2 others that can be judged is worse by more than the noise." in lead


def test_a_baseline_that_leads_at_one_seed_leaves_the_noise_open(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made("fedavg", 0, (0.1, 0.8)))
    fabricate(tmp_path / "fednova-0", Made("fednova", 0, (0.1, 0.7)))
    _, page = page_of(tmp_path)
    assert page.all("p", class_="lead")[0].text.endswith("1 seed. The noise is unknown.")


def test_an_objective_that_says_something_else_is_mentioned(tmp_path: Path) -> None:
    """FedNova is 0.1 behind in accuracy and 0.002 ahead in the objective, with each of three seeds."""
    for seed in (0, 1, 2):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.1, 0.8), objective=0.5))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, (0.1, 0.7), objective=0.498))
    _, page = page_of(tmp_path)
    assert page.all("p", class_="lead")[0].text.endswith(
        "fednova is worse by more than the noise. By the objective, fednova is better than "
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
        " By the objective, fednova is better than fedavg and scaffold is worse than fedavg: see the table."
    )


def test_methods_that_learned_nothing_are_told(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made("fedavg", objective=0.8))
    fabricate(tmp_path / "fednova-0", Made("fednova"))
    cure = (
        "ended with a lower objective than its initial model: the learning rate may be too large, or the rounds "
        "too few."
    )
    (lead,) = page_of(tmp_path)[1].all("p", class_="lead")
    assert f" No run of fedavg {cure}" in lead.text
    fabricate(tmp_path / "scaffold-0", Made("scaffold", objective=0.8, outcome="interrupted"))
    (lead,) = page_of(tmp_path)[1].all("p", class_="lead")
    assert f" No run of fedavg {cure}" in lead.text
    fabricate(tmp_path / "fedavg-1", Made("fedavg", 1, outcome="failed: NaN."))
    (lead,) = page_of(tmp_path)[1].all("p", class_="lead")
    assert f" No run of fedavg {cure}" in lead.text
    fabricate(tmp_path / "fedavg-2", Made("fedavg", 2, objective=0.8, outcome="interrupted"))
    (lead,) = page_of(tmp_path)[1].all("p", class_="lead")
    assert "lower objective" not in lead.text


def test_who_learned_nothing_does_not_come_first(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made("fedavg", accuracy=(0.1, 0.2), objective=0.8))
    fabricate(tmp_path / "fednova-0", Made("fednova", accuracy=(0.1, 0.1), objective=0.8))
    (lead,) = page_of(tmp_path)[1].all("p", class_="lead")
    assert lead.text.startswith(
        "fedavg has the best accuracy, but its final objective is not below the initial model's, so no method is "
        "ranked first."
    )


def test_methods_that_failed_are_told_once(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made("fedavg"))
    fabricate(tmp_path / "fednova-0", Made("fednova", outcome="failed: NaN."))
    (lead,) = page_of(tmp_path)[1].all("p", class_="lead")
    assert "lower objective" not in lead.text
    assert lead.text.count("fednova") == 1


def test_a_method_that_failed_has_no_difference(tmp_path: Path) -> None:
    """Its last tenth is of rounds in which the others had hardly begun."""
    fabricate(tmp_path / "fedavg-0", Made("fedavg", accuracy=(0.2, 0.5, 0.7, 0.8)))
    fabricate(tmp_path / "fednova-0", Made("fednova", accuracy=(0.1,), outcome="failed: NaN.", planned=4))
    page = page_of(tmp_path)[1]
    assert [each.words() for each in page.all("span", class_="verdict")] == ["baseline", "1 of 1 run failed"]


def test_an_interrupted_run_has_the_figure_of_its_last_evaluations(tmp_path: Path) -> None:
    """Rounds after the last evaluation do not hide it."""
    accuracy = (None, 0.5, None, 0.75, None, None, None)
    fabricate(tmp_path / "fedavg-0", Made(accuracy=accuracy, outcome="interrupted", planned=50))
    (lead,) = page_of(tmp_path)[1].all("p", class_="lead")
    assert "75" in lead.text
    assert "No run was evaluated" not in lead.text
