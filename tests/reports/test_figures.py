"""Figures for papers: which are drawn, in which formats, and the same every time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fabricated import Made, fabricate

from fairlead.errors import FieldError
from fairlead.reports import summarize_runs, write_figures
from fairlead.results.comparison import Summary

BEGINNINGS = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    for method in ("fedavg", "fednova"):
        for seed in (0, 1):
            fabricate(tmp_path / "runs" / f"{method}-{seed}", Made(method, seed, steps=(3, 1)))
    return summarize_runs([tmp_path / "runs"])


def test_one_file_for_each_quantity_and_format(summary: Summary, tmp_path: Path) -> None:
    written = write_figures(summary, tmp_path / "figures", ["pdf", "svg", "png"])
    names = [
        *(f"accuracy-{axis}" for axis in ("bytes", "compute", "rounds", "steps", "virtual")),
        *("chi-square-rounds", "clients", "elud-rounds", "loss-rounds", "objective-rounds"),
        *("train-loss-rounds", "weights"),
    ]
    assert sorted({path.stem for path in written}) == names
    for path in written:
        assert path.read_bytes().startswith(BEGINNINGS[path.suffix[1:]])


def test_a_figure_names_its_methods_and_axes_in_text(summary: Summary, tmp_path: Path) -> None:
    write_figures(summary, tmp_path, ["svg"])
    text = (tmp_path / "accuracy-bytes.svg").read_text(encoding="utf-8")
    for words in ("fedavg", "fednova", "Bytes", "Accuracy"):
        assert f">{words}</text>" in text


@pytest.mark.full
def test_figures_repeat_to_the_byte(summary: Summary, tmp_path: Path) -> None:
    for folder in ("first", "second"):
        write_figures(summary, tmp_path / folder, ["pdf", "svg"])
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def test_labels_that_matplotlib_would_read_as_something_else(tmp_path: Path) -> None:
    fabricate(tmp_path / "runs" / "_hidden" / "0", Made("fedavg"))
    fabricate(tmp_path / "runs" / "$x_{$" / "0", Made("fednova"))
    write_figures(summarize_runs([tmp_path / "runs"]), tmp_path, ["svg"])
    text = (tmp_path / "accuracy-rounds.svg").read_text(encoding="utf-8")
    assert "_hidden</text>" in text
    assert "$x_{$</text>" in text


def test_a_single_evaluation_is_a_point_with_its_interval(tmp_path: Path) -> None:
    for seed in (0, 1):
        fabricate(tmp_path / "runs" / str(seed), Made(seed=seed, accuracy=(None, 0.5 + 0.1 * seed)))
    write_figures(summarize_runs([tmp_path / "runs"]), tmp_path, ["svg"])
    text = (tmp_path / "accuracy-rounds.svg").read_text(encoding="utf-8")
    assert text.count('id="LineCollection_') == 1
    assert "FillBetween" not in text


def test_curves_of_one_seed_are_in_view(tmp_path: Path) -> None:
    """No interval widens the axis for them: its labels are those of the rounds."""
    fabricate(tmp_path / "runs" / "0", Made(accuracy=tuple(0.02 * place for place in range(20))))
    write_figures(summarize_runs([tmp_path / "runs"]), tmp_path, ["svg"])
    text = (tmp_path / "accuracy-rounds.svg").read_text(encoding="utf-8")
    assert all(f">{label}</text>" in text for label in ("5", "10", "15", "20"))


def test_weights_have_few_and_plain_ticks(summary: Summary, tmp_path: Path) -> None:
    write_figures(summary, tmp_path, ["svg"])
    text = (tmp_path / "weights.svg").read_text(encoding="utf-8")
    assert re.findall(r">([^<]+)</text>", text) == [
        "0.5",
        "1",
        "2",
        "Ω/ω of each client",
        "fedavg",
        "fednova",
    ]
    assert "tspan" not in text


@pytest.mark.parametrize("formats", [["gif"], ["pdf", "docx"], []])
def test_other_formats_are_refused(summary: Summary, tmp_path: Path, formats: list[str]) -> None:
    with pytest.raises(FieldError, match=r"^--format must be one or more of pdf, svg, png"):
        write_figures(summary, tmp_path, formats)
