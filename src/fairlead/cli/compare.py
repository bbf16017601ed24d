"""`fairlead compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import fairlead.cli.options as opt
import fairlead.cli.study as study_view
from fairlead.cli.console import JsonOption, print_json, print_table, say

if TYPE_CHECKING:
    from fairlead.results.comparison import Summary
    from fairlead.results.figures import MethodFigures


def compare(
    spec: opt.SpecArgument,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Presets or spec files that replace the spec's algorithm, such as "
            "fedavg,fedprox:mu=0.1,own.toml. The first is the baseline. Default: the spec's \\[compare] table."
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds, such as 0,1,2. Default: those of \\[compare], else 0..4."),
    ] = None,
    overrides: opt.OverridesOption = None,
    rounds: opt.RoundsOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder of the runs. Default: runs/SPEC-compare, or runs/SPEC-compare-N-rounds with --rounds N.",
        ),
    ] = None,
    metric: opt.MetricOption = None,
    goal: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="VALUE",
            help="Value of the metric to reach, such as 0.9 or 90%: adds the number of rounds to it.",
        ),
    ] = None,
    minimize: opt.MinimizeOption = False,
    figure: opt.FigureOption = "last-tenth",
    jobs: opt.JobsOption = None,
    checkpoint_every: opt.CheckpointOption = 10,
    quiet: opt.QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run methods on the same data, batches, work and links, and say which is better.

    Re-running the command resumes interrupted or failed runs and skips finished ones.
    """
    from fairlead.errors import FieldError
    from fairlead.experiments.overrides import read_seeds
    from fairlead.experiments.plans import compare_table, listed_methods, planned_comparison
    from fairlead.results.figures import experiment_measure

    changes = opt.all_overrides(overrides, rounds)
    # First, so that an unreadable spec is reported as such and not as a bad [compare] table.
    opt.read_spec(spec, changes, None)
    said = compare_table(spec)
    methods = said.methods if methods is None else methods
    if methods is None:
        raise FieldError(
            f"compare needs methods: --methods fedavg,fednova, or methods = [...] under [compare] in {spec}."
        )
    of_seeds = read_seeds(said.seeds or "0..4", "compare.seeds") if seeds is None else read_seeds(seeds)
    planned = planned_comparison(listed_methods(spec, methods, changes), of_seeds)
    first = planned[0].experiment
    default = experiment_measure(first, None)
    measure = experiment_measure(first, metric or said.metric, figure, minimize=minimize)
    target = None if goal is None else opt.read_target(goal)
    if target is not None:
        measure.refuse_target(target, "--target")
    elif said.target is not None and metric in (None, said.metric or default.metric):
        # The table's target belongs to the table's metric.
        measure.refuse_target(said.target, "compare.target")
        target = said.target
    study = study_view.study_folder(output, spec, "compare", planned, changes)
    silent = quiet or as_json
    outcomes = study_view.run_and_show(
        study, planned, jobs=jobs, checkpoint_every=checkpoint_every, quiet=silent
    )
    study.put_first(planned)
    (summary,), rows = study_view.compared(study, planned, outcomes, measure, target)
    if as_json:
        facts = {"folder": str(study.path), **study_view.measure_facts(measure), "target": target}
        print_json({**facts, "methods": [study_view.planned_facts(row, [summary], target) for row in rows]})
    elif not quiet:
        _report(summary, rows, target)
        study_view.say_where(study.path, measure, default, target)
    study_view.leave(outcomes, quiet=silent)


_SPARE = ("chi-square", "by\nchance", "time", "objective\ndifference", "seeds", "misplaced", "objective")
"""Columns that a narrow terminal leaves out, in this order."""


def _report(summary: Summary, rows: Sequence[study_view.PlannedMethod], target: float | None) -> None:
    from fairlead.results.sentences import describe_standing, headline

    _print_table(summary, rows, target)
    _draw(summary)
    say()
    say(headline(summary))
    for method in summary.methods:
        if method.method is not summary.baseline:
            say(f"{method.label}: {describe_standing(summary, method)}.")
    study_view.say_failures(rows, "method")


def _print_table(summary: Summary, rows: Sequence[study_view.PlannedMethod], target: float | None) -> None:
    from fairlead.results.sentences import target_resolution

    measure, table = summary.measure, []
    for row in rows:
        cells = {
            "method": row.name,
            study_view.measure_column(measure): row.shown("value", measure.kind),
            "difference": row.shown("difference", measure.kind, sign=True),
            "beyond\nnoise": _beyond_noise(summary, row.figures),
        }
        if target is not None:
            cells[f"rounds\nto {target:g}"] = _reached(row)
        beside = study_view.figures_beside(row, measure)
        if "objective" in beside:
            cells["objective"] = beside.pop("objective")
            cells["objective\ndifference"] = row.shown("objective_difference", "number", sign=True)
        table.append({**cells, **beside})
    columns = list(table[0])
    say()
    print_table(columns, [list(cells.values()) for cells in table], numbers=columns[1:], spare=_SPARE)
    curves = [measure.quantity.read(run.run) for method in summary.methods for run in method.runs]
    resolution = target_resolution(max((curve.spacing for curve in curves), default=0))
    if target is not None and resolution:
        say(resolution)


def _draw(summary: Summary) -> None:
    """Intervals of the differences, and the mean curves of all methods."""
    from fairlead.charts.chart import draw_bars, draw_intervals, plain_curves, plain_intervals
    from fairlead.results.curves import ROUNDS, bands
    from fairlead.results.sentences import COVERED

    measure, curve = summary.measure, summary.measure.over_rounds
    intervals = {
        method.label: (method.difference.mean, method.difference.half_width)
        for method in summary.methods
        if method.difference is not None and method.difference.half_width is not None
    }
    if intervals and summary.baseline is not None:
        say(
            f"\nDifference to {summary.baseline.label} in {measure.described} ({measure.direction}), "
            "95 % interval over seeds:"
        )
        say(draw_intervals(plain_intervals(intervals)))
        say(COVERED)
    found = {
        method.label: bands(method.method, curve, [ROUNDS]).get(ROUNDS.key) for method in summary.methods
    }
    curves = {label: list(zip(band.x, band.y, strict=True)) for label, band in found.items() if band}
    if any(len(points) > 1 for points in curves.values()):
        say(f"\n{curve.title} over the rounds, mean over seeds:")
        say(draw_bars(plain_curves(curves)))


def _reached(row: study_view.PlannedMethod) -> str:
    """Rounds to the target with their margin; where not all seeds met it, the mean and the number of those that did."""
    from fairlead.results.estimates import estimate

    runs = [run.reached[0] for run in row.figures.runs if run.run.finished] if row.figures else []
    found = estimate([float(reached.rounds) for reached in runs if reached is not None])
    if found is None:
        return "never" if runs else ""
    if found.count == row.num_runs:
        return found.text("count")
    return f"{found.mean:.4g} in {found.count} of {row.num_runs}"


def _beyond_noise(summary: Summary, method: MethodFigures | None) -> str:
    if method is None or method.difference is None or method.difference.excludes_zero is None:
        return ""
    return method.judged(summary.measure) or "no"
