"""Commands that run experiments or read their runs: `run`, `compare`, `sweep`, `report` and `reproduce`.

The modules `show_*` need torch. Commands import them when they start, so that `--help` does not wait for it.
"""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Context, Exit, Option

import fairlead.cli.options as opt
from fairlead.cli.console import INTERRUPTED, print_json, say
from fairlead.errors import FieldError


def run(
    spec: Annotated[Path, Argument(metavar="SPEC")],
    overrides: opt.OverridesOption = None,
    seed: opt.SeedOption = None,
    rounds: opt.RoundsOption = None,
    device: opt.DeviceOption = None,
    output: Annotated[Path | None, Option("--output", "-o")] = None,
    resume: Annotated[bool, Option("--resume")] = False,
    logs: Annotated[list[str] | None, Option("--log", metavar="NAME")] = None,
    checkpoint_every: opt.CheckpointOption = 10,
    quiet: opt.QuietOption = False,
    as_json: opt.JsonOption = False,
) -> None:
    """Run an experiment and store it in a folder.

    Options:
        spec: The TOML file of an experiment, or the folder of a run to resume.
        output: Folder of the run. Default: a new one under runs/.
        resume: Resume the run in the folder.
        logs: Also write rounds to tensorboard, mlflow, wandb or aim.
    """
    import fairlead.cli.show_results as show
    from fairlead.cli.progress import RoundProgress
    from fairlead.experiments.run_folder import RunFolder
    from fairlead.experiments.runner import run_experiment
    from fairlead.experiments.tracking import tracker_named

    if spec.is_dir():
        spec, output, resume = show.run_in(spec, output)
    if resume and output is None:
        raise FieldError(
            "--resume needs the folder of the run: add -o FOLDER, or give the folder instead of the spec."
        )
    experiment = opt.read_spec(spec, opt.all_overrides(overrides, rounds, device), seed)
    store = RunFolder(output or show.new_folder(spec, experiment))
    opening = [tracker_named(log) for log in logs or []]
    resume_hint = f"Resume with: {shlex.join(['fairlead', 'run', str(store.path)])}"
    with RoundProgress(quiet=quiet or as_json) as progress:
        followers = show.RunFollowers(progress, spec.stem, experiment, store, opening)
        if resume:
            show.say_what_is_left(progress, store, experiment)
        try:
            ended = run_experiment(
                experiment,
                store.path,
                resume=resume,
                checkpoint_every=checkpoint_every,
                on_start=followers.begin,
                on_round=followers.advance,
                on_interrupt=lambda: progress.note(
                    "Stopping after this round; press Ctrl-C again to stop immediately."
                ),
                on_notice=progress.note,
                on_recovery=progress.note,
            )
            followers.outcome = ended.outcome
        except KeyboardInterrupt:
            followers.outcome = "interrupted"
            done = "The run is finished." if store.is_done(experiment) else resume_hint
            progress.note(f"Stopped. {'Nothing was done.' if store.is_free() else done}")
            raise Exit(INTERRUPTED) from None
        finally:
            followers.leave()
    if as_json:
        print_json(show.run_facts(ended))
    elif not quiet:
        show.say_run(ended, resume_hint)
    if ended.outcome == "interrupted":
        raise Exit(INTERRUPTED)


