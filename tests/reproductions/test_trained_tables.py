"""Tables of runs: planned, run in pieces, and judged when all of them are there."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.experiments.study import PlannedRun, StudyFolder
from fairlead.experiments.workers import run_study
from fairlead.reproductions.claims import CurveAbove, Less, Published, TableCell
from fairlead.reproductions.reproduction import Request, Scale, load_outcomes, save_outcome
from fairlead.reproductions.trained import (
    Size,
    TableColumn,
    TableRow,
    TrainedTable,
    final_accuracy,
    mean_elud,
    top_accuracy,
)
from fairlead.results.run_archive import ArchivedRun, archive_file, load_archive, save_archive
from fairlead.settings import Setting

SETTING = Setting(
    4,
    fl.LocalSolver(fl.SGD(0.1, schedule=fl.Milestones((2,), gamma=0.5)), steps=3, batch_size=8),
    clients=fl.Digits(num_clients=4),
)
SLOW, FAST = TableColumn(SETTING), TableColumn(replace(SETTING, work=fl.FixedSteps((1, 2, 3, 9))))
ENTRY = TrainedTable(
    name="a_table",
    reference="wang2021fednova",
    where="Table 9",
    claim="FedAvg is worse than itself.",
    claims=(Less(TableCell("FedAvg", "slow: accuracy"), TableCell("AWARE", "slow: accuracy"), 10.0),),
    published={TableCell("FedAvg", "slow: accuracy"): Published(60.0, 1.5)},
    columns={"slow": SLOW, "fast": FAST},
    rows={"FedAvg": TableRow("fedavg"), "AWARE": TableRow("fedprox", {"mu": 0.1}, aware={"alpha": 0.5})},
    statistics={"accuracy": final_accuracy, "e-LUDD": mean_elud},
    sizes={"smoke": Size(1), "small": Size(3), "full": Size(5)},
)


RUN = ArchivedRun(
    setting="slow",
    method="FedAvg",
    seed=3,
    rounds=2,
    figures={"accuracy": math.inf},
    curves={"accuracy": (0.25, math.nan)},
    seconds=1.5,
    machine="a machine",
    precision="tf32",
    engine="LoopEngine()",
    torch="2.0",
    fairlead="0.1",
    git_commit=None,
    date="2026-01-01",
)


class Counter:
    """A runner that notes what it was given."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, study: StudyFolder, planned: Sequence[PlannedRun]) -> Mapping[str, str]:
        self.asked.append([run.folder for run in planned])
        return run_study(study, planned, jobs=1)


def test_the_plan_has_a_folder_for_every_method_setting_and_seed(tmp_path: Path) -> None:
    planned = ENTRY.planned(Request(tmp_path, seeds=(0, 4)))
    assert len({run.folder for run in planned}) == 8
    first = planned[0]
    assert first.folder == "slow/FedAvg/seed-0"
    assert first.labels == {"setting": "slow", "method": "FedAvg", "seed": 0}
    experiment = first.experiment
    assert (experiment.rounds, experiment.evaluate_every, experiment.seed) == (3, 1, 0)
    assert experiment.algorithm.solver.steps == 3
    assert experiment.algorithm.solver.optimizer.schedule == fl.Milestones((2,), gamma=0.5)
    assert planned[3].experiment.work == fl.FixedSteps((1, 2, 3, 9))
    assert planned[1].experiment.algorithm.transforms == (fl.AwareProjection(0.5),)


def test_pieces_add_up_to_the_table(tmp_path: Path) -> None:
    counter = Counter()
    request = Request(tmp_path, run=counter)
    part = ENTRY.reproduce(replace(request, only=("FedAvg", "slow")))
    assert counter.asked == [["slow/FedAvg/seed-0"]]
    assert part.verdict == "open"
    assert part.reason == "1 of 1 comparisons lacks runs."
    assert [check.missing for check in part.checks] == [("AWARE (slow: accuracy)",)]
    whole = ENTRY.reproduce(request)
    assert whole.verdict == "holds"
    assert {(figure.row, figure.column) for figure in whole.figures} == {
        (row, f"{column}: {figure}")
        for row in ("FedAvg", "AWARE")
        for column in ("slow", "fast")
        for figure in ("accuracy", "e-LUDD")
    }
    known = next(figure for figure in whole.figures if figure.published is not None)
    assert (known.row, known.column, known.published, known.published_spread) == (
        "FedAvg",
        "slow: accuracy",
        60.0,
        1.5,
    )
    records = fl.load_records(tmp_path / "a_table-small" / "slow" / "FedAvg" / "seed-0")
    assert records[-1].evaluation is not None
    assert known.ours == pytest.approx(100 * records[-1].evaluation.metrics["accuracy"])
    assert whole.figures[0] == part.figures[0]
    assert whole.machine.endswith("CPU cores, " + platform.machine())


