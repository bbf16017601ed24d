"""Tables: what they hold, and how they are written for papers and programs."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from fabricated import Made, fabricate

from fairlead.errors import FieldError
from fairlead.reports.paper_files import csv_table, latex_table, write_tables
from fairlead.reports.tables import ReportTable, report_tables
from fairlead.results.comparison import Summary, summarize_runs


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """FedAvg reaches 50 % after 3 and 1 rounds, FedNova after 1 and 1; SCAFFOLD once in two runs."""
    curves = {
        ("fedavg", 0): (0.1, 0.2, 0.5),
        ("fedavg", 1): (0.5, 0.6, 0.7),
        ("fednova", 0): (0.5, 0.8, 0.9),
        ("fednova", 1): (0.6, 0.8, 0.9),
        ("scaffold", 0): (0.2, 0.3, 0.4),
        ("scaffold", 1): (0.2, 0.5, 0.4),
    }
    for (method, seed), accuracy in curves.items():
        fabricate(tmp_path / f"{method}-{seed}", Made(method, seed, accuracy))
    return summarize_runs([tmp_path], targets=[0.5])


def table(summary: Summary, key: str) -> ReportTable:
    return next(each for each in report_tables(summary) if each.key == key)


def column(summary: Summary, key: str, title: str) -> list[str]:
    found = table(summary, key)
    place = [each.title for each in found.columns].index(title)
    return [f"{row[place].text} {row[place].detail}".strip() for row in found.rows]


def test_results_and_differences(summary: Summary) -> None:
    """FedNova's ends 0.9 and 0.9 lie 0.4 and 0.2 above FedAvg's: 30 points ± 12.706·√0.02/√2·100 = 127.1."""
    assert column(summary, "results", "Final") == ["60.0 % ± 127.1", "90.0 % ± 0.0", "40.0 % ± 0.0"]
    assert column(summary, "results", "Difference") == ["–", "+30.0 ± 127.1", "−20.0 ± 127.1"]
    assert column(summary, "results", "Seeds") == ["2", "2", "2"]


@pytest.fixture
def survivors(tmp_path: Path) -> Summary:
    """Of three methods that get better in this order, the last lost one of its three runs."""
    for place, method in enumerate(("fedavg", "fednova", "scaffold")):
        for seed in (0, 1, 2):
            outcome = "failed: NaN." if method == "scaffold" and seed == 1 else "finished"
            made = Made(method, seed, (0.5, 0.6 + 0.1 * place), outcome, objective=0.5 - 0.1 * place)
            fabricate(tmp_path / f"{method}-{seed}", made)
    return summarize_runs([tmp_path], targets=[0.5])


def bold(summary: Summary) -> set[str]:
    """Methods with an entry in bold in any table."""
    return {
        summary.methods[place].label
        for each in report_tables(summary)
        for place, row in enumerate(each.rows)
        if any(cell.best for cell in row)
    }


def test_a_method_that_lost_runs_is_not_bold_and_the_caption_says_so(survivors: Summary) -> None:
    assert bold(survivors) == {"fednova"}
    assert column(survivors, "results", "Seeds") == ["3", "3", "2 of 3"]
    labels = [method.label for method in survivors.methods]
    for each in report_tables(survivors):
        caption = latex_table(each, labels).splitlines()[2]
        assert "Not every run finished: scaffold (1 of 3 runs failed)." in caption


def test_bold_is_the_best_with_what_cannot_be_told_from_it(tmp_path: Path) -> None:
    """FedNova ends 0.1 above FedAvg; SCAFFOLD 0.02, −0.02 and 0.03 above FedNova: 0.01 ± 4.303·0.0265/√3 = 0.066."""
    for seed, above in enumerate((0.02, -0.02, 0.03)):
        for method, end in (("fedavg", 0.5), ("fednova", 0.6), ("scaffold", 0.6 + above)):
            fabricate(tmp_path / f"{method}-{seed}", Made(method, seed, (0.1, end + 0.1 * seed)))
    results = table(summarize_runs([tmp_path]), "results")
    place = [each.title for each in results.columns].index("Final")
    assert [row[place].best for row in results.rows] == [False, True, True]
    written = latex_table(results, ["a", "b", "c"])
    assert r"\textbf{70.0 \% $\pm$ 24.8}" in written
    assert "Bold marks the best method, and those within the noise of it over equal seeds." in written
    two = table(
        summarize_runs(
            [tmp_path / f"{method}-{seed}" for method in ("fednova", "scaffold") for seed in range(3)]
        ),
        "results",
    )
    assert not any(cell.best for row in two.rows for cell in row)
    assert "Bold" not in two.note


def test_one_seed_sets_nothing_bold(tmp_path: Path) -> None:
    for method, end in (("fedavg", 0.5), ("fednova", 0.9)):
        fabricate(tmp_path / f"{method}-0", Made(method, 0, (0.1, end)))
    assert bold(summarize_runs([tmp_path])) == set()


def test_a_run_that_failed_did_not_get_to_the_target(survivors: Summary) -> None:
    """All runs have 0.5 after the first round, but one of SCAFFOLD failed later."""
    assert column(survivors, "targets", "Rounds to 50 %") == [
        "1 ± 0 (1.00×)", "1 ± 0 (1.00×)", "1 in 2 of 3 runs",
    ]  # fmt: skip


def test_a_baseline_that_lost_runs_makes_no_ratio(survivors: Summary, tmp_path: Path) -> None:
    assert survivors.baseline is not None
    assert survivors.baseline.label == "fedavg"
    found = summarize_runs([tmp_path], baseline="scaffold", targets=[0.5])
    assert column(found, "targets", "Rounds to 50 %") == ["1 ± 0", "1 ± 0", "1 in 2 of 3 runs"]


def test_runs_that_go_on_have_no_ratio(tmp_path: Path) -> None:
    for method in ("fedavg", "fednova"):
        fabricate(tmp_path / f"{method}-0", Made(method, outcome="running", planned=9))
    found = summarize_runs([tmp_path], targets=[0.5])
    assert column(found, "targets", "Rounds to 50 %") == ["1 so far, in 1 of 1 runs"] * 2
    assert bold(found) == set()


def test_methods_on_different_data_have_no_best_no_difference_and_no_ratio(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made("fedavg", accuracy=(0.5, 0.6)))
    fabricate(tmp_path / "fednova-0", Made("fednova", accuracy=(0.5, 0.9), optimum=2.0))
    found = summarize_runs([tmp_path], targets=[0.5])
    assert bold(found) == set()
    assert column(found, "results", "Difference") == ["–", "–"]
    assert column(found, "targets", "Rounds to 50 %") == ["1 (1.00×)", "1"]


def test_the_objective_has_a_difference_of_its_own(tmp_path: Path) -> None:
    """Ahead by 0.1 and 0.2: 0.15 ± 12.706·√0.005/√2 = 0.635."""
    for seed, ahead in enumerate((0.1, 0.2)):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, objective=0.5))
        fabricate(tmp_path / f"fednova-{seed}", Made("fednova", seed, objective=0.5 - ahead))
    found = summarize_runs([tmp_path])
    assert column(found, "results", "Objective difference") == ["–", "−0.15 ± 0.64"]
    titles = [each.title for each in table(found, "results").columns]
    assert titles[:5] == ["Seeds", "Accuracy, last 10 %", "Difference", "Objective", "Objective difference"]


def test_a_measure_of_the_final_model_has_one_column(tmp_path: Path) -> None:
    """It has no rounds to average over, and the objective is not listed twice."""
    for method, objective in (("fedavg", 0.5), ("fednova", 0.25)):
        fabricate(tmp_path / method, Made(method, 0, objective=objective))
    found = summarize_runs([tmp_path], metric="objective")
    titles = [each.title for each in table(found, "results").columns]
    assert titles[:3] == ["Seeds", "Objective", "Difference"]
    assert not {"Last 10 %", "Final", "Best", "Objective difference"} & set(titles)
    assert "averaged" not in table(found, "results").note


def test_only_columns_that_are_there_are_explained(tmp_path: Path) -> None:
    fabricate(tmp_path / "timed" / "run", Made())
    fabricate(tmp_path / "plain" / "run", Made(seconds=None))
    notes = [
        table(summarize_runs([tmp_path / name], targets=[0.5]), "targets").note for name in ("timed", "plain")
    ]
    assert "Compute time is the sum over all devices." in notes[0]
    assert "Compute time" not in notes[1]
    assert all("Local steps count if their update arrived." in note for note in notes)


def test_a_method_without_weights_has_its_reason_and_no_chance_level(tmp_path: Path) -> None:
    fabricate(tmp_path / "fedavg-0", Made("fedavg"))
    fabricate(tmp_path / "fedaware-0", Made("fedaware"))
    found = summarize_runs([tmp_path], baseline="fedavg")
    by_label = dict(zip((each.label for each in found.methods), found.methods, strict=True))
    assert by_label["fedavg"].no_weights() is None
    chance = dict(zip(by_label, column(found, "consistency", "By chance"), strict=True))
    assert chance == {"fedavg": "1.0 %", "fedaware": "–"}
    note = table(found, "consistency").note
    assert "The weights of fedaware cannot be measured. FedAWARE " in note


def test_clients_say_what_they_were_measured_on_and_how_many_are_the_worst(summary: Summary) -> None:
    """Quadratics have no test data; of two clients the worst tenth is one."""
    found = table(summary, "clients")
    assert found.note == "Accuracy of the final model for every client, on its own training data."
    assert found.columns[1].note == "mean over the worst tenth: 1 of 2 clients"


@pytest.mark.parametrize(
    ("held_out", "words"),
    [
        (True, "its own held-out data"),
        (None, "its own held-out data where it has some, else its training data"),
    ],
)
def test_held_out_data_are_called_so(summary: Summary, held_out: bool | None, words: str) -> None:
    methods = tuple(
        replace(each, runs=tuple(replace(run, run=replace(run.run, held_out=held_out)) for run in each.runs))
        for each in summary.methods
    )
    assert replace(summary, methods=methods).client_data == words


def test_time_to_target_with_ratios(summary: Summary) -> None:
    """Rounds 3 and 1, which is 2 ± 12.706·√2/√2, against 1 and 1; a run that never got there leaves no ratio."""
    assert column(summary, "targets", "Rounds to 50 %") == [
        "2.0 ± 12.7 (1.00×)", "1 ± 0 (0.50×)", "2 in 1 of 2 runs",
    ]  # fmt: skip
    assert column(summary, "targets", "Compute time to 50 %") == [
        "20 s ± 127 (1.00×)", "10 s ± 0 (0.50×)", "20 s in 1 of 2 runs",
    ]  # fmt: skip
    assert "± half the 95 % interval where every run reached it" in table(summary, "targets").note
    assert "apart" not in table(summary, "targets").note


def test_runs_that_were_fast_enough_make_no_interval(tmp_path: Path) -> None:
    for seed, accuracy in enumerate([(0.1, 0.5), (0.5, 0.5), (0.1, 0.2)]):
        fabricate(tmp_path / str(seed), Made(seed=seed, accuracy=accuracy))
    found = summarize_runs([tmp_path], targets=[0.5])
    assert column(found, "targets", "Rounds to 50 %") == ["1.5 in 2 of 3 runs"]


def test_how_late_a_target_may_have_been_noticed_is_said(tmp_path: Path) -> None:
    fabricate(tmp_path / "a", Made(accuracy=(None, 0.5, None, 0.6, 0.7)))
    fabricate(tmp_path / "b", Made("fednova", accuracy=(None, None, 0.5, None, 0.6)))
    note = table(summarize_runs([tmp_path], targets=[0.5]), "targets").note
    assert "up to 3 rounds apart: a target may have been met up to 2 rounds before it was noticed." in note


def test_a_method_that_is_right_by_design_is_said_so(summary: Summary) -> None:
    assert column(summary, "consistency", "Misplaced weight") == ["0.0 % ± 0.0", "0.0 % ± 0.0", "by design"]


def test_columns_of_which_nothing_is_known_are_left_out(tmp_path: Path) -> None:
    fabricate(tmp_path / "run", Made(seconds=None, client_accuracy=None))
    tables = {each.key: each for each in report_tables(summarize_runs([tmp_path]))}
    assert "clients" not in tables
    assert [each.title for each in tables["cost"].columns] == [
        "Bytes down",
        "Bytes up",
        "Local steps",
        "Wall time",
    ]
    assert "Difference" not in [each.title for each in tables["results"].columns]


def test_csv_has_full_precision_and_every_part_of_an_estimate(summary: Summary) -> None:
    text = csv_table(table(summary, "results"), ["fedavg", "fednova", "scaffold"])
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["method"] for row in rows] == ["fedavg", "fednova", "scaffold"]
    assert float(rows[0]["Final mean"]) == pytest.approx(0.6)
    assert float(rows[0]["Final std"]) == pytest.approx(0.02**0.5)
    assert float(rows[0]["Final low"]) == pytest.approx(0.6 - 12.706204736 * 0.1)
    assert rows[0]["Final runs"] == "2"
    assert rows[0]["Difference mean"] == ""
    assert rows[1]["Seeds"] == "2"


def test_the_caption_says_what_columns_are(summary: Summary) -> None:
    caption = latex_table(table(summary, "results"), ["a", "b", "c"]).splitlines()[2]
    assert "Difference: percentage points to fedavg, paired by seed; " in caption
    assert caption.endswith("Update diversity: e-LUDD, mean over rounds; 1 if all agree.}")


def test_latex_escapes_what_is_special_there(summary: Summary) -> None:
    text = latex_table(table(summary, "results"), [r"a_b & 50%", r"\input{x}", "$x^2$"])
    assert r"a\_b \& 50\% &" in text
    assert r"\textbackslash{}input\{x\} &" in text
    assert r"\$x\textasciicircum{}2\$ &" in text
    assert r" 90.0 \% $\pm$ 0.0 &" in text
    lines = text.splitlines()
    columns = len(table(summary, "results").columns)
    assert f"\\begin{{tabular}}{{l{'r' * columns}}}" in text
    assert all(line.replace(r"\&", "").count("&") == columns for line in lines if line.endswith(r"\\"))
    assert [lines.index(f"    \\{rule}rule") for rule in ("top", "mid", "bottom")] == [5, 7, 11]


def test_tables_are_written_as_files(summary: Summary, tmp_path: Path) -> None:
    written = write_tables(summary, tmp_path / "out" / "tables")
    names = ["clients", "consistency", "cost", "results", "targets"]
    tables = [f"{name}.{end}" for name in names for end in ("csv", "tex")]
    assert sorted(path.name for path in written) == ["by-client.csv", *tables]
    assert all(path.read_text(encoding="utf-8") for path in written)


def test_a_folder_that_cannot_be_written_is_refused(summary: Summary, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FieldError, match=r"file cannot be written"):
        write_tables(summary, tmp_path / "file")
