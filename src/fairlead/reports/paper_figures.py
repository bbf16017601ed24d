"""Figures for papers, drawn by matplotlib: the curves and the clients of the page, one file each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.errors import FieldError
from fairlead.reports.charts import BANDS_AT_ONCE, MARKERS_SHOWN, Scale
from fairlead.reports.style import DASHES, NUM_COLOURS
from fairlead.results.comparison import Summary
from fairlead.results.curves import AXES, ROUNDS, Axis, Band, Quantity, bands, quantities
from fairlead.results.formats import Kind, show_tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

FORMATS = ("pdf", "svg", "png")
_COLOURS = ("#0b6bb0", "#cf4a00", "#008763", "#b3478c", "#8a6400", "#1f90c8", "#4a4a4a")
"""As on the page."""
_MARKERS = "os^DvPX"
_STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
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
"""Inches: one column of a two-column paper, less the legend."""
_LEGEND_WIDTH = 54
"""Characters that fit beside each other, lines and markers included."""


def write_figures(summary: Summary, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Every quantity against rounds, the first one against the other axes too, and weights and clients."""
    unknown = [each for each in formats if each not in FORMATS]
    if unknown or not formats:
        raise FieldError(f"formats must be some of {', '.join(FORMATS)}, got {','.join(formats)!r}.")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise FieldError("Figures need matplotlib: pip install 'matplotlib>=3.9,<4'.") from error
    with mpl.rc_context(_STYLE):
        drawn = _draw(summary)
        written = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, figure in drawn.items():
                for ending in formats:
                    written.append(folder / f"{summary.key(name)}.{ending}")
                    # Without a date a figure that has not changed is the same file.
                    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
                    figure.savefig(written[-1], dpi=300, metadata=dates.get(ending))
        except OSError as error:
            raise FieldError(f"{error.filename or folder} cannot be written: {error.strerror}.") from error
    return written


def _draw(summary: Summary) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for quantity in quantities(summary.study.runs):
        found = [bands(method.method, quantity, AXES) for method in summary.methods]
        judged = quantity.key == summary.measure.quantity.key
        for axis in AXES if judged else (ROUNDS,):
            if any(axis.key in own for own in found):
                figures[f"{quantity.key}-{axis.key}"] = _curves(summary, quantity, axis, found)
    ratios = [
        [ratio for run in method.runs for ratio in run.client_ratios() if ratio is not None and ratio > 0]
        for method in summary.methods
    ]
    if any(ratios):
        figures["weights"] = _clients(summary, ratios, "Ω/ω of each client", "number", mark=1.0)
    values = [[value for run in method.runs for value in run.clients] for method in summary.methods]
    if any(values):
        name = f"{summary.measure.quantity.title} of each client"
        figures["clients"] = _clients(summary, values, name, summary.measure.kind)
    return figures


_ASIDE = 0.1
"""Inches between points of the same place."""


