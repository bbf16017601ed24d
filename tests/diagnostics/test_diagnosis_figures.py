"""The figures of a diagnosis: drawn where there is something to draw, in the format asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from constructed import UNEQUAL_LINKS, UNEQUAL_WORK, experiment, logged, skewed_labels

import fairlead as fl
from fairlead.diagnostics import Diagnosis, draw_diagnosis
from fairlead.diagnostics.plots import Suffix
from fairlead.errors import FieldError

OPENINGS: dict[Suffix, bytes] = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def everything() -> Diagnosis:
    return fl.diagnose(skewed_labels(), rounds=6)


@pytest.mark.parametrize("suffix", OPENINGS)
def test_all_four_are_drawn(everything: Diagnosis, suffix: Suffix, tmp_path: Path) -> None:
    drawn = draw_diagnosis(everything, tmp_path / "new", suffix)
    assert [path.name for path in drawn] == [
        f"{name}.{suffix}" for name in ("weights", "cosines", "consensus", "diversity")
    ]
    assert all(path.read_bytes().startswith(OPENINGS[suffix]) for path in drawn)


def test_the_weights_name_every_client_and_every_method(tmp_path: Path) -> None:
    """Text in an SVG is drawn as outlines, each with its text as a comment."""
    subject = experiment(UNEQUAL_WORK, UNEQUAL_LINKS)
    path = draw_diagnosis(fl.diagnose(subject, quick=True), tmp_path)[0]
    text = path.read_text()
    labels = ["intended ω", "Ω now", "Ω with scaffold", *map(str, range(12))]
    assert all(f"<!-- {label} -->" in text for label in labels)


def test_many_clients_are_drawn_as_curves(tmp_path: Path) -> None:
    crowd = fl.Experiment(
        fl.Quadratics(num_clients=60),
        fl.presets.fedavg(lr=0.01, steps=2),
        rounds=10,
        work=fl.FixedSteps((1, 2, 3) * 20),
    )
    path = draw_diagnosis(fl.diagnose(crowd, quick=True), tmp_path)[0]
    assert "60 clients, sorted by Ω/ω" in path.read_text()


def test_cosines_of_some_clients_are_said_to_be_those_of_some(tmp_path: Path) -> None:
    crowd = fl.Experiment(fl.Quadratics(num_clients=60), fl.presets.fedavg(lr=0.01, steps=2), rounds=10)
    path = draw_diagnosis(fl.diagnose(crowd, quick=True), tmp_path)[1]
    assert "50 of 60 clients, evenly spaced" in path.read_text()


def test_records_have_no_cosines_and_no_consensus(tmp_path: Path) -> None:
    path = logged(tmp_path / "records.jsonl", experiment(UNEQUAL_WORK), 8, ["elud", "coherence"])
    drawn = draw_diagnosis(fl.diagnose(path), tmp_path / "figures")
    assert [path.name for path in drawn] == ["weights.svg", "diversity.svg"]


def test_a_folder_that_cannot_be_made_and_an_unknown_format_are_refused(tmp_path: Path) -> None:
    found = fl.diagnose(experiment(), quick=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(FieldError, match="cannot be written"):
        draw_diagnosis(found, tmp_path / "file")
    with pytest.raises(FieldError, match="must be one of svg, png, pdf, got 'gif'"):
        draw_diagnosis(found, tmp_path, "gif")  # type: ignore[arg-type]
