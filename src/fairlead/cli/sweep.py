"""`fairlead sweep`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import fairlead.cli.options as opt
import fairlead.cli.study as study_view
from fairlead.cli.console import JsonOption, print_json, print_table, say

if TYPE_CHECKING:
    from fairlead.results.comparison import Summary
    from fairlead.results.figures import Measure

_SHOWN = 20
"""Settings in the table; the runs of the others stay in their folders."""
_NO_BEST = ("not evaluated", "not comparable", "nothing learned", "tied")
"""Rankings without a best setting."""


def sweep(
    spec: opt.SpecArgument,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=VALUES", help="Values of a field, such as algorithm.lr=0.01,0.1 or seed=0..2."
        ),
    ] = None,
    draws: Annotated[
        int, typer.Option("--random", metavar="N", help="Number of settings to draw from the ranges.")
    ] = 0,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range", metavar="PATH=RANGE", help="A range to draw from, such as algorithm.lr=log:1e-3..1."
        ),
    ] = None,
    draw_seed: Annotated[int, typer.Option(help="Seed of the draws, not of the runs.", min=0)] = 0,
    overrides: opt.OverridesOption = None,
    rounds: opt.RoundsOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder of the runs. Default: runs/SPEC-sweep, or runs/SPEC-sweep-N-rounds with --rounds N.",
        ),
    ] = None,
    metric: opt.MetricOption = None,
    minimize: opt.MinimizeOption = False,
    figure: opt.FigureOption = "last-tenth",
    jobs: opt.JobsOption = None,
    checkpoint_every: opt.CheckpointOption = 10,
    quiet: opt.QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a spec at many values of its fields, and show the best.

    Re-running the command resumes interrupted or failed runs and skips finished ones.
    """
    from fairlead.experiments.plans import planned_sweep
    from fairlead.results.figures import experiment_measure

    changes = opt.all_overrides(overrides, rounds)
    opt.find_modules(spec.resolve().parent)
    planned = planned_sweep(
        spec, grid=grid or [], ranges=ranges or [], draws=draws, draw_seed=draw_seed, overrides=changes
    )
    measure = experiment_measure(planned[0].experiment, metric, figure, minimize=minimize)
    study = study_view.study_folder(output, spec, "sweep", planned, changes)
    silent = quiet or as_json
    outcomes = study_view.run_and_show(
        study, planned, jobs=jobs, checkpoint_every=checkpoint_every, quiet=silent
    )
    summaries, rows = study_view.compared(study, planned, outcomes, measure)
    order = [method for summary in summaries for method in summary.best_first]
    rows.sort(key=lambda row: order.index(row.figures) if row.figures else len(order))
    if as_json:
        facts = {"folder": str(study.path), **study_view.measure_facts(measure)}
        print_json({**facts, "settings": [study_view.planned_facts(row, summaries, None) for row in rows]})
    elif not quiet:
        _print_table(rows, measure, study.path)
        for summary in summaries:
            say(summary.titled("").removeprefix(": "))
            _say_best(summary, rows, spec, changes)
        study_view.say_failures(rows, "setting")
        study_view.say_where(study.path, measure, experiment_measure(planned[0].experiment, None))
    study_view.leave(outcomes, quiet=silent)


def _print_table(rows: Sequence[study_view.PlannedMethod], measure: Measure, folder: Path) -> None:
    columns = [
        *rows[0].labels,
        study_view.measure_column(measure),
        *study_view.figures_beside(rows[0], measure),
    ]
    cells = [
        [
            *map(str, row.labels.values()),
            row.shown("value", measure.kind),
            *study_view.figures_beside(row, measure).values(),
        ]
        for row in rows[:_SHOWN]
    ]
    say()
    print_table(columns, cells, numbers=columns)
    if len(rows) > _SHOWN:
        say(f"and {len(rows) - _SHOWN} more settings, in {folder}")


def _say_best(
    summary: Summary, rows: Sequence[study_view.PlannedMethod], spec: Path, changes: Sequence[str]
) -> None:
    """The best setting, whether its lead over the next is more than noise, and the command that runs it."""
    from fairlead.results.sentences import headline, show_lead

    say(headline(summary))
    complete = [method for method in summary.best_first if method.complete]
    if not complete or (summary.compared and summary.ranking in _NO_BEST):
        return
    best = next(row for row in rows if row.figures is complete[0])
    if len(complete) > 1 and complete[1].method is not summary.baseline:
        say(show_lead(summary, complete[0], complete[1]))
    values = [*changes, *(f"{path}={value}" for path, value in best.labels.items())]
    command = ["fairlead", "run", str(spec), *(word for value in values for word in ("--set", value))]
    say(f"Run it with: {shlex.join(command)}")
