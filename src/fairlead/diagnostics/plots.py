"""The figures of a diagnosis. Matplotlib is loaded when the first one is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from fairlead.diagnostics.diagnosis import Diagnosis
from fairlead.diagnostics.diversity import running_elud
from fairlead.diagnostics.findings import mean_aware_weights
from fairlead.diagnostics.overview import ClientOverview
from fairlead.errors import FieldError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Suffix = Literal["svg", "png", "pdf"]
SUFFIXES: tuple[Suffix, ...] = ("svg", "png", "pdf")

_BARS_AT_MOST = 200
"""Clients above which bars become too thin to draw one by one, and names to read."""
_BY_NAME = 40
"""Clients above which they are drawn in order of their share instead of one by one."""
_TICKS = 25
"""Clients above which a matrix has no names at its sides."""
_ASKED, _NOW, _THEN = "black", "#d55e00", "#0072b2"
"""Colours that people who see few of them can tell apart (Okabe and Ito)."""


def draw_diagnosis(diagnosis: Diagnosis, folder: Path, suffix: Suffix = "svg") -> list[Path]:
    """Draw what the evidence allows into a folder, and say which files there are.

    weights: ω, Ω now (where AWARE has none, the mean of its λ) and Ω under the advice; cosines: of the clients'
    updates; consensus: the average drift against its bound; diversity: e-LUD over the rounds. Needs matplotlib
    (the extra `plots`).
    """
    if suffix not in SUFFIXES:
        raise FieldError(f"The format of figures must be one of {', '.join(SUFFIXES)}, got {suffix!r}.")
    painters: dict[str, Callable[[Diagnosis, Figure], bool]] = {
        "weights": _weights,
        "cosines": _cosines,
        "consensus": _consensus,
        "diversity": _diversity,
    }
    drawn = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, paint in painters.items():
            figure = _new_figure(7.0, 4.2, dpi=150)
            if paint(diagnosis, figure):
                path = folder / f"{name}.{suffix}"
                figure.savefig(path)
                drawn.append(path)
    except OSError as error:
        raise FieldError(f"The figures cannot be written to {folder}: {error.strerror}.") from error
    return drawn


def _weights(diagnosis: Diagnosis, figure: Figure) -> bool:
    report, advised = diagnosis.evidence.consistency, diagnosis.advised
    present, now = _present_weights(diagnosis)
    then = None if advised is None else advised.surrogate.weights
    if now is None and then is None:
        return False
    kept = report.intended > 0
    series = [(present, now, _NOW, "o"), (f"Ω with {diagnosis.advice.preset}", then, _THEN, "D")]
    known = [(name, values[kept], color, mark) for name, values, color, mark in series if values is not None]
    if int(kept.sum()) <= _BY_NAME:
        _one_by_one(diagnosis, figure, report.intended[kept], known, kept)
    else:
        _in_order(figure, report.intended[kept], known)
    return True


def _present_weights(diagnosis: Diagnosis) -> tuple[str, Tensor | None]:
    """Ω of the present method by theory, else as measured, else λ of AWARE; with what it is called."""
    report, records = diagnosis.evidence.consistency, diagnosis.evidence.records
    for weights in (report.predicted_weights, report.surrogate):
        if weights is not None:
            return "Ω now", weights
    return "λ of AWARE now, on average", mean_aware_weights(records, len(report.intended))


def _one_by_one(
    diagnosis: Diagnosis,
    figure: Figure,
    intended: Tensor,
    series: list[tuple[str, Tensor, str, str]],
    kept: Tensor,
) -> None:
    figure.set_size_inches(7.0, 1.6 + 0.22 * len(intended))
    axes = figure.subplots()
    ranks = list(range(len(intended)))
    axes.hlines(ranks, 0, intended.tolist(), color="0.88", linewidth=6, zorder=1)
    axes.scatter(
        intended.tolist(), ranks, marker="|", s=90, linewidth=2, color=_ASKED, label="ω asked for", zorder=4
    )
    for name, values, color, mark in series:
        # The present weights are rings, so that they show behind others in the same place.
        size, fill = (70, "none") if mark == "o" else (24, color)
        axes.scatter(
            values.tolist(),
            ranks,
            marker=mark,
            s=size,
            facecolor=fill,
            edgecolor=color,
            linewidth=2,
            label=name,
            zorder=3,
            # Clients that do not count at all lie on the axis.
            clip_on=False,
        )
    ids = kept.nonzero().flatten().tolist()
    names = [diagnosis.evidence.label(client).removeprefix("client ").strip("'") for client in ids]
    axes.set_yticks(ranks, names)
    axes.set_ylim(len(intended) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set(xlabel="share of the objective", ylabel="client", title="How much each client counts")
    _finish(figure, axes)


def _in_order(figure: Figure, intended: Tensor, series: list[tuple[str, Tensor, str, str]]) -> None:
    axes = figure.subplots()
    ranks = torch.linspace(0, 100, len(intended)).tolist()
    for name, values, color, _ in series:
        ratio = (values / intended).sort().values
        # A logarithm shows no zero: clients that do not count at all leave a gap at the left.
        shown = torch.where(ratio > 0, ratio, math.nan)
        axes.plot(ranks, shown.tolist(), color=color, linewidth=2.5, label=name)
    axes.axhline(1.0, color=_ASKED, linewidth=1.2, linestyle=(0, (5, 4)), label="ω asked for", zorder=5)
    axes.set_yscale("log")
    _plain_numbers(axes)
    axes.set(
        xlabel=f"{len(intended)} clients, from those that count least to those that count most (%)",
        ylabel="times the weight asked for",
        title="How much clients count",
        xlim=(0, 100),
    )
    axes.grid(axis="y", color="0.9")
    _finish(figure, axes)


def _cosines(diagnosis: Diagnosis, figure: Figure) -> bool:
    found = diagnosis.evidence.cosines
    if found is None:
        return False
    figure.set_size_inches(6.4, 5.6)
    axes = figure.subplots()
    order = _alike_together(found.matrix)
    image = axes.imshow(found.matrix[order][:, order].tolist(), cmap="RdBu_r", vmin=-1, vmax=1)
    figure.colorbar(image, ax=axes, label="cosine", shrink=0.85)
    if len(order) <= _TICKS:
        label = diagnosis.evidence.label
        names = [label(found.clients[place]).removeprefix("client ").strip("'") for place in order.tolist()]
        places = list(range(len(order)))
        axes.set_yticks(places, names)
        axes.set_xticks(places, names, rotation=90)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
    axes.set(
        xlabel=f"{_how_many(diagnosis, len(order))}, those with similar updates side by side",
        title="Which way updates point from the same model",
    )
    return True


def _how_many(diagnosis: Diagnosis, shown: int) -> str:
    weighty = int((diagnosis.evidence.weights > 0).sum())
    return f"{shown} clients" if shown == weighty else f"{shown} of {weighty} clients, evenly spaced"


def _alike_together(matrix: Tensor) -> Tensor:
    """An order of clients that puts similar ones side by side: by angle in the two leading eigenvectors."""
    leading = torch.linalg.eigh(matrix.to(torch.float64)).eigenvectors[:, -2:]
    if len(matrix) < 3:
        return torch.arange(len(matrix))
    return torch.atan2(leading[:, 0], leading[:, 1]).argsort()


def _consensus(diagnosis: Diagnosis, figure: Figure) -> bool:
    report = diagnosis.evidence.consensus
    # One step is the gradient itself: nothing has drifted yet.
    drifts = [drift for drift in report.drifts if drift.steps > 1 and drift.bound > 0] if report else []
    if report is None or not drifts:
        return False
    axes = figure.subplots()
    places = list(range(len(drifts)))
    bounds, gaps = [drift.bound for drift in drifts], [drift.gap for drift in drifts]
    axes.plot(places, bounds, "--", marker="s", color=_ASKED, label="Jensen's bound")
    axes.plot(places, gaps, marker="o", color=_NOW, label="average drift ρ")
    axes.fill_between(
        places,
        [drift.low * drift.bound for drift in drifts],
        [drift.high * drift.bound for drift in drifts],
        color=_NOW,
        alpha=0.2,
        linewidth=0,
        label=f"{report.confidence:.0%} interval, unlimited clients",
    )
    axes.set_xticks(places, [str(drift.steps) for drift in drifts])
    axes.set_ylim(bottom=0)
    axes.set(
        xlabel="local steps H",
        ylabel="length of the drift",
        title=f"{report.verdict[:1].upper()}{report.verdict[1:]} ({report.num_clients} clients)",
    )
    _finish(figure, axes)
    return True


def _diversity(diagnosis: Diagnosis, figure: Figure) -> bool:
    records = diagnosis.evidence.records
    told = [(r.round, r.elud) for r in records if r.elud is not None and math.isfinite(r.elud)]
    if len(told) < 2:
        return False
    axes = figure.subplots()
    rounds, eluds = zip(*told, strict=True)
    running = [value if math.isfinite(value) else math.nan for value in running_elud(records)]
    axes.plot(rounds, eluds, "o", markersize=4, color=_THEN, alpha=0.6, label="e-LUD of a round")
    axes.plot([r.round for r in records], running, color=_NOW, linewidth=2, label="mean so far")
    axes.axhline(1.0, color="0.7", linewidth=1)
    axes.annotate(
        "all updates agree", (rounds[0], 1.0), xytext=(0, 3), textcoords="offset points", color="0.45"
    )
    axes.set(xlabel="round", ylabel="e-LUD", title="How diverse the updates of a round are")
    axes.set_ylim(bottom=min(0.95, *eluds))
    _whole_numbers(axes.xaxis)
    _finish(figure, axes)
    return True


def plot_overview(clients: ClientOverview, path: Path) -> None:
    """Bubbles of labels by client as the papers draw them, with sizes, work and arrival rates beside them.

    Needs matplotlib (the extra `plots`). The ending of `path` decides the format.
    """
    bars = {"examples": clients.sizes, "work": clients.effective_steps, "arrival": clients.arrival}
    known = {name: values for name, values in bars.items() if values is not None}
    wide = clients.label_counts is not None
    ratios = ([3.0] if wide else []) + [1.0] * len(known)
    height = min(3.0 + 0.14 * len(clients.sizes), 40.0)
    figure = _new_figure(2.0 + 1.9 * sum(ratios), height)
    axes = list(figure.subplots(1, len(ratios), sharey=True, width_ratios=ratios, squeeze=False)[0])
    ids = range(len(clients.sizes))
    if clients.label_counts is not None:
        bubbles = axes.pop(0)
        owner, label = clients.label_counts.nonzero(as_tuple=True)
        counts = clients.label_counts[owner, label].to(torch.float64)
        bubbles.scatter(label.tolist(), owner.tolist(), s=(120 * counts / counts.max()).tolist(), alpha=0.7)
        bubbles.set(xlabel="label")
        _whole_numbers(bubbles.xaxis)
    for axis, (name, values) in zip(axes, known.items(), strict=True):
        if len(ids) <= _BARS_AT_MOST:
            axis.barh(ids, values.tolist())
        else:
            axis.fill_betweenx(ids, values.tolist(), step="mid")
        axis.set(xlabel=name)
        _clear(axis)
    figure.axes[0].set(ylabel="client", ylim=(len(ids) - 0.5, -0.5))
    if len(ids) <= _BARS_AT_MOST and clients.shown_names is not None:
        # A dollar sign would begin a formula.
        figure.axes[0].set_yticks(ids, [name.replace("$", r"\$") for name in clients.shown_names])
    else:
        _whole_numbers(figure.axes[0].yaxis)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise FieldError(f"The plot cannot be written to {path}: {error}.") from error


def _plain_numbers(axes: Axes) -> None:
    """Numbers on a logarithmic axis as people write them."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.minorticks_off()


def _whole_numbers(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def _new_figure(width: float, height: float, dpi: int = 100) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise FieldError("Plots need matplotlib: pip install 'matplotlib>=3.9,<4'.") from error
    return Figure(figsize=(width, height), layout="constrained", dpi=dpi)


def _finish(figure: Figure, axes: Axes) -> None:
    figure.legend(frameon=False, loc="outside lower center", ncols=3)
    _clear(axes)


def _clear(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
