"""Every entry of the gallery is complete: its claims and published figures are among what it measures."""

from __future__ import annotations

import lzma
import pickle
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.references import REFERENCES
from fairlead.reproductions import OMITTED, REPRODUCTIONS, reproduction_named
from fairlead.reproductions.claims import TableCell, judge
from fairlead.reproductions.data_sets import DATA_SETS, NotRunError, source_of
from fairlead.reproductions.reproduction import SCALES, Request
from fairlead.reproductions.trained import TrainedTable, figure_column

TRAINED = [entry for entry in REPRODUCTIONS.values() if isinstance(entry, TrainedTable)]


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_an_entry_says_what_it_is(name: str) -> None:
    entry = REPRODUCTIONS[name]
    assert entry.reference in REFERENCES
    assert entry.claim.endswith(".")
    assert entry.claims
    assert all(difference.endswith(".") for difference in entry.differences)
    assert set(entry.needs) <= set(DATA_SETS)
    assert all(entry.describe(scale) for scale in SCALES)
    assert "full" in entry.judged_at


@pytest.mark.parametrize("entry", TRAINED, ids=lambda entry: entry.name)
def test_claims_and_published_figures_are_measured(entry: TrainedTable) -> None:
    measured = {
        TableCell(cell.row, figure_column(cell.column, statistic))
        for cell in entry.cells
        for statistic in entry.statistics
    }
    curves = {
        TableCell(cell.row, f"{cell.column}: {name} curve")
        for cell in entry.cells
        for name in ("accuracy", "elud", "consensus", "coherence", "diversity")
    }
    assert {cell for claim in (*entry.claims, *entry.released) for cell in claim.cells} <= measured | curves
    assert set(entry.published) <= measured
    assert {cell.column for cell in entry.cells} == set(entry.columns)
    assert set(entry.sizes) == set(SCALES)


@pytest.mark.parametrize("entry", TRAINED, ids=lambda entry: entry.name)
def test_claims_hold_for_the_published_figures(entry: TrainedTable) -> None:
    """A claim that the paper's own numbers contradict would test something else than the paper."""
    results = {cell: {0: printed.value} for cell, printed in entry.published.items()}
    claims = (*entry.claims, *entry.released)
    assert [check for check in judge(claims, results).checks if check.holds is False] == []


@pytest.mark.parametrize(
    "entry", [entry for entry in TRAINED if entry.name != "zeng2023_ablation"], ids=lambda entry: entry.name
)
def test_fedaware_is_judged_as_printed_and_as_published(entry: TrainedTable) -> None:
    """Every printed method with AWARE has a twin that follows the authors' runs, beside the same figures."""
    printed = [cell for cell in entry.cells if (part := _aware_of(entry, cell)) and part.rows == "raw"]
    assert bool(printed) == bool(entry.released)
    assert len(entry.released) == (len(entry.claims) if printed else 0)
    for cell in printed:
        twin = TableCell(f"{cell.row} as published", cell.column)
        part = _aware_of(entry, twin)
        assert part is not None
        assert (part.rows, part.first_visit, part.memory.credit) == ("unit", "scaled", "exchanged")
        assert part.alpha == getattr(_aware_of(entry, cell), "alpha", None)
        for statistic in entry.statistics:
            column = figure_column(cell.column, statistic)
            assert entry.published.get(TableCell(cell.row, column)) == entry.published.get(
                TableCell(twin.row, column)
            )


def _aware_of(entry: TrainedTable, cell: TableCell) -> fl.FedAWARE | fl.AwareProjection | None:
    """The AWARE in a run, as aggregator or as projection."""
    algorithm = entry.cells[cell].algorithm(entry.columns[cell.column].setting)
    parts = (algorithm.aggregator, *algorithm.transforms)
    return next((part for part in parts if isinstance(part, fl.FedAWARE | fl.AwareProjection)), None)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("entry", TRAINED, ids=lambda entry: entry.name)