def test_means_and_deviations_are_over_seeds(tmp_path: Path) -> None:
    """The half width of two values is t(1)·s/√2 with t(1) = tan(0.475π) = 12.706, of the Cauchy distribution."""
    entry = replace(ENTRY, columns={"slow": SLOW}, rows={"FedAvg": TableRow("fedavg")}, claims=())
    both = entry.reproduce(Request(tmp_path, seeds=(0, 1)))
    alone = [entry.reproduce(Request(tmp_path / str(seed), seeds=(seed,))) for seed in (0, 1)]
    single = [outcome.figures[0].ours for outcome in alone]
    assert both.figures[0].ours == pytest.approx(sum(single) / 2)
    assert both.figures[0].spread == pytest.approx(abs(single[0] - single[1]) / 2**0.5)
    assert both.figures[0].half_width == pytest.approx(12.7062 * abs(single[0] - single[1]) / 2, rel=1e-5)
    assert alone[0].figures[0].half_width is None
    assert both.figures[0].seeds == 2


def test_the_mean_curve_is_one_figure_of_all_seeds(tmp_path: Path) -> None:
    column = replace(SLOW, target=0.05)
    entry = replace(
        ENTRY,
        columns={"slow": column},
        rows={"FedAvg": TableRow("fedavg")},
        claims=(),
        on_mean_curve="rounds",
    )
    outcome = entry.reproduce(Request(tmp_path, seeds=(0, 1)))
    (pooled,) = [figure for figure in outcome.figures if figure.column == "slow: rounds"]
    curves = [
        [record.evaluation.metrics["accuracy"] for record in fl.load_records(folder) if record.evaluation]
        for folder in sorted((tmp_path / "a_table-small" / "slow" / "FedAvg").iterdir())
    ]
    first = next(
        round for round, pair in enumerate(zip(*curves, strict=True), start=1) if sum(pair) / 2 >= 0.05
    )
    assert (pooled.ours, pooled.seeds, pooled.spread) == (first, 2, None)
    assert "rounds: rounds until the mean accuracy over seeds" in entry.measured


def test_a_stand_in_replaces_the_model_where_the_scale_has_its_own(tmp_path: Path) -> None:
    column = replace(SLOW, model=fl.MLP((9,)), stand_in=fl.MLP((3,)))
    sizes: dict[Scale, Size] = {"smoke": Size(1, model=fl.MLP((5,))), "full": Size(1)}
    entry = replace(ENTRY, columns={"slow": column, "fast": FAST}, sizes=sizes)

    def models(scale: Scale) -> list[object]:
        planned = entry.planned(Request(tmp_path, scale=scale, only=("FedAvg",)))
        return [run.experiment.task.model for run in planned if run.experiment.task is not None]

    assert models("smoke") == [fl.MLP((3,)), fl.MLP((5,))]
    assert models("full")[0] == fl.MLP((9,))


def test_the_released_method_is_judged_by_itself(tmp_path: Path) -> None:
    """The verdict is on the claims alone, whatever becomes of the same claims about the method as released."""
    fails = (Less(TableCell("FedAvg", "slow: accuracy"), 0.0),)
    lacks = (Less(TableCell("FedAvg", "fast: accuracy"), 101.0),)
    short = replace(ENTRY, released=fails).reproduce(Request(tmp_path, only=("slow",)))
    assert short.released is None
    both = replace(ENTRY, released=fails, released_at=("small",)).reproduce(Request(tmp_path, only=("slow",)))
    assert (both.verdict, both.reason) == ("holds", "")
    assert [check.statement for check in both.checks] == [claim.statement for claim in ENTRY.claims]
    assert both.released is not None
    assert (both.released.verdict, both.released.reason) == ("does not hold", "1 of 1 comparisons fails.")
    assert [check.statement for check in both.released.checks] == ["FedAvg (slow: accuracy) is below 0"]
    save_outcome(tmp_path / "kept", both)
    assert load_outcomes(tmp_path / "kept") == [both]
    part = replace(ENTRY, claims=fails, released=lacks, released_at=("small",)).reproduce(
        Request(tmp_path, collect=())
    )
    assert part.verdict == "does not hold"
    assert part.released is not None
    assert part.released.verdict == "open"
    assert ENTRY.reproduce(Request(tmp_path, collect=())).released is None


def test_an_unknown_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        FieldError, match=r"'FedAvgg' is not a method or setting of a_table\. Did you mean 'FedAvg'"
    ):
        ENTRY.reproduce(Request(tmp_path, only=("FedAvgg",)))


def test_missing_data_are_the_reason_not_to_run(tmp_path: Path) -> None:
    entry = replace(ENTRY, columns={"slow": replace(SLOW, data="cifar10"), "fast": FAST})
    assert entry.needs == ("cifar10",)
    without = entry.reproduce(Request(tmp_path))
    assert (without.verdict, without.figures) == ("not run", ())
    assert without.reason == "CIFAR-10 is needed: give its folder with --data."
    elsewhere = entry.reproduce(Request(tmp_path, data=tmp_path))
    assert elsewhere.reason == f"CIFAR-10 was not found in {tmp_path}: cifar-10-batches-py does not exist."


