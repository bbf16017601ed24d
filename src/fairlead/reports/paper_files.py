"""Files for papers and programs: tables as LaTeX with booktabs and as CSV, and charts as figures."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fairlead.charts.chart import Chart
from fairlead.charts.figures import draw_chart, new_figure, save_figure
from fairlead.errors import FieldError, disk_errors
from fairlead.reports.charts import clients_chart, learning_curves, weights_chart
from fairlead.reports.tables import Cell, ReportTable, report_tables
from fairlead.results.comparison import Summary
from fairlead.results.curves import ROUNDS

_TEXT = r"\ \textbackslash{}, ~ \textasciitilde{}, ^ \textasciicircum{}, < \textless{}, > \textgreater{}, … \ldots{}"
_MATHEMATICS = (
    r"± \pm, × \times, − -, ∞ \infty, · \cdot, Σ \Sigma, ω \omega, Ω \Omega, χ \chi, ½ \frac{1}{2}, ‖ \|"
)
"""Characters, each with what LaTeX writes for it."""
_ESCAPES = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {digit: f"$^{place}$" for place, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
    | {"–": "--", "⁻": r"$^{-}$"}
    | dict(pair.split() for pair in _TEXT.split(", "))
    | {character: f"${sign}$" for character, sign in map(str.split, _MATHEMATICS.split(", "))}
)


def write_tables(summary: Summary, folder: Path) -> list[Path]:
    """Every table of the report as a .tex and a .csv file."""
    labels = [method.label for method in summary.methods]
    texts = {}
    for table in report_tables(summary):
        texts[folder / f"{table.name}.tex"] = latex_table(table, labels)
        texts[folder / f"{table.name}.csv"] = csv_table(table, labels)
    if summary.clients is not None:
        texts[folder / f"{summary.key('by-client')}.csv"] = csv_clients(summary)
    with disk_errors(folder, "written", FieldError):
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            file.write_text(text, encoding="utf-8", newline="")
    return list(texts)


def latex_table(table: ReportTable, labels: Sequence[str]) -> str:
    """A table to \\input into a paper; needs the package booktabs. The caption explains the columns."""
    notes = "; ".join(f"{column.title}: {column.note}" for column in table.columns if column.note)
    caption = f"{table.title}. {table.note}" + (f" {notes}." if notes else "")
    lines = [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{_latex(caption)}}}",
        f"  \\label{{tab:{table.name}}}",
        f"  \\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"    \toprule",
        "    " + " & ".join(["Method", *(_latex(column.title) for column in table.columns)]) + r" \\",
        r"    \midrule",
    ]
    for label, row in zip(labels, table.rows, strict=True):
        lines.append("    " + " & ".join([_latex(label), *map(_latex_cell, row)]) + r" \\")
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def csv_table(table: ReportTable, labels: Sequence[str]) -> str:
    """A table with columns for the mean, both ends of the interval, the standard deviation and the number of runs."""
    columns: list[list[object]] = [["method", *labels]]
    for column in table.columns:
        found = [cell.estimate for cell in column.cells]
        if not any(found):
            columns.append([column.title, *(cell.text for cell in column.cells)])
            continue
        for field in ("mean", "low", "high", "std", "count"):
            head = f"{column.title} {'runs' if field == 'count' else field}"
            columns.append([head, *(getattr(each, field, None) for each in found)])
    return _csv(zip(*columns, strict=True))


def csv_clients(summary: Summary) -> str:
    """The measure of every client in every run, one row each; empty where it is not defined."""
    rows: list[list[object]] = [["method", "seed", "client", summary.measure.metric]]
    for method in summary.methods:
        for run in method.runs:
            for client, value in enumerate(run.clients):
                name = client if run.run.names is None else run.run.names[client]
                rows.append([method.label, run.seed, name, value if math.isfinite(value) else None])
    return _csv(rows)


def _csv(rows: Iterable[Sequence[object]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue()


def _latex_cell(cell: Cell) -> str:
    text = _latex(f"{cell.text} {cell.detail}".strip())
    return f"\\textbf{{{text}}}" if cell.best else text


def _latex(text: str) -> str:
    return text.translate(_ESCAPES)


FORMATS = ("pdf", "svg", "png")
_STYLE = Path(__file__).with_name("paper.mplstyle")
_WIDTH, _HEIGHT = 3.35, 2.0
"""Inches: one column of a two-column paper, without the legend."""
_LEGEND_WIDTH = 54
"""Characters that fit into one line, with lines and markers."""


def write_figures(summary: Summary, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Every quantity against rounds, the measure against all axes, and weights and clients."""
    if not formats or not set(formats) <= set(FORMATS):
        raise FieldError(f"--format must be one or more of {', '.join(FORMATS)}, got {','.join(formats)!r}.")
    written = []
    # Without matplotlib this fails before anything is computed.
    new_figure(_WIDTH, _HEIGHT)
    import matplotlib.style

    with matplotlib.style.context(_STYLE):
        for name, chart in _charts(summary).items():
            columns = min(max(_LEGEND_WIDTH // (max(len(each.label) for each in chart.series) + 6), 1), 3)
            legend = 0.15 * -(-len(chart.series) // columns)
            rows = 0.6 + 0.24 * sum(1 for each in chart.series if each.x)
            figure = new_figure(_WIDTH, rows if chart.y is None else _HEIGHT + legend)
            draw_chart(chart, figure)
            if chart.y is not None and len(chart.series) > 1:
                figure.legend(loc="outside lower center", ncols=columns)
            files = [folder / f"{summary.key(name)}.{ending}" for ending in formats]
            written += [save_figure(figure, file, dpi=300) for file in files]
    return written


def _charts(summary: Summary) -> dict[str, Chart]:
    """Charts by the names of their files."""
    charts = {
        f"{quantity.key}-{axis}": chart
        for quantity, charts in learning_curves(summary).items()
        for axis, chart in charts.items()
        if axis == ROUNDS.key or quantity.key == summary.measure.quantity.key
    }
    for name, rows in (("weights", weights_chart(summary)), ("clients", clients_chart(summary))):
        if rows is not None:
            charts[name] = replace(rows, x=replace(rows.x, title=rows.title))
    return charts
