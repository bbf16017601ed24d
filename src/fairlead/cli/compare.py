"""`fairlead compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.console import JsonOption, interval_chart, print_json, print_table, say, sparklines
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
    read_spec,
    read_target,
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
    from fairlead.experiments.study import PlannedRun, StudyFolder
    from fairlead.results.study_results import Metric, Result


def compare(
    spec: SpecArgument,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Presets or spec files in the place of the spec's algorithm, such as "
            "fedavg,fedprox:mu=0.1,own.toml. The first is the one that the others are compared with. By default "
            "those of the spec's \\[compare] table."
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds, such as 0,1,2; by default those of \\[compare], or else 0..4."),
    ] = None,
    overrides: OverridesOption = None,
    rounds: RoundsOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder of the runs; by default runs/SPEC-compare, or runs/SPEC-compare-N-rounds with --rounds N.",
        ),
    ] = None,
    metric: MetricOption = None,
    goal: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="VALUE",
            help="Value of the metric to reach, such as 0.9 or 90%: counts rounds until then.",
        ),
    ] = None,
    minimize: MinimizeOption = False,
    jobs: JobsOption = None,
    checkpoint_every: CheckpointOption = 10,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run methods on the same data, batches, work and links, and say which is better.

    The same command again goes on with what was interrupted or has failed, and runs nothing twice.
    """
    from fairlead.errors import FieldError
    from fairlead.experiments.overrides import read_seeds
    from fairlead.experiments.plans import compare_table, listed_methods, planned_comparison
    from fairlead.results.study_results import chosen_metric, results_of

    changes = all_overrides(overrides, rounds)
    # Before anything is asked of its [compare] table: a spec that cannot be read says so itself.
    read_spec(spec, changes, None)
    said = compare_table(spec)
    methods = said.methods if methods is None else methods
    if methods is None:
        raise FieldError(
            f"compare needs methods: --methods fedavg,fednova, or methods = [...] under [compare] in {spec}."
        )
    of_seeds = read_seeds(said.seeds or "0..4", "compare.seeds") if seeds is None else read_seeds(seeds)
    planned = planned_comparison(listed_methods(spec, methods, changes), of_seeds)
    first = planned[0].experiment
    chosen = chosen_metric(first, metric or said.metric, minimize=minimize)
    target = None if goal is None else read_target(goal)
    if target is not None:
        chosen.refuse_target(target, "--target")
    elif said.target is not None and metric in (None, said.metric or chosen_metric(first, None).name):
        # Beside another metric than the table's its target would mean nothing.
        chosen.refuse_target(said.target, "compare.target")
        target = said.target
    study = study_folder(output, spec, "compare", planned, changes)
    silent = quiet or as_json
    outcomes = run_and_show(study, planned, jobs=jobs, checkpoint_every=checkpoint_every, quiet=silent)
    results = results_of(study, planned, outcomes, chosen, target)
    if as_json:
        methods_facts = [result_facts(result) for result in results]
        facts = {"folder": str(study.path), "metric": asdict(chosen), "target": target}
        print_json({**facts, "methods": methods_facts})
    elif not quiet:
        _report(study, planned, results, chosen, target)
    leave(outcomes, quiet=silent)


_SPARE = ("chi-square", "by\nchance", "time", "objective\ndifference", "seeds", "misplaced", "objective")
"""Columns that a narrow terminal leaves out, one after the other."""


def _report(
    study: StudyFolder,
    planned: Sequence[PlannedRun],
    results: list[Result],
    metric: Metric,
    target: float | None,
) -> None:
    from fairlead.results.estimates import COVERED
    from fairlead.results.study_results import target_resolution

    reference = results[0].name
    columns = ["method", metric.name, "difference", "beyond\nnoise", *figures_beside(results[0], metric)]
    rows = [
        [
            result.name,
            written(result.final),
            written(result.difference, sign=True),
            _beyond_noise(result, metric),
            *figures_beside(result, metric).values(),
        ]
        for result in results
    ]
    if metric.name != "objective":
        place = columns.index("objective") + 1
        columns.insert(place, "objective\ndifference")
        for row, result in zip(rows, results, strict=True):
            row.insert(place, written(result.objective_difference, sign=True))
    if target is not None:
        place = columns.index("beyond\nnoise") + 1
        columns.insert(place, f"rounds\nto {target:g}")
        for row, result in zip(rows, results, strict=True):
            row.insert(place, _reached(result))
    say()
    # Never what methods are compared by.
    print_table(
        columns, rows, numbers=columns[1:], spare=[column for column in _SPARE if column != metric.name]
    )
    resolution = target_resolution(max(metric.spacing(run.experiment) for run in planned))
    if target is not None and resolution:
        say(resolution)
    intervals = {
        result.name: (result.difference.mean, result.difference.half_width)
        for result in results
        if result.difference is not None and result.difference.half_width is not None
    }
    if intervals:
        say(f"\nDifference to {reference} in {metric_title(metric)}, 95 % interval over seeds:")
        say(interval_chart(intervals))
        say(COVERED)
    shown = metric.over_rounds
    curves = _mean_curves(study, planned, shown)
    if any(len(curve) > 1 for curve in curves.values()):
        title = "training loss" if shown.name == "train_loss" else shown.name
        say(f"\n{title} over the rounds, mean over seeds:")
        say(sparklines(curves))
    say()
    for result in results[1:]:
        say(verdict(result, reference, metric))
    say_failures(results, "method")
    say_where(study.path, target if metric.name == "accuracy" else None)


def _reached(result: Result) -> str:
    """Rounds to the target with their margin, or the mean and of how many seeds where not all met it."""
    from fairlead.results.estimates import estimate

    found = estimate([done for done in result.reached.values() if done is not None])
    if found is None:
        return "never" if result.reached else ""
    if found.count == result.num_runs:
        return written(found)
    return f"{found.mean:.4g} in {found.count} of {result.num_runs}"


def _beyond_noise(result: Result, metric: Metric) -> str:
    if result.difference is None or result.difference.excludes_zero is None:
        return ""
    return result.judged(metric) or "no"


def _mean_curves(
    study: StudyFolder, planned: Sequence[PlannedRun], metric: Metric
) -> dict[str, list[tuple[float, float]]]:
    """The metric by round for each method, as mean over the seeds that finished."""
    curves: dict[str, dict[int, list[float]]] = {}
    for run in planned:
        if study.store(run).summary() is None:
            continue
        curve = curves.setdefault(str(run.labels["method"]), {})
        for record in study.store(run).records():
            value = metric.in_round(record)
            if value is not None:
                curve.setdefault(record.round + 1, []).append(value)
    return {
        name: [(float(round), sum(values) / len(values)) for round, values in sorted(curve.items())]
        for name, curve in curves.items()
    }
