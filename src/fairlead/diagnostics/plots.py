"""The figures of a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from fairlead.charts.chart import AxisScale, Chart, ChartAxis, Series
from fairlead.charts.figures import COLORS, clear_frame, draw_chart, new_figure, plain_label, save_figure
from fairlead.diagnostics.clients import ClientOverview
from fairlead.diagnostics.diagnosis import Diagnosis
from fairlead.diagnostics.diversity import running_elud
from fairlead.diagnostics.findings import mean_aware_weights
from fairlead.errors import FieldError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Suffix = Literal["svg", "png", "pdf"]
SUFFIXES: tuple[Suffix, ...] = ("svg", "png", "pdf")

_BARS_AT_MOST = 200
"""Most clients with bars and names of their own."""
_BY_NAME = 40
"""Most clients that are drawn one by one; more are sorted by Ω/ω."""
_TICKS = 25
"""Most clients whose names stand beside a matrix."""
_THEN, _NOW, _BOUND = 0, 1, 6
"""Places of the series, which determine their colors."""


def draw_diagnosis(diagnosis: Diagnosis, folder: Path, suffix: Suffix = "svg") -> list[Path]:
    """Draw every figure that the evidence allows into a folder, and return the files.

    weights: ω, Ω now (for AWARE, which has none, the mean of its λ) and Ω under the advice; cosines: between the
    clients' updates; consensus: the average drift and its bound; diversity: e-LUD over the rounds. Needs matplotlib
    (the extra `plots`).
    """
    if suffix not in SUFFIXES:
        raise FieldError(f"The format of figures must be one of {', '.join(SUFFIXES)}, got {suffix!r}.")
    painters = {"weights": _weights, "cosines": _cosines, "consensus": _consensus, "diversity": _diversity}
    drawn = []
    for name, paint in painters.items():
        figure = paint(diagnosis)
        if figure is not None:
            drawn.append(save_figure(figure, folder / f"{name}.{suffix}", dpi=150))
    return drawn


def draw_weights(diagnosis: Diagnosis) -> Figure:
    """The first of these figures."""
    figure = _weights(diagnosis)
    if figure is None:
        raise FieldError("This diagnosis has no weights to plot.")
    return figure


def _drawn(chart: Chart) -> Figure:
    """A figure of curves with its title and legend."""
    figure = new_figure(7.0, 4.2)
    draw_chart(chart, figure).set_title(chart.title)
    figure.legend(frameon=False, loc="outside lower center", ncols=3)
    return figure


def _weights(diagnosis: Diagnosis) -> Figure | None:
    report, advised = diagnosis.evidence.consistency, diagnosis.advised
    present, now = _present_weights(diagnosis)
    then = None if advised is None else advised.surrogate.weights
    kept = report.intended > 0
    series = [(present, now, _NOW), (f"Ω with {diagnosis.advice.preset}", then, _THEN)]
    known = [(name, values[kept], place) for name, values, place in series if values is not None]
    if not known:
        return None
    if int(kept.sum()) > _BY_NAME:
        return _in_order(report.intended[kept], known)
    return _one_by_one(diagnosis, report.intended[kept], known, kept)


def _present_weights(diagnosis: Diagnosis) -> tuple[str, Tensor | None]:
    """A name for the weights of the present method, and Ω as predicted, else as measured, else λ of AWARE."""
    report, records = diagnosis.evidence.consistency, diagnosis.evidence.records
    for weights in (report.predicted_weights, report.surrogate):
        if weights is not None:
            return "Ω now", weights
    return "λ of AWARE now, on average", mean_aware_weights(records, len(report.intended))


def _one_by_one(
    diagnosis: Diagnosis, intended: Tensor, series: list[tuple[str, Tensor, int]], kept: Tensor
) -> Figure:
    figure = new_figure(7.0, 1.6 + 0.22 * len(intended))
    axes = figure.subplots()
    ranks = list(range(len(intended)))
    axes.hlines(ranks, 0, intended.tolist(), color="0.88", linewidth=6, zorder=1)
    axes.scatter(
        intended.tolist(), ranks, marker="|", s=90, linewidth=2, color="black", label="intended ω", zorder=4
    )
    for name, values, place in series:
        # The present weights are rings, so that a mark in the same place does not hide them.
        marker, size, inside = ("o", 70, "none") if place == _NOW else ("D", 24, COLORS[place])
        style: dict[str, Any] = {"marker": marker, "s": size, "facecolor": inside, "edgecolor": COLORS[place]}
        # Clients of zero weight lie on the axis.
        axes.scatter(values.tolist(), ranks, **style, linewidth=2, label=name, zorder=3, clip_on=False)
    axes.set_yticks(ranks, _names(diagnosis, kept.nonzero().flatten().tolist()))
    axes.set(
        xlabel="share of the objective",
        ylabel="client",
        title="Weight of each client",
        ylim=(len(intended) - 0.5, -0.5),
    )
    axes.set_xlim(left=0)
    clear_frame(axes)
    figure.legend(frameon=False, loc="outside lower center", ncols=3)
    return figure


def _names(diagnosis: Diagnosis, clients: Sequence[int]) -> list[str]:
    return [diagnosis.evidence.label(client).removeprefix("client ").strip("'") for client in clients]


def _in_order(intended: Tensor, series: list[tuple[str, Tensor, int]]) -> Figure:
    ranks = tuple(torch.linspace(0, 100, len(intended)).tolist())
    found, ratios = [], []
    for name, values, place in series:
        ratio = (values / intended).sort().values
        ratios += ratio[ratio > 0].tolist()
        # A logarithmic axis has no zero: clients of zero weight leave a gap at the left.
        shown = tuple(torch.where(ratio > 0, ratio, math.nan).tolist())
        found.append(Series(ranks, shown, label=name, place=place))
    across = f"{len(intended)} clients, sorted by Ω/ω (%)"
    return _drawn(
        Chart(
            "Weights of clients",
            ChartAxis(across, AxisScale(0.0, 100.0)),
            ChartAxis("Ω/ω", AxisScale.of_ratios(ratios)),
            tuple(found),
            mark=1.0,
        )
    )


def _cosines(diagnosis: Diagnosis) -> Figure | None:
    found = diagnosis.evidence.cosines
    if found is None:
        return None
    figure = new_figure(6.4, 5.6)
    axes = figure.subplots()
    order = _alike_together(found.matrix)
    image = axes.imshow(found.matrix[order][:, order].tolist(), cmap="RdBu_r", vmin=-1, vmax=1)
    figure.colorbar(image, ax=axes, label="cosine", shrink=0.85)
    shown = [found.clients[place] for place in order.tolist()] if len(order) <= _TICKS else []
    places, names = list(range(len(shown))), _names(diagnosis, shown)
    axes.set_yticks(places, names)
    axes.set_xticks(places, names, rotation=90)
    axes.set(
        xlabel=f"{_how_many(diagnosis, len(order))}, those with similar updates side by side",
        title="Cosines between updates from the same model",
    )
    return figure


def _how_many(diagnosis: Diagnosis, shown: int) -> str:
    weighty = int((diagnosis.evidence.weights > 0).sum())
    return f"{shown} clients" if shown == weighty else f"{shown} of {weighty} clients, evenly spaced"


def _alike_together(matrix: Tensor) -> Tensor:
    """An order with similar clients side by side: by angle in the plane of the two leading eigenvectors."""
    leading = torch.linalg.eigh(matrix.to(torch.float64)).eigenvectors[:, -2:]
    if len(matrix) < 3:
        return torch.arange(len(matrix))
    return torch.atan2(leading[:, 0], leading[:, 1]).argsort()


def _consensus(diagnosis: Diagnosis) -> Figure | None:
    report = diagnosis.evidence.consensus
    # After one step nothing has drifted: the update is the gradient itself.
    drifts = [drift for drift in report.drifts if drift.steps > 1 and drift.bound > 0] if report else []
    if report is None or not drifts:
        return None
    places = tuple(map(float, range(len(drifts))))
    bounds = Series(places, tuple(drift.bound for drift in drifts), label="Jensen's bound", place=_BOUND)
    gaps = Series(
        places,
        tuple(drift.gap for drift in drifts),
        tuple(drift.low * drift.bound for drift in drifts),
        tuple(drift.high * drift.bound for drift in drifts),
        label=f"average drift ρ, with its {report.confidence:.0%} interval for unlimited clients",
        place=_NOW,
    )
    figure = _drawn(
        Chart(
            f"{report.verdict[:1].upper()}{report.verdict[1:]} ({report.num_clients} clients)",
            ChartAxis("local steps H", AxisScale.fitted(places)),
            ChartAxis(
                "length of the drift",
                AxisScale.fitted([0.0, *bounds.y, *(gaps.high or ())], bounds=(0, math.inf)),
            ),
            (bounds, gaps),
        )
    )
    figure.axes[0].set_xticks(places, [str(drift.steps) for drift in drifts])
    return figure


def _diversity(diagnosis: Diagnosis) -> Figure | None:
    records = diagnosis.evidence.records
    known = [(float(r.round), r.elud) for r in records if r.elud is not None and math.isfinite(r.elud)]
    if len(known) < 2:
        return None
    rounds, eluds = zip(*known, strict=True)
    running = tuple(value if math.isfinite(value) else math.nan for value in running_elud(records))
    figure = _drawn(
        Chart(
            "Diversity of updates",
            ChartAxis("round", AxisScale.fitted(rounds), "count"),
            ChartAxis("e-LUD", AxisScale.fitted([0.95, *eluds])),
            (
                Series(rounds, eluds, label="e-LUD of a round", place=_THEN, joined=False),
                Series(tuple(float(r.round) for r in records), running, label="mean so far", place=_NOW),
            ),
            mark=1.0,
        )
    )
    figure.axes[0].annotate(
        "all updates agree", (rounds[0], 1.0), xytext=(0, 3), textcoords="offset points", color="0.45"
    )
    return figure


def plot_overview(clients: ClientOverview, path: Path | None = None) -> Figure:
    """Draw the labels of each client as bubbles, with bars of sizes, work and arrival rates.

    Needs matplotlib (the extra `plots`). With a `path` the figure is also written, in the format of its suffix.
    """
    bars = {"examples": clients.sizes, "work": clients.effective_steps, "arrival": clients.arrival}
    known = {name: values for name, values in bars.items() if values is not None}
    wide = clients.label_counts is not None
    ratios = ([3.0] if wide else []) + [1.0] * len(known)
    height = min(3.0 + 0.14 * len(clients.sizes), 40.0)
    figure = new_figure(2.0 + 1.9 * sum(ratios), height)
    axes = list(figure.subplots(1, len(ratios), sharey=True, width_ratios=ratios, squeeze=False)[0])
    ids = range(len(clients.sizes))
    if clients.label_counts is not None:
        bubbles = axes.pop(0)
        owner, label = clients.label_counts.nonzero(as_tuple=True)
        counts = clients.label_counts[owner, label].to(torch.float64)
        bubbles.scatter(label.tolist(), owner.tolist(), s=(120 * counts / counts.max()).tolist(), alpha=0.7)
        bubbles.set(xlabel="label")
        bubbles.locator_params(axis="x", integer=True)
    for panel, (name, values) in zip(axes, known.items(), strict=True):
        if len(ids) <= _BARS_AT_MOST:
            panel.barh(ids, values.tolist())
        else:
            panel.fill_betweenx(ids, values.tolist(), step="mid")
        panel.set(xlabel=name)
        clear_frame(panel)
    first = figure.axes[0]
    first.set(ylabel="client", ylim=(len(ids) - 0.5, -0.5))
    if len(ids) <= _BARS_AT_MOST and clients.shown_names is not None:
        first.set_yticks(ids, list(map(plain_label, clients.shown_names)))
    else:
        first.locator_params(axis="y", integer=True)
    if path is not None:
        save_figure(figure, path)
    return figure
