"""`fairlead sweep`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.console import JsonOption, print_json, print_table, say
from fairlead.cli.options import (
    CheckpointOption,
    JobsOption,
    MetricOption,
    MinimizeOption,
    OverridesOption,
    QuietOption,
    RoundsOption,
    SpecArgument,
    all_overrides,
    find_modules,
)
from fairlead.cli.study import (
    figures_beside,
    leave,
    metric_title,
    result_facts,
    run_and_show,
    say_failures,
    say_where,
    study_folder,
    verdict,
    written,
)

if TYPE_CHECKING:
    from fairlead.results.study_results import Metric, Result

_SHOWN = 20
"""Settings in the table; the runs of the others are in their folders all the same."""


def sweep(
    spec: SpecArgument,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=VALUES", help="Values of a field, such as algorithm.lr=0.01,0.1 or seed=0..2."
        ),
    ] = None,
    draws: Annotated[
        int, typer.Option("--random", metavar="N", help="Settings drawn at random from the ranges.")
    ] = 0,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="PATH=RANGE", help="Where from, such as algorithm.lr=log:1e-3..1."),
    ] = None,
    draw_seed: Annotated[int, typer.Option(help="Seed of the draws, not of the runs.", min=0)] = 0,
    overrides: OverridesOption = None,
    rounds: RoundsOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder of the runs; by default runs/SPEC-sweep, or runs/SPEC-sweep-N-rounds with --rounds N.",
        ),
    ] = None,
    metric: MetricOption = None,
    minimize: MinimizeOption = False,
    jobs: JobsOption = None,
    checkpoint_every: CheckpointOption = 10,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a spec at many values of its fields, and show the best.

    The same command again goes on with what was interrupted or has failed, and runs nothing twice.
    """
    from fairlead.experiments.plans import planned_sweep
    from fairlead.results.study_results import best_first, chosen_metric, results_of

    changes = all_overrides(overrides, rounds)
    find_modules(spec.resolve().parent)
    planned = planned_sweep(
        spec, grid=grid or [], ranges=ranges or [], draws=draws, draw_seed=draw_seed, overrides=changes
    )
    chosen = chosen_metric(planned[0].experiment, metric, minimize=minimize)
    study = study_folder(output, spec, "sweep", planned, changes)
    silent = quiet or as_json
    outcomes = run_and_show(study, planned, jobs=jobs, checkpoint_every=checkpoint_every, quiet=silent)
    results = best_first(results_of(study, planned, outcomes, chosen), chosen)
    if as_json:
        facts = [result_facts(result) for result in results]
        print_json({"folder": str(study.path), "metric": asdict(chosen), "settings": facts})
    elif not quiet:
        _report(study.path, spec, changes, results, chosen)
    leave(outcomes, quiet=silent)


def _report(folder: Path, spec: Path, changes: list[str], results: list[Result], metric: Metric) -> None:
    columns = [*results[0].labels, metric.name, *figures_beside(results[0], metric)]
    rows = [
        [*map(str, result.labels.values()), written(result.final), *figures_beside(result, metric).values()]
        for result in results[:_SHOWN]
    ]
    say()
    print_table(columns, rows, numbers=columns)
    if len(results) > _SHOWN:
        say(f"and {len(results) - _SHOWN} more settings, in {folder}")
    say()
    say_failures(results, "setting")
    complete = [result for result in results if result.is_complete]
    if len(complete) < len(results):
        say(_what_lacks(results))
    if complete:
        best = complete[0]
        values = [*changes, *(f"{path}={value}" for path, value in best.labels.items())]
        command = ["fairlead", "run", str(spec), *(word for value in values for word in ("--set", value))]
        say(f"Best {metric_title(metric)}: {best.name} with {written(best.final)}.")
        lead = best.against(complete[1], metric) if len(complete) > 1 else None
        if lead is not None and lead.judged(metric) is None:
            say(verdict(lead, complete[1].name, metric))
        say(f"Run it with: {shlex.join(command)}")
    say_where(folder)


def _what_lacks(results: Sequence[Result]) -> str:
    """A sentence on the settings that are not complete."""
    lacking = [result for result in results if not result.is_complete]
    total = sum(result.num_runs for result in lacking)
    failed = sum(reason.startswith("failed") for result in lacking for reason in result.failures.values())
    missing = total - failed - sum(result.final.count for result in lacking if result.final is not None)
    counts = " and ".join(
        f"{number} {state}" for number, state in ((failed, "failed"), (missing, "missing")) if number
    )
    found = "No setting is complete" if len(lacking) == len(results) else "Settings that lack runs come last"
    return f"{found}: {counts} of {total} runs."