def compare(
    spec: opt.SpecArgument,
    methods: str | None = None,
    seeds: str | None = None,
    tune: Annotated[list[str] | None, Option(metavar="NAME=VALUES")] = None,
    tune_seeds: Annotated[int, Option(min=1, max=1000)] = 2,
    overrides: opt.OverridesOption = None,
    rounds: opt.RoundsOption = None,
    device: opt.DeviceOption = None,
    output: opt.StudyOption = None,
    metric: opt.MetricOption = None,
    goal: Annotated[str | None, Option("--target", metavar="VALUE")] = None,
    minimize: opt.MinimizeOption = False,
    figure: opt.FigureOption = "last-tenth",
    jobs: opt.JobsOption = None,
    checkpoint_every: opt.CheckpointOption = 10,
    quiet: opt.QuietOption = False,
    as_json: opt.JsonOption = False,
) -> None:
    """Run methods on the same data, batches, work and links, and say which is better.

    Re-running the command resumes interrupted or failed runs and skips finished ones.

    Options:
        methods: Presets on the client side of the spec, the spec's own algorithm by its name, and other spec
            files, such as fedavg,fedprox:mu=0.1,study. The first is the baseline. Default: those of \\[compare],
            else fedavg and the spec's own.
        seeds: Seeds, such as 0,1,2. Default: those of \\[compare], else 0..4.
        tune: Tune every method first: try these values, such as lr=0.01,0.03,0.1, on separate seeds, and compare
            each method at its best. Repeat the option for a grid.
        tune_seeds: Number of seeds for --tune.
        goal: Value of the metric to reach, such as 0.9 or 90%; adds a column with the rounds until then.
    """
    import fairlead.cli.show_study as show
    from fairlead.cli.show_results import comparison_facts
    from fairlead.experiments.method_list import compare_table, listed_methods
    from fairlead.experiments.study import planned_comparison, planned_tuning, read_seeds
    from fairlead.results.comparison import chosen_methods
    from fairlead.results.figures import planned_measure

    changes = opt.all_overrides(overrides, rounds, device)
    # First, so that an unreadable spec is reported as such and not as a bad [compare] table.
    opt.read_spec(spec, changes, None)
    said = compare_table(spec)
    methods = said.methods if methods is None else methods
    of_seeds = read_seeds(said.seeds or "0..4", "compare.seeds") if seeds is None else read_seeds(seeds)
    found = listed_methods(spec, methods, changes, tune or [])
    planned, trials = planned_comparison(found, of_seeds), planned_tuning(found, tune_seeds, of_seeds)
    experiments = [each.experiment for each in planned]
    default = planned_measure(experiments, None)
    measure = planned_measure(experiments, metric or said.metric, figure, minimize=minimize)
    target = None if goal is None else opt.read_target(goal)
    if target is not None:
        measure.refuse_target(target, "--target")
    elif said.target is not None and metric in (None, said.metric or default.metric):
        # The table's target belongs to the table's metric.
        measure.refuse_target(said.target, "compare.target")
        target = said.target
    study = show.study_folder(output, spec, "compare", planned, changes)
    silent = quiet or as_json
    if trials:
        show.leave_interrupted(show.run_and_show(study, trials, jobs, checkpoint_every, quiet=silent), silent)
        (summary,), _ = show.compared(study, [], {}, measure, trials=trials)
        planned = planned_comparison(chosen_methods(found, summary), of_seeds)
    outcomes = show.run_and_show(study, planned, jobs, checkpoint_every, quiet=silent)
    study.put_first(planned)
    (summary,), rows = show.compared(study, planned, outcomes, measure, target, trials)
    if as_json:
        facts = {"folder": str(study.path), **comparison_facts(summary), "target": target}
        print_json({**facts, "methods": [show.planned_facts(row, [summary], target) for row in rows]})
    elif not quiet:
        show.say_comparison(summary, rows, target)
        show.say_where(study, len(planned) + len(trials), measure, default, target)
    # A method without a usable setting failed too.
    lost = {tuning.method: "failed" for tuning in summary.tunings if not tuning.chosen}
    show.leave({**outcomes, **lost}, quiet=silent)


def benchmark(
    suite: str = "quick",
    cells: Annotated[str, Option(metavar="PATTERN")] = "*",
    methods: str | None = None,
    tune: Annotated[list[str] | None, Option(metavar="NAME=VALUES")] = None,
    data: Path | None = None,
    kept: Annotated[list[Path] | None, Option(metavar="JSON")] = None,
    device: opt.DeviceOption = None,
    output: Annotated[Path | None, Option("--output", "-o")] = None,
    jobs: opt.JobsOption = None,
    checkpoint_every: opt.CheckpointOption = 10,
    list_cells: Annotated[bool, Option("--list")] = False,
    spec: Annotated[str | None, Option(metavar="CELL")] = None,
    quiet: opt.QuietOption = False,
    as_json: opt.JsonOption = False,
) -> None:
    """Compare methods on many kinds of heterogeneity, each tuned over the same budget.

    Re-running the command resumes it. With other --methods, the runs of all others are kept.

    Options:
        suite: quick (embedded data), full (needs --data), or a TOML file of the same form.
        cells: Only cells whose names fit, such as 'digits*' or '*/links,*/work'; see --list.
        methods: Methods of the suite and other presets, such as fedavg,mine:mu=0.1. The first is the baseline.
            Default: those of the suite.
        tune: Values to try for methods that the suite does not have, beside its learning rates, such as mu=0.1,1.
        data: Folder with your data sets, for --suite full.
        kept: A benchmark.json of the same suite, to add to this result. Repeatable.
        output: Folder of runs, page and JSON. Default: runs/benchmark-SUITE.
        list_cells: List the cells, methods and grids, and run nothing.
        spec: Print a cell as a spec, such as digits-mlp/work, and run nothing.
    """
    import fairlead.cli.show_benchmark as show
    from fairlead.cli.show_study import leave
    from fairlead.experiments.benchmark import suite_named
    from fairlead.experiments.study import StudyFolder

    opt.find_modules()
    found = suite_named(suite)
    chosen, absent = found.cells(spec or cells, data, [] if device is None else [f"device={device}"])
    entrants = found.entrants(methods, tune or [])
    if spec is not None:
        show.say_spec(chosen, absent, spec)
        return
    if list_cells:
        show.say_cells(found, chosen, absent, entrants)
        return
    silent = quiet or as_json
    folder = output or Path("runs") / f"benchmark-{found.name}"
    ended = show.run_benchmark(
        StudyFolder(folder), found, chosen, absent, entrants, jobs, checkpoint_every, kept or [], quiet=silent
    )
    if as_json:
        print_json(ended.facts)
    elif not quiet:
        show.say_benchmark(ended, folder)
    leave(ended.outcomes, quiet=silent)