def test_outcomes_survive_files(tmp_path: Path) -> None:
    outcome = ENTRY.reproduce(Request(tmp_path, only=("slow",)))
    endless = replace(outcome, figures=(replace(outcome.figures[0], published=float("inf")),))
    save_outcome(tmp_path / "kept", endless)
    assert load_outcomes(tmp_path / "kept") == [endless]
    (tmp_path / "kept" / "b.json").write_text("[]")
    with pytest.raises(FieldError, match=r"b.json is not the outcome of a reproduction\."):
        load_outcomes(tmp_path / "kept")


def elud_cell(row: str, curve: str = "elud") -> TableCell:
    return TableCell(row, f"slow: {curve} curve")


def test_curves_of_runs_are_judged(tmp_path: Path) -> None:
    """Against the records: three rounds, none of which is left out."""
    claims = (CurveAbove(elud_cell("FedAvg", "diversity"), elud_cell("AWARE", "elud"), 0.0),)
    found = replace(ENTRY, claims=claims).reproduce(Request(tmp_path, only=("slow",)))
    folders = [tmp_path / "a_table-small" / "slow" / row / "seed-0" for row in ("FedAvg", "AWARE")]
    gaps = [
        (ours.update_norm or 0) / (ours.consensus or 1) ** 0.5 - (theirs.elud or 0)
        for ours, theirs in zip(*map(fl.load_records, folders), strict=True)
    ]
    share, end, area = sum(gap > 0 for gap in gaps) / 3, gaps[-1], sum(gaps) / 3
    (check,) = found.checks
    assert check.holds is (end > 0)
    assert check.numbers.startswith(f"{share:.0%} of the rounds, ")
    numbers = [float(word) for word in check.numbers.split() if word[0] in "+-"]
    assert numbers == pytest.approx([end, area], rel=2e-2, abs=1e-4)
    assert {figure.column for figure in found.figures} == {"slow: accuracy", "slow: e-LUDD"}


def test_a_failed_run_has_no_curve(tmp_path: Path) -> None:
    rows = {**ENTRY.rows, "AWARE": TableRow("fedprox", {"mu": 0.1, "lr": 1e30})}
    claims = (CurveAbove(elud_cell("FedAvg"), elud_cell("AWARE")),)
    wild = replace(ENTRY, columns={"slow": SLOW}, rows=rows, claims=claims)
    (check,) = wild.reproduce(Request(tmp_path)).checks
    assert (check.state, check.failed) == ("needs failed runs", ("AWARE (slow: elud curve)",))


def test_runs_of_another_table_are_used_and_not_repeated(tmp_path: Path) -> None:
    """FedAvg in the slow setting comes from the other table: from its folder, from its archive and by import.

    The other table has no figure named best: it is computed from the curves, which an archive has in five digits.
    """
    rows = {"FedAvg": TableRow("fedavg"), "FedAvgM": TableRow("fedavgm", {"server_momentum": 0.5})}
    sharing = replace(ENTRY, name="other", columns={"slow": SLOW}, rows=rows, claims=(), shares=("a_table",))
    sharing = replace(sharing, statistics={"best": top_accuracy})
    ENTRY.reproduce(Request(tmp_path, only=("slow", "FedAvg")))
    counter = Counter()
    found = sharing.reproduce(Request(tmp_path, run=counter))
    assert counter.asked == [["slow/FedAvgM/seed-0"]]
    assert {figure.row for figure in found.figures} == {"FedAvg", "FedAvgM"}
    own = load_archive(archive_file(tmp_path, "other-small"))
    assert [run.method for run in own] == ["FedAvgM"]
    (tmp_path / "a_table-small").rename(tmp_path / "away")
    joined = sharing.reproduce(Request(tmp_path, collect=()))
    alone = sharing.reproduce(Request(tmp_path / "here", collect=(tmp_path,)))
    for outcome in (joined, alone):
        assert [(figure.row, figure.column) for figure in outcome.figures] == [
            ("FedAvg", "slow: best"),
            ("FedAvgM", "slow: best"),
        ]
        assert [figure.ours for figure in outcome.figures] == pytest.approx(
            [figure.ours for figure in found.figures], rel=1e-4
        )
    kept = load_archive(archive_file(tmp_path / "here", "other-small"))
    assert [run.method for run in kept] == ["FedAvg", "FedAvgM"]


def test_a_failed_run_of_another_table_is_made_again(tmp_path: Path) -> None:
    failed = replace(RUN, method="FedAvg", seed=0, failure="It broke.", figures={})
    save_archive(archive_file(tmp_path, "a_table-small"), [failed])
    sharing = replace(ENTRY, name="other", columns={"slow": SLOW}, shares=("a_table",))
    counter = Counter()
    assert sharing.reproduce(Request(tmp_path, run=counter)).verdict == "holds"
    assert counter.asked == [["slow/FedAvg/seed-0", "slow/AWARE/seed-0"]]
    assert len(load_archive(archive_file(tmp_path, "other-small"))) == 2
