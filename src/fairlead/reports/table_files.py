"""Tables for papers and programs: LaTeX with booktabs, and CSV."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from fairlead.errors import FieldError
from fairlead.reports.tables import Cell, Table, report_tables
from fairlead.results.comparison import Summary

_ESCAPES = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{digit: f"$^{place}$" for place, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "±": r"$\pm$",
        "×": r"$\times$",
        "−": r"$-$",
        "–": "--",
        "∞": r"$\infty$",
        "·": r"$\cdot$",
        "Σ": r"$\Sigma$",
        "ω": r"$\omega$",
        "Ω": r"$\Omega$",
        "χ": r"$\chi$",
        "½": r"$\frac{1}{2}$",
        "‖": r"$\|$",
        "…": r"\ldots{}",
        "⁻": r"$^{-}$",
    }
)


def write_tables(summary: Summary, folder: Path) -> list[Path]:
    """Every table of the report as a .tex and a .csv file."""
    labels = [method.label for method in summary.methods]
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in report_tables(summary):
            for ending, text in (("tex", latex_table(table, labels)), ("csv", csv_table(table, labels))):
                written.append(folder / f"{table.name}.{ending}")
                written[-1].write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise FieldError(f"{error.filename or folder} cannot be written: {error.strerror}.") from error
    return written


def latex_table(table: Table, labels: Sequence[str]) -> str:
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


def csv_table(table: Table, labels: Sequence[str]) -> str:
    """A table with columns for the mean, both ends of the interval, the standard deviation and the number of runs."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    estimated = [
        any(row[place].estimate is not None for row in table.rows) for place in range(len(table.columns))
    ]
    heads = ["method"]
    for column, has_estimate in zip(table.columns, estimated, strict=True):
        parts = ("mean", "low", "high", "std", "runs") if has_estimate else ("",)
        heads += [f"{column.title} {part}".strip() for part in parts]
    writer.writerow(heads)
    for label, row in zip(labels, table.rows, strict=True):
        cells: list[object] = [label]
        for cell, has_estimate in zip(row, estimated, strict=True):
            cells += _csv_cells(cell) if has_estimate else [cell.text]
        writer.writerow(cells)
    return buffer.getvalue()


def _csv_cells(cell: Cell) -> list[object]:
    found = cell.estimate
    if found is None:
        return [""] * 5
    numbers = [found.mean, found.low, found.high, found.std, found.count]
    return ["" if number is None else number for number in numbers]


def _latex_cell(cell: Cell) -> str:
    text = _latex(f"{cell.text} {cell.detail}".strip())
    return f"\\textbf{{{text}}}" if cell.best else text


def _latex(text: str) -> str:
    return text.translate(_ESCAPES)