def test_every_run_can_be_planned(entry: TrainedTable, scale: str, tmp_path: Path) -> None:
    """Sources are read when a run starts, so that empty files are enough to plan, unless runs need their clients."""
    columns = {name: column for name, column in entry.columns.items() if column.adjust is None}
    entry = replace(entry, columns=columns)
    for data_set in DATA_SETS.values():
        place = tmp_path / list(data_set.readers)[-1]
        place.mkdir(parents=True, exist_ok=True)
    request = Request(tmp_path, scale=scale, data=tmp_path)  # type: ignore[arg-type]
    planned = entry.planned(request)
    assert len(planned) == len(entry.cells)
    for run in planned:
        assert fl.from_toml(fl.Experiment, fl.to_toml(run.experiment)) == run.experiment


@pytest.mark.parametrize("entry", [entry for entry in TRAINED if entry.shares], ids=lambda entry: entry.name)
def test_shared_runs_are_the_same_runs(entry: TrainedTable, tmp_path: Path) -> None:
    """A run of the same name in the other table has the same experiment, at every scale."""
    (tmp_path / "cifar-10-batches-py").mkdir()
    for name in entry.shares:
        other = REPRODUCTIONS[name]
        assert isinstance(other, TrainedTable)
        for scale in SCALES:
            request = Request(tmp_path, scale=scale, data=tmp_path)
            theirs = {run.folder: run.experiment for run in other.planned(request)}
            common = [run for run in entry.planned(request) if run.folder in theirs]
            assert common
            assert [run.experiment for run in common] == [theirs[run.folder] for run in common]


def digits_pack(folder: Path) -> None:
    """A stand-in for MNIST with writers: 400 images of two writers a class."""
    labels = np.arange(400) % 10
    images = np.random.default_rng(0).integers(0, 255, (400, 28, 28), dtype=np.uint8)
    buffer = BytesIO()
    np.savez(
        buffer,
        x_train=images,
        y_train=labels,
        writer_train=np.arange(400) % 20,
        x_test=images[:50],
        y_test=labels[:50],
        writer_test=np.arange(50) % 20,
    )
    (folder / "mnist").mkdir()
    (folder / "mnist" / "mnist.npz.xz").write_bytes(lzma.compress(buffer.getvalue()))


def test_learning_rates_are_calibrated_once_or_in_every_round(tmp_path: Path) -> None:
    """Static MNIST: 20 clients of 20 examples, so that a client with T epochs takes T steps of batch 512.

    T = 1, 3, ..., 39 and 1 − q = 0.60, ..., 0.98 as in Fig. 7: η₂ = η Σω(1 − q)T · Σω/((1 − q)T) for FedACS and
    η₃ = η Σω(1 − q)T/Σω T for c-a-FedAvg, the same in every round.
    """
    digits_pack(tmp_path)
    entry = REPRODUCTIONS["weng2025_table_4_mnist"]
    assert isinstance(entry, TrainedTable)
    planned = entry.planned(Request(tmp_path, scale="smoke", data=tmp_path))
    runs = {
        TableCell(str(run.labels["method"]), str(run.labels["setting"])): run.experiment for run in planned
    }
    steps, arrival = np.arange(1, 40, 2), np.linspace(0.60, 0.98, 20)
    length = np.mean(arrival * steps)
    factors = {name: length / np.mean(steps) for name in ("c-a-FedAvg", "FedVarp")}
    factors["FedACS"] = length * np.mean(1 / (arrival * steps))
    for name in factors:
        once = runs[TableCell(name, "MNIST, calibrated once")].algorithm
        assert once.solver.optimizer.lr == pytest.approx(0.02 * factors[name])
        assert once.calibrate is None
        for column, calibrated in (("MNIST", "clients"), ("MNIST, server step", "server")):
            run = runs[TableCell(name, column)].build()
            assert (run.algorithm.calibrate, run.algorithm.solver.optimizer.lr) == (calibrated, 0.02)
            assert next(run.train(1)).facts["calibration"] == pytest.approx(factors[name])
    usual = {
        cell.row for cell, run in runs.items() if run.algorithm.calibrate is None and cell.column == "MNIST"
    }
    assert usual == {"FedAvg", "FedNova", "FedNova, renormalized", "FedAU", "OS"}