def sweep(
    spec: opt.SpecArgument,
    grid: Annotated[list[str] | None, Option(metavar="PATH=VALUES")] = None,
    draws: Annotated[int, Option("--random", metavar="N")] = 0,
    ranges: Annotated[list[str] | None, Option("--range", metavar="PATH=RANGE")] = None,
    draw_seed: Annotated[int, Option(min=0)] = 0,
    overrides: opt.OverridesOption = None,
    rounds: opt.RoundsOption = None,
    device: opt.DeviceOption = None,
    output: opt.StudyOption = None,
    metric: opt.MetricOption = None,
    minimize: opt.MinimizeOption = False,
    figure: opt.FigureOption = "last-tenth",
    jobs: opt.JobsOption = None,
    checkpoint_every: opt.CheckpointOption = 10,
    quiet: opt.QuietOption = False,
    as_json: opt.JsonOption = False,
) -> None:
    """Run a spec at many values of its fields, and show the best.

    Re-running the command resumes interrupted or failed runs and skips finished ones.

    Options:
        grid: Values of a field, such as algorithm.lr=0.01,0.1 or seed=0..2.
        draws: Number of settings to draw from the ranges.
        ranges: A range to draw from, such as algorithm.lr=log:1e-3..1.
        draw_seed: Seed of the draws, not of the runs.
    """
    import fairlead.cli.show_study as show
    from fairlead.cli.show_results import measure_facts
    from fairlead.experiments.study import planned_sweep
    from fairlead.results.figures import planned_measure

    changes = opt.all_overrides(overrides, rounds, device)
    opt.find_modules(spec.resolve().parent)
    planned = planned_sweep(
        spec, grid=grid or [], ranges=ranges or [], draws=draws, draw_seed=draw_seed, overrides=changes
    )
    experiments = [each.experiment for each in planned]
    measure = planned_measure(experiments, metric, figure, minimize=minimize)
    study = show.study_folder(output, spec, "sweep", planned, changes)
    silent = quiet or as_json
    outcomes = show.run_and_show(study, planned, jobs, checkpoint_every, quiet=silent)
    summaries, rows = show.compared(study, planned, outcomes, measure)
    order = [method for summary in summaries for method in summary.best_first]
    rows.sort(key=lambda row: order.index(row.figures) if row.figures else len(order))
    if as_json:
        facts = {"folder": str(study.path), **measure_facts(measure)}
        print_json({**facts, "settings": [show.planned_facts(row, summaries, None) for row in rows]})
    elif not quiet:
        run = ["fairlead", "run", str(spec), *(word for change in changes for word in ("--set", change))]
        show.say_sweep(summaries, rows, study, run)
        show.say_where(study, len(planned), measure, planned_measure(experiments, None))
    show.leave(outcomes, quiet=silent)


