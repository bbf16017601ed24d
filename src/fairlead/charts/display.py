"""Results as notebooks show them: sentences, a table and charts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fairlead.charts.chart import Chart
from fairlead.charts.figures import draw_chart, new_figure
from fairlead.errors import FieldError, optional_package

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FrameLibrary = Literal["pandas", "polars"]


@dataclass(frozen=True)
class Display:
    """A result in a notebook."""

    title: str
    lines: tuple[str, ...] = ()
    table: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns of text."""
    charts: tuple[Chart, ...] = ()
    """Curves."""

    @property
    def text(self) -> str:
        """Table and lines for a terminal."""
        columns = [[title, *cells] for title, cells in self.table.items()]
        padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
        rows = ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
        return "\n".join([*rows, *self.lines])


class Displayed(ABC):
    """A result that notebooks show as a table with curves; `plot` and `to_frame` give the same for further work."""

    @abstractmethod
    def display(self) -> Display:
        """What a notebook shows."""

    @abstractmethod
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows of its data frame."""

    def _repr_html_(self) -> str:
        from fairlead.reports.page import render_display

        return render_display(self.display())

    def plot(self) -> Figure:
        """Its charts as a matplotlib figure (needs the extra `plots`)."""
        charts = self.display().charts
        if not charts:
            raise FieldError(f"This {type(self).__name__} has nothing to plot yet.")
        figure = new_figure(4.8 * len(charts), 3.4)
        for part, chart in zip(figure.subfigures(1, len(charts), squeeze=False)[0], charts, strict=True):
            draw_chart(chart, part).set_ylabel("" if chart.y is None else chart.y.title)
            if len(chart.series) > 1:
                part.legend(loc="outside lower center", ncols=3, frameon=False)
        return figure

    def to_frame(self, library: FrameLibrary = "pandas") -> Any:
        """Its numbers as a pandas or Polars data frame."""
        return frame_of(self.rows(), library, "to_frame")


def frame_of(rows: Sequence[Mapping[str, Any]], library: FrameLibrary, asked: str) -> Any:
    """A data frame with every column that a row has, in the order of appearance; `asked` names the call in errors."""
    frames = frame_library(library, asked)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    content = {name: [row.get(name) for row in rows] for name in columns}
    return frames.DataFrame(content) if library == "pandas" else frames.DataFrame(content, strict=False)


def frame_library(library: FrameLibrary, asked: str) -> Any:
    """The module of a library of data frames."""
    if library not in ("pandas", "polars"):
        raise FieldError(f"{asked}.library must be 'pandas' or 'polars', got {library!r}.")
    return optional_package(library, f"{asked} needs {library}: install it with pip install {library}.")