def test_readings_of_weng_2025_differ_from_the_closest_in_one_respect() -> None:
    digits, color = REPRODUCTIONS["weng2025_table_1_mnist"], REPRODUCTIONS["weng2025_table_5_alpha_0.2"]
    assert isinstance(digits, TrainedTable)
    assert isinstance(color, TrainedTable)
    closest, in_order = digits.columns["MNIST"], digits.columns["MNIST, classes in order"]
    assert closest.setting.partition == fl.PathologicalPartitioner(1, "deterministic")
    assert in_order == replace(closest, setting=fl.settings.fedacs_dynamic_one_class(in_order=True))
    assert digits.columns["MNIST, printed network"].model == fl.UnpooledCNN()
    assert closest.model == fl.PooledCNN((10, 20), (50,), 0.2)
    epochs = color.columns["CIFAR-10, T in epochs"]
    algorithms = {name: row.algorithm(epochs.setting) for name, row in (epochs.rows or {}).items()}
    assert algorithms["FedACS"].sampler == fl.FedACS(6, "epochs")
    assert algorithms["FedNova"].aggregator == fl.FedNova("expected", "asked", "epochs")
    assert algorithms["FedNova, renormalized"].aggregator == fl.FedNova("harmonic", work="epochs")
    for entry in (digits, color):
        assert {"FedAU", "OS"} <= set(entry.rows)
        assert {column.target for column in entry.columns.values()} == {0.7 if entry is digits else 0.35}


def test_data_sets_are_found_in_any_of_their_forms(tmp_path: Path) -> None:
    digits_pack(tmp_path)
    source = source_of("mnist", tmp_path)
    assert isinstance(source, fl.NpzArrays)
    assert source.load(fl.Key.from_seed(0)).train.num_clients == 20
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    assert source_of("mnist", tmp_path) == fl.MnistFolder(str(tmp_path / "MNIST" / "raw"))
    (tmp_path / "femnist" / "train").mkdir(parents=True)
    assert source_of("femnist", tmp_path) == fl.LeafFolder(str(tmp_path / "femnist"), shape=(1, 28, 28))
    with pytest.raises(NotRunError, match=r"CINIC-10 was not found in .*: cinic10\.npz does not exist\."):
        source_of("cinic10", tmp_path)


def table_2_pack(folder: Path) -> None:
    """Stand-ins for CIFAR-10, CIFAR-100 and AG News with the same labels: black images, and texts of one word."""
    for name, files, field, classes in (
        ("cifar-10-batches-py", [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"], "labels", 10),
        ("cifar-100-python", ["train", "test"], "fine_labels", 100),
    ):
        (folder / name).mkdir()
        for file in files:
            labels = (np.arange(1_200) % classes).tolist()
            content = {"data": np.zeros((1_200, 3072), np.uint8), field: labels}
            (folder / name / file).write_bytes(pickle.dumps(content, protocol=2))
    rows = [f"{split},{n % 4},word" for split, size in (("train", 1_200), ("test", 8)) for n in range(size)]
    (folder / "ag_news").mkdir()
    (folder / "ag_news" / "ag_news.csv").write_text("\n".join(["split,label,text", *rows]))


def test_labels_of_clients_are_counted(tmp_path: Path) -> None:
    """1/Σ q² of every client by a loop: one label counts as 1, two equal ones as 2."""
    table_2_pack(tmp_path)
    request = Request(tmp_path, scale="smoke", data=tmp_path, seeds=(5,))
    outcome = reproduction_named("zeng2025_figure_5").reproduce(request)
    assert outcome.verdict == "holds"
    for figure, name, classes in zip(
        outcome.figures, ("cifar10", "cifar100", "agnews"), (10, 100, 4), strict=True
    ):
        entry = reproduction_named(f"zeng2025_table_2_{name}")
        assert isinstance(entry, TrainedTable)
        clients = entry.planned(request)[0].experiment.load().train
        assert (clients.num_clients, int(clients.targets.max()) + 1) == (100, classes)
        counted = []
        for first, last in pairwise(clients.offsets.tolist()):
            numbers = np.unique(clients.targets[first:last].numpy(), return_counts=True)[1]
            counted.append(1 / np.sum((numbers / numbers.sum()) ** 2))
        assert figure.ours == pytest.approx(np.mean(counted) / classes, rel=1e-5)
        assert figure.ours < 0.5


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(FieldError, match=r"'wang2021_table' is not a reproduction\. Did you mean"):
        reproduction_named("wang2021_table")


def test_what_is_left_out_has_a_reason() -> None:
    assert all(omitted.reference in REFERENCES and omitted.reason.endswith(".") for omitted in OMITTED)
