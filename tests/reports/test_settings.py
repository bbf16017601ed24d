"""Methods are compared within a setting: the folder of a reproduction has several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree

import pytest
from fabricated import Made, experiment_of, fabricate
from page_tree import page_of

from fairlead.errors import FieldError
from fairlead.experiments.study import PlannedRun, StudyFolder, folder_name
from fairlead.reports import summarize_runs, summarize_settings, write_tables
from fairlead.results.comparison import Summary

SETTINGS = {"equal": (2, 2), "un equal": (1, 3)}
"""Local steps by setting: the data are the same, so that nothing else keeps their runs apart."""
ENDS = {
    ("equal", "fedavg"): 0.5,
    ("equal", "fednova"): 0.6,
    ("un equal", "fedavg"): 0.9,
    ("un equal", "fednova"): 0.8,
}


def fabricate_table(
    path: Path,
    ends: Mapping[tuple[str, str], float] = ENDS,
    failed: str = "",
    failed_seeds: tuple[int, ...] = (1,),
) -> Path:
    """A table of runs as a reproduction leaves it; some seeds of the first setting fail for one method."""
    study = StudyFolder(path)
    for (setting, method), end in ends.items():
        for seed in (0, 1):
            lost = (setting, method) == ("equal", failed) and seed in failed_seeds
            made = Made(
                method,
                seed,
                (0.1, end + 0.01 * seed),
                "failed: NaN." if lost else "finished",
                SETTINGS[setting],
            )
            planned = PlannedRun(
                f"{folder_name(setting)}/{method}/seed-{seed}",
                {"setting": setting, "method": method, "seed": seed},
                experiment_of(made),
            )
            study.plan([planned])
            fabricate(path / planned.folder, made)
    return path


def differences(summary: Summary) -> dict[str, float | None]:
    return {
        method.label: None if method.difference is None else round(method.difference.mean, 6)
        for method in summary.methods
    }


def test_methods_are_compared_within_a_setting(tmp_path: Path) -> None:
    equal, unequal = summarize_settings([fabricate_table(tmp_path)])
    assert (equal.setting, unequal.setting) == ("equal", "un equal")
    assert differences(equal) == {"fedavg": None, "fednova": 0.1}
    assert differences(unequal) == {"fedavg": None, "fednova": -0.1}
    assert equal.targets == (0.5,)
    assert unequal.targets == (0.9,)
    assert equal.ranked
    assert unequal.ranked
    assert {len(method.runs) for method in (*equal.methods, *unequal.methods)} == {2}


def test_a_run_that_failed_is_missed_in_its_own_setting(tmp_path: Path) -> None:
    equal, unequal = summarize_settings([fabricate_table(tmp_path, failed="fednova")])
    assert [method.method.complete for method in equal.methods] == [True, False]
    assert [method.method.complete for method in unequal.methods] == [True, True]


def test_a_setting_without_the_baseline_has_its_usual_one(tmp_path: Path) -> None:
    ends = {place: end for place, end in ENDS.items() if place != ("equal", "fednova")}
    found = summarize_settings([fabricate_table(tmp_path, ends)], baseline="fednova")
    assert [summary.baseline.label for summary in found if summary.baseline] == ["fedavg", "fednova"]
    with pytest.raises(FieldError, match=r"'fedmova' is not a method of these runs"):
        summarize_settings([tmp_path], baseline="fedmova")


def test_a_setting_where_the_baseline_failed_has_its_usual_one(tmp_path: Path) -> None:
    table = fabricate_table(tmp_path, failed="fednova", failed_seeds=(0, 1))
    found = summarize_settings([table], baseline="fednova")
    assert [summary.baseline.label for summary in found if summary.baseline] == ["fedavg", "fednova"]


def test_methods_look_alike_in_all_settings(tmp_path: Path) -> None:
    ends = {
        place: ENDS[place]
        for place in (("equal", "fednova"), ("un equal", "fedavg"), ("un equal", "fednova"))
    }
    found = summarize_settings([fabricate_table(tmp_path, ends)])
    assert [[(method.label, method.place) for method in summary.methods] for summary in found] == [
        [("fednova", 0)], [("fedavg", 1), ("fednova", 0)],
    ]  # fmt: skip


def test_settings_of_several_studies_are_told_apart(tmp_path: Path) -> None:
    for name in ("one/table", "two/table", "other"):
        fabricate_table(tmp_path / name)
    fabricate(tmp_path / "alone-0")
    titles = [summary.setting for summary in summarize_settings([tmp_path / "one", tmp_path / "other"])]
    assert titles == ["table, equal", "table, un equal", "other, equal", "other, un equal"]
    titles = [summary.setting for summary in summarize_settings([tmp_path])]
    assert titles[0] == ""
    names = ("one/table", "other", "two/table")
    assert titles[1:] == [f"{name}, {setting}" for name in names for setting in SETTINGS]


def test_one_summary_is_of_one_setting(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match=r"runs of 2 settings, .*: call summarize_settings"):
        summarize_runs([fabricate_table(tmp_path)])
    ends = {place: end for place, end in ENDS.items() if place[0] == "equal"}
    assert summarize_runs([fabricate_table(tmp_path / "one", ends)]).setting == "equal"


def test_the_page_has_a_part_for_every_setting(tmp_path: Path) -> None:
    _, page = page_of(fabricate_table(tmp_path, failed="fednova"))
    titles = [heading.words() for heading in page.all("h2")]
    assert titles[:2] == ["At a glance: equal", "Learning curves: equal"]
    assert {"At a glance: un equal", "Learning curves: un equal", "Results: un equal"} < set(titles)
    assert [title for title in titles if ": " not in title] == ["Unfinished or repeated runs", "Runs"]
    leads = [lead.words() for lead in page.all("p", class_="lead")]
    assert leads[0].startswith("Only fedavg has finished all its runs")
    assert leads[1].startswith("fedavg, the baseline, comes first with 90.5 %")
    assert [link.words() for link in page.all("nav")[0].all("a")] == ["equal", "un equal", "Runs"]
    assert "2 methods, 2 seeds, 8 runs, 2 settings" in page.words()
    assert "These runs differ in more than the method" not in page.words()


def fabricate_half(path: Path) -> Path:
    """A table of which only the first setting has begun."""
    table = fabricate_table(path)
    rmtree(table / folder_name("un equal"))
    return table


def test_a_setting_that_has_not_begun_is_told_on_the_page(tmp_path: Path) -> None:
    _, page = page_of(fabricate_half(tmp_path))
    (part,) = (each for each in page.all("section") if each.all("h2")[0].words() == "At a glance: un equal")
    assert [each.words() for each in part.all("p")] == ["No run of fedavg and fednova has a readable round."]
    links = [link for link in page.all("nav")[0].all("a") if link.words() == "un equal"]
    assert [link.attributes["href"] for link in links] == [f"#{part.attributes['id']}"]


def test_a_setting_that_has_not_begun_has_no_tables_and_the_measure_of_the_others(tmp_path: Path) -> None:
    begun, yet = summarize_settings([fabricate_half(tmp_path / "runs")])
    assert write_tables(begun, tmp_path / "tables")
    assert write_tables(yet, tmp_path / "tables") == []
    assert (yet.measure.name, yet.measure.higher) == ("accuracy", True)


def test_every_setting_is_judged_by_its_own_metric(tmp_path: Path) -> None:
    StudyFolder(tmp_path / "other").plan(
        [PlannedRun("run", {"setting": "margins", "method": "fedavg"}, experiment_of(Made(metric="margin")))]
    )
    fabricate(tmp_path / "other" / "run", Made(metric="margin"))
    found = summarize_settings([tmp_path / "other", fabricate_table(tmp_path / "table")])
    assert [summary.measure.name for summary in found] == ["margin", "accuracy", "accuracy"]


def test_names_on_the_page_are_unique_and_links_lead_somewhere(tmp_path: Path) -> None:
    _, page = page_of(fabricate_table(tmp_path, failed="fednova"))
    names = Counter(element.attributes["id"] for element in page.all() if "id" in element.attributes)
    assert [name for name, count in names.items() if count > 1] == []
    links = [link for link in page.all("a") if "download" not in link.attributes]
    aims = [str(link.attributes["href"]).removeprefix("#") for link in links]
    aims += [str(label.attributes["for"]) for label in page.all("label") if "for" in label.attributes]
    assert set(aims) <= set(names)
    groups = Counter(choice.attributes["name"] for choice in page.all("input", type="radio"))
    assert len(groups) == 2
    chosen = [choice for choice in page.all("input", type="radio") if "checked" in choice.attributes]
    assert {choice.attributes["name"] for choice in chosen} == set(groups)


def test_tables_are_files_of_their_own_for_each_setting(tmp_path: Path) -> None:
    for summary in summarize_settings([fabricate_table(tmp_path / "runs")]):
        write_tables(summary, tmp_path / "tables")
    written = {file.name for file in (tmp_path / "tables").glob("results*.tex")}
    assert written == {f"results-{folder_name(setting)}.tex" for setting in SETTINGS}
    text = (tmp_path / "tables" / "results-equal.tex").read_text()
    assert r"\caption{Results: equal. " in text
    assert r"\label{tab:results-equal}" in text