def report(
    paths: Annotated[list[Path], Argument(metavar="RUNS...")],
    output: Annotated[Path | None, Option("--output", "-o")] = None,
    baseline: str | None = None,
    targets: Annotated[list[str] | None, Option("--target", metavar="VALUE")] = None,
    metric: opt.MetricOption = None,
    minimize: opt.MinimizeOption = False,
    figure: opt.FigureOption = "last-tenth",
    title: str | None = None,
    figures: Path | None = None,
    formats: Annotated[str | None, Option("--format")] = None,
    tables: Path | None = None,
    as_json: opt.JsonOption = False,
) -> None:
    """Write an HTML page that compares runs over seeds: curves, tables, consistency and clients.

    Options:
        paths: Folders of runs, folders that contain them, or archives of runs from `reproduce`.
        output: Path of the page. Default: report.html in the given folder, else here; no page with --json.
        baseline: The method to compare with. Default: the first of the comparison, else FedAvg.
        targets: Value of the metric to reach, such as 0.7 or 70%; repeatable.
        title: Title of the page. Default: the name of the folder.
        figures: Folder for paper figures (needs matplotlib).
        formats: Formats of the figures (default: pdf,svg,png).
        tables: Folder for LaTeX and CSV tables.
    """
    import fairlead.cli.show_results as show
    from fairlead.reports.page import write_page
    from fairlead.results.comparison import summarize
    from fairlead.results.figures import runs_measure
    from fairlead.results.runs import read_runs

    if formats is not None and figures is None:
        raise FieldError("--format has no effect without --figures, the folder for them.")
    runs, goals = read_runs(paths), [opt.read_target(each) for each in targets or ()]
    show.refuse_unreadable(runs)
    for goal in goals:
        runs_measure(runs, metric, figure, minimize=minimize).refuse_target(goal, "--target")
    summaries = summarize(
        runs, baseline=baseline, targets=goals, metric=metric, minimize=minimize, figure=figure
    )
    page = output or (None if as_json else show.default_page(paths))
    if page is not None:
        write_page(summaries, page, title or show.default_title(paths))
    files = show.write_files(summaries, tables, figures, formats)
    if as_json:
        written = [*([] if page is None else [page]), *(file for some in files.values() for file in some)]
        print_json({**show.report_facts(summaries), "written": [str(file) for file in written]})
        return
    show.say_report(summaries, page)
    for kind, folder in (("tables", tables), ("figures", figures)):
        if folder is not None:
            say(f"{len(files[kind])} files of {kind} are in {folder}")


def reproduce(
    context: Context,
    name: Annotated[str | None, Argument()] = None,
    scale: Literal["smoke", "small", "full"] = "small",
    data: Path | None = None,
    device: str = "cpu",
    seeds: str = "0",
    only: str | None = None,
    out: Annotated[Path, Option("--out", "-o")] = Path("runs/reproductions"),
    collect: list[Path] | None = None,
    precision: Literal["full", "tf32", "bfloat16"] | None = None,
    computing: Annotated[list[str] | None, Option("--set", metavar="FIELD=VALUE")] = None,
    jobs: opt.JobsOption = None,
    checkpoint_every: opt.CheckpointOption = 10,
    quiet: opt.QuietOption = False,
    as_json: opt.JsonOption = False,
) -> None:
    """Reproduce a published result and check its claim.

    Re-running the command resumes interrupted runs and skips finished ones. Runs with --only accumulate.

    Options:
        name: A published result; all of them by default. See `fairlead list reproductions`.
        scale: smoke: a quick check that it runs; small: the claim on a small problem; full: the paper's setting.
        data: Folder with your data sets, such as cifar-10-batches-py.
        device: Device to train on: cpu, cuda, cuda:<number> or mps.
        seeds: Seeds, such as 0..2 or 0,1,2.
        only: Run only these methods or settings of a table, separated by commas.
        out: Folder for runs and results.
        collect: Import the runs of this folder instead of running, and judge all runs found so far; may be
            repeated.
        precision: Precision of matrix products on a GPU; full by default.
        computing: Change how runs are computed, such as lanes=32.
    """
    import fairlead.cli.show_outcomes as show
    from fairlead.cli.show_study import leave
    from fairlead.experiments.study import read_seeds
    from fairlead.reproductions import REPRODUCTIONS, reproduction_named
    from fairlead.reproductions.reproduction import Request, listed_parts
    from fairlead.worlds.device import usable_device

    # Checked for every reproduction, also for those that are computed on the CPU.
    usable_device(None, device)
    if collect is not None:
        show.refuse_beside_collect(context, collect)
    if name is None and only is not None:
        raise FieldError(
            "--only needs the name of a reproduction, because it names methods or settings of one table."
        )
    entries = list(REPRODUCTIONS.values()) if name is None else [reproduction_named(name)]
    if name is not None:
        show.refuse_unused(context, entries[0])
    silent = quiet or as_json
    ends: dict[str, str] = {}
    request = Request(
        out=out,
        scale=scale,
        seeds=tuple(read_seeds(seeds)),
        data=data,
        device=device,
        only=() if only is None else listed_parts(only, entries[0].parts),
        computing=(*(computing or []), *([] if precision is None else [f"precision={precision}"])),
        collect=None if collect is None else tuple(collect),
        run=show.shown_runner(ends, jobs, checkpoint_every, quiet=silent),
        tell=(lambda sentence: None) if silent else say,
    )
    outcomes = []
    for entry in entries:
        outcomes.append(show.reproduce_one(entry, request, silent=silent))
        if any(end in ("interrupted", "waiting") for end in ends.values()):
            break
    if as_json:
        facts = [asdict(outcome) for outcome in outcomes]
        print_json(facts if name is None else facts[0])
    elif len(outcomes) > 1 and not quiet:
        show.show_verdicts(outcomes)
    leave(ends, quiet=silent)
    if name is not None and outcomes[0].verdict == "not run":
        raise Exit(1)