def _curves(summary: Summary, quantity: Quantity, axis: Axis, found: Sequence[dict[str, Band]]) -> Figure:
    from matplotlib.transforms import ScaledTranslation

    longest = max(len(method.label) for method in summary.methods)
    columns = min(max(_LEGEND_WIDTH // (longest + 6), 1), 3)
    figure, axes = _empty(_HEIGHT + 0.15 * -(-len(summary.methods) // columns))
    shaded = sum(axis.key in own for own in found) <= BANDS_AT_ONCE
    for place, (method, own) in enumerate(zip(summary.methods, found, strict=True)):
        if axis.key not in own:
            continue
        band = own[axis.key]
        shifted: Transform = axes.transData
        if band.is_point:
            # Side by side, since points of one round would cover each other's intervals.
            aside = place - (len(summary.methods) - 1) / 2
            shifted += ScaledTranslation(_ASIDE * aside, 0, figure.dpi_scale_trans)
        (line,) = axes.plot(
            band.positions, band.means, label=_plain(method.label), transform=shifted, **_look(method.place)
        )
        line.set_markevery(max(len(band.means) // MARKERS_SHOWN, 1))
        if not shaded or band.lows is None or band.highs is None:
            continue
        if band.is_point:
            ends = band.lows, band.highs
            axes.vlines(band.positions, *ends, color=line.get_color(), linewidth=0.8, transform=shifted)
        else:
            axes.fill_between(
                band.positions, band.lows, band.highs, color=line.get_color(), alpha=0.15, linewidth=0
            )
    _frame(axes, quantity, found, axis)
    if len(summary.methods) > 1:
        figure.legend(loc="outside lower center", ncols=columns)
    return figure


def _frame(axes: Axes, quantity: Quantity, found: Sequence[dict[str, Band]], axis: Axis) -> None:
    shown = [own[axis.key] for own in found if axis.key in own]
    means = [mean for band in shown for mean in band.means]
    if all(band.is_point for band in shown):
        # Curves need not show all of their intervals, points have nothing else to show.
        means += [edge for band in shown for edge in (*(band.lows or ()), *(band.highs or ()))]
        positions = sorted({position for band in shown for position in band.positions})
        if len(positions) == 1:
            axes.set_xticks(positions)
        axes.set_xlim(positions[0] / 2, positions[-1] * 1.5)
    low, high = min(means), max(means)
    if quantity.logarithmic and low > 0 and high / low >= 10:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.3, high * 1.3)
    elif high > low:
        room = 0.25 * (high - low)
        axes.set_ylim(low - room, high + room)
        if quantity.kind == "share":
            axes.set_ylim(max(low - room, 0.0), min(high + room, 1.0))
    axes.set(xlabel=axis.title, ylabel=quantity.title)
    _ticks(axes, axis.kind, "x")
    _ticks(axes, quantity.kind, "y")


def _clients(
    summary: Summary, values: Sequence[Sequence[float]], title: str, kind: Kind, mark: float | None = None
) -> Figure:
    """A box for each method that has clients to show; whiskers reach from the first to the last."""
    shown = [(method, own) for method, own in zip(summary.methods, values, strict=True) if own]
    figure, axes = _empty(0.6 + 0.24 * len(shown))
    boxes = axes.boxplot(
        [list(own) for _, own in shown],
        orientation="horizontal",
        whis=(0, 100),
        patch_artist=True,
        widths=0.6,
        medianprops={"color": "black"},
    )
    for box, (method, _) in zip(boxes["boxes"], shown, strict=True):
        box.set(facecolor=_COLOURS[method.place % NUM_COLOURS], alpha=0.5, linewidth=0.6)
    if mark is not None:
        axes.set_xscale("log")
        axes.axvline(mark, color="0.4", linestyle=":", linewidth=0.8)
    _ticks(axes, kind, "x")
    axes.set_yticks(range(1, len(shown) + 1), [_plain(method.label) for method, _ in shown])
    axes.invert_yaxis()
    axes.set_xlabel(title)
    return figure


def _empty(height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _look(place: int) -> dict[str, Any]:
    turn = place // NUM_COLOURS
    dash = DASHES[turn % len(DASHES)]
    pattern = tuple(float(length) for length in dash.split())
    return {
        "color": _COLOURS[place % NUM_COLOURS],
        "linestyle": (0, pattern) if pattern else "-",
        "marker": _MARKERS[(place + turn) % len(_MARKERS)],
    }


def _ticks(axes: Axes, kind: Kind, which: str) -> None:
    """Ticks as on the page; those that matplotlib gives a short logarithmic axis write over each other."""
    from matplotlib.ticker import FixedLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        axis.set_major_locator(FixedLocator(Scale(low, high, 0.0, 1.0, logarithmic=True).ticks()))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(lambda value, _: show_tick(value, kind))


def _plain(label: str) -> str:
    """A label in which matplotlib finds no mathematics, and which it does not hide for its first letter."""
    text = label.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
