"""The geometry of charts in SVG: positions and paths; `charts.svg.jinja` has the elements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles

from fairlead.charts.chart import MARKERS_SHOWN, Chart, ChartAxis, LineStyle, Series
from fairlead.results.formats import show, show_estimate, show_tick

WIDTH, HEIGHT = 460.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, WIDTH - 12.0, 10.0, HEIGHT - 42.0
ROW_WIDTH, ROW_HEIGHT = 400.0, 26.0
_MARGIN = 14.0
"""At the ends of a row."""
_ASIDE = 9.0
"""Distance between points at the same position."""
LABEL = 7
"""Longest label of the vertical axis, in characters; longer ones would be cut off and are left out."""
_MARKERS = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.6 3.4 6h-6.8z",
    "m0-3.8 3.8 3.8-3.8 3.8-3.8-3.8z",
    "m0 3.6 3.4-6h-6.8z",
    "m-1-3.4h2v2.4h2.4v2h-2.4v2.4h-2v-2.4h-2.4v-2h2.4z",
    "m-3.4-1.7h6.8v3.4h-6.8z",
)
"""Shapes around a point, as paths that start there."""

Points = Sequence[tuple[float, float]]


def marker(style: LineStyle, points: Points) -> str:
    """The path of a marker at every point."""
    return "".join(f"M{x:.1f} {y:.1f}{_MARKERS[style.marker]}" for x, y in points)


def across(axis: ChartAxis, value: float) -> float:
    """The position of a value on the horizontal axis of curves."""
    return LEFT + axis.scale.at(value) * (RIGHT - LEFT)


def up(axis: ChartAxis, value: float) -> float:
    """The position of a value on the vertical axis of curves, at most a chart's height outside.

    Some SVG readers cannot handle huge numbers.
    """
    if axis.scale.logarithmic and value <= 0:
        return HEIGHT * 2
    return min(max(BOTTOM + axis.scale.at(value) * (TOP - BOTTOM), -HEIGHT), 2 * HEIGHT)


def along(axis: ChartAxis, value: float) -> float:
    """The position of a value on the axis of a row."""
    return _MARGIN + axis.scale.at(value) * (ROW_WIDTH - 2 * _MARGIN)


def ticks(axis: ChartAxis) -> list[tuple[float, str]]:
    """The ticks of an axis with their labels."""
    return [(value, show_tick(value, axis.kind)) for value in axis.ticks]


@dataclass(frozen=True)
class DrawnCurve:
    """The paths of a series, and the texts of its points, separated by |."""

    series: Series
    line: str
    band: str
    markers: str
    positions: str
    values: str


def curves(chart: Chart) -> list[DrawnCurve]:
    """All series of a chart as paths."""
    assert chart.y is not None
    drawn = []
    for order, series in enumerate(chart.series):
        # Side by side: intervals of points at the same round would cover each other.
        aside = _ASIDE * (order - (len(chart.series) - 1) / 2) if series.is_point else 0.0
        places = [across(chart.x, x) + aside for x in series.x]

        def heights(values: Sequence[float], axis: ChartAxis = chart.y) -> list[float]:
            return [up(axis, value) for value in values]

        points = list(zip(places, heights(series.y), strict=True))
        band = ""
        margins: list[float | None] = [None] * len(points)
        if series.low is not None and series.high is not None:
            edge = list(zip(places, heights(series.high), strict=True))
            back = list(zip(places, heights(series.low), strict=True))
            band = _path([*edge, *reversed(back)]) + "z"
            margins = [high - mean for high, mean in zip(series.high, series.y, strict=True)]
        texts = [
            " ".join(show_estimate(mean, margin, chart.y.kind)).strip()
            for mean, margin in zip(series.y, margins, strict=True)
        ]
        drawn.append(
            DrawnCurve(
                series,
                _path(points),
                band,
                marker(series.style, [points[place] for place in _marked(series)]),
                "|".join(show(x, chart.x.kind) for x in series.x),
                "|".join(texts),
            )
        )
    return drawn


def _marked(series: Series) -> Iterable[int]:
    count = len(series.x)
    if count <= MARKERS_SHOWN:
        return range(count)
    stride = count // MARKERS_SHOWN
    # Methods start at different points, so that markers of close curves do not cover each other.
    return range(series.place * 3 % stride, count, stride)


def _path(points: Points) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


@dataclass(frozen=True)
class Box:
    """Positions of the values of a row, and of their extremes and quartiles."""

    dots: list[float]
    left: float
    lower: float
    middle: float
    upper: float
    right: float


def box(chart: Chart, series: Series) -> Box:
    """The positions of a row; values beyond the scale are drawn at its ends."""
    dots = [along(chart.x, chart.x.scale.kept(value)) for value in series.x]
    quarters = quantiles(dots, n=4, method="inclusive") if len(dots) > 1 else dots * 3
    lower, middle, upper = quarters
    return Box(dots, min(dots), lower, middle, upper, max(dots))
