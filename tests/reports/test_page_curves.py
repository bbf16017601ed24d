"""Charts of the page: curves, single points, and where nothing can be drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from fabricated import Made, fabricate, fabricate_study
from page_tree import page_of


def test_every_axis_has_charts_with_a_curve_for_each_method(tmp_path: Path) -> None:
    _, page = page_of(fabricate_study(tmp_path))
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
        "A point is a single measurement, such as accuracy if evaluate_every is at least rounds."
        + " The vertical bar is its interval." * (num_seeds > 1)
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


def test_curves_of_several_evaluations_have_no_words_on_points(tmp_path: Path) -> None:
    _, page = page_of(fabricate_study(tmp_path))
    (curves,) = page.all("section", id="curves")
    assert "single measurement" not in curves.words()
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
        said = "No curve: the runs have no virtual time, or their ranges do not overlap."
        assert (len(plot.all("svg")), plot.words() == said) == ((1, False) if drawn else (0, True))


def test_every_seed_has_a_line_behind_the_mean(tmp_path: Path) -> None:
    """Accuracies of 0.4 and 0.6 after the last round: their heights are as far below and above the mean's."""
    for seed in (0, 1):
        fabricate(tmp_path / f"fedavg-{seed}", Made("fedavg", seed, (0.2, 0.4 + 0.2 * seed)))
    _, page = page_of(tmp_path)
    (group,) = page.all("div", class_="by-rounds")[0].all("g", class_="method")
    runs = [[float(y) for y in run.split()] for run in str(group.attributes["data-seeds"]).split("|")]
    (line,) = group.all("path", class_="line")
    mean = float(str(line.attributes["d"]).split("L")[-1].split()[1])
    assert len(runs) == 2
    assert runs[0][0] == runs[1][0]
    assert runs[0][1] > mean > runs[1][1]
    assert runs[0][1] - mean == pytest.approx(mean - runs[1][1], abs=0.2)
