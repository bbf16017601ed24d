"""Charts drawn by matplotlib, which is loaded when the first one is drawn."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.charts.chart import MARKERS_SHOWN, Chart, ChartAxis, LineStyle
from fairlead.errors import FieldError, disk_errors, optional_package
from fairlead.results.estimates import show_tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase
    from matplotlib.transforms import Transform

COLORS = ("#0b6bb0", "#cf4a00", "#008763", "#b3478c", "#8a6400", "#1f90c8", "#4a4a4a")
"""As on the page; distinguishable with color blindness."""
_MARKERS = "os^DvPX"
_ASIDE = 0.1
"""Inches between points at the same position."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    return _figure_type()(figsize=(width, height), layout="constrained")


@cache
def _figure_type() -> type[Figure]:
    """The figures of matplotlib, shown by notebooks that have not loaded pyplot, which alone would tell them how."""
    optional_package("matplotlib.figure", "Figures need matplotlib: pip install 'matplotlib>=3.9,<4'.")
    from matplotlib import figure

    class ShownFigure(figure.Figure):
        def _repr_png_(self) -> bytes:
            image = BytesIO()
            self.savefig(image, format="png")
            return image.getvalue()

    return ShownFigure


def save_figure(figure: Figure, path: Path, **options: Any) -> Path:
    """Write a figure in the format of the path's suffix, and create its folder."""
    # Without a date, an unchanged figure gives an identical file.
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with disk_errors(path, "written", FieldError):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata=undated.get(path.suffix), **options)
    return path


def draw_chart(chart: Chart, figure: FigureBase) -> Axes:
    """Draw curves or rows with the scales and ticks of the page, without a legend."""
    axes = figure.subplots()
    if chart.y is None:
        _draw_boxes(chart, axes)
    else:
        _draw_curves(chart, axes)
        _set_axis(axes, "y", chart.y)
    _set_axis(axes, "x", chart.x)
    clear_frame(axes)
    return axes


def clear_frame(axes: Axes) -> None:
    """Hide the frame at the top and right."""
    axes.spines[["top", "right"]].set_visible(False)


def plain_label(label: str) -> str:
    """A label without mathematics, and with a space before an underscore, which would hide it from the legend."""
    text = label.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _draw_curves(chart: Chart, axes: Axes) -> None:
    from matplotlib.transforms import ScaledTranslation

    for order, series in enumerate(chart.series):
        shifted: Transform = axes.transData
        if series.is_point:
            # Side by side: intervals of points at the same round would cover each other.
            aside = _ASIDE * (order - (len(chart.series) - 1) / 2)
            shifted += ScaledTranslation(aside, 0, axes.figure.dpi_scale_trans)
        style = _line_style(series.style)
        if not series.joined:
            style |= {"linestyle": "", "alpha": 0.6}
        (line,) = axes.plot(series.x, series.y, label=plain_label(series.label), transform=shifted, **style)
        if series.joined:
            line.set_markevery(max(len(series.x) // MARKERS_SHOWN, 1))
        if chart.crowded or series.low is None or series.high is None:
            continue
        color = style["color"]
        if series.is_point:
            axes.vlines(series.x, series.low, series.high, color=color, linewidth=0.8, transform=shifted)
        else:
            axes.fill_between(series.x, series.low, series.high, color=color, alpha=0.15, linewidth=0)
    if chart.mark is not None:
        axes.axhline(chart.mark, color="0.4", linestyle=":", linewidth=0.8)


def _draw_boxes(chart: Chart, axes: Axes) -> None:
    """A box for each row with values; whiskers span all of them."""
    rows = [series for series in chart.series if series.x]
    boxes = axes.boxplot(
        [[chart.x.scale.kept(value) for value in series.x] for series in rows],
        orientation="horizontal",
        whis=(0, 100),
        patch_artist=True,
        widths=0.6,
        medianprops={"color": "black"},
    )
    for box, series in zip(boxes["boxes"], rows, strict=True):
        box.set(facecolor=COLORS[series.style.color], alpha=0.5, linewidth=0.6)
    if chart.mark is not None:
        axes.axvline(chart.mark, color="0.4", linestyle=":", linewidth=0.8)
    axes.set_yticks(range(1, len(rows) + 1), [plain_label(series.label) for series in rows])
    axes.invert_yaxis()


def _line_style(style: LineStyle) -> dict[str, Any]:
    dashes = tuple(float(length) for length in style.dash.split())
    return {
        "color": COLORS[style.color],
        "linestyle": (0, dashes) if dashes else "-",
        "marker": _MARKERS[style.marker],
    }


def _set_axis(axes: Axes, name: str, axis: ChartAxis) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    scale = axis.scale
    kind = "log" if scale.logarithmic else "linear"
    axes.set(**{f"{name}scale": kind, f"{name}lim": (scale.low, scale.high), f"{name}label": axis.title})
    drawn = axes.xaxis if name == "x" else axes.yaxis
    drawn.set_major_locator(FixedLocator(axis.ticks))
    drawn.set_minor_locator(NullLocator())
    drawn.set_major_formatter(lambda value, _: show_tick(value, axis.kind))
