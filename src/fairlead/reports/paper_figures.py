"""Figures for papers: the curves and the clients of the page, one file each."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlead.charts.chart import Chart
from fairlead.charts.figures import draw_chart, new_figure, save_figure
from fairlead.errors import FieldError
from fairlead.reports.charts import clients_chart, learning_curves, weights_chart
from fairlead.results.comparison import Summary
from fairlead.results.curves import ROUNDS

FORMATS = ("pdf", "svg", "png")
_STYLE: Any = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "legend.fontsize": 7,
    # Text stays text: it can be searched and edited, and journals refuse Type 3 fonts.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fairlead",
}
_WIDTH, _HEIGHT = 3.35, 2.0
"""Inches: one column of a two-column paper, without the legend."""
_LEGEND_WIDTH = 54
"""Characters that fit into one line, with lines and markers."""


def write_figures(summary: Summary, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Every quantity against rounds, the measure against all axes, and weights and clients."""
    unknown = [each for each in formats if each not in FORMATS]
    if unknown or not formats:
        raise FieldError(f"formats must be some of {', '.join(FORMATS)}, got {','.join(formats)!r}.")
    written = []
    # Without matplotlib this fails before anything is computed.
    new_figure(_WIDTH, _HEIGHT)
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        for name, chart in _charts(summary).items():
            columns = min(max(_LEGEND_WIDTH // (max(len(each.label) for each in chart.series) + 6), 1), 3)
            legend = 0.15 * -(-len(chart.series) // columns)
            rows = 0.6 + 0.24 * sum(1 for each in chart.series if each.x)
            figure = new_figure(_WIDTH, rows if chart.y is None else _HEIGHT + legend)
            draw_chart(chart, figure)
            if chart.y is not None and len(chart.series) > 1:
                figure.legend(loc="outside lower center", ncols=columns)
            for ending in formats:
                written.append(save_figure(figure, folder / f"{summary.key(name)}.{ending}", dpi=300))
    return written


def _charts(summary: Summary) -> dict[str, Chart]:
    """Charts by the names of their files."""
    charts = {
        f"{curves.quantity.key}-{axis}": chart
        for curves in learning_curves(summary)
        for axis, chart in curves.charts.items()
        if axis == ROUNDS.key or curves.quantity.key == summary.measure.quantity.key
    }
    for name, rows in (("weights", weights_chart(summary)), ("clients", clients_chart(summary))):
        if rows is not None:
            charts[name] = replace(rows, x=replace(rows.x, title=rows.title))
    return charts
